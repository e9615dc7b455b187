/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared by takeover.c (takes the GPU over, keeps it, lets it go) and
 * takeover_context.c (prepares contexts and forgets them): one slot for each CUDA
 * context that the process uses. No other file includes this header.
 */
#ifndef HB_SHIM_TAKEOVER_SLOTS_H
#define HB_SHIM_TAKEOVER_SLOTS_H

#include "base/clock.h"
#include "nvidia/takeover_kernel.h"
#include "shim/takeover.h"

#include <pthread.h>
#include <stddef.h>

#define PAGE_BYTES 4096

/*
 * Kinds of takeovers of a context, each with its own alert bit and control word. Of the two kinds that keep the GPU after
 * the work, one waits behind the work in flight while the other may still run.
 */
enum takeover_kind { TAKE, KEEP_EVEN, KEEP_ODD, N_TAKEOVER_KINDS };

enum takeover_slot_state { SLOT_FREE, SLOT_NEW, SLOT_READY, SLOT_LEAVING };

struct takeover_slot {
	enum takeover_slot_state state;
	_Atomic(CUcontext) context; /* written with the lock held */
	CUdevice device;
	CUstream own_streams[2]; /* to take and to keep the GPU; used only if the process works on blocking streams */
	CUevent over[N_TAKEOVER_KINDS]; /* behind the takeover kernels of that kind launched last */
	enum takeover_kind kept_last;   /* the kind that kept the GPU last, or TAKE; with the lock held */
	CUevent work_done;
	CUmodule module;
	CUfunction kernel;
	CUdeviceptr address; /* the GPU's address of the slot's page */
	bool lingers; /* the kernel is a real one and obeys every word; the simulated one obeys HB_TAKEOVER_END only */
	_Atomic(uint32_t)
		age; /* grows when the context is created or begins to launch; the latest context of a device is the one taken over */
};

/* Guards the slots. May be held during driver calls that do not wait for the application's work. */
extern pthread_mutex_t hb_takeover_lock;
extern struct takeover_slot hb_takeover_slots[HB_TAKEOVER_CONTEXTS];
extern _Atomic(uint32_t) hb_takeover_next_age;
extern bool hb_takeover_stopped;

/* One page for each slot, never unmapped. A shared mapping, so that after a fork the GPU still sees the parent's pages. */
extern _Atomic(char *) hb_takeover_pages;

static inline size_t hb_takeover_offset_of(enum takeover_kind kind)
{
	return (size_t)kind * (PAGE_BYTES / 4);
}

static inline unsigned hb_takeover_bit_of(unsigned index, enum takeover_kind kind)
{
	return index + (unsigned)kind * HB_TAKEOVER_CONTEXTS;
}

static inline struct hb_takeover_page *hb_takeover_page_of(unsigned bit)
{
	char *first = atomic_load_explicit(&hb_takeover_pages, memory_order_acquire);
	size_t offset = hb_takeover_offset_of((enum takeover_kind)(bit / HB_TAKEOVER_CONTEXTS));
	return (struct hb_takeover_page *)(first + (size_t)(bit % HB_TAKEOVER_CONTEXTS) * PAGE_BYTES + offset);
}

static inline CUstream hb_takeover_own_stream(const struct takeover_slot *slot, enum takeover_kind kind)
{
	return slot->own_streams[kind != TAKE];
}

/* takeover_context.c: launches one takeover kernel. */
CUresult hb_takeover_launch(const struct takeover_slot *slot, enum takeover_kind kind, CUstream stream,
			    int64_t limit_ns);
/* Switches takeovers off for this process. Always returns false. */
bool hb_takeover_fail(enum hb_takeover_fault fault, CUresult result);

#endif
