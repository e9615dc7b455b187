/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures one GPU for the status, the metrics and `hb top`:
 * the time from closing a gate until nothing is in flight, the time that threads
 * wait at a closed gate, and the time in which a tenant launches. The values come
 * from polling (gpu_gates.c), so they are exact to 2 ms while a gate is closed.
 * No decision uses them but `engine: auto` (engine_runs.c, engine_advice.c).
 */
#ifndef HB_DAEMON_GPU_MEASURES_H
#define HB_DAEMON_GPU_MEASURES_H

#include "base/hist.h"
#include "daemon/engine_advice.h"
#include "daemon/gpu_record.h"
#include "daemon/usage_history.h"

/* Measures of one tenant on the GPU; all zero when the tenant begins. */
struct hb_tenant_measures {
	int64_t closed_ns;      /* when the gate was closed over work in flight that has not ended yet; 0 = none */
	int64_t waiting_ns;     /* since when a thread waits at the closed gate; 0 = none waits */
	uint64_t preemptions;   /* how often the gate was closed over work in flight */
	uint64_t launches;      /* of all processes, at the last tick */
	uint64_t tick_launches; /* between the last two ticks; 0 when a process left in between, with its count */
	uint64_t launched;      /* sum of tick_launches */
	uint64_t active_ns;     /* summed time between ticks in which the tenant launched something */
	int64_t tick_ns;        /* time of the last tick; 0 = none yet */
	struct hb_hist *wait;   /* how long threads waited at the closed gate; NULL = never */
	struct hb_engine_advice advice;
};

struct hb_gpu_measures {
	char name[96];              /* of the GPU, for people */
	char index[16];             /* the number that the driver's tools use; "" = not known */
	struct hb_hist preemption;  /* time from closing a gate for HP until the work in flight had ended */
	struct hb_hist turn;        /* the same between two turns of LP tenants */
	struct hb_gpu_usage *usage; /* the last minutes (usage_history.h) */
	struct hb_tenant_measures tenants[HB_TENANCIES_MAX];
};

/* NULL when out of memory. */
struct hb_gpu_measures *hb_gpu_measures_new(const struct hb_gpu *gpu);
void hb_gpu_measures_free(struct hb_gpu_measures *measures);
/* The tenant with this index has left: frees its measures. Those of the next tenant with the index begin at zero. */
void hb_gpu_measures_reset(struct hb_gpu *gpu, uint32_t tenancy);

/* The tenant's gate was set. `in_flight`: launches of the tenant were in flight then. */
void hb_gpu_measure_gate(struct hb_gpu *gpu, uint32_t tenancy, bool in_flight, int64_t now_ns);
/* The tenant's gates were polled: whether a thread waits, and whether nothing is in flight behind the closed gate. */
void hb_gpu_measure_poll(struct hb_gpu *gpu, uint32_t tenancy, bool waiting, bool drained, int64_t now_ns);
/* Every HB_TICK_MS: the launches of all processes of the tenant so far. */
void hb_gpu_measure_launches(struct hb_gpu *gpu, uint32_t tenancy, uint64_t launches, int64_t now_ns);

#endif
