/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Slices in a process of low priority: launches of long kernels go as several
 * pieces (docs/slices.md). Which kernels can be cut, and how, is decided by
 * src/cubin; here is what that means in a real program: which image a function
 * came from, its sliced copy in the driver, how long it runs, and the launches.
 *
 * Two ways to get here. In the spatial engine slack says of a launch that it
 * goes in pieces, and when each of them goes (shim_spatial.h); HB_SLICES=0 switches
 * that off. And everywhere with HB_SPLIT_US, the time that a piece may run in
 * microseconds: then HB_ALERT_SLICE makes all launches come here, and
 * HB_SPLIT_COST_PERCENT is what pieces may cost of a kernel's time. Fails open:
 * whatever is not known, not possible or refused by the driver runs whole, and
 * is counted.
 */
#ifndef HB_SHIM_SLICE_H
#define HB_SHIM_SLICE_H

#include "cubin/split_reason.h"
#include "nvidia/cuda_abi.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- forward.c, hooks ---- */

/* Once, when the tenant is known: switches slices on if they are asked for. */
void hb_split_begin(void);
/* Where this launch goes on: `target`, the driver's function, or one of split_launch.c in front of it. */
void *hb_split_way(unsigned fn, void *target);
void hb_split_leave_in_child(void);
/* Behind the count of a capture that is about to begin: nobody asks about an event any more. */
void hb_split_yield_to_capture(void);
/* split_image.c: the driver has destroyed it. Another one may get its address, and libraries outlive it. */
void hb_split_context_gone(CUcontext context);

/* ---- inside ---- */

/* The time a piece may run; 0: pieces are not asked for by HB_SPLIT_US. */
int64_t hb_split_allowed_ns(void);
/* Whether kernels of this process may go in pieces, now or later: what it loads is to be noted. */
bool hb_split_is_possible(void);

/* A function that the application launches. Its place is another's after its module was unloaded; it is never freed. */
struct hb_split_function {
	_Atomic(void *) handle; /* CUfunction or CUkernel, as the application has it; stored last */
	uint64_t serial;        /* no other function has or had it */
	enum hb_split_reason reason;
	CUcontext only_in; /* of a CUkernel, which is another function in each context; NULL: the handle says it */
	CUcontext context; /* of the sliced copy */
	CUfunction whole, sliced;
	uint32_t n_parameters, parameter_bytes, bounds_place;
	const void *image; /* what it came from */
};

/* split_image.c: the function behind a handle in the current context, made ready at its first launch; NULL: no room, or later. */
const struct hb_split_function *hb_split_function_of(CUfunction handle, CUcontext context);
void hb_split_images_leave_in_child(void);

/* A module or library as it was loaded. */
struct hb_split_image {
	struct hb_split_image *next;
	void *handle; /* CUmodule or CUlibrary */
	const void *bytes;
	size_t size;
	bool is_ours; /* a copy of what the application may free */
	bool is_library;
	struct hb_split_module *modules;
};
/* split_copy.c: loads the sliced copy of a kernel of this image into the current context. */
enum hb_split_reason hb_split_copy(struct hb_split_image *image, const char *name, CUfunction whole,
				   struct hb_split_function *function);
void hb_split_copies_free(struct hb_split_image *image);
/* Those of a context that is gone, and with it the driver's side of them. */
void hb_split_copies_drop(struct hb_split_image *image, CUcontext context);

/* split_time.c: what is known of a kernel launched in one shape. */
struct hb_split_shape;
struct hb_split_known {
	struct hb_split_shape *shape; /* NULL: no room for it now */
	uint64_t key;                 /* the place may become another shape's */
	int64_t duration_ns;          /* the shortest seen; 0 = not known yet */
	uint32_t n_resident;          /* blocks that fit on the GPU at once */
};
/* Asks the driver for n_resident the first time. */
struct hb_split_known hb_split_shape_of(const struct hb_split_function *function, uint32_t n_blocks, uint32_t n_threads,
					uint32_t shared_bytes);
/* Before a whole launch: takes a sample if few are known; true: the caller calls the end after the launch. */
bool hb_split_time_begin(const struct hb_split_known *known, CUstream stream);
void hb_split_time_end(const struct hb_split_known *known, CUstream stream);
/* With the driver's events. */
void hb_split_times_context_gone(CUcontext context);
void hb_split_times_leave_in_child(void);

#endif
