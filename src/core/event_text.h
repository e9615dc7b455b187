/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Events and actions as text, both made from the tables: "launch hp0 launch=3
 * duration=20us class=memory". Used by the scenario runner, by recordings and by
 * whoever shows a person what the core did. Not for hot paths.
 */
#ifndef HB_CORE_EVENT_TEXT_H
#define HB_CORE_EVENT_TEXT_H

#include "base/error.h"
#include "core/core.h"

/* The words of an enumerated field; values outside give "?". */
const char *hb_gate_state_name(enum hb_gate_state state);
const char *hb_eject_reason_name(enum hb_eject_reason reason);
const char *hb_event_name(enum hb_event_kind kind);
const char *hb_action_name(enum hb_action_kind kind);

/* Id of a tenant's word, HB_TENANT_NONE = unknown. */
typedef uint32_t hb_tenant_lookup_fn(void *argument, const char *word);

/*
 * words[0] names the event, words[1] the tenant, the rest are key=value (a bare
 * key for flags) in any order. 0, -EINVAL (error says which word, and what it
 * could be).
 */
int hb_event_parse(char *const words[], size_t n, hb_tenant_lookup_fn *lookup, void *argument, struct hb_event *event,
		   struct hb_error *error);

/* Without a newline; fields that are 0 and need not be given are left out. `tenant` NULL: printed as #ID, or not at
 * all for HB_TENANT_NONE. What is printed can be parsed again. */
void hb_event_print(const struct hb_event *event, const char *tenant, FILE *out);
void hb_action_print(const struct hb_action *action, const char *tenant, FILE *out);

#endif
