/* SPDX-License-Identifier: Apache-2.0 */
/* The policies by name, from policies.def. Used by core.c and by messages that list them. */
#include "core/policy.h"

#include <string.h>

#define HB_POLICY(name) extern const struct hb_policy_ops hb_policy_##name##_ops;
#include "core/policies.def"

static const struct hb_policy_ops *const policies[] = {
#define HB_POLICY(name) &hb_policy_##name##_ops,
#include "core/policies.def"
};

const char *const hb_policy_names[] = {
#define HB_POLICY(name) #name,
#include "core/policies.def"
	NULL,
};

const char hb_policy_words[] =
#define HB_POLICY(name) " " #name
#include "core/policies.def"
	;

const struct hb_policy_ops *hb_policy_find(const char *name)
{
	for (size_t i = 0; name && i < sizeof policies / sizeof *policies; i++)
		if (!strcmp(policies[i]->name, name))
			return policies[i];
	return NULL;
}
