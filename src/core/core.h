/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The scheduling core: a pure state machine that decides which tenants of one GPU
 * may use it, and how. Its owner (the daemon, the simulator, a scenario or a
 * replay) has the clock, the I/O and the device:
 *
 *	post what happened      hb_core_post(core, now, &event)
 *	let timers run          hb_core_step(core, now)
 *	carry out the actions   while (hb_core_next_action(core, &action)) apply(&action);
 *	come back in time       sleep until hb_core_next_wake(core) or the next event
 *
 * The core reads no clock, knows no CUDA, never blocks, and allocates memory in
 * hb_core_new() only. The same calls give the same actions, byte for byte:
 *  - Events of one time take effect in the order in which they are posted.
 *  - A timer due before an event's time fires before the event. A timer due at the
 *    same time fires when step() is called for that time.
 *  - Timers of one time fire in the order in which they were set.
 *
 * A core is not thread safe: only one thread may use it at a time.
 *
 * Duties of the owner
 *  - Time never goes back. If it does, hb_core_post and hb_core_step return -EINVAL
 *    and change nothing.
 *  - Post `busy` and `idle` when the tenant's own work in flight on the GPU begins
 *    and ends. Takeover kernels do not count as own work.
 *  - Post `waiting` when a thread is blocked at a closed gate.
 *  - Post `drained` after each action `gate closed`, when the tenant has nothing in
 *    flight; at once if it had nothing.
 *  - Post `request_past` when a request has ended. It is the only event whose
 *    fields lie in the past. Events of other tenants during the request have to be
 *    posted before it; work that they began after the request's end, but that was
 *    posted before it, counts as beside the request.
 *  - If tenants are elastic: post `memory_state` when what an LP tenant could move has
 *    changed, `memory_need` when an allocation of HP does not fit, and `memory_moved`
 *    once for each action `memory_move` that was carried out or refused. Post
 *    `memory_wake` when an LP tenant waits for memory that moved away while it was idle.
 *  - Carry out actions in order. Actions of a removed tenant are withdrawn, so its
 *    id may be used again at once.
 *
 * Errors leave the core as it was, except for timers that were due before:
 * -EINVAL bad time or field, -ENOENT unknown tenant, -EEXIST id in use, -ENOSPC
 * no place for a tenant, -ENOBUFS actions were not taken: take them and post again.
 */
#ifndef HB_CORE_CORE_H
#define HB_CORE_CORE_H

#include "gate/gate.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define HB_TIME_NEVER INT64_MAX
/* All times and durations are below this limit (9 years), so that sums cannot overflow. */
#define HB_TIME_LIMIT_NS (INT64_C(1) << 58)
/* The owner chooses tenant ids from 0 to max_tenants - 1. */
#define HB_TENANT_NONE UINT32_MAX
#define HB_TENANTS_DEFAULT 256

struct hb_name {
	char text[48]; /* NUL-terminated */
};

enum hb_priority { HB_PRIORITY_LOW, HB_PRIORITY_HIGH };

enum hb_eject_reason {
	HB_EJECT_NONE,
	HB_EJECT_UNKNOWN_TENANT,   /* named a tenant that does not exist */
	HB_EJECT_BAD_TIME,         /* a negative time */
	HB_EJECT_BAD_VALUE,        /* a slice, depth or allowance out of range */
	HB_EJECT_TOO_MANY_ACTIONS, /* more in one callback than any sound policy needs */
	HB_EJECT_TIMER_STORM,      /* timers without progress */
	HB_EJECT_STALL,            /* kept a tenant waiting without a reason */
	HB_EJECT_INIT,             /* init() failed */
};

/* How a need for memory ended (event memory_need). */
enum hb_memory_result {
	HB_MEMORY_ENOUGH,        /* the memory is free now */
	HB_MEMORY_NOTHING_MOVES, /* LP has less memory that can move */
	HB_MEMORY_NO_ROOM,       /* peer and host have less room */
	HB_MEMORY_NO_ANSWER,     /* tenants refused to move or did not answer, now or a short time ago */
};

enum hb_event_kind {
#define HB_EVENT(UPPER, lower) HB_EVENT_##UPPER,
#define HB_FIELD(TYPE, name, must, text)
#define HB_EVENT_END(UPPER, lower)
#include "core/events.def"
#undef HB_EVENT
#undef HB_EVENT_END
	HB_EVENT_KINDS
};

enum hb_action_kind {
#define HB_ACTION(UPPER, lower) HB_ACTION_##UPPER,
#define HB_ACTION_END(UPPER, lower)
#include "core/actions.def"
#undef HB_ACTION
#undef HB_ACTION_END
#undef HB_FIELD
	HB_ACTION_KINDS
};

#define HB_FIELD_TYPE(TYPE, c_type) typedef c_type hb_field_##TYPE;
#include "core/fields.def"
#undef HB_FIELD_TYPE

/* clang-format off */
struct hb_event {
	enum hb_event_kind kind;
	uint32_t tenant;
	union {
#define HB_EVENT(UPPER, lower) struct {
#define HB_FIELD(TYPE, name, must, text) hb_field_##TYPE name;
#define HB_EVENT_END(UPPER, lower) } lower;
#include "core/events.def"
#undef HB_EVENT
#undef HB_EVENT_END
	};
};
/* clang-format on */

/* clang-format off */
struct hb_action {
	enum hb_action_kind kind;
	uint32_t tenant;
	union {
#define HB_ACTION(UPPER, lower) struct {
#define HB_ACTION_END(UPPER, lower) } lower;
#include "core/actions.def"
#undef HB_ACTION
#undef HB_ACTION_END
#undef HB_FIELD
	};
};
/* clang-format on */

struct hb_policy_ops;

/*
 * Bounds of moves of elastic memory. HP's call waits a second longer than its need is served (shim/memory_account.c); one tenant
 * that does not answer leaves time for another one. The daemon's orders expire a little before the core gives the tenant up.
 */
#define HB_MEMORY_NEED_LIMIT_NS INT64_C(7000000000) /* from a need of HP to its answer */
#define HB_MEMORY_MOVE_LIMIT_NS INT64_C(4500000000) /* for one tenant to move, where HP waits */
#define HB_MEMORY_STEP_LIMIT_NS INT64_C(2000000000) /* the same where nobody waits: a return, an idle tenant */

/* Fill with hb_core_config_init(), then change what matters. */
struct hb_core_config {
	const char *policy;              /* a name in policies.def */
	const struct hb_policy_ops *ops; /* a policy that is not in the table (tests); overrides `policy` */
	uint32_t max_tenants;
	uint32_t max_high;      /* HP tenants at one time; each has histograms (256 KiB of address space) */
	int64_t quantum_ns;     /* one turn of an LP tenant of weight 1 */
	int64_t turn_grace_ns;  /* a holder of the turn that is idle for this long passes it on */
	int64_t stall_limit_ns; /* a policy that keeps a tenant waiting without a reason for this long is ejected */
	uint32_t gate_depth;    /* LP launches in flight while the gate is open; 0 = the policy's own default */
	bool low_shared;        /* all LP tenants share one (MPS) context */
	int64_t low_slice_ns;   /* temporal: LP's time slice */
	int64_t high_slice_ns;  /* temporal: longest time slice of an HP tenant */
	int64_t switch_ns;      /* duration of one context switch */
	uint32_t
		low_minimum_ppm; /* temporal: share of the GPU that LP gets in any case, at most HB_LOW_MINIMUM_MOST_PPM; 0 = none */
	int64_t memory_idle_ns; /* memory of an LP tenant without work for this long moves away; 0 = it stays */
	int64_t memory_room_ns; /* moved memory returns when there has been room for this long */
};

/* The settings that ship; see decide/defaults.def. */
void hb_core_config_init(struct hb_core_config *config);

struct hb_core;

/* NULL with *error set: -EINVAL (unknown policy, bad value), -ENOMEM. `error` may be NULL. */
struct hb_core *hb_core_new(const struct hb_core_config *config, int64_t now_ns, int *error);
void hb_core_free(struct hb_core *core);

int hb_core_post(struct hb_core *core, int64_t now_ns, const struct hb_event *event);
int hb_core_step(struct hb_core *core, int64_t now_ns);
/* Takes the oldest action; false = there is none. */
bool hb_core_next_action(struct hb_core *core, struct hb_action *action);
/* When step() is due; HB_TIME_NEVER = not before the next event. A time in the past means: now. */
int64_t hb_core_next_wake(const struct hb_core *core);
/* The policy in force: "builtin" after an ejection. */
const char *hb_core_policy(const struct hb_core *core);
/* The policy needs only the requests of HP tenants (hb_policy_ops.high_by_requests). An ejection may change it. */
bool hb_core_high_by_requests(const struct hb_core *core);

/* LP tenants take turns, so the owner should post their `busy`, `idle`, `waiting` and `drained` without delay. */
bool hb_core_takes_turns(const struct hb_core *core);

/* Writes the core's state as text for people, in a stable form. */
void hb_core_dump(const struct hb_core *core, FILE *out);

/* The state of a tenant; NULL = no such tenant. Valid until the next post or step. */
const struct hb_tenant *hb_core_tenant(const struct hb_core *core, uint32_t tenant);

/* The record of an ejection. */
struct hb_ejection {
	enum hb_eject_reason reason; /* HB_EJECT_NONE = no policy was ejected */
	int64_t at_ns;
	uint32_t tenant; /* the tenant concerned, or HB_TENANT_NONE */
	struct hb_name policy;
	char message[160];
	char dump[2048]; /* output of the policy's dump(), truncated */
};
const struct hb_ejection *hb_core_ejection(const struct hb_core *core);

#endif
