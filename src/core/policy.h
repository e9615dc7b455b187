/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a policy is and may do. One policy is one file policy_NAME.c with one
 * struct hb_policy_ops, listed in policies.def. How to write one:
 * docs/policies.md.
 *
 * Rules
 *  - Called by the core only, from post() and step(). The core's own books are
 *    up to date before the callback.
 *  - No clock, no allocation, no I/O, no static variables: time is
 *    hb_policy_now_ns(), state lives in the areas declared in the ops.
 *  - A policy asks through the calls below. What it asks is checked; nonsense
 *    ejects the policy: the rest of what it asks is ignored, everything it set
 *    is undone, the built-in policy takes over, and hb_core_ejection() says why.
 *    So no call returns an error.
 *  - It is also ejected for keeping a tenant waiting for nothing: an LP tenant
 *    that it shut out while no HP tenant wants the GPU, or any HP tenant while
 *    no LP tenant is undrained, with no timer of the policy pending, for
 *    longer than the stall limit.
 */
#ifndef HB_CORE_POLICY_H
#define HB_CORE_POLICY_H

#include "core/tenant.h"

#define HB_POLICY_STATE_MAX 65536  /* bytes of state */
#define HB_POLICY_TENANT_MAX 32768 /* bytes of state a tenant; touched only where a policy asks for so much */
#define HB_POLICY_TIMERS 4         /* for each tenant, and as many without */

/* Bounds of what may be asked; beyond them is nonsense. */
#define HB_SPLIT_MAX_NS (10 * INT64_C(1000000000))
#define HB_TAKEOVER_MAX_NS (1 * INT64_C(1000000000))
/* Asks in one callback: a few for each tenant. */
#define HB_POLICY_ASKS(tenants) (16 + 4 * (uint32_t)(tenants))
/* Timers that fire within HB_TIMER_WINDOW_NS of time before it is called a storm. */
#define HB_TIMER_STORM 1000
#define HB_TIMER_WINDOW_NS INT64_C(1000000)

/* The policy's handle on its core. */
struct hb_policy;

/* All members but name and summary are optional. */
struct hb_policy_ops {
	const char *name;    /* [a-z0-9_]+ */
	const char *summary; /* one line for people */
	size_t state_bytes;  /* hb_policy_state(): zeroed before init */
	size_t tenant_bytes; /* hb_policy_tenant_state(): zeroed before tenant_added */
	bool turns;          /* LP tenants take turns from the start (hb_policy_turns changes it) */
	bool launches;       /* wants launch and complete */
	/* Of HP's work it needs requests and hints only: nobody need look for launches. */
	bool high_by_requests;

	/* First call; no tenant yet. Negative errno = ejected at once. */
	int (*init)(struct hb_policy *policy);
	/* Its gate stands open and nothing else is set. */
	void (*tenant_added)(struct hb_policy *policy, uint32_t tenant);
	/* SLO or weight changed, by the owner or by learning. */
	void (*tenant_changed)(struct hb_policy *policy, uint32_t tenant);
	/* Already gone: its data may be read until the return, but nothing may be asked of it. Its timers are cancelled. */
	void (*tenant_removed)(struct hb_policy *policy, uint32_t tenant);

	void (*request_begun)(struct hb_policy *policy, uint32_t tenant, const struct hb_work *request);
	void (*request_ended)(struct hb_policy *policy, uint32_t tenant, const struct hb_work *request);
	/* After request_ended, and for those that are known only since they are over. */
	void (*request_judged)(struct hb_policy *policy, uint32_t tenant, const struct hb_work *request,
			       int64_t end_ns);
	/* `waits`: it needs hb_policy_admit() (or its gate opened). */
	void (*launched)(struct hb_policy *policy, uint32_t tenant, const struct hb_work *launch, bool waits);
	void (*completed)(struct hb_policy *policy, uint32_t tenant, const struct hb_work *launch);
	void (*busy)(struct hb_policy *policy, uint32_t tenant);
	void (*idle)(struct hb_policy *policy, uint32_t tenant);
	void (*waiting)(struct hb_policy *policy, uint32_t tenant);
	void (*drained)(struct hb_policy *policy, uint32_t tenant);
	void (*hint)(struct hb_policy *policy, uint32_t tenant, int64_t expected_start_ns, enum hb_sign sign,
		     uint64_t source);
	/* tenant = HB_TENANT_NONE for timers without one. */
	void (*timer)(struct hb_policy *policy, uint32_t tenant, uint32_t tag);
	/* For hb_core_dump() and the ejection record. Must not ask for anything. */
	void (*dump)(const struct hb_policy *policy, FILE *out);
};

/* --- looking --- */

int64_t hb_policy_now_ns(const struct hb_policy *policy);
const struct hb_core *hb_policy_core(const struct hb_policy *policy);
const struct hb_core_config *hb_policy_config(const struct hb_policy *policy);
void *hb_policy_state(const struct hb_policy *policy);
/* NULL for a tenant that is not there. */
void *hb_policy_tenant_state(const struct hb_policy *policy, uint32_t tenant);
const struct hb_tenant *hb_policy_tenant(const struct hb_policy *policy, uint32_t tenant);
/* Tenants of a priority in order of id: start with HB_TENANT_NONE, ends with it. */
uint32_t hb_policy_next(const struct hb_policy *policy, enum hb_priority priority, uint32_t after);
/* Some HP tenant wants the GPU (hb_tenant_wants_gpu). */
bool hb_policy_high_wants_gpu(const struct hb_policy *policy);
/* Some HP tenant has work in flight. */
bool hb_policy_high_busy(const struct hb_policy *policy);
/* Some LP tenant has not drained since its gate closed. */
bool hb_policy_low_undrained(const struct hb_policy *policy);

/* --- asking --- */

/* With turns on, an LP tenant's gate is open only in its turn whatever is asked here. No action where nothing changes. */
void hb_policy_gate(struct hb_policy *policy, uint32_t tenant, enum hb_gate_state state, uint32_t depth);
/* The same for all tenants of a priority. */
void hb_policy_gate_all(struct hb_policy *policy, enum hb_priority priority, enum hb_gate_state state, uint32_t depth);
/* The tenant's oldest pending launch, named to prove that both sides mean the same one. */
void hb_policy_admit(struct hb_policy *policy, uint32_t tenant, uint64_t launch);
void hb_policy_slice(struct hb_policy *policy, uint32_t tenant, int64_t compute_ns, int64_t copy_ns);
void hb_policy_hold(struct hb_policy *policy, uint32_t tenant, int64_t limit_ns);
void hb_policy_release(struct hb_policy *policy, uint32_t tenant);
void hb_policy_mask(struct hb_policy *policy, uint32_t tenant, uint32_t sms);
/* HP tenants: the delay that LP may cause each request, in ppm of its time alone, at most 1000000; see spatial.h. */
void hb_policy_terms(struct hb_policy *policy, uint32_t tenant, uint32_t delay_ppm);
/* Calls timer() at at_ns (or as soon as possible). One timer for each tenant and tag < HB_POLICY_TIMERS; setting replaces. */
void hb_policy_timer(struct hb_policy *policy, uint32_t tenant, uint32_t tag, int64_t at_ns);
void hb_policy_cancel(struct hb_policy *policy, uint32_t tenant, uint32_t tag);
/* LP turn-taking on or off. */
void hb_policy_turns(struct hb_policy *policy, bool on);
/* Counters that only the policy can know; NULL for a tenant that is not there. */
struct hb_tenant_counters *hb_policy_counters(struct hb_policy *policy, uint32_t tenant);
/* Gives up: ejects the policy with this message. */
void hb_policy_fail(struct hb_policy *policy, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* --- the table --- */

/* NULL = no such policy. */
const struct hb_policy_ops *hb_policy_find(const char *name);
/* Names in table order, NULL-terminated. */
extern const char *const hb_policy_names[];
extern const char hb_policy_words[]; /* " builtin gate ...", for messages */
extern const struct hb_policy_ops hb_policy_builtin_ops;

#endif
