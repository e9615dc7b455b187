/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides for one HP process when to take the GPU over before its kernels arrive
 * and how long to keep the GPU after its work. foresight.h learns from signs; this
 * file adds what a process knows about itself: whether a takeover is allowed now,
 * for how long the process has been idle, and how long its waits last.
 *
 * The shim calls these functions from the hooks of an HP process, the simulator
 * from its modelled HP programs. Both must not call two of them at the same time
 * for one process. No clock, no allocation, no CUDA.
 *
 * After each call the caller compares hb_process_foresight_plan() with the plan
 * from before the call (hb_takeover_compare) and follows it as takeover_steps.h says.
 */
#ifndef HB_DECIDE_PROCESS_FORESIGHT_H
#define HB_DECIDE_PROCESS_FORESIGHT_H

#include "decide/foresight_share.h"

/* Wanted takeovers of one process. */
struct hb_takeover_plan {
	int64_t since_ns; /* start of the current or last takeover; a new value means a new takeover */
	int64_t until_ns; /* end of the current takeover; 0 = the GPU is not to be taken over */
	int64_t next_ns;  /* time of the next hb_process_foresight_step(); INT64_MAX = none is needed */
};

/* State of one GPU that the process may use, from the GPU page. */
struct hb_gpu_facts {
	bool low_present;      /* an LP tenant is registered */
	uint32_t high_at_work; /* HP tenants that worked lately, this process's tenant included */
};

/* Kinds of waits: by the number of kernels and graphs that were launched since the last one, and whether it is a copy. */
enum { HB_WAIT_KINDS = 128 };

/* One wait of a thread for its GPU work. */
struct hb_process_wait {
	int64_t since_ns; /* start of the wait; 0 = the thread does not wait */
	int64_t keep_ns;  /* the GPU stays with the process for this long after the work; 0 = it does not */
	bool keep_later; /* a call that copies results: it does not wait itself, but the GPU should be kept after the work before it */
	uint32_t kind;
	uint64_t kernels, graphs; /* launches of the process before the wait */
};

struct hb_process_foresight {
	struct hb_foresight foresight;
	struct hb_foresight_budget budget;
	struct hb_foresight_share share;
	int64_t facts_again_ns;   /* when note_gpus() is due again */
	int64_t request_since_ns; /* first launch of the inferred request that runs; 0 = none runs */
	int64_t worked_ns;        /* end of the last work; 0 = the process never worked */
	int64_t shortest_wait_ns[HB_WAIT_KINDS];
	uint64_t kernels_before, graphs_before; /* launch counts at the last end of work */
	uint64_t launches_read; /* launches when results were copied last: a second copy does not wait for them */
};

void hb_process_foresight_init(struct hb_process_foresight *process);
/*
 * The same for a process of the spatial engine. It never takes the GPU over; of the functions below it calls sign(), launch() and
 * idle(), and announces what hb_foresight_expects() returns after each (foresight_expect.c).
 */
void hb_process_foresight_init_masks(struct hb_process_foresight *process);

/* Whether the caller has to read the GPU pages and call note_gpus() before the next call; true every 10 ms. */
bool hb_process_foresight_wants_facts(const struct hb_process_foresight *process, int64_t now_ns);
/*
 * Allows takeovers where LP is present. If other HP tenants work there, this one must have worked
 * lately as well, gets its part of the budget, and does not keep the GPU after its work, because
 * they would wait for it. `activity` holds one counter for each of the n processes of the tenant
 * (foresight_share.h), at `self` that of this process.
 */
void hb_process_foresight_note_gpus(struct hb_process_foresight *process, int64_t now_ns,
				    const struct hb_gpu_facts *gpus, uint32_t n_gpus);
bool hb_process_foresight_wants_activity(const struct hb_process_foresight *process, int64_t now_ns);
void hb_process_foresight_note_activity(struct hb_process_foresight *process, int64_t now_ns, const uint64_t *activity,
					uint32_t n, uint32_t self);

/* A sign was seen; arguments as in hb_foresight_sign(). */
void hb_process_foresight_sign(struct hb_process_foresight *process, int64_t now_ns, enum hb_sign kind, uint64_t source,
			       uint32_t who, int64_t expected_ns);
/* The process launches for the first time since it was idle. */
void hb_process_foresight_launch(struct hb_process_foresight *process, int64_t now_ns);
/*
 * A thread begins to wait for its work. `kernels` and `graphs` are the launches of
 * the process so far. `reads`: the call copies results, and may wait. Returns how
 * long to keep the GPU after the work; 0 = do not.
 */
int64_t hb_process_foresight_wait(struct hb_process_foresight *process, int64_t now_ns, uint64_t kernels,
				  uint64_t graphs, bool reads, struct hb_process_wait *wait);
/* The copy is over: learns whether such copies wait. */
void hb_process_foresight_learn_read(struct hb_process_foresight *process, int64_t now_ns,
				     const struct hb_process_wait *wait);
/* The wait is over: learns its length. Call before hb_process_foresight_idle(). */
void hb_process_foresight_learn_wait(struct hb_process_foresight *process, int64_t now_ns, uint64_t kernels,
				     uint64_t graphs, const struct hb_process_wait *wait);
/* All work of the process has ended. keep_ns > 0: the GPU is kept for that long from now on. */
void hb_process_foresight_idle(struct hb_process_foresight *process, int64_t now_ns, int64_t keep_ns);
/* Time has passed; call at the plan's next_ns. */
void hb_process_foresight_step(struct hb_process_foresight *process, int64_t now_ns);

struct hb_takeover_plan hb_process_foresight_plan(const struct hb_process_foresight *process);

#endif
