/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The core's state, shared by the files of src/core only, and the functions by
 * which its parts call each other. Each file uses only those below it:
 *
 *	core.c         creation, time, posting
 *	core_post.c    the effect of each event
 *	account.c      ended requests: latency, attainment, SLOs learned alone
 *	policy_api.c   what policy.h offers to policies
 *	guard.c        checks on the policy, ejection
 *	turns.c        gates, and turns of LP tenants
 *	memory_moves.c moves of LP's memory that make room for HP
 *	memory_returns.c their return
 *	memory_pauses.c memory of LP tenants that are idle
 *	core_state.c   tenants, the queue of actions, ids of timers
 *	core_timers.c  timers: a heap of fixed size
 */
#ifndef HB_CORE_CORE_PRIV_H
#define HB_CORE_CORE_PRIV_H

#include "core/policy.h"
#include "decide/token_pace.h"

/* --- core_timers.c --- */

#define HB_TIMER_NONE UINT32_MAX

struct hb_timers {
	int64_t *at_ns;     /* by timer; valid while the timer is set */
	uint64_t *sequence; /* by timer: order of setting */
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
/* Removes and returns the earliest timer; HB_TIMER_NONE if none is set. */
uint32_t hb_timers_pop(struct hb_timers *timers);

/* --- the state --- */

#define HB_HIST_NONE UINT32_MAX

/* Memory of a tenant. */
struct hb_memory_slot {
	/* LP */
	uint64_t movable_bytes;
	uint64_t ordered_bytes; /* the move that it was asked for; 0 = none */
	int64_t answer_by_ns;
	int64_t skip_until_ns;    /* after a refusal */
	uint64_t away_bytes;      /* elsewhere */
	uint64_t returning_bytes; /* the return that it was asked for; 0 = none */
	int64_t skip_return_ns;   /* after a refusal to return */
	uint64_t pausing_bytes;   /* what it was asked to move because it is idle; 0 = none */
	int64_t quiet_since_ns;   /* when it allocated or woke last; its idle time begins later */
	bool wakes;               /* it waits for its memory */
	/* HP: its need, while it has one */
	bool needs;
	uint64_t need_sequence; /* order of needs */
	uint64_t need_bytes, free_bytes, peer_bytes, host_bytes, guest_bytes;
};

struct hb_slot {
	struct hb_tenant tenant;
	struct hb_memory_slot memory;
	uint32_t turn_user;   /* LP: index of its user's record in hb_turns.users */
	int64_t turn_used_ns; /* LP, turns by weight: charged time divided by the weight */
	uint32_t hist;        /* index of its pair of histograms; HB_HIST_NONE for LP */
	struct hb_token_pace pace;
	int64_t past_begin_ns; /* begin and end of the request that ended last */
	int64_t past_end_ns;
	int64_t denied_since_ns; /* guard.c: the policy keeps the tenant waiting; HB_TIME_NEVER = it does not */
};

/* The handle that policies get instead of the core itself. */
struct hb_policy {
	struct hb_core *core;
};

/* A user's share of the turns. Users have equal shares. */
struct hb_turn_user {
	uint32_t number;    /* as in hb_event.tenant_add.user */
	uint32_t n_tenants; /* present LP tenants; 0 = the record is free */
	uint32_t last;      /* the user's previous holder, after which the search for the next one begins */
	int64_t used_ns;    /* charged time; only differences between users matter */
};

struct hb_turns {
	enum hb_turn_order order;
	bool leaving;               /* the holder's turn is over and its work drains */
	struct hb_turn_user *users; /* as many as there may be tenants */
	uint32_t holder;            /* a tenant of the party that has the turn; HB_TENANT_NONE = no tenant */
	uint32_t last_user;         /* index of the user who had the previous turn */
	int64_t least_ns; /* what the holder's user had used when the turn began: no user counts as having used less */
	int64_t used_ns;  /* part of the holder's quantum used up before open_since_ns */
	int64_t charged_ns;     /* what its user was charged for this turn so far */
	int64_t open_since_ns;  /* since when a gate of the holder has been open; HB_TIME_NEVER = all are closed */
	int64_t last_opened_ns; /* when the holder's gate opened last; kept after the gate closes */
	int64_t leaving_since_ns;
};

/* The need for memory that is served. Needs are served one after the other. */
struct hb_memory_moves {
	uint32_t asker;       /* HB_TENANT_NONE = there is none */
	uint64_t short_bytes; /* still missing */
	uint64_t moved_bytes;
	uint64_t peer_bytes, host_bytes; /* room that no order has claimed */
	uint64_t guest_bytes;            /* of tenants of other GPUs, that were not asked to leave yet */
	uint64_t evicting_bytes;         /* were asked to leave; 0 = none */
	int64_t evicted_by_ns;
	int64_t answer_by_ns;
	uint64_t next_sequence;
	uint64_t room_bytes;   /* free on the GPU, beyond the reserve */
	int64_t room_since_ns; /* since when that suffices for a step of a return; HB_TIME_NEVER = it does not */
	uint32_t returner;     /* LP tenant that was asked to return memory, or to move out; HB_TENANT_NONE = none */
	uint32_t n_needs, n_orders; /* HP tenants with a need; LP tenants that were asked for a move */
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
	uint32_t leaving;         /* tenant whose tenant_removed callback runs */
	int64_t departed_idle_ns; /* when the tenant that left last had its last work */

	struct hb_hist *hists; /* pairs: all requests, requests alone */
	uint32_t *free_hists;
	uint32_t n_free_hists;

	struct hb_timers timers;
	uint32_t n_policy_timers; /* set ones */
	struct hb_turns turns;
	struct hb_memory_moves memory;

	struct hb_action *actions; /* ring */
	uint32_t actions_size, actions_first, actions_count;

	/* guard.c */
	uint32_t asks; /* calls of the policy in the callback that runs */
	uint32_t storm_count;
	int64_t storm_since_ns;
	enum hb_eject_reason fault; /* found in the callback that runs */
	struct hb_ejection ejection;
	FILE *note; /* writes into ejection.dump */
	char note_buffer[256];
};

/* --- core_state.c --- */

/* Actions that one event or timer causes at most. */
uint32_t hb_core_most_actions(uint32_t tenants);
/* NULL = no such tenant. */
struct hb_slot *hb_core_slot(const struct hb_core *core, uint32_t tenant);
/* Next id of a priority after `after` (HB_TENANT_NONE = from the start); HB_TENANT_NONE = none. */
uint32_t hb_core_next_id(const struct hb_core *core, enum hb_priority priority, uint32_t after);
/* The LP tenant after `after` (NULL = the first one); NULL = none. */
struct hb_slot *hb_core_next_low(const struct hb_core *core, const struct hb_slot *after);
/* Whether `has` is true for some tenant of a priority. */
bool hb_core_any(const struct hb_core *core, enum hb_priority priority, bool (*has)(const struct hb_tenant *));
bool hb_core_high_wants_gpu(const struct hb_core *core);
bool hb_core_low_undrained(const struct hb_core *core);
/* Appends an action. There is room, because hb_core_room() was checked before the event. */
struct hb_action *hb_core_emit(struct hb_core *core, enum hb_action_kind kind, uint32_t tenant);
bool hb_core_room(const struct hb_core *core);
/* Removes the actions of a tenant that has left. */
void hb_core_withdraw(struct hb_core *core, uint32_t tenant);
/* Timer ids. HB_TENANT_NONE = the policy's timers without a tenant. */
uint32_t hb_core_policy_timer(const struct hb_core *core, uint32_t tenant, uint32_t tag);
uint32_t hb_core_turn_timer(const struct hb_core *core);
uint32_t hb_core_memory_timer(const struct hb_core *core);
void hb_core_cancel_policy_timer(struct hb_core *core, uint32_t timer);

/* --- turns.c --- */

/* Makes the tenant's gate what the policy asked for and the turns allow. */
void hb_turns_apply(struct hb_core *core, struct hb_slot *slot);
void hb_turns_switch(struct hb_core *core, enum hb_turn_order order);
/* At the start; tenants that are present keep their users. */
void hb_turns_init(struct hb_core *core, enum hb_turn_order order);
/* A new tenant of this user. */
void hb_turns_join(struct hb_core *core, struct hb_slot *slot, uint32_t user);
/* The tenant leaves. It is no longer listed as present, but its slot is still filled. */
void hb_turns_forget(struct hb_core *core, uint32_t tenant);
/* Ends and gives turns that are due. */
void hb_turns_settle(struct hb_core *core);
int64_t hb_turns_used_ns(const struct hb_core *core);

/* --- memory_moves.c --- */

#define HB_MEMORY_BYTES_LIMIT (UINT64_C(1) << 52) /* so that sums over all tenants cannot overflow */

int hb_memory_post_state(struct hb_core *core, struct hb_slot *slot, uint64_t movable_bytes, uint64_t away_bytes);
int hb_memory_post_need(struct hb_core *core, struct hb_slot *slot, const struct hb_event *event);
int hb_memory_post_moved(struct hb_core *core, struct hb_slot *slot, uint64_t moved_bytes);
int hb_memory_post_evicted(struct hb_core *core, struct hb_slot *slot, uint64_t bytes);
/* The tenant leaves. It is no longer listed as present, but its slot is still filled. */
void hb_memory_forget(struct hb_core *core, struct hb_slot *slot);
/* Orders moves and answers needs that are due. */
void hb_memory_settle(struct hb_core *core);
/* The memory timer has fired. */
void hb_memory_expire(struct hb_core *core);
/* Whether the LP tenant has had no work for some time. */
bool hb_memory_is_quiet(const struct hb_core *core, const struct hb_tenant *tenant);

/* --- memory_returns.c --- */

int hb_returns_post_room(struct hb_core *core, uint64_t room_bytes);
int hb_returns_post_returned(struct hb_core *core, struct hb_slot *slot, uint64_t bytes);
/* No return is under way or due later. */
bool hb_returns_are_over(const struct hb_core *core);
/* Orders a return that is due. */
void hb_returns_settle(struct hb_core *core);
/* When the next return or the end of one is due; HB_TIME_NEVER. */
int64_t hb_returns_next_ns(const struct hb_core *core);
void hb_returns_expire(struct hb_core *core);

/* --- memory_pauses.c --- */

/* Whether the tenant has been idle for so long that its memory is to be elsewhere. */
bool hb_pauses_keep_away(const struct hb_core *core, const struct hb_slot *slot);
/* Orders what is due. */
void hb_pauses_settle(struct hb_core *core);
/* HB_TIME_NEVER: nothing is due before the next event. */
int64_t hb_pauses_next_ns(const struct hb_core *core);
int hb_pauses_post_wake(struct hb_core *core, struct hb_slot *slot);
/* The tenant has moved so much of what it was asked for. */
void hb_pauses_end_step(struct hb_core *core, struct hb_slot *slot, uint64_t bytes);

/* --- guard.c --- */

/* Before and after every callback. */
void hb_guard_enter(struct hb_core *core);
void hb_guard_leave(struct hb_core *core);
/* Counts a call of the policy; false = the policy is at fault and the call is ignored. */
bool hb_guard_ask(struct hb_core *core);
void hb_guard_fault(struct hb_core *core, enum hb_eject_reason reason, uint32_t tenant, const char *format, ...)
	__attribute__((format(printf, 4, 5)));
/* A policy timer is about to fire; false = too many fired, and the policy was ejected. */
bool hb_guard_timer(struct hb_core *core);
/* Notes the tenants that the policy keeps waiting without a reason. */
void hb_guard_watch(struct hb_core *core);
/* When the first of them has waited for too long; HB_TIME_NEVER = never. */
int64_t hb_guard_next_ns(const struct hb_core *core);
/* Ejects the policy if that time has come. */
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

/* --- account.c --- */

/* Counts a request that has ended. 0 or -EINVAL. *learned = the tenant's SLO has changed. */
int hb_account_request(struct hb_core *core, struct hb_slot *slot, const struct hb_event *event,
		       struct hb_request *request, bool *learned);

/* --- core_post.c --- */

/* 0, or an error that has changed nothing. */
int hb_core_apply_event(struct hb_core *core, const struct hb_event *event);

#endif
