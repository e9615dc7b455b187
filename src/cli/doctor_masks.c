/* SPDX-License-Identifier: Apache-2.0 */
/* Tries SM masks; see doctor_masks.h. */
#include "cli/doctor_masks.h"

#include "base/json.h"
#include "cli/cli.h"
#include "cli/doctor_slice.h"
#include "cli/trial_calls.h"
#include "nvidia/launch_mask.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

/* Returns the first name that is missing, or NULL. */
static const char *find_calls(void *library, struct hb_mask_calls *calls)
{
#define X(name) \
	calls->name = (__typeof__(calls->name))dlsym(library, #name); \
	if (!calls->name) \
		return #name;
	HB_MASK_CALLS(X)
#undef X
	return NULL;
}

const char *hb_doctor_try_masks(void *library, enum hb_mask_state *state, int *code)
{
	struct hb_trial_calls cuda;
	struct hb_mask_calls calls;
	const char *failed = find_calls(library, &calls);
	if (!failed)
		failed = hb_trial_begin(library, &cuda, code);
	if (failed)
		return failed;
	*state = hb_mask_probe(&calls, 0);
	return NULL;
}

int hb_doctor_masks(bool simulated)
{
	char text[200] = "";
	int code = 0;
	enum hb_mask_state state = HB_MASK_UNTRIED;
	setenv("CUDA_MPS_PIPE_DIRECTORY", "/nonexistent/mps", 1); /* so that the context is outside any MPS server */
	void *library = hb_doctor_open_driver(simulated);
	const char *failed = library ? hb_doctor_try_masks(library, &state, &code) : NULL;
	if (!library)
		snprintf(text, sizeof text, "%.190s", dlerror());
	else if (failed && code)
		snprintf(text, sizeof text, "%s failed with CUDA error %d", failed, code);
	else if (failed)
		snprintf(text, sizeof text, "the driver has no %s", failed);
	else if (state == HB_MASK_WORKS)
		snprintf(text, sizeof text, "each of %u SMs was masked, two at a time, and launches did not use them",
			 hb_mask_sms(0));
	else
		snprintf(text, sizeof text, "%s", hb_mask_state_text(state));
	json_t *answer = hb_json_pack(NULL, "{s:b, s:i, s:s}", "works", (int)(state == HB_MASK_WORKS), "state",
				      (int)(state ? state : HB_MASK_CALL_FAILED), "found", text);
	int result = hb_json_write(answer, stdout, NULL);
	json_decref(answer);
	return result < 0 ? HB_EXIT_FAILURE : HB_EXIT_OK;
}
