/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The spatial engine inside a process: HP's requests are told on the page of
 * the GPU, LP's launches look there and wait, take a mask, or go. What to do is
 * decided by core/slack*.h; here is what that costs and means in a real
 * program: whose launches, which streams, what is in flight.
 *
 * Nothing here is on the path of a launch unless HB_ALERT_WINDOW is set, which
 * hb_window_watch() does while the process's engine is spatial (and, in LP,
 * while there is HP). In doubt a launch goes.
 */
#ifndef HB_SHIM_WINDOW_H
#define HB_SHIM_WINDOW_H

#include "nvidia/cuda_abi.h"
#include "shim/shim_tenant.h"

#include <stdint.h>

/* ---- high priority: window_high.c ---- */

/* Before the first launch of a request; deadline_ns 0 = the tenant's objective. */
void hb_window_begin(int64_t deadline_ns);
/* At each launch. */
void hb_window_launch(unsigned fn, const uint64_t *args);
/* Before a call that may wait for what was launched; of several the first one counts. */
void hb_window_wait(void);
/* Its results were waited for. When it began, 0 = none was told; what LP cost it, negative = not known. */
int64_t hb_window_end(int64_t *harm_ns);

/* ---- low priority: window_low.c ---- */

/* Before a launch that is not recorded: returns when it may go, and what is to be done after it, or NULL. */
void (*hb_window_low(unsigned fn, const uint64_t *args))(CUresult result);
/*
 * slice_launch.c: this thread's launch is to go in pieces, of which the first may go now. For each: how many of the
 * grid's blocks that are left; and before each but the first, returns when it may go. What comes after the launch
 * (hb_window_low) belongs to the last.
 */
bool hb_window_wants_pieces(void);
uint32_t hb_window_piece(uint32_t n_left, uint32_t n_blocks);
void hb_window_next_piece(uint32_t n_left, uint32_t n_blocks);
/* It cannot be cut, and nothing of it was launched: returns when it may go whole. */
void hb_window_leave_whole(void);
/* Around a call that writes launch descriptors for later (a graph is instantiated). As above. */
void (*hb_window_graph(void))(CUresult result);

/* ---- both: window_rows.c ---- */

/* Switches HB_ALERT_WINDOW. From any thread, at any time; a few loads. */
void hb_window_watch(const struct hb_place *place);
/* In calls that are slow anyway: what LP's side needs in the current context. */
void hb_window_tend(void);
/* Before the driver destroys it. */
void hb_window_forget_stream(CUstream stream);
/* Around a call that may end the context. */
void hb_window_context_leaves(CUcontext context);
void hb_window_context_stays(CUcontext context);
void hb_window_context_gone(CUcontext context);
void hb_window_leave_in_child(void);

/* window_marks.c: before a module or library is unloaded, after a context was destroyed, and where a function was made. */
void hb_window_code_leaves(const void *code);
void hb_window_code_of_context_gone(CUcontext context);
void hb_window_note_function(CUfunction function, CUkernel kernel);

/* ---- inside ---- */

/* window_marks.c: what is known of a kernel, by CUfunction or CUkernel. Without a lock. */
enum hb_mark {
	HB_MARK_COLLECTIVE, /* is not to be held back */
	HB_MARK_WIDE,       /* may have clusters that a mask leaves no room for */
	HB_N_MARKS
};
bool hb_window_is_marked(enum hb_mark mark, const void *kernel);

void hb_window_high_leave_in_child(void);

/*
 * window_masks.c. The trial of masks, in the current context; one caller at a time. SMs of that GPU of the page, if masks
 * work there; 0 = no masks (HB_PAGE_GPUS too). Whole GPCs where the GPU's page wants and knows them, else spread: with the
 * lock of window_rows.h held.
 */
bool hb_window_masks_are_judged(void);
void hb_window_find_masks(void);
uint32_t hb_window_masked_sms(unsigned gpu);
void hb_window_choose_masks(unsigned gpu, const struct hb_gpu_page *page);
void hb_window_masks_leave_in_child(void);

/* window_shape.c: what a launch is; `stream` as a value that can be compared and handed to the driver. */
struct hb_slack_shape;
struct hb_window_launch {
	CUstream stream;
	CUfunction function; /* NULL: no kernel of the application's */
	uint32_t threads, shared_bytes;
};
/* The kernel that is launched; NULL: a graph, or nothing of the application's. */
CUfunction hb_window_function(unsigned fn, const uint64_t *args);
void hb_window_describe(unsigned fn, const uint64_t *args, struct hb_window_launch *launch,
			struct hb_slack_shape *shape);
/* What is worth asking the driver once for each shape. */
void hb_window_classify(const struct hb_window_launch *launch, struct hb_slack_shape *shape);

#endif
