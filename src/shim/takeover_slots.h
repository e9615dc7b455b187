/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What takeover.c (holding, keeping, letting go) and takeover_context.c (contexts as
 * they come, are prepared, and go) share: a slot for each context that is used.
 * Nobody else includes this.
 */
#ifndef HB_SHIM_HOLD_SLOTS_H
#define HB_SHIM_HOLD_SLOTS_H

#include "base/clock.h"
#include "nvidia/takeover_kernel.h"
#include "shim/takeover.h"

#include <pthread.h>
#include <stddef.h>

#define PAGE_BYTES 4096

/* The two kinds of holds of a context: their streams, bits and words. */
enum kind { TAKE, KEEP };

enum slot_state { SLOT_FREE, SLOT_NEW, SLOT_READY, SLOT_LEAVING };

struct slot {
	enum slot_state state;
	_Atomic(CUcontext) context; /* written with the lock held */
	CUdevice device;
	CUstream streams[2]; /* to take the GPU, and to keep it */
	CUevent work_done;
	CUmodule module;
	CUfunction kernel;
	CUdeviceptr address;   /* of its page, for the GPU */
	bool lingers;          /* a real kernel, which knows more words than "end" */
	_Atomic(uint32_t) age; /* of a device's contexts the one that came or began to launch last is held */
};

/* Guards the slots; held over driver calls of our own, which do not wait for the application's work. */
extern pthread_mutex_t hb_takeover_lock;
extern struct slot hb_takeover_slots[HB_TAKEOVER_CONTEXTS];
extern _Atomic(uint32_t) hb_takeover_next_age;
extern bool hb_takeover_stopped;

/* One page a slot, made once and never unmapped; shared, so that a fork cannot part them from the GPU's view. */
extern _Atomic(char *) hb_takeover_pages;

static inline size_t hb_takeover_offset_of(enum kind kind)
{
	return kind == KEEP ? PAGE_BYTES / 2 : 0;
}

static inline unsigned hb_takeover_bit_of(unsigned index, enum kind kind)
{
	return index + (kind == KEEP ? HB_TAKEOVER_CONTEXTS : 0);
}

static inline struct hb_takeover_page *hb_takeover_page_of(unsigned bit)
{
	char *first = atomic_load_explicit(&hb_takeover_pages, memory_order_acquire);
	size_t offset = hb_takeover_offset_of(bit < HB_TAKEOVER_CONTEXTS ? TAKE : KEEP);
	return (struct hb_takeover_page *)(first + (size_t)(bit % HB_TAKEOVER_CONTEXTS) * PAGE_BYTES + offset);
}

/* takeover_context.c: one of the two kernels. */
CUresult hb_takeover_launch(const struct slot *slot, enum kind kind, int64_t limit_ns);
/* Holds are off for this process from now on; always false. */
bool hb_takeover_fail(enum hb_takeover_fault fault, CUresult result);

#endif
