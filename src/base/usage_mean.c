/* SPDX-License-Identifier: Apache-2.0 */
/* See usage_mean.h. */
#include "base/usage_mean.h"

#include <string.h>

#define STEPS 12 /* of 5 s in the daemon's history */
#define ALL_PPM 1000000

const json_t *hb_usage_find(const json_t *status, const char *uuid)
{
	size_t i;
	json_t *gpu;
	json_array_foreach(json_object_get(status, "gpus"), i, gpu)
	{
		const char *found = json_string_value(json_object_get(gpu, "uuid"));
		if (found && strcmp(found, uuid) == 0)
			return gpu;
	}
	return NULL;
}

int64_t hb_usage_mean_ppm(const json_t *gpu, const char *list)
{
	const json_t *steps = json_object_get(json_object_get(gpu, "history"), list);
	size_t all = json_array_size(steps), n = all < STEPS ? all : STEPS;
	int64_t sum = 0;
	for (size_t k = 0; k < n; k++) {
		json_int_t share = json_integer_value(json_array_get(steps, all - 1 - k));
		sum += share < 0 ? 0 : share > ALL_PPM ? ALL_PPM : share;
	}
	return n ? sum / (int64_t)n : -1;
}
