/* SPDX-License-Identifier: Apache-2.0 */
/* Finds which SMs form a GPC; see doctor_gpcs.h. */
#include "cli/doctor_gpcs.h"

#include "base/clock.h"
#include "base/json.h"
#include "base/uuid.h"
#include "cli/cli.h"
#include "cli/doctor_masks.h"
#include "cli/doctor_slice.h"
#include "nvidia/gpc_trial.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct gpc_finding {
	enum hb_gpc_state state;
	struct hb_gpc_layout layout;
	struct hb_gpc_seen seen;
	struct hb_gpc_effort effort;
	char failed[200]; /* why no trial was possible; "" = there was a trial */
};

static bool find_calls(void *library, struct hb_gpc_calls *calls)
{
	bool found = true;
#define X(name) \
	calls->name = (__typeof__(calls->name))dlsym(library, #name); \
	found &= calls->name != NULL;
	HB_GPC_CALLS(X)
#undef X
	return found;
}

/*
 * Returns whether the device is a MIG instance: then the second form of the call returns the instance's UUID, the first
 * the GPU's.
 */
static bool is_part_of_a_gpu(void *library)
{
	typedef CUresult get(CUuuid *, CUdevice);
	get *full = (get *)dlsym(library, "cuDeviceGetUuid"), *part = (get *)dlsym(library, "cuDeviceGetUuid_v2");
	CUuuid a, b;
	return full && part && full(&a, 0) == CUDA_SUCCESS && part(&b, 0) == CUDA_SUCCESS &&
	       memcmp(&a, &b, sizeof a) != 0;
}

static void try_gpcs(void *library, struct gpc_finding *finding)
{
	struct hb_gpc_calls calls;
	enum hb_mask_state masks = HB_MASK_UNTRIED;
	int code = 0;
	const char *failed = hb_doctor_try_masks(library, &masks, &code);
	finding->state = HB_GPC_NO_MASKS;
	if (failed)
		snprintf(finding->failed, sizeof finding->failed, "%s is missing or failed (CUDA error %d)", failed,
			 code);
	else if (masks != HB_MASK_WORKS)
		snprintf(finding->failed, sizeof finding->failed, "%s", hb_mask_state_text(masks));
	if (finding->failed[0])
		return;
	if (is_part_of_a_gpu(library))
		finding->state = HB_GPC_PART_OF_A_GPU;
	else if (!find_calls(library, &calls))
		finding->state = HB_GPC_NO_CLUSTERS; /* the driver is too old for clusters */
	else
		finding->state = hb_gpc_trial(&calls, &finding->layout, &finding->seen, &finding->effort);
}

static json_t *describe_bits(const uint32_t word[HB_GPC_WORDS])
{
	char text[8 * HB_GPC_WORDS + 1];
	snprintf(text, sizeof text, "%08x%08x%08x%08x", word[3], word[2], word[1], word[0]);
	return json_string(text);
}

static json_t *describe_groups(const struct hb_gpc_layout *layout)
{
	json_t *groups = json_array();
	for (uint32_t group = 0; group < layout->n_groups; group++) {
		uint32_t word[HB_GPC_WORDS] = {0};
		for (int bit = 0; bit < HB_GPC_BITS; bit++)
			if (layout->group_of[bit] == group + 1)
				word[bit / 32] |= UINT32_C(1) << bit % 32;
		json_array_append_new(groups, hb_json_pack(NULL, "{s:i, s:o}", "sms", layout->sms[group], "bits",
							   describe_bits(word)));
	}
	return groups;
}

static json_t *describe_sizes(const struct hb_gpc_sizes *sizes)
{
	json_t *list = json_array();
	for (int size = HB_GPC_SMS_MAX; size > 0; size--)
		if (sizes->with[size])
			json_array_append_new(
				list, hb_json_pack(NULL, "{s:i, s:i}", "groups", sizes->with[size], "sms", size));
	return list;
}

/* Adds what may explain a failure: the groups of the full GPU, and the groups and the launch of the last measurement. */
static void add_seen(json_t *answer, const struct gpc_finding *finding)
{
	const struct hb_gpc_seen *seen = &finding->seen;
	json_object_set_new(answer, "seen", describe_sizes(&seen->whole));
	json_object_set_new(answer, "seen_last",
			    hb_json_pack(NULL, "{s:o, s:o, s:i, s:b}", "without", describe_bits(seen->removed), "sizes",
					 describe_sizes(&seen->last), "cluster", (int)finding->effort.cluster, "hangs",
					 (int)finding->effort.hangs));
}

static void format_groups(const struct hb_gpc_layout *layout, char *text, size_t size)
{
	size_t used = 0;
	for (uint32_t group = 0; group < layout->n_groups && used < size; group++)
		used += (size_t)snprintf(text + used, size - used, "%s%u", group ? ", " : "GPCs of ",
					 layout->sms[group]);
	if (used < size)
		snprintf(text + used, size - used, " SMs; each GPC was masked, and then seen to be missing");
}

/* Writes why the trial failed, the sizes of the SM groups that it saw (such as 7 of 18 SMs), and whether clusters never started. */
static void format_failure(const struct gpc_finding *finding, char *text, size_t size)
{
	const struct hb_gpc_sizes *seen = &finding->seen.whole;
	size_t used = (size_t)snprintf(text, size, "%s", hb_gpc_state_text(finding->state));
	const char *before = "; groups seen: ";
	for (int sms = HB_GPC_SMS_MAX; sms > 0 && used < size; sms--) {
		if (!seen->with[sms])
			continue;
		used += (size_t)snprintf(text + used, size - used, "%s%u of %d", before, seen->with[sms], sms);
		before = ", ";
	}
	if (finding->effort.hangs && used < size)
		snprintf(text + used, size - used, "; clusters of %u blocks never started", finding->effort.cluster);
}

static void describe_finding(const struct gpc_finding *finding, char *text, size_t size)
{
	if (finding->failed[0])
		snprintf(text, size, "%s", finding->failed);
	else if (finding->state == HB_GPC_KNOWN)
		format_groups(&finding->layout, text, size);
	else
		format_failure(finding, text, size);
}

static void read_uuid(void *library, char text[static HB_UUID_TEXT_SIZE])
{
	CUuuid uuid = {{0}};
	__typeof__(cuDeviceGetUuid) *get = library ? (__typeof__(cuDeviceGetUuid) *)dlsym(library, "cuDeviceGetUuid")
						   : NULL;
	if (get)
		get(&uuid, 0);
	hb_uuid_format((const unsigned char *)uuid.bytes, text);
}

int hb_doctor_gpcs(bool simulated)
{
	struct gpc_finding finding = {.state = HB_GPC_NO_TRIAL};
	char text[300], gpu[HB_UUID_TEXT_SIZE];
	setenv("CUDA_MPS_PIPE_DIRECTORY", "/nonexistent/mps", 1); /* so that the context is outside any MPS server */
	void *library = hb_doctor_open_driver(simulated);
	if (library)
		try_gpcs(library, &finding);
	else
		snprintf(finding.failed, sizeof finding.failed, "%.190s", dlerror());
	describe_finding(&finding, text, sizeof text);
	read_uuid(library, gpu);
	json_t *answer = hb_json_pack(
		NULL, "{s:b, s:s, s:s, s:s, s:i, s:i, s:f, s:o}", "works", (int)(finding.state == HB_GPC_KNOWN),
		"state", hb_gpc_state_word(finding.state), "found", text, "gpu", gpu, "looks",
		(int)finding.effort.looks, "launches", (int)finding.effort.launches, "took_ms",
		(double)finding.effort.took_ns / HB_NS_PER_MS, "groups", describe_groups(&finding.layout));
	if (finding.effort.launches && finding.state != HB_GPC_KNOWN)
		add_seen(answer, &finding);
	int result = hb_json_write(answer, stdout, NULL);
	json_decref(answer);
	/* A normal exit would wait in the driver for the launch that hangs. */
	if (finding.effort.hangs && fflush(stdout) == 0)
		_exit(HB_EXIT_OK);
	return result < 0 ? HB_EXIT_FAILURE : HB_EXIT_OK;
}
