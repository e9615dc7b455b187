/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether it is known which bits of SM masks are of one GPC (gpc_states.def): as
 * a number on shared pages, as a word in JSON and as a text for people.
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

/* "?" for a number that is none. */
const char *hb_gpc_state_text(enum hb_gpc_state state);

/* The row's name, KNOWN; "?" for a number that is none. */
const char *hb_gpc_state_word(enum hb_gpc_state state);

/* False, and *state unchanged, for a word that is none (NULL too). */
bool hb_gpc_state_parse(const char *word, enum hb_gpc_state *state);

#endif
