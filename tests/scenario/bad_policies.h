/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Policies that ask for nonsense or stall, one for each thing the core must
 * survive, and the harmless ones they are compared with. In the tests only.
 */
#ifndef HB_TESTS_BAD_POLICIES_H
#define HB_TESTS_BAD_POLICIES_H

#include "core/policy.h"

/* NULL = no such policy. */
const struct hb_policy_ops *hb_bad_policy_find(const char *name);

#endif
