/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The core's inside, shared by the files of src/core only: the whole state in
 * one struct, and the functions by which the parts call each other.
 *
 *	core.c        life, time, the action queue
 *	core_post.c   what each event does
 *	account.c     requests: latency, attainment, slack, SLOs learned alone
 *	infer.c       requests of tenants that tell none
 *	work_pool.c   fixed pool behind the lists of requests and launches
 *	core_timers.c fixed timer heap
 *	turns.c       effective gates and LP turn-taking
 *	guard.c       checks on the policy, ejection
 *	policy_api.c  what policy.h offers
 */
#ifndef HB_CORE_CORE_PRIV_H
#define HB_CORE_CORE_PRIV_H

#include "core/policy.h"

#define HB_NODE_NONE UINT32_MAX

/* --- work_pool.c --- */

struct hb_work_node {
	struct hb_work work;
	uint32_t next, prev;
};

struct hb_work_list {
	uint32_t first, last, count;
};

struct hb_work_pool {
	struct hb_work_node *nodes;
	uint32_t size, used;
	uint32_t free; /* list through next */
};

int hb_pool_init(struct hb_work_pool *pool, uint32_t size);
void hb_pool_fini(struct hb_work_pool *pool);
void hb_list_init(struct hb_work_list *list);
/* Appends a zeroed record; NULL = pool full. */
struct hb_work *hb_list_append(struct hb_work_pool *pool, struct hb_work_list *list, uint64_t id);
/* Node of an id, searched from the oldest; HB_NODE_NONE = not there. */
uint32_t hb_list_find(const struct hb_work_pool *pool, const struct hb_work_list *list, uint64_t id);
const struct hb_work *hb_list_first(const struct hb_work_pool *pool, const struct hb_work_list *list);
void hb_list_remove(struct hb_work_pool *pool, struct hb_work_list *list, uint32_t node);
/* Moves the oldest of one list to the end of another. */
void hb_list_move_first(struct hb_work_pool *pool, struct hb_work_list *from, struct hb_work_list *to);
void hb_list_clear(struct hb_work_pool *pool, struct hb_work_list *list);

/* --- core_timers.c --- */

struct hb_timers {
	int64_t *at_ns;     /* by timer; valid while it is in the heap */
	uint64_t *sequence; /* order of setting */
	uint32_t *heap;     /* timers, earliest first */
	uint32_t *position; /* by timer: place in the heap + 1, 0 = not set */
	uint32_t size, count;
	uint64_t next_sequence;
};

int hb_timers_init(struct hb_timers *timers, uint32_t size);
void hb_timers_fini(struct hb_timers *timers);
void hb_timers_set(struct hb_timers *timers, uint32_t timer, int64_t at_ns);
void hb_timers_cancel(struct hb_timers *timers, uint32_t timer);
bool hb_timers_pending(const struct hb_timers *timers, uint32_t timer);
int64_t hb_timers_next_ns(const struct hb_timers *timers);
/* Takes the earliest out; HB_NODE_NONE when none is set. */
uint32_t hb_timers_pop(struct hb_timers *timers);

/* --- the state --- */

/* --- infer.c: what is known of a tenant that tells no requests --- */

#define HB_INFER_CLASSES 32 /* of idle times, half an octave each: up to 4 s */

struct hb_infer {
	bool told; /* it told a request: nothing is inferred any more */
	bool open;
	uint64_t request; /* id of the one that is open, or was last */
	int64_t think_ns; /* an idle time this long ends a request; 0 = not asked yet */
	uint32_t n_gaps;
	uint32_t gaps[HB_INFER_CLASSES];
};

struct hb_slot {
	struct hb_tenant tenant;
	struct hb_work_list requests, launches, pending;
	uint32_t hist; /* pair of histograms, HB_NODE_NONE for LP */
	bool launched_any;
	uint64_t last_launch;     /* highest launch id seen */
	uint64_t highest_request; /* id */
	int64_t head_since_ns;    /* since when the oldest request is the oldest */
	int64_t past_begin_ns;    /* of the past request that ended last */
	int64_t past_end_ns;
	int64_t denied_since_ns; /* guard.c; HB_TIME_NEVER = not denied */
	struct hb_infer infer;
};

/* What the policy gets: it stands for the core, which it cannot see into. */
struct hb_policy {
	struct hb_core *core;
};

struct hb_turns {
	bool on;
	bool leaving;          /* the holder's gate is closed for good, it drains */
	uint32_t holder;       /* HB_TENANT_NONE = nobody */
	uint32_t last;         /* holder before, where the search for the next begins */
	int64_t used_ns;       /* of the holder's quantum, without the stretch that runs now */
	int64_t open_since_ns; /* of the stretch that runs; HB_TIME_NEVER = its gate is closed */
	int64_t opened_ns;     /* when the holder's gate last opened */
};

struct hb_core {
	struct hb_core_config config;
	const struct hb_policy_ops *ops;
	struct hb_policy policy;
	char *policy_state, *tenant_state; /* areas declared by the ops */
	int64_t now_ns;

	struct hb_slot *slots; /* by tenant id */
	uint64_t *present[2];  /* bit sets of ids, by priority */
	uint32_t n_words;      /* in each */
	uint32_t n_tenants, n_high;
	uint32_t leaving;         /* id whose tenant_removed callback runs */
	int64_t departed_idle_ns; /* when the last tenant that left had its last work */

	struct hb_hist *hists; /* pairs: all, alone */
	uint32_t *free_hists;
	uint32_t n_free_hists;

	struct hb_work_pool requests, launches;
	struct hb_timers timers;
	uint32_t n_policy_timers; /* pending ones */
	struct hb_turns turns;

	struct hb_action *actions; /* ring */
	uint32_t actions_size, actions_first, actions_count;

	/* guard.c */
	uint32_t asks; /* in the callback that runs */
	uint32_t storm_count;
	int64_t storm_since_ns;
	enum hb_eject_reason fault; /* found in the callback that runs */
	struct hb_ejection ejection;
	FILE *note; /* writes into ejection.dump */
	char note_buffer[256];
};

/* --- core.c --- */

/* NULL = no such tenant. */
struct hb_slot *hb_core_slot(const struct hb_core *core, uint32_t tenant);
/* Next id of a priority after `after` (HB_TENANT_NONE = from the start); HB_TENANT_NONE = none. */
uint32_t hb_core_next_id(const struct hb_core *core, enum hb_priority priority, uint32_t after);
/* There is always room: hb_core_room() was asked before. */
struct hb_action *hb_core_emit(struct hb_core *core, enum hb_action_kind kind, uint32_t tenant);
bool hb_core_room(const struct hb_core *core);
void hb_core_withdraw(struct hb_core *core, uint32_t tenant);
uint32_t hb_core_turn_timer(const struct hb_core *core);
uint32_t hb_core_infer_timer(const struct hb_core *core, uint32_t tenant);
uint32_t hb_core_policy_timer(const struct hb_core *core, uint32_t tenant, uint32_t tag);
void hb_core_cancel_policy_timer(struct hb_core *core, uint32_t timer);
/* Brings turns, gates and the watch on stalls in line with what just happened. */
void hb_core_settle(struct hb_core *core);

/* --- core_post.c --- */

int hb_core_apply_event(struct hb_core *core, const struct hb_event *event);
/* Books and the policy learn of it; the event's errors. */
int hb_core_begin_request(struct hb_core *core, struct hb_slot *slot, uint64_t request, int64_t deadline_ns);
/* harm_ns: what LP cost it; negative = not known. */
int hb_core_end_request(struct hb_core *core, struct hb_slot *slot, uint64_t request, int64_t end_ns, int64_t harm_ns);

/* --- account.c --- */

int hb_account_begin(struct hb_core *core, struct hb_slot *slot, uint64_t request, int64_t deadline_ns);
/* *ended is the record as it was. *learned: the SLO changed. */
int hb_account_end(struct hb_core *core, struct hb_slot *slot, uint64_t request, int64_t end_ns, struct hb_work *ended,
		   bool *learned);
/* A request that is over; *ended is what policies judge, *learned as above. -EINVAL. */
int hb_account_past(struct hb_core *core, struct hb_slot *slot, const struct hb_event *event, struct hb_work *ended,
		    bool *learned);
/* Forgets an unfinished request, as if it had never begun. */
void hb_account_drop(struct hb_core *core, struct hb_slot *slot, uint64_t request);

/* --- infer.c --- */

/* Its work in flight has just become some; none. */
void hb_infer_busy(struct hb_core *core, struct hb_slot *slot);
void hb_infer_idle(struct hb_core *core, struct hb_slot *slot);
void hb_infer_timer(struct hb_core *core, uint32_t tenant);
/* It told a request itself. */
void hb_infer_told(struct hb_core *core, struct hb_slot *slot);

/* --- turns.c --- */

/* Makes the tenant's gate what the policy wishes and the turns allow; emits where that is a change. */
void hb_turns_apply(struct hb_core *core, struct hb_slot *slot);
void hb_turns_switch(struct hb_core *core, bool on);
/* The tenant has left. */
void hb_turns_forget(struct hb_core *core, uint32_t tenant);
void hb_turns_settle(struct hb_core *core);
int64_t hb_turns_used_ns(const struct hb_core *core);

/* --- guard.c --- */

/* Around every callback. */
void hb_guard_enter(struct hb_core *core);
void hb_guard_leave(struct hb_core *core);
/* One more ask; false = the policy is at fault and not listened to. */
bool hb_guard_ask(struct hb_core *core);
void hb_guard_fault(struct hb_core *core, enum hb_eject_reason reason, uint32_t tenant, const char *format, ...)
	__attribute__((format(printf, 4, 5)));
/* A policy timer is about to fire; false = storm, the policy was ejected. */
bool hb_guard_timer(struct hb_core *core);
/* Notes who is denied the GPU for nothing. */
void hb_guard_watch(struct hb_core *core);
/* When the first of them has waited for too long; HB_TIME_NEVER. */
int64_t hb_guard_next_ns(const struct hb_core *core);
/* Ejects if that time has come. */
void hb_guard_check(struct hb_core *core, int64_t now_ns);

/* Calls an op of the policy in force. */
#define HB_POLICY_CALL(core, op, ...) \
	do { \
		if ((core)->ops->op) { \
			hb_guard_enter(core); \
			(core)->ops->op(&(core)->policy, __VA_ARGS__); \
			hb_guard_leave(core); \
		} \
	} while (0)

#endif
