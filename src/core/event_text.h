/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Events and actions as text, such as "tenant_add hp0 priority=high slo=10ms". Both
 * directions are made from the tables of events and actions. Used by scenarios, by
 * recordings and wherever people read what the core did. Too slow for hot paths.
 */
#ifndef HB_CORE_EVENT_TEXT_H
#define HB_CORE_EVENT_TEXT_H

#include "base/error.h"
#include "core/core.h"

/* The word for a gate's state; "?" for an invalid value. */
const char *hb_gate_state_name(enum hb_gate_state state);

/* Returns the id of the tenant that `word` names; HB_TENANT_NONE = unknown. */
typedef uint32_t hb_tenant_lookup_fn(void *argument, const char *word);

/*
 * words[0] names the event, words[1] the tenant, the rest are key=value (a bare
 * key for flags) in any order. 0, -EINVAL (error says which word, and what it
 * could be).
 */
int hb_event_parse(char *const words[], size_t n, hb_tenant_lookup_fn *lookup, void *argument, struct hb_event *event,
		   struct hb_error *error);

/*
 * Prints without a newline. Optional fields that are 0 are left out. If `tenant` is
 * NULL, the tenant is printed as #ID, or not at all for HB_TENANT_NONE. The output can
 * be parsed again.
 */
void hb_event_print(const struct hb_event *event, const char *tenant, FILE *out);
void hb_action_print(const struct hb_action *action, const char *tenant, FILE *out);

#endif
