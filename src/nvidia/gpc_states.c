/* SPDX-License-Identifier: Apache-2.0 */
/* Words and texts of gpc_states.def; see gpc_states.h. */
#include "nvidia/gpc_states.h"

#include <stddef.h>
#include <string.h>

static const struct {
	const char *word, *text;
} states[HB_N_GPC_STATES] = {
#define HB_GPC_STATE(name, text) [HB_GPC_##name] = {#name, text},
#include "nvidia/gpc_states.def"
#undef HB_GPC_STATE
};

const char *hb_gpc_state_text(enum hb_gpc_state state)
{
	return (unsigned)state < HB_N_GPC_STATES ? states[state].text : "?";
}

const char *hb_gpc_state_word(enum hb_gpc_state state)
{
	return (unsigned)state < HB_N_GPC_STATES ? states[state].word : "?";
}

bool hb_gpc_state_parse(const char *word, enum hb_gpc_state *state)
{
	for (int i = 0; word && i < HB_N_GPC_STATES; i++)
		if (strcmp(word, states[i].word) == 0) {
			*state = (enum hb_gpc_state)i;
			return true;
		}
	return false;
}
