/* SPDX-License-Identifier: Apache-2.0 */
/* Whether launches can carry SM masks (mask_states.def): as a number on shared pages and as a text for people. */
#ifndef HB_GPU_MASK_STATES_H
#define HB_GPU_MASK_STATES_H

enum hb_mask_state {
#define HB_MASK_STATE(name, text) HB_MASK_##name,
#include "nvidia/mask_states.def"
#undef HB_MASK_STATE
	HB_N_MASK_STATES
};

/* "?" for a number that is none. */
const char *hb_mask_state_text(enum hb_mask_state state);

#endif
