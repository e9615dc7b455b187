/* SPDX-License-Identifier: Apache-2.0 */
/*
 * This process as a member of a tenant: the pages it shares with the daemon and
 * the counters and gates on them. Until cuInit, without a daemon, after fork
 * and with HB_OFF=1 the process is alone: the same calls then work on a private
 * record whose gates are open, so that callers need no case for it.
 */
#ifndef HB_SHIM_SHIM_TENANT_H
#define HB_SHIM_SHIM_TENANT_H

#include "gate/gate.h"
#include "hummingbird/page.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

/* What a thread needs to reach the pages; published as one pointer, never freed. */
struct hb_place {
	struct hb_page *page;            /* NULL: alone */
	struct hb_page_process *process; /* never NULL */
	struct hb_gpu_page *gpus[HB_PAGE_GPUS];
	/* The page's index of each CUDA device, HB_PAGE_GPUS for one that is not on it. */
	uint8_t gpu_of_device[HB_PAGE_GPUS];
	bool several; /* GPUs: the gate depends on the current device */
};

extern _Atomic(const struct hb_place *) hb_shim_place;

static inline const struct hb_place *hb_place(void)
{
	return atomic_load_explicit(&hb_shim_place, memory_order_acquire);
}

static inline void hb_shim_count(enum hb_page_counter counter, uint64_t n)
{
	atomic_fetch_add_explicit(&hb_place()->process->counters[counter], n, memory_order_relaxed);
}

/* After a successful cuInit: registers with the daemon, once a process. Never fails, gives up after a second. */
void hb_tenant_join(void);

/*
 * In the MPS server, which never calls cuInit: the same, once its first channel
 * groups exist (HB_ROLE=server; see hb_rm_watch_tell). Makes no CUDA call.
 */
void hb_tenant_join_server(void);

/*
 * For calls that take their time anyway: puts new time slices into effect and
 * registers again after the daemon has come back. A few loads when there is
 * nothing to do. Never in a launch that goes straight through.
 */
void hb_tenant_refresh(void);

/* Whether this process is a client of the daemon's MPS server, and whether of high priority. */
bool hb_tenant_inside_mps(void);
bool hb_tenant_is_high(void);

/* The descriptor of the page, where it has `bytes`; -EAGAIN: ask later; other negative errno. */
int hb_tenant_page_fd(size_t bytes);

/* The page's index of the current device's GPU; HB_PAGE_GPUS when it is not on the page or nothing is current. */
unsigned hb_tenant_gpu(void);
/* The thread's current context may change: ask again next time. */
void hb_tenant_gpu_forget(void);

/* The gate of the current device's GPU. */
struct hb_gate *hb_tenant_gate(const struct hb_place *place);

/* gate_wait.c: the gate said this instead of GO; returns when the launch may go. `fn` tells what it is. */
void hb_gate_block(const struct hb_place *place, struct hb_gate *gate, enum hb_gate_answer answer);
/* gate_wait.c: whoever waits there looks again. */
void hb_gate_wake(struct hb_gate *gate);
/* gpu_doorbell.c: the daemon may want to look at this GPU of the page (HB_PAGE_GPUS: none) now. A system call, if it does. */
void hb_gpu_ring(const struct hb_place *place, unsigned gpu, enum hb_gpu_news news);
/* gate_wait.c: the heart of the daemon has stopped (or never beat on this page). */
bool hb_daemon_silent(const struct hb_place *place);

#endif
