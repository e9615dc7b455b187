/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon's record of one GPU: its scheduling core, its page and the state
 * of every tenant on it. gpu.c makes it; the gpu_*.c files work on it.
 */
#ifndef HB_DAEMON_GPU_RECORD_H
#define HB_DAEMON_GPU_RECORD_H

#include "core/core.h"
#include "daemon/tenant_record.h"

#define HB_GPUS_MAX 32

struct hb_doorbell_listener;
struct hb_gpc_search;
struct hb_gpu_measures;
struct hb_gpu_use;

/* One tenant on one GPU: what the core decided for it, and what its processes' gates showed last. */
struct hb_tenant_state {
	bool is_present;    /* the tenant uses the GPU */
	uint32_t gpu_index; /* of the GPU on the tenant page */
	/* Decisions of the core; hb_gpu_apply() writes them to the tenant page. */
	bool gate_changed, slices_changed; /* decided, but not written yet */
	enum hb_gate_state gate;
	uint32_t depth;
	int64_t compute_ns, copy_ns; /* time slices */
	uint32_t allowance_ppm;      /* HP: delay that LP may cause its requests */
	/* State of the gates at the last poll. */
	bool busy, waiting;
	bool draining;        /* the gate was closed, and `drained` was not posted yet */
	bool was_empty;       /* nothing was in flight when the gate closed, so no process will ring the doorbell */
	bool has_late_launch; /* work is on the GPU although the tenant had drained behind its closed gate */
	int64_t draining_since_ns;  /* when draining began, or when stopped processes were last looked for */
	uint64_t polled_launches;   /* of all its processes, at the last poll */
	int64_t polled_launched_ns; /* the last poll that saw a new launch; 0 = none */
	/* Counts at the last tick. */
	uint64_t launches;            /* of all its processes, at the last tick */
	int64_t launched_ns;          /* the last tick that saw a new launch */
	uint64_t run_judged, run_met; /* requests counted for `engine: auto` so far (engine_runs.c) */
};

struct hb_gpu {
	struct hb_daemon *daemon;
	uint32_t number; /* index in hb_daemon.gpus */
	unsigned char uuid[HB_UUID_BYTES];
	enum hb_engine engine;
	struct hb_core *core;
	struct hb_core_config core_config; /* what the core was made with */
	struct hb_gpu_page *page;
	int page_fd;
	struct hb_tenant_state tenants[HB_TENANCIES_MAX]; /* by index of hb_daemon.tenancies */
	uint32_t tenants_end;                             /* no tenant at this index or above uses the GPU */
	uint32_t n_high, n_low;
	bool repair_low;                       /* the sum of LP's memory on the GPU page has to be counted again */
	struct hb_gpc_search *gpc_search;      /* the running search for GPCs (gpc_layout.c); NULL = none */
	bool gpc_search_done;                  /* the search was started, or could not be started */
	struct hb_doorbell_listener *doorbell; /* NULL = not needed so far, or the thread could not be made */
	uint32_t wanted_news;                  /* the news that the GPU page asks shims to report: enum hb_gpu_news */
	bool poll_again;                       /* news may have occurred just before the page asked for them */
	int64_t run_tick_ns;                   /* the last tick of engine_runs.c; 0 = none yet */
	struct hb_gpu_use *use;                /* what the driver last said of the GPU; NULL = nothing yet */
	struct hb_gpu_measures *measures;
};

#endif
