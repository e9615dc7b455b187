/* SPDX-License-Identifier: Apache-2.0 */
/* Sets a time slice and reads it back; see doctor_slice.h. */
#include "cli/doctor_slice.h"

#include "base/json.h"
#include "cli/cli.h"
#include "cli/trial_calls.h"
#include "gpu/provider.h"
#include "nvidia/nvidia_rm.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

/*
 * The slice that the trial sets. It differs from the driver's defaults (2048 us and 1024 us on an H200) and does not
 * disturb other programs.
 */
#define TRIAL_US 500

static const char *const state_texts[] = {
#define HB_GROUP_STATE(name, text) [HB_GROUP_##name] = text,
#include "hummingbird/group_states.def"
#undef HB_GROUP_STATE
};

/* The channel groups of one class. */
struct groups_found {
	int seen, set;
	uint32_t state,
		rm_status; /* `state` (enum hb_group_state) and `rm_status` of a group whose slice was not set */
};

/* A pipe folder that does not exist, so that the context is not a client of an MPS server. */
#define NO_MPS "/nonexistent/mps"

void *hb_doctor_open_driver(bool simulated)
{
	char path[PATH_MAX];
	const char *given = getenv("HB_REAL_LIBCUDA");
	if (hb_provider_of(simulated)->driver_library(path, sizeof path) < 0)
		strcpy(path, "libcuda.so.1");
	return dlopen(given && *given && !simulated ? given : path, RTLD_NOW | RTLD_LOCAL);
}

/* Creates a tenant page as the daemon would: one GPU, with slices requested for its groups. */
static struct hb_page *make_page(const CUuuid *uuid)
{
	struct hb_page *page = calloc(1, sizeof *page);
	if (!page)
		return NULL;
	memcpy(page->gpus[0].uuid, uuid->bytes, sizeof page->gpus[0].uuid);
	page->gpus[0].slice_us[HB_GROUP_COMPUTE] = TRIAL_US;
	page->gpus[0].slice_us[HB_GROUP_COPY] = TRIAL_US;
	page->n_gpus = 1;
	page->slice_sequence = 1;
	return page;
}

/* Creates a context. Returns NULL, or the first call that failed, with its CUDA error in *code. */
static const char *try_context(void *library, struct hb_page **page, int *code)
{
	struct hb_trial_calls cuda;
	CUdevice device;
	CUuuid uuid;
	CUcontext context;
	const char *missing = hb_trial_find(library, &cuda);
	if (missing)
		return missing;
	if ((*code = cuda.cuInit(0)))
		return "cuInit";
	if ((*code = cuda.cuDeviceGet(&device, 0)))
		return "cuDeviceGet";
	if ((*code = cuda.cuDeviceGetUuid(&uuid, device)))
		return "cuDeviceGetUuid";
	*page = make_page(&uuid);
	if (!*page)
		return "memory";
	hb_rm_watch_attach(*page, 0);
	if ((*code = cuda.cuDevicePrimaryCtxRetain(&context, device)))
		return "cuDevicePrimaryCtxRetain";
	hb_rm_watch_apply();
	return NULL;
}

static struct groups_found count_groups(const struct hb_page *page, enum hb_group_class group_class)
{
	struct groups_found outcome = {0};
	for (size_t i = 0; i < HB_PAGE_GROUPS; i++) {
		const struct hb_page_group *group = &page->processes[0].groups[i];
		if (group->state == HB_GROUP_EMPTY || group->group_class != group_class)
			continue;
		outcome.seen++;
		if (group->state == HB_GROUP_SET && group->got_us == TRIAL_US) {
			outcome.set++;
			continue;
		}
		outcome.state = group->state < HB_N_GROUP_STATES ? group->state : HB_GROUP_SEEN;
		outcome.rm_status = group->rm_status;
	}
	return outcome;
}

/* Describes the outcome. Returns whether slices work on all compute groups, which is what Hummingbird requires. */
static bool describe_outcome(const struct hb_page *page, char *text, size_t size)
{
	struct groups_found compute = count_groups(page, HB_GROUP_COMPUTE), copy = count_groups(page, HB_GROUP_COPY);
	const struct groups_found *bad = compute.set < compute.seen ? &compute : &copy;
	if (compute.seen == 0)
		snprintf(text, size, "no channel group was seen while the context was made");
	else if (bad->set < bad->seen)
		snprintf(text, size, "%d of %d compute and %d of %d copy groups: %s (driver status 0x%x)",
			 compute.seen - compute.set, compute.seen, copy.seen - copy.set, copy.seen,
			 state_texts[bad->state], bad->rm_status);
	else
		snprintf(text, size, "%d us set and read back on %d compute and %d copy groups", TRIAL_US, compute.set,
			 copy.set);
	return compute.seen && compute.set == compute.seen;
}

int hb_doctor_slice(bool simulated)
{
	char text[200] = "";
	bool works = false;
	int code = 0;
	struct hb_page *page = NULL;
	setenv("CUDA_MPS_PIPE_DIRECTORY", NO_MPS, 1);
	void *library = hb_doctor_open_driver(simulated);
	int watching = library ? hb_rm_watch_install(library, (hb_rm_ioctl *)dlsym(library, "hb_sim_ioctl")) : 0;
	const char *failed = library && watching >= 0 ? try_context(library, &page, &code) : NULL;
	if (!library)
		snprintf(text, sizeof text, "%.190s", dlerror());
	else if (watching < 0)
		snprintf(text, sizeof text, "the driver's calls cannot be watched: %s", strerror(-watching));
	else if (failed && code)
		snprintf(text, sizeof text, "%s failed with CUDA error %d", failed, code);
	else if (failed)
		snprintf(text, sizeof text, "the driver has no %s", failed);
	else
		works = describe_outcome(page, text, sizeof text);
	/* The context and its slice end with the process. */
	json_t *answer = hb_json_pack(NULL, "{s:b, s:b, s:s}", "works", (int)works, "context",
				      (int)(library && watching >= 0 && !failed), "found", text);
	int result = hb_json_write(answer, stdout, NULL);
	json_decref(answer);
	return result < 0 ? HB_EXIT_FAILURE : HB_EXIT_OK;
}
