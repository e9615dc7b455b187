/* SPDX-License-Identifier: Apache-2.0 */
/* Loads NVML by dlopen; see nvml_library.h. */
#include "nvidia/nvml_library.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

static struct hb_nvml_calls calls;
static char failure[128]; /* "" = the library can be used */
static pthread_once_t tried = PTHREAD_ONCE_INIT;

const char *hb_nvml_error_text(int code)
{
	switch (code) {
	case HB_NVML_NOT_SUPPORTED:
		return "not supported on this GPU";
	case HB_NVML_NO_PERMISSION:
		return "no permission";
	case HB_NVML_NOT_FOUND:
		return "it knows no such GPU";
	case HB_NVML_DRIVER_NOT_LOADED:
		return "the driver is not loaded";
	case HB_NVML_GPU_IS_LOST:
		return "the GPU is lost: it has fallen off the bus or does not answer";
	default:
		return "it failed";
	}
}

static void *find_symbol(void *library, const char *name, const char *older)
{
	void *found = dlsym(library, name);
	return found || !older ? found : dlsym(library, older);
}

/* Looks up all functions. Returns the first required name that is missing, or NULL. */
static const char *find_calls(void *library)
{
	enum { MAY, MUST };
	const struct {
		const char *name, *older;
		void *place;
		int wanted;
	} rows[] = {
#define HB_NVML(field, wanted, name, older, params) {name, older, &calls.field, wanted},
#include "nvidia/nvml_calls.def"
	};
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		void *found = find_symbol(library, rows[i].name, rows[i].older);
		if (!found && rows[i].wanted == MUST)
			return rows[i].name;
		memcpy(rows[i].place, &found, sizeof found);
	}
	return NULL;
}

static void load_library(void)
{
	void *library = dlopen(HB_NVML_LIBRARY, RTLD_NOW | RTLD_LOCAL);
	const char *missing = library ? find_calls(library) : NULL;
	int code = library && !missing ? calls.init() : HB_NVML_SUCCESS;
	if (!library)
		snprintf(failure, sizeof failure, HB_NVML_LIBRARY " cannot be loaded");
	else if (missing)
		snprintf(failure, sizeof failure, HB_NVML_LIBRARY " has no %s", missing);
	else if (code != HB_NVML_SUCCESS)
		snprintf(failure, sizeof failure, HB_NVML_LIBRARY " does not start: %s (%d)", hb_nvml_error_text(code),
			 code);
}

const struct hb_nvml_calls *hb_nvml_load(char *why, size_t size)
{
	pthread_once(&tried, load_library);
	if (!failure[0])
		return &calls;
	snprintf(why, size, "%s", failure);
	return NULL;
}
