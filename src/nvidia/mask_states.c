/* SPDX-License-Identifier: Apache-2.0 */
/* Texts of mask_states.def; see mask_states.h. */
#include "nvidia/mask_states.h"

static const char *const texts[HB_N_MASK_STATES] = {
#define HB_MASK_STATE(name, text) [HB_MASK_##name] = (text),
#include "nvidia/mask_states.def"
#undef HB_MASK_STATE
};

const char *hb_mask_state_text(enum hb_mask_state state)
{
	return (unsigned)state < HB_N_MASK_STATES ? texts[state] : "?";
}
