/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rings for recorded launches (`hb trace record`). They follow the tenant page in
 * the same memfd, one ring per process slot; LP processes fill them while
 * hb_page.recording is not 0. A page of an older daemon ends without them.
 * Neither side maps the rings before a recording begins, so they use no memory
 * until then. Used by the shim (writer) and the daemon (reader).
 *
 * Launch i is stored in launches[i % HB_TRACE_LAUNCHES]. A thread claims i by
 * adding 1 to `claimed`, stores at_ns, and then stores `what` with release, which
 * contains the low half of i + 1. A reader takes an entry whose `what` shows the
 * expected number, and drops it if `claimed` shows that it may have been
 * overwritten meanwhile. A name is written before the first launch that refers to
 * it. Entries are small so that a launch usually finds its cache line loaded.
 *
 * Trust: as for the page, the daemon treats the rings as untrusted input.
 */
#ifndef HUMMINGBIRD_PAGE_TRACE_H
#define HUMMINGBIRD_PAGE_TRACE_H

#include "hummingbird/page.h"

#include <stddef.h>

#define HB_TRACE_LAUNCHES 2048 /* a power of two */
#define HB_TRACE_NAMES 255     /* further kernels are recorded without a name */
#define HB_TRACE_NAME_BYTES 128

struct hb_trace_launch {
	hb_page_i64 at_ns; /* CLOCK_MONOTONIC, after the gate and before the call into the driver */
	/*
	 * Bits 0..31: low half of i + 1. Bits 32..47: the kernel, either enum hb_trace_name or HB_TRACE_FIRST_NAME + row of
	 * names[]. Bits 48..63: index into hb_page.gpus.
	 */
	hb_page_u64 what;
};
enum hb_trace_name { HB_TRACE_OTHER = 0, HB_TRACE_GRAPH = 1, HB_TRACE_FIRST_NAME = 2 };

struct hb_trace_ring {
	hb_page_u64 claimed;   /* process, as all fields; launches recorded so far */
	hb_page_u32 recording; /* value of hb_page.recording for which names[] is valid */
	hb_page_u32 n_names;   /* rows of names[] claimed; may exceed HB_TRACE_NAMES */
	unsigned char reserved[112];
	char names[HB_TRACE_NAMES][HB_TRACE_NAME_BYTES]; /* truncated if longer; may lack a final 0 */
	struct hb_trace_launch launches[HB_TRACE_LAUNCHES];
};

_Static_assert(sizeof(struct hb_trace_launch) == 16, "trace entry");
_Static_assert(sizeof(struct hb_trace_ring) == 32768 + 16 * HB_TRACE_LAUNCHES, "trace ring");

/* Offset and size in the memfd of the rings of all slots; the memfd ends after them. */
#define HB_TRACE_OFFSET sizeof(struct hb_page)
#define HB_TRACE_BYTES (HB_PAGE_PROCESSES * sizeof(struct hb_trace_ring))

static inline uint64_t hb_trace_what(uint64_t i, uint32_t name, uint32_t gpu)
{
	return (uint32_t)(i + 1) | (uint64_t)(name & 0xffff) << 32 | (uint64_t)gpu << 48;
}

/* Returns whether a page's memfd may have this size: with the rings, or without them (an older daemon). */
static inline int hb_page_size_is_known(size_t bytes)
{
	return bytes == HB_TRACE_OFFSET || bytes == HB_TRACE_OFFSET + HB_TRACE_BYTES;
}

_Static_assert(HB_TRACE_OFFSET % 4096 == 0 && sizeof(struct hb_trace_ring) % 4096 == 0, "rings can be mapped");

#endif
