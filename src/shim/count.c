/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where this process counts while no daemon is attached: a record of its own,
 * laid out like a slot of the tenant page, so that the counting code is one.
 */
#include "shim/shim.h"

static struct hb_page_process alone;

_Atomic(struct hb_page_process *) hb_shim_process = &alone;
