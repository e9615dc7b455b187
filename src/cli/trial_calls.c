/* SPDX-License-Identifier: Apache-2.0 */
/* Looks up driver functions and creates a context with them; see trial_calls.h. */
#include "cli/trial_calls.h"

#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

const char *hb_trial_find(void *library, struct hb_trial_calls *calls)
{
	const struct {
		const char *name;
		void *place;
	} rows[] = {
#define X(name) {#name, &calls->name},
		HB_TRIAL_CALLS(X)
#undef X
	};
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		void *found = dlsym(library, rows[i].name);
		if (!found)
			return rows[i].name;
		memcpy(rows[i].place, &found, sizeof found);
	}
	return NULL;
}

const char *hb_trial_begin(void *library, struct hb_trial_calls *calls, int *code)
{
	CUcontext context;
	const char *missing = hb_trial_find(library, calls);
	if (missing)
		return missing;
	if ((*code = calls->cuInit(0)))
		return "cuInit";
	if ((*code = calls->cuDevicePrimaryCtxRetain(&context, 0)))
		return "cuDevicePrimaryCtxRetain";
	*code = calls->cuCtxSetCurrent(context);
	return *code ? "cuCtxSetCurrent" : NULL;
}
