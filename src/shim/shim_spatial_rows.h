/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The streams of a process of low priority in the spatial engine, as far as
 * their work in flight is bounded: a row for each, with a counter in host memory
 * that the GPU writes. Used by shim_spatial_low.c only.
 */
#ifndef HB_SHIM_WINDOW_ROWS_H
#define HB_SHIM_WINDOW_ROWS_H

#include "decide/spatial_low.h"
#include "hummingbird/page.h"
#include "nvidia/cuda_abi.h"

#include <stdbool.h>
#include <stdint.h>

struct hb_shim_spatial_row {
	CUstream stream;
	const void *thread; /* of a per-thread default stream; else NULL */
	bool gone;          /* the stream or its thread has ended; its last work may still be running */
	int64_t looked_ns;  /* when the counter was last read: at the last launch */
	struct hb_spatial_stream state;
};

/* Guards the rows and all of shim_spatial_low.c; a few hundred ns at a time, never over a driver call. */
void hb_shim_spatial_enter(void);
void hb_shim_spatial_leave(void);

/*
 * The four with the lock held. Made if there is room, or if the work of another stream is done; NULL: this stream's work is
 * not bounded. While the lock is not held, the row may become another stream's.
 */
struct hb_shim_spatial_row *hb_shim_spatial_row_of(CUstream stream, CUcontext context, int64_t now_ns);
bool hb_shim_spatial_row_is_of(const struct hb_shim_spatial_row *row, CUstream stream);
/* What the GPU writes for this row; NULL: the memory has gone with its context. */
hb_page_u32 *hb_shim_spatial_counter_of(const struct hb_shim_spatial_row *row);
/* Launches went by uncounted: how long the next ones take to their marks says nothing of their kernels. */
void hb_shim_spatial_forget_intervals(void);

/* Without it, where this thread's own stream has a row: that is given back when the thread ends. */
void hb_shim_spatial_rows_note_thread(void);

/* With the lock held, or not: in the child there is nobody else. */
void hb_shim_spatial_rows_leave_in_child(void);

#endif
