/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads GPU files through the one configuration reader; see spec.h. Every key
 * of spec.def must be there: a forgotten constant would silently be zero.
 */
#include "gpumodel/spec.h"

#include "base/config.h"
#include "base/paths.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

static const struct hb_config_key spec_keys[] = {HB_CONFIG_TEXT(struct hb_gpu_spec, name, "name", .required = true),
#define HB_SPEC_FIELD(field, unit, low, high, what) \
	HB_CONFIG_REAL(struct hb_gpu_spec, field, #field, .required = true, .real_min = low, .real_max = high),
#include "gpumodel/spec.def"
#undef HB_SPEC_FIELD
						 HB_CONFIG_END};

int hb_gpu_spec_load(const char *name, struct hb_gpu_spec *spec, struct hb_error *error)
{
	char path[PATH_MAX];
	struct hb_gpu_spec read = {.name = ""};
	if (strchr(name, '/')) {
		snprintf(path, sizeof path, "%s", name);
	} else {
		char relative[128];
		snprintf(relative, sizeof relative, "gpus/%.64s.yaml", name);
		int result = hb_path_data(relative, path, sizeof path, error);
		if (result < 0)
			return result;
	}
	int result = hb_config_load(path, spec_keys, &read, sizeof read, error);
	if (result < 0)
		return result;
	*spec = read;
	return 0;
}
