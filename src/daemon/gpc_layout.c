/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the search for GPCs and publishes its result; see gpc_layout.h. */
#include "daemon/gpc_layout.h"

#include "base/json.h"
#include "base/log.h"
#include "base/uuid.h"
#include "daemon/gpu_trial.h"
#include "nvidia/gpc_find.h"

#include <stdlib.h>
#include <string.h>

static void publish_state(struct hb_gpu *gpu, enum hb_gpc_state state)
{
	atomic_store_explicit(&gpu->page->gpc_state, (uint32_t)state, memory_order_release);
	if (state == HB_GPC_KNOWN)
		hb_log_info("GPU %u: masks leave complete GPCs to high priority: %s", gpu->number,
			    hb_gpc_state_text(state));
	else
		hb_log_warning("GPU %u: masks cannot leave complete GPCs to high priority: %s", gpu->number,
			       hb_gpc_state_text(state));
}

/* Reads 32 hexadecimal digits, the highest bit first. A bit belongs to one group only. */
static bool read_bits(const char *text, uint8_t group, unsigned char *gpc_of)
{
	if (!text || strlen(text) != HB_GPC_BITS / 4)
		return false;
	for (int bit = 0; bit < HB_GPC_BITS; bit++) {
		const char digit[2] = {text[HB_GPC_BITS / 4 - 1 - bit / 4], '\0'};
		char *end;
		unsigned long value = strtoul(digit, &end, 16);
		if (*end)
			return false;
		if (!(value >> bit % 4 & 1))
			continue;
		if (gpc_of[bit])
			return false;
		gpc_of[bit] = group;
	}
	return true;
}

static bool read_groups(const json_t *groups, unsigned char *gpc_of)
{
	const json_t *group;
	size_t i;
	json_array_foreach(groups, i, group)
	{
		const char *bits = json_string_value(json_object_get(group, "bits"));
		if (i >= HB_GPC_MOST || !read_bits(bits, (uint8_t)(i + 1), gpc_of))
			return false;
	}
	return json_array_size(groups) >= 2;
}

static bool is_about(const json_t *answer, const unsigned char *uuid)
{
	const char *text = json_string_value(json_object_get(answer, "gpu"));
	char own[HB_UUID_TEXT_SIZE];
	return text && strcmp(text, hb_uuid_format(uuid, own)) == 0;
}

static enum hb_gpc_state read_answer(const json_t *answer, const unsigned char *uuid, unsigned char *gpc_of)
{
	enum hb_gpc_state state = HB_GPC_NO_TRIAL;
	const char *word = json_string_value(json_object_get(answer, "state"));
	if (!is_about(answer, uuid) || !hb_gpc_state_parse(word, &state) || state != HB_GPC_KNOWN)
		return state;
	return read_groups(json_object_get(answer, "groups"), gpc_of) ? HB_GPC_KNOWN : HB_GPC_NO_TRIAL;
}

enum hb_gpc_state hb_gpc_layout_read(const char *output, const unsigned char *uuid, unsigned char *gpc_of)
{
	const char *begin = strchr(output, '{');
	unsigned char found[HB_GPC_BITS] = {0};
	json_t *answer = NULL;
	struct hb_error error;
	if (begin)
		hb_json_parse(begin, strlen(begin), "the search for GPCs", &answer, &error);
	enum hb_gpc_state state = read_answer(answer, uuid, found);
	if (state == HB_GPC_KNOWN)
		memcpy(gpc_of, found, sizeof found);
	json_decref(answer);
	return state;
}

static void search_ended(struct hb_gpu *gpu, const char *output)
{
	publish_state(gpu, hb_gpc_layout_read(output, gpu->uuid, gpu->page->gpc_of));
}

void hb_gpc_layout_find(struct hb_gpu *gpu)
{
	if (gpu->gpc_search_done || gpu->trial)
		return;
	gpu->gpc_search_done = true;
	int result = hb_gpu_trial_start(gpu, "--gpcs", search_ended);
	if (result < 0) {
		hb_log_warning("GPU %u: the search for GPCs cannot be started: %s", gpu->number, strerror(-result));
		publish_state(gpu, HB_GPC_NO_TRIAL);
	}
}
