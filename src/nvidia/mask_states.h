/* SPDX-License-Identifier: Apache-2.0 */
/* Whether SM masks work for launches (mask_states.def): as a number on shared pages and as a text for people. */
#ifndef HB_GPU_MASK_STATES_H
#define HB_GPU_MASK_STATES_H

#include <stdbool.h>
#include <stddef.h>

enum hb_mask_state {
#define HB_MASK_STATE(name, text) HB_MASK_##name,
#include "nvidia/mask_states.def"
#undef HB_MASK_STATE
	HB_N_MASK_STATES
};

/* Returns the text for people; "?" for an unknown number. */
const char *hb_mask_state_text(enum hb_mask_state state);

/* Whether masks were tried with this version of the driver (mask_drivers.def). */
bool hb_mask_driver_is_known(const char *version);

/*
 * Copies the version number, as "580.159.04", out of the driver's own description: "NVIDIA UNIX Open Kernel Module for x86_64
 * 580.159.04  Release Build ...". "" = there is none.
 */
void hb_mask_driver_number(const char *description, char *version, size_t size);

#endif
