/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads GPU files through the one configuration reader; see spec.h. Every key
 * of spec.def must be there: a forgotten constant would silently be zero.
 */
#include "gpumodel/spec.h"

#include "base/config.h"
#include "base/paths.h"

#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

static const struct hb_config_key spec_keys[] = {HB_CONFIG_TEXT(struct hb_gpu_spec, name, "name", .required = true),
#define HB_SPEC_FIELD(field, unit, low, high, what) \
	HB_CONFIG_REAL(struct hb_gpu_spec, field, #field, .required = true, .real_min = low, .real_max = high),
#include "gpumodel/spec.def"
#undef HB_SPEC_FIELD
						 HB_CONFIG_END};

/* Adds to *error which GPUs exist, as far as the folder of the GPU files can be read. */
static void add_known_gpus(struct hb_error *error)
{
	char pattern[PATH_MAX], known[256] = "";
	glob_t files = {0};
	if (!error || hb_path_data("gpus", pattern, sizeof pattern - sizeof "/*.yaml", NULL) < 0)
		return;
	strcat(pattern, "/*.yaml");
	if (glob(pattern, 0, NULL, &files) == 0)
		for (size_t i = 0, used = 0; i < files.gl_pathc && used < sizeof known; i++) {
			const char *name = strrchr(files.gl_pathv[i], '/') + 1;
			used += (size_t)snprintf(known + used, sizeof known - used, "%s%.*s", i ? ", " : "",
						 (int)(strlen(name) - strlen(".yaml")), name);
		}
	globfree(&files);
	size_t length = strlen(error->text);
	if (known[0])
		snprintf(error->text + length, sizeof error->text - length, "; known: %s, or the path of a GPU file",
			 known);
}

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
		if (result < 0) {
			add_known_gpus(error);
			return result;
		}
	}
	int result = hb_config_load(path, spec_keys, &read, sizeof read, error);
	if (result < 0)
		return result;
	*spec = read;
	return 0;
}
