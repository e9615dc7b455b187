/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernel splitting: a long kernel of an LP process is launched as several parts,
 * each of which runs some of its blocks (docs/splitting.md). src/cubin decides
 * which kernels can be split and builds the code. The files here find the image a
 * function came from (split_image.c), load the split copy of its code
 * (split_copy.c), and launch the parts (split_launch.c).
 *
 * The spatial engine asks for a split and says when each part may go
 * (shim_spatial.h). HB_SPLIT=0 in the environment switches splitting off. If
 * anything is unknown, impossible or refused by the driver, the kernel is launched
 * unsplit, and counted.
 */
#ifndef HB_SHIM_SPLIT_H
#define HB_SHIM_SPLIT_H

#include "cubin/prologue.h"
#include "cubin/split_reason.h"
#include "nvidia/cuda_abi.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- called by forward.c and by hooks ---- */

/* Called once, after the process registered: decides whether this process splits kernels. */
void hb_split_start(void);
/* Whether this process may split kernels now or later. If so, the images it loads are recorded. */
bool hb_split_is_possible(void);
/* Returns where this launch continues: `target`, the driver's function, or a function of split_launch.c before it. */
void *hb_split_way(unsigned fn, void *target);
/*
 * split_image.c: before the driver destroys a context, after which another one may get its address. If the driver refuses, the
 * modules of this context are no longer split.
 */
void hb_split_context_leaves(CUcontext context);
void hb_split_leave_in_child(void);

/* ---- functions and their split copies ---- */

/* A function that the application launches. */
struct hb_split_function {
	uint64_t serial; /* unique number, also if the handle is used again */
	enum hb_split_reason reason;
	CUcontext only_in; /* context of an entry for a CUkernel, which is another function in each; else NULL */
	CUcontext context; /* context of the split copy */
	CUfunction original, copy;
	uint32_t n_parameters, parameter_bytes, bounds_place; /* of the copy, see cubin/splice.h */
	const void *code;                                     /* handle of the image it came from; NULL: unknown */
};

/* split_image.c: finds the function, which is examined at its first launch. False: no room, or not possible during a capture. */
bool hb_split_function_of(CUfunction handle, CUcontext context, struct hb_split_function *found);
void hb_split_images_leave_in_child(void);

/* The code of a module or library as the application loaded it. */
struct hb_split_image {
	struct hb_split_image *next;
	const void *handle; /* CUmodule or CUlibrary; NULL: being unloaded */
	CUcontext context;  /* with which a module ends; NULL: a library, which outlives contexts */
	const void *bytes;
	size_t size;
	bool is_ours;                    /* `bytes` is a copy, because the application may free its own */
	struct hb_split_module *modules; /* its split copies */
};
/*
 * split_image.c: the lock of all images, copies and functions. It is never held during a driver call, which may wait for work
 * that waits for another thread.
 */
void hb_split_lock(void);
void hb_split_unlock(void);
/* With the lock held: the image that is loaded under this handle; NULL: there is none, or it is not known. */
struct hb_split_image *hb_split_image_of(const void *handle);

/* split_copy.c: loads the split copy of a kernel of this image into the current context and fills `function`. Without the lock. */
enum hb_split_reason hb_split_copy(const void *handle, const char *name, struct hb_split_function *function);
/* Unloads all copies of an image that is being unloaded. Without the lock. */
void hb_split_copies_free(struct hb_split_image *image);
/* Frees the records of copies in a context with which their modules end. With the lock held. */
void hb_split_copies_drop(struct hb_split_image *image, CUcontext context);

/* ---- launching parts; also used by extensions (extension.h) ---- */

/* A launch in the driver's newest form. */
struct hb_split_launch {
	CUlaunchConfig config;
	CUfunction function;
	void **parameters, **extra;
	bool is_per_thread; /* the called entry point takes stream 0 as the thread's own stream */
};

enum { HB_SPLIT_PARAMETERS_MAX = 257, HB_SPLIT_PARAMETER_BYTES_MAX = 4104 };

/* The arguments of a split copy: the kernel's own, in either form that launches have, and the bounds of the part. */
struct hb_split_arguments {
	void *pointers[HB_SPLIT_PARAMETERS_MAX];
	_Alignas(16) uint8_t packed[HB_SPLIT_PARAMETER_BYTES_MAX];
	size_t n_packed; /* 0 = the launch passes pointers */
	void *extra[5];
	struct hb_bounds bounds;
};

uint64_t hb_split_count_blocks(const CUlaunchConfig *config);
CUstream hb_split_stream(const struct hb_split_launch *launch);
/* Finds the function of a launch that can be split, in the current context; otherwise returns why it cannot. */
enum hb_split_reason hb_split_find(const struct hb_split_launch *launch, struct hb_split_function *function);
/* Copies settings that the application may have changed on the original to the copy. Must succeed before a part runs. */
bool hb_split_copy_settings(const struct hb_split_function *function);
/* False: the launch passes its arguments in a form that cannot be extended. */
bool hb_split_take_arguments(const struct hb_split_function *function, const struct hb_split_launch *launch,
			     struct hb_split_arguments *arguments);
CUresult hb_split_launch_part(const struct hb_split_launch *launch, const struct hb_split_function *function,
			      struct hb_split_arguments *arguments, struct hb_bounds bounds);
/* Waits until the gate is open for one more launch. */
void hb_split_pass_gate(void);
/* Counts a launch that went to the driver in n parts. */
void hb_split_count_parts(uint32_t n);

#endif
