/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The streams of an LP process whose work in flight the spatial engine bounds: on
 * each GPU one row per stream, with a counter in host memory that the GPU writes. Used by
 * shim_spatial_low.c only.
 */
#ifndef HB_SHIM_SPATIAL_ROWS_H
#define HB_SHIM_SPATIAL_ROWS_H

#include "decide/spatial_low.h"
#include "hummingbird/page.h"
#include "nvidia/cuda_abi.h"

#include <stdbool.h>
#include <stdint.h>

struct hb_shim_spatial_row {
	CUstream stream;
	const void *thread; /* identifies the thread of a per-thread default stream; else NULL */
	bool gone;          /* the stream or its thread has ended; its last work may still be running */
	int64_t looked_ns;  /* when the counter was last read, at the last launch */
	struct hb_spatial_stream state;
};

/* The lock that guards the rows and all of shim_spatial_low.c. Held for a few hundred ns, never during a driver call. */
void hb_shim_spatial_lock(void);
void hb_shim_spatial_unlock(void);

/* The next four need the lock. */

/*
 * Returns the row of a stream of this GPU (below HB_PAGE_GPUS), creating it if there is room or if the work of another stream is done. NULL: this stream's
 * work is not bounded. While the lock is not held, the row may be given to another stream.
 */
struct hb_shim_spatial_row *hb_shim_spatial_row_of(unsigned gpu, CUstream stream, CUcontext context, int64_t now_ns);
bool hb_shim_spatial_row_matches(const struct hb_shim_spatial_row *row, CUstream stream);
/* Returns the counter that the GPU writes for this row; NULL: the memory has gone with its context. */
hb_page_u32 *hb_shim_spatial_counter_of(const struct hb_shim_spatial_row *row);
/* Launches went uncounted, so the time until the next counter write measures no kernel. */
void hb_shim_spatial_forget_intervals(void);

/* Without the lock, if this thread's own default stream has a row: gives the row back when the thread ends. */
void hb_shim_spatial_rows_note_thread(void);

/* In a forked child, which has no other threads: with the lock or without. */
void hb_shim_spatial_rows_leave_in_child(void);

#endif
