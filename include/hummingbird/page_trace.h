/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Behind a tenant's page, in the same memfd: one ring for each process slot, in
 * which a process of low priority notes its launches while hb_page.recording is
 * not 0 (`hb trace record`). A page made by an older daemon ends without them.
 * Neither side maps this before a recording begins, so it costs no memory until
 * then. Included by page.h's users that record: shim and daemon.
 *
 * Launch i lies in launches[i % HB_TRACE_LAUNCHES]. A thread claims i by adding
 * to `claimed`, stores at_ns and then, with release, the rest together with the
 * low half of i + 1. A reader takes an entry that says what it expects, and
 * drops it if `claimed` says that it may have been overwritten meanwhile. Names
 * are written before the first launch that refers to them. Small on purpose: a
 * launch that is noted should find its line in the cache.
 *
 * Trust: as with the page; the daemon reads it as untrusted input.
 */
#ifndef HUMMINGBIRD_PAGE_TRACE_H
#define HUMMINGBIRD_PAGE_TRACE_H

#include "hummingbird/page.h"

#include <stddef.h>

#define HB_TRACE_LAUNCHES 2048 /* a power of two */
#define HB_TRACE_NAMES 255     /* kernels beyond have no name */
#define HB_TRACE_NAME_BYTES 128

struct hb_trace_launch {
	hb_page_i64 at_ns; /* CLOCK_MONOTONIC, past the gate and before the driver */
	/*
	 * Bits 0..31: i + 1. 32..47: its kernel, enum hb_trace_name or row of names + HB_TRACE_FIRST_NAME. 48..63: index
	 * into hb_page.gpus.
	 */
	hb_page_u64 what;
};
enum hb_trace_name { HB_TRACE_OTHER = 0, HB_TRACE_GRAPH = 1, HB_TRACE_FIRST_NAME = 2 };

struct hb_trace_ring {
	hb_page_u64 claimed;   /* process, as all below */
	hb_page_u32 recording; /* for which names are valid */
	hb_page_u32 n_names;   /* rows claimed, also beyond the end */
	unsigned char reserved[112];
	char names[HB_TRACE_NAMES][HB_TRACE_NAME_BYTES]; /* cut off where longer; not always terminated */
	struct hb_trace_launch launches[HB_TRACE_LAUNCHES];
};

_Static_assert(sizeof(struct hb_trace_launch) == 16, "trace entry");
_Static_assert(sizeof(struct hb_trace_ring) == 32768 + 16 * HB_TRACE_LAUNCHES, "trace ring");

/* The rings of all slots begin here, and the memfd ends after them. */
#define HB_TRACE_OFFSET sizeof(struct hb_page)
#define HB_TRACE_BYTES (HB_PAGE_PROCESSES * sizeof(struct hb_trace_ring))

static inline uint64_t hb_trace_what(uint64_t i, uint32_t name, uint32_t gpu)
{
	return (uint32_t)(i + 1) | (uint64_t)(name & 0xffff) << 32 | (uint64_t)gpu << 48;
}

/* Of a page's memfd: with the rings, or without, as an older daemon made it. */
static inline int hb_page_size_is_known(size_t bytes)
{
	return bytes == HB_TRACE_OFFSET || bytes == HB_TRACE_OFFSET + HB_TRACE_BYTES;
}

_Static_assert(HB_TRACE_OFFSET % 4096 == 0 && sizeof(struct hb_trace_ring) % 4096 == 0, "rings can be mapped");

#endif
