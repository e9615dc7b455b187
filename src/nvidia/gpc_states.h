/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether the GPC of each bit of SM masks is known (gpc_states.def): as a number on
 * shared pages, as a word in JSON, and as a text for people.
 */
#ifndef HB_GPU_GPC_STATES_H
#define HB_GPU_GPC_STATES_H

#include <stdbool.h>

enum hb_gpc_state {
#define HB_GPC_STATE(name, text) HB_GPC_##name,
#include "nvidia/gpc_states.def"
#undef HB_GPC_STATE
	HB_N_GPC_STATES
};

/* Returns the text for people; "?" for an unknown number. */
const char *hb_gpc_state_text(enum hb_gpc_state state);

/* Returns the name of the row, such as "KNOWN"; "?" for an unknown number. */
const char *hb_gpc_state_word(enum hb_gpc_state state);

/* False, with *state unchanged, for NULL or an unknown word. */
bool hb_gpc_state_parse(const char *word, enum hb_gpc_state *state);

#endif
