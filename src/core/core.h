/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The scheduling core: a pure state machine that decides which tenant of one
 * GPU may use it, and how. Its owner (the daemon, the simulator, a scenario, a
 * replay) owns clock, I/O and device:
 *
 *	post what happened      hb_core_post(core, now, &event)
 *	let timers run          hb_core_step(core, now)
 *	carry out what it asks  while (hb_core_next_action(core, &action)) apply(&action);
 *	come back in time       sleep until hb_core_next_wake(core) or the next event
 *
 * It reads no clock, knows no CUDA, never blocks, and allocates only in
 * hb_core_new(). The same calls give the same actions, byte for byte: events of
 * one time take effect in the order posted; a timer due before an event's time
 * fires before it, one due at the same time when step() is called for that
 * time; timers of one time fire in the order they were set.
 *
 * Not thread safe: one owner at a time.
 *
 * Duties of the owner
 *  - Time never goes back. hb_core_post and hb_core_step return -EINVAL if it
 *    does and change nothing.
 *  - `busy`/`idle` when a tenant's own work in flight on the GPU becomes
 *    some/none. Hold kernels are not its own work.
 *  - `waiting` when a thread finds its gate closed.
 *  - Actions are carried out in order. Those of a removed tenant are withdrawn,
 *    so an id may be used again at once.
 *  - `drained` after each `gate closed` action, once nothing of the tenant is
 *    in flight: at once where nothing was.
 *  - `launch` and `complete` for each launch of every tenant, but only where
 *    hb_core_wants_launches(). With its gate per_launch a tenant waits for
 *    `admit`, or for its gate to open, which releases all that wait; with its
 *    gate open `launch` only informs. Ids ascend within a tenant.
 *  - request_begin/request_end where requests are known, request_past where
 *    they are known only afterwards: the one event whose fields lie in the past.
 *    What other tenants did meanwhile has to be posted before it; work of theirs
 *    that came after the request's end counts as beside it. Requests of tenants
 *    that tell none are inferred where the config says so (infer.c).
 *
 * Errors, all of which leave the core as it was (but for timers that were due
 * before): -EINVAL bad time or field, -ENOENT unknown tenant, request or
 * launch, -EEXIST id in use, -ENOSPC a table is full, -ENOBUFS actions have
 * not been drained: drain them and post again.
 */
#ifndef HB_CORE_CORE_H
#define HB_CORE_CORE_H

#include "decide/foresight.h"
#include "gate/gate.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define HB_TIME_NEVER INT64_MAX
/* Times and durations given to the core are below this (9 years), so that sums cannot overflow. */
#define HB_TIME_LIMIT_NS (INT64_C(1) << 58)
/* Tenant ids are 0 .. max_tenants - 1, chosen by the owner. */
#define HB_TENANT_NONE UINT32_MAX
#define HB_TENANTS_DEFAULT 256

struct hb_name {
	char text[48]; /* NUL-terminated */
};

enum hb_priority { HB_PRIORITY_LOW, HB_PRIORITY_HIGH };
/* What a kernel is bound by. */
enum hb_class { HB_CLASS_UNKNOWN, HB_CLASS_COMPUTE, HB_CLASS_MEMORY };

enum hb_eject_reason {
	HB_EJECT_NONE,
	HB_EJECT_UNKNOWN_TENANT,   /* asked something of a tenant that is not there */
	HB_EJECT_UNKNOWN_LAUNCH,   /* admitted a launch that does not wait, or out of order */
	HB_EJECT_BAD_TIME,         /* a negative time */
	HB_EJECT_BAD_VALUE,        /* a slice, hold, mask or depth out of range */
	HB_EJECT_TOO_MANY_ACTIONS, /* more in one callback than any sound policy needs */
	HB_EJECT_TIMER_STORM,      /* timers without progress */
	HB_EJECT_STALL,            /* a tenant waited for nothing */
	HB_EJECT_INIT,             /* its init failed */
	HB_EJECT_OWN,              /* it gave up by itself (hb_policy_fail) */
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

/* Fill with hb_core_config_init(), then change what matters. */
struct hb_core_config {
	const char *policy;              /* a name in policies.def */
	const struct hb_policy_ops *ops; /* a policy that is not in the table (tests); wins over `policy` */
	uint32_t max_tenants;
	uint32_t max_high;      /* HP tenants at one time: each has histograms (256 KiB of address space) */
	uint32_t max_requests;  /* unfinished ones, all tenants together */
	uint32_t max_launches;  /* likewise; only where launches are reported */
	int64_t quantum_ns;     /* LP turn-taking: one turn of a tenant of weight 1 */
	int64_t turn_grace_ns;  /* a holder idle this long gives its turn to one who wants it */
	int64_t stall_limit_ns; /* a tenant kept waiting for nothing this long: policy ejected */
	uint32_t sms;           /* of the GPU */
	uint32_t gate_depth;    /* LP launches in flight while open; 0 = the policy's own default */
	bool low_shared;        /* all LP tenants live in one (MPS) context */
	int64_t low_slice_ns, high_slice_ns; /* temporal: LP's slice; the slice of the most urgent HP tenant */
	int64_t switch_ns;                   /* cost of one context switch */
	int64_t hold_lead_ns;                /* start holds this long before HP's launch */
	int64_t hold_grace_ns;               /* hold this long past the expected start, then call the hint wrong */
	bool foresight_off;                  /* learn nothing: hints that name a time, carried out as they are */
	uint32_t hold_budget_ppm;            /* share of LP's time that holds may cost */
	bool infer_requests;                 /* of HP tenants that tell none, from busy and idle; see infer.c */
	uint32_t orion_sms;                  /* LP kernels that need more never run beside HP; 0 = half of sms */
	int64_t orion_budget_ns;             /* LP time beside HP until HP is idle; 0 = see policy_orion.c */
};

/* The settings that ship; see decide/defaults.def. */
void hb_core_config_init(struct hb_core_config *config);

struct hb_core;

/* NULL with *error set: -EINVAL (unknown policy, bad value), -ENOMEM. `error` may be NULL. */
struct hb_core *hb_core_new(const struct hb_core_config *config, int64_t now_ns, int *error);
void hb_core_free(struct hb_core *core);

int hb_core_post(struct hb_core *core, int64_t now_ns, const struct hb_event *event);
int hb_core_step(struct hb_core *core, int64_t now_ns);
/* The oldest action not yet taken; false = none. */
bool hb_core_next_action(struct hb_core *core, struct hb_action *action);
/* When step() has something to do, HB_TIME_NEVER = not before the next event. May lie in the past: step at once. */
int64_t hb_core_next_wake(const struct hb_core *core);
/* Whether `launch` and `complete` events are wanted; may change with every call to post or step (ejection). */
bool hb_core_wants_launches(const struct hb_core *core);
/* The policy in force: "builtin" after an ejection. */
const char *hb_core_policy(const struct hb_core *core);
/* Of HP's work it needs requests and hints only (hb_policy_ops.high_by_requests); may change with every call too. */
bool hb_core_high_by_requests(const struct hb_core *core);

/* Everything a person needs to see what the core thinks, in a stable text form. */
void hb_core_dump(const struct hb_core *core, FILE *out);

/* What is known of one tenant; NULL = no such tenant. Valid until the next post or step. */
const struct hb_tenant *hb_core_tenant(const struct hb_core *core, uint32_t tenant);

/* The record of an ejection: why, when, and the policy's own words. */
struct hb_ejection {
	enum hb_eject_reason reason; /* HB_EJECT_NONE = never happened */
	int64_t at_ns;
	uint32_t tenant; /* the one concerned, or HB_TENANT_NONE */
	struct hb_name policy;
	char message[160];
	char dump[2048]; /* what the policy's dump() said, cut to fit */
};
const struct hb_ejection *hb_core_ejection(const struct hb_core *core);

#endif
