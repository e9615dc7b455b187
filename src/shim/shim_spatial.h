/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The spatial engine inside a process: HP's requests are told on the page of
 * the GPU, LP's launches look there and wait, take a mask, or go. What to do is
 * decided by core/slack*.h; here is what that costs and means in a real
 * program: whose launches, which streams, what is in flight.
 *
 * Nothing here is on the path of a launch unless HB_ALERT_SPATIAL is set, which
 * hb_shim_spatial_watch() does while the process's engine is spatial (and, in LP,
 * while there is HP). In doubt a launch goes.
 */
#ifndef HB_SHIM_WINDOW_H
#define HB_SHIM_WINDOW_H

#include "nvidia/cuda_abi.h"
#include "shim/shim_tenant.h"

#include <stdint.h>

/* ---- high priority: shim_spatial_high.c ---- */

/* Before the first launch of a request; deadline_ns 0 = the tenant's objective. */
void hb_shim_spatial_begin(int64_t deadline_ns);
/* At each launch. */
void hb_shim_spatial_launch(unsigned fn, const uint64_t *args);
/* Before a call that may wait for what was launched; of several the first one counts. */
void hb_shim_spatial_wait(void);
/* Its results were waited for. When it began, 0 = none was told; what LP cost it, negative = not known. */
int64_t hb_shim_spatial_end(int64_t *harm_ns);

/* ---- low priority: shim_spatial_low.c ---- */

/* Before a launch that is not recorded: returns when it may go, and what is to be done after it, or NULL. */
void (*hb_shim_spatial_low(unsigned fn, const uint64_t *args))(CUresult result);
/*
 * split_launch.c: this thread's launch is to go in pieces, of which the first may go now. For each: how many of the
 * grid's blocks that are left; and before each but the first, returns when it may go. What comes after the launch
 * (hb_shim_spatial_low) belongs to the last.
 */
bool hb_shim_spatial_wants_split(void);
uint32_t hb_shim_spatial_count_part_blocks(uint32_t n_left, uint32_t n_blocks);
void hb_shim_spatial_wait_for_next_part(uint32_t n_left, uint32_t n_blocks);
/* It cannot be cut, and nothing of it was launched: returns when it may go whole. */
void hb_shim_spatial_give_up_split(void);
/* Around a call that writes launch descriptors for later (a graph is instantiated). As above. */
void (*hb_shim_spatial_graph(void))(CUresult result);

/* ---- both: shim_spatial_rows.c ---- */

/* Switches HB_ALERT_SPATIAL. From any thread, at any time; a few loads. */
void hb_shim_spatial_watch(const struct hb_place *place);
/* In calls that are slow anyway: what LP's side needs in the current context. */
void hb_shim_spatial_tend(void);
/* Before the driver destroys it. */
void hb_shim_spatial_forget_stream(CUstream stream);
/* Around a call that may end the context. */
void hb_shim_spatial_context_leaves(CUcontext context);
void hb_shim_spatial_context_stays(CUcontext context);
void hb_shim_spatial_context_gone(CUcontext context);
void hb_shim_spatial_leave_in_child(void);

/* shim_spatial_marks.c: before a module or library is unloaded, after a context was destroyed, and where a function was made. */
void hb_shim_spatial_code_leaves(const void *code);
void hb_shim_spatial_code_of_context_gone(CUcontext context);
void hb_shim_spatial_note_function(CUfunction function, CUkernel kernel);

/* ---- inside ---- */

/* shim_spatial_marks.c: what is known of a kernel, by CUfunction or CUkernel. Without a lock. */
enum hb_mark {
	HB_MARK_COLLECTIVE, /* is not to be held back */
	HB_MARK_WIDE,       /* may have clusters that a mask leaves no room for */
	HB_N_MARKS
};
bool hb_shim_spatial_is_marked(enum hb_mark mark, const void *kernel);

void hb_shim_spatial_high_leave_in_child(void);

/*
 * shim_spatial_masks.c. The trial of masks, in the current context; one caller at a time. SMs of that GPU of the page, if masks
 * work there; 0 = no masks (HB_PAGE_GPUS too). Whole GPCs where the GPU's page wants and knows them, else spread: with the
 * lock of shim_spatial_rows.h held.
 */
bool hb_shim_spatial_masks_are_judged(void);
void hb_shim_spatial_find_masks(void);
uint32_t hb_shim_spatial_masked_sms(unsigned gpu);
void hb_shim_spatial_choose_masks(unsigned gpu, const struct hb_gpu_page *page);
void hb_shim_spatial_masks_leave_in_child(void);

/* shim_spatial_shape.c: what a launch is; `stream` as a value that can be compared and handed to the driver. */
struct hb_spatial_shape;
struct hb_shim_spatial_launch {
	CUstream stream;
	CUfunction function; /* NULL: no kernel of the application's */
	uint32_t threads, shared_bytes;
};
/* The kernel that is launched; NULL: a graph, or nothing of the application's. */
CUfunction hb_shim_spatial_function(unsigned fn, const uint64_t *args);
void hb_shim_spatial_describe(unsigned fn, const uint64_t *args, struct hb_shim_spatial_launch *launch,
			      struct hb_spatial_shape *shape);
/* What is worth asking the driver once for each shape. */
void hb_shim_spatial_classify(const struct hb_shim_spatial_launch *launch, struct hb_spatial_shape *shape);

#endif
