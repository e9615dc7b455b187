/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A thread that decompresses bodies, so that a body that grows a thousandfold does
 * not delay the other connections of the thread that received it. Bodies wait in
 * one queue.
 */
#ifndef HB_SERVER_INFLATE_THREAD_H
#define HB_SERVER_INFLATE_THREAD_H

#include "server/kserve/content_coding.h"

/* Bodies up to this size grow to at most 1 MiB: their receiver may decompress them itself. */
#define HB_INFLATE_SMALL_BYTES 1024

struct hb_inflate_thread;

/* A body to decompress; the arguments and results of hb_coding_expand(). */
struct hb_inflate_job {
	enum hb_coding coding;
	const void *data;
	size_t bytes, most;
	struct hb_memory_charge *charge;
	int result;
	void *out;
	size_t out_bytes;
	void (*done)(struct hb_inflate_job *job); /* called on the thread, once */
	void *owner;
	struct hb_inflate_job *next;
};

/* Creates the thread. Returns NULL without memory or threads. */
struct hb_inflate_thread *hb_inflate_thread_new(void);
/* Ends the thread. No job may wait. NULL is allowed. */
void hb_inflate_thread_free(struct hb_inflate_thread *thread);
void hb_inflate_thread_submit(struct hb_inflate_thread *thread, struct hb_inflate_job *job);

#endif
