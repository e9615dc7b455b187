/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The interface of a policy. A policy is one file policy_NAME.c with one struct
 * hb_policy_ops, listed in policies.def. docs/policies.md shows how to write one.
 *
 * Rules
 *  - Only the core calls a policy, from post() and step(). The tenant's state is up
 *    to date before each callback.
 *  - No clock, no allocation, no I/O, no static variables: time is
 *    hb_policy_now_ns(), state is in the areas that the ops declare.
 *  - A policy asks for actions through the calls below. They return no error. The
 *    core checks each of them; an invalid one ejects the policy: its other requests
 *    of that callback are ignored, everything it set is undone, the built-in policy
 *    takes over, and hb_core_ejection() has the reason.
 *  - A policy is also ejected if it keeps a tenant waiting without a reason for
 *    longer than the stall limit: an LP tenant at a closed gate while no HP tenant
 *    wants the GPU, or an HP tenant at a closed gate while every LP tenant has
 *    drained, and no timer of the policy is pending.
 */
#ifndef HB_CORE_POLICY_H
#define HB_CORE_POLICY_H

#include "core/tenant.h"

#define HB_POLICY_STATE_MAX 65536  /* bytes of state */
#define HB_POLICY_TENANT_MAX 32768 /* bytes of state for each tenant */
#define HB_POLICY_TIMERS 4         /* for each tenant, and the same number without a tenant */

/* Longest time slice. */
#define HB_SLICE_MAX_NS (10 * INT64_C(1000000000))
/* Calls below "asking" in one callback: a few for each tenant. */
#define HB_POLICY_ASKS(tenants) (16 + 4 * (uint32_t)(tenants))
/* More timers than this within HB_TIMER_WINDOW_NS eject the policy. */
#define HB_TIMER_STORM 1000
#define HB_TIMER_WINDOW_NS INT64_C(1000000)

/* How LP tenants take turns (turns.c). */
enum hb_turn_order {
	HB_TURNS_OFF,
	HB_TURNS_BY_USER,   /* users have equal shares; the tenants of the MPS server have their turn together */
	HB_TURNS_BY_WEIGHT, /* each tenant has turns of its own, and a share by its weight */
};

/* The policy's handle on its core. */
struct hb_policy;

/* All members but name and summary are optional. */
struct hb_policy_ops {
	const char *name;    /* [a-z0-9_]+ */
	const char *summary; /* one line for people */
	size_t state_bytes;  /* hb_policy_state(): zeroed before init */
	size_t tenant_bytes; /* hb_policy_tenant_state(): zeroed before tenant_added */
	bool turns;          /* LP tenants take turns from the start; hb_policy_turns() changes this */
	bool high_by_requests; /* needs only the requests of HP tenants, so the owner need not post their busy and idle exactly */

	/* Called first, before any tenant exists. A negative errno ejects the policy at once. */
	int (*init)(struct hb_policy *policy);
	/* The gate of a new tenant is open and nothing else is set. */
	void (*tenant_added)(struct hb_policy *policy, uint32_t tenant);
	/* The owner changed SLO or weight, or the core learned an SLO. */
	void (*tenant_changed)(struct hb_policy *policy, uint32_t tenant);
	/* The tenant has left. Its state may be read, but no action may name it. Its timers are cancelled. */
	void (*tenant_removed)(struct hb_policy *policy, uint32_t tenant);

	/* A request has ended and was counted. */
	void (*request_ended)(struct hb_policy *policy, uint32_t tenant, const struct hb_request *request);
	void (*busy)(struct hb_policy *policy, uint32_t tenant);
	void (*idle)(struct hb_policy *policy, uint32_t tenant);
	void (*waiting)(struct hb_policy *policy, uint32_t tenant);
	void (*drained)(struct hb_policy *policy, uint32_t tenant);
	/* tenant = HB_TENANT_NONE for a timer without a tenant. */
	void (*timer)(struct hb_policy *policy, uint32_t tenant, uint32_t tag);
	/* Writes the policy's state for hb_core_dump() and the ejection record. Must not ask for actions. */
	void (*dump)(const struct hb_policy *policy, FILE *out);
};

/* --- reading --- */

int64_t hb_policy_now_ns(const struct hb_policy *policy);
const struct hb_core_config *hb_policy_config(const struct hb_policy *policy);
void *hb_policy_state(const struct hb_policy *policy);
/* NULL for an unknown tenant. */
void *hb_policy_tenant_state(const struct hb_policy *policy, uint32_t tenant);
const struct hb_tenant *hb_policy_tenant(const struct hb_policy *policy, uint32_t tenant);
/* The next tenant of a priority by id. Start with after = HB_TENANT_NONE; the same value ends the list. */
uint32_t hb_policy_next(const struct hb_policy *policy, enum hb_priority priority, uint32_t after);
/* Some HP tenant wants the GPU (hb_tenant_wants_gpu). */
bool hb_policy_high_wants_gpu(const struct hb_policy *policy);

/* --- asking --- */

/* With turns on, an LP tenant's gate is open only in its turn. Gives no action if nothing changes. */
void hb_policy_gate(struct hb_policy *policy, uint32_t tenant, enum hb_gate_state state, uint32_t depth);
/* Sets the gates of all tenants of a priority. */
void hb_policy_gate_all(struct hb_policy *policy, enum hb_priority priority, enum hb_gate_state state, uint32_t depth);
/* Sets the time slices of the tenant's channel groups; 0 = the GPU's default. */
void hb_policy_slice(struct hb_policy *policy, uint32_t tenant, int64_t compute_ns, int64_t copy_ns);
/* Sets the slices of all LP tenants: this one for kernels, and one by PCIe weight for copies (copy_slices.c). */
void hb_policy_slice_low(struct hb_policy *policy, int64_t compute_ns);
/* HP tenants: sets the delay that LP may cause each request, in ppm of its time alone, at most 1000000 (decide/spatial.h). */
void hb_policy_allow(struct hb_policy *policy, uint32_t tenant, uint32_t delay_ppm);
/* Calls timer() at at_ns, or now if that is past. There is one timer for each tenant and tag < HB_POLICY_TIMERS; setting it again moves it. */
void hb_policy_timer(struct hb_policy *policy, uint32_t tenant, uint32_t tag, int64_t at_ns);
void hb_policy_cancel(struct hb_policy *policy, uint32_t tenant, uint32_t tag);
/* Sets how LP tenants take turns. */
void hb_policy_turns(struct hb_policy *policy, enum hb_turn_order order);
/*
 * For policies that change no gates of LP: turns by user where LP tenants have contexts of their own. If all share
 * one (MPS) context: no turns while their weights are equal, so that they run at the same time, else turns by weight. Call it
 * whenever tenants come, change or go.
 */
void hb_policy_share_low(struct hb_policy *policy, bool one_context);

/* --- the table --- */

/* NULL = no such policy. */
const struct hb_policy_ops *hb_policy_find(const char *name);
/* Names in table order, NULL-terminated. */
extern const char *const hb_policy_names[];
extern const char hb_policy_words[]; /* " builtin gate ...", for messages */
extern const struct hb_policy_ops hb_policy_builtin_ops;

#endif
