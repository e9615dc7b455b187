/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon's record of one GPU: its scheduling core, its page and the state
 * of every tenant on it. gpu.c makes it; the gpu_*.c files work on it.
 */
#ifndef HB_DAEMON_GPU_RECORD_H
#define HB_DAEMON_GPU_RECORD_H

#include "core/core.h"
#include "daemon/tenant_record.h"
#include "gpu/provider.h"

#define HB_GPUS_MAX 64

struct hb_doorbell_listener;
struct hb_elastic_gpu;
struct hb_gpu_trial;
struct hb_gpu_measures;
struct hb_gpu_use;
struct hb_spatial_beacon;
struct hb_user;

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
	int64_t closed_ns;    /* when the gate was closed last */
	int64_t draining_since_ns;  /* when draining began, or when stopped processes were last looked for */
	uint64_t polled_launches;   /* of all its processes, at the last poll */
	int64_t polled_launched_ns; /* the last poll that saw a new launch; 0 = none */
	/* Counts at the last tick. */
	uint64_t launches;            /* of all its processes, at the last tick */
	int64_t launched_ns;          /* the last tick that saw a new launch */
	uint64_t run_judged, run_met; /* requests counted for `engine: auto` so far (engine_runs.c) */
};

/* The memory that an LP tenant may use on one GPU (gpu_memory.c). */
struct hb_memory_lease {
	uint64_t bytes;            /* as written to the tenant page */
	uint64_t reported_bytes;   /* what the tenant reports; read once, because it may change at any time */
	int64_t granted_ns;        /* when the tenant last asked for more and got it */
	int64_t refused_ns;        /* when it last asked for more and did not get it yet */
	uint64_t refused_samples;  /* answers of the driver before the first of these questions */
	uint64_t sampled_bytes;    /* what the tenant reported when the driver was last asked */
	int64_t overstated_ns;     /* when it last reported more than the driver saw; 0 = never */
	int64_t disbelieved_until; /* until then it counts only as far as the driver sees its memory */
};

/* The board of an HP process (gpu_boards.c); its place is that on the GPU page. */
struct hb_gpu_board {
	uint32_t number; /* 0 = the entry is unused */
	uint32_t slot;
	struct hb_tenancy *tenancy;
	int fd;
	const struct hb_spatial_beacon *beacon; /* written by the process at any time */
};

/* The last fault that the driver reported of a GPU. */
struct hb_gpu_fault {
	struct hb_gpu_event event;
	int64_t at_ns, wall_s; /* when: the daemon's clock, and seconds since 1970 */
	uint64_t count;        /* faults so far, with this one */
	uint32_t tenant;       /* the number of the tenant whose process caused it; 0 = not known */
	char user[64];         /* and its user */
};

struct hb_previous_page;

/* LP's progress (gpu_minimum.c). */
struct hb_low_progress {
	int64_t tick_ns;   /* of the last tick; 0 = none */
	int64_t alone_q10; /* LP launches a second while no HP tenant works, times 1024; 0 = not known */
	uint32_t n_low;    /* LP tenants at the last tick */
	uint64_t launches[HB_TENANCIES_MAX]; /* by index of hb_daemon.tenancies, at the last tick */
	bool warned[HB_TENANCIES_MAX];       /* HP: its objective cannot be kept, and the log says so */
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
	int64_t drain_most_ns[HB_TENANCIES_MAX];          /* by the same index (gpu_gates.c); 0 = as at first */
	uint32_t tenants_end;                             /* no tenant at this index or above uses the GPU */
	uint32_t n_high, n_low;
	struct hb_memory_lease leases[HB_TENANCIES_MAX]; /* by index of hb_daemon.tenancies */
	struct hb_gpu_board boards[HB_PAGE_BOARDS];
	uint32_t last_board;        /* number of the board that was listed last */
	uint64_t samples;           /* answers of the driver about processes so far */
	bool memory_changed;        /* the leases have to be computed again before the next tick */
	struct hb_gpu_trial *trial; /* the running child process (gpu_trial.c); NULL = none */
	bool gpc_search_done;       /* the search was started, or could not be started */
	/* By index of hb_daemon.tenancies; NULL = not needed so far, or the thread could not be made. */
	struct hb_doorbell_listener *doorbells[HB_TENANCIES_MAX];
	/* By index of hb_daemon.tenancies; NULL = no process of the tenant needs one. */
	struct hb_previous_page *previous[HB_TENANCIES_MAX];
	uint32_t wanted_news;       /* the news that the GPU page asks shims to report: enum hb_gpu_news */
	bool poll_again;            /* news may have occurred just before the page asked for them */
	struct hb_gpu_fault *fault; /* NULL = none */
	bool is_lost;           /* the GPU does not answer the driver: its gates are open, and it gets no new tenants */
	struct hb_user *user;   /* is charged for a GPU that the driver does not list; NULL = no user is */
	int64_t run_tick_ns;    /* the last tick of engine_runs.c; 0 = none yet */
	struct hb_gpu_use *use; /* what the driver last said of the GPU; NULL = nothing yet */
	bool is_busy_outside;   /* processes that are not managed keep the GPU busy (gpu_slices.c) */
	struct hb_gpu_measures *measures;
	struct hb_low_progress progress;
	struct hb_elastic_gpu *elastic;
};

#endif
