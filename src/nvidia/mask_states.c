/* SPDX-License-Identifier: Apache-2.0 */
/* Texts of mask_states.def; see mask_states.h. */
#include "nvidia/mask_states.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const texts[HB_N_MASK_STATES] = {
#define HB_MASK_STATE(name, text) [HB_MASK_##name] = (text),
#include "nvidia/mask_states.def"
#undef HB_MASK_STATE
};

const char *hb_mask_state_text(enum hb_mask_state state)
{
	return (unsigned)state < HB_N_MASK_STATES ? texts[state] : "?";
}

bool hb_mask_driver_is_known(const char *version)
{
	static const char *const known[] = {
#define HB_MASK_DRIVER(version, tried) version,
#include "nvidia/mask_drivers.def"
#undef HB_MASK_DRIVER
	};
	for (size_t i = 0; i < sizeof known / sizeof *known; i++)
		if (strcmp(known[i], version) == 0)
			return true;
	return false;
}

void hb_mask_driver_number(const char *description, char *version, size_t size)
{
	const char *number = description;
	while (*number && !(isdigit((unsigned char)*number) && strtol(number, NULL, 10) > 99))
		number++;
	snprintf(version, size, "%.*s", (int)strspn(number, "0123456789."), number);
}
