/* SPDX-License-Identifier: Apache-2.0 */
/*
 * This process as a member of a tenant: the pages that it shares with the daemon,
 * with counters and gates. The process is *alone* before cuInit, without a daemon,
 * after fork, and with HB_OFF=1. The same functions then work on a private record
 * whose gates are open, so callers need no special case.
 */
#ifndef HB_SHIM_SHIM_TENANT_H
#define HB_SHIM_SHIM_TENANT_H

#include "gate/gate.h"
#include "hummingbird/page.h"
#include "nvidia/cuda_abi.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

/* The pages of this process. Published as one pointer and never freed, so that threads may keep using it. */
struct hb_place {
	struct hb_page *page;                         /* NULL: alone */
	struct hb_page_process *process;              /* never NULL */
	const struct hb_gpu_page *gpus[HB_PAGE_GPUS]; /* read-only */
	/* The page's index of each CUDA device, HB_PAGE_GPUS for one that is not on it. */
	uint8_t gpu_of_device[HB_PAGE_GPUS];
	bool several;                    /* the process has several GPUs: the gate depends on the current device */
	const struct hb_place *replaced; /* never freed, because threads may still read it; NULL: none */
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

/* After a successful cuInit: registers with the daemon, once per process. Never fails; gives up after a second. */
void hb_tenant_join(void);

/*
 * The same for the MPS server (HB_ROLE=server), which never calls cuInit: called when
 * its first channel groups exist (hb_rm_watch_notify). Makes no CUDA call.
 */
void hb_tenant_join_server(void);

/*
 * Called in calls that are slow anyway, never in a launch that goes through: sets new
 * time slices and registers again after a restart of the daemon. A few loads if
 * there is nothing to do.
 */
void hb_tenant_refresh(void);

/* context_error.c: a call of the driver failed with this error. Reports the first one that ends a context. */
void hb_tenant_note_error(CUresult error);

/* Whether this process is a client of the daemon's MPS server; whether it is HP. */
bool hb_tenant_inside_mps(void);
bool hb_tenant_is_high(void);

/* Connects to the daemon, which is waited for only a moment. Returns a socket or a negative errno. */
int hb_tenant_connect(void);
/* The tenant's token; constant. */
const unsigned char *hb_tenant_token(void);

/*
 * Asks the daemon for `bytes` more of the memory that LP tenants share on the GPU. 0, or a negative errno; see
 * hb_client_ask_memory(). Waits for the daemon for a moment at most.
 */
int hb_tenant_ask_memory(unsigned gpu, uint64_t bytes);

/*
 * HP: the driver has refused an allocation of `bytes`. Waits, at most for this long, until the daemon has moved memory of LP
 * away. 0: the driver may have room now; or a negative errno.
 */
int hb_tenant_ask_room(unsigned gpu, uint64_t bytes, int limit_ms);

/* Returns the descriptor of the page's memfd if its size is `bytes`. -EAGAIN: ask later; or another negative errno. */
int hb_tenant_page_fd(size_t bytes);

/* Returns the page's index of the current device's GPU; HB_PAGE_GPUS: it is not on the page, or no device is current. */
unsigned hb_tenant_gpu(void);
/* Returns the CUDA device with this UUID; -1: this process does not see it. */
int hb_tenant_find_device(const unsigned char uuid[16]);
/* The thread's current context may change: forgets the index, which is looked up again at the next use. */
void hb_tenant_gpu_forget(void);

/* Returns the gate of the current device's GPU. */
struct hb_gate *hb_tenant_gate(const struct hb_place *place);

/* gate_wait.c: the gate answered WAIT. Returns when the launch may go. */
void hb_gate_block(const struct hb_place *place, struct hb_gate *gate);
/* gate_wait.c: wakes the threads that wait at the gate, which check it again. */
void hb_gate_wake(struct hb_gate *gate);
/* gpu_doorbell.c: rings the tenant's doorbell for this GPU (HB_PAGE_GPUS: none). A system call if the daemon listens. */
void hb_gpu_ring(const struct hb_place *place, unsigned gpu, enum hb_gpu_news news);
/* gate_wait.c: whether the daemon's last heartbeat on this page is too old. */
bool hb_daemon_silent(const struct hb_place *place);

#endif
