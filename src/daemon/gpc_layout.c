/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which bits of SM masks are of one GPC, asked once for each GPU with `masks:
 * gpcs` when the spatial engine is first wanted there: a child runs the trial
 * (`hb doctor --gpcs`, nvidia/gpc_trial.h) in a context of its own and is killed
 * when it takes too long. What it found goes to
 * the page of the GPU, whose processes compare it with the bits that they find
 * themselves. Whatever is wrong leaves masks spread, with the reason on the page.
 */
#include "base/install_path.h"
#include "base/json.h"
#include "base/log.h"
#include "base/uuid.h"
#include "daemon/command.h"
#include "daemon/daemon.h"
#include "nvidia/gpc_find.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TRIAL_LIMIT_MS 60000

extern char **environ;

/* Outlives the device, which may go while the trial runs. */
struct look {
	struct hb_daemon *daemon;
	unsigned char uuid[HB_UUID_BYTES];
};

static void publish(struct hb_device *device, enum hb_gpc_state state)
{
	atomic_store_explicit(&device->page->gpc_state, (uint32_t)state, memory_order_release);
	if (state == HB_GPC_KNOWN)
		hb_log_info("GPU %u: masks of whole GPCs: %s", device->number, hb_gpc_state_text(state));
	else
		hb_log_warning("GPU %u: no masks of whole GPCs: %s", device->number, hb_gpc_state_text(state));
}

/* 32 hexadecimal digits, the highest bit first. Each bit once. */
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

static bool is_of(const json_t *answer, const unsigned char *uuid)
{
	const char *text = json_string_value(json_object_get(answer, "gpu"));
	char own[HB_UUID_TEXT_SIZE];
	return text && strcmp(text, hb_uuid_format(uuid, own)) == 0;
}

static enum hb_gpc_state read_answer(const json_t *answer, const unsigned char *uuid, unsigned char *gpc_of)
{
	enum hb_gpc_state state = HB_GPC_NO_TRIAL;
	const char *word = json_string_value(json_object_get(answer, "state"));
	if (!is_of(answer, uuid) || !hb_gpc_state_parse(word, &state) || state != HB_GPC_KNOWN)
		return state;
	return read_groups(json_object_get(answer, "groups"), gpc_of) ? HB_GPC_KNOWN : HB_GPC_NO_TRIAL;
}

static void ended(void *argument, const struct hb_command_result *result)
{
	struct look *look = argument;
	struct hb_device *device = hb_daemon_known_device(look->daemon, look->uuid);
	if (device)
		device->gpcs_trial = NULL;
	const char *begin = strchr(result->output, '{');
	unsigned char gpc_of[HB_GPC_BITS] = {0};
	json_t *answer = NULL;
	struct hb_error error;
	if (device && begin)
		hb_json_parse(begin, strlen(begin), "the trial of GPCs", &answer, &error);
	enum hb_gpc_state state = device ? read_answer(answer, look->uuid, gpc_of) : HB_GPC_NO_TRIAL;
	if (device && state == HB_GPC_KNOWN)
		memcpy(device->page->gpc_of, gpc_of, sizeof device->page->gpc_of);
	if (device)
		publish(device, state);
	json_decref(answer);
	free(look);
}

/* The environment of the daemon, with this GPU as the only one. Entries belong to `environ`, but for the first. */
static char **make_environment(const struct hb_device *device, char *visible, size_t size)
{
	size_t n = 0, count = 0;
	char uuid[HB_UUID_TEXT_SIZE];
	while (environ[count])
		count++;
	char **list = calloc(count + 2, sizeof *list);
	if (!list)
		return NULL;
	snprintf(visible, size, "CUDA_VISIBLE_DEVICES=%s", hb_uuid_format(device->uuid, uuid));
	/* Simulated GPUs are known by their number only: the first one that is to be seen is tried. */
	if (!device->daemon->options.simulated)
		list[n++] = visible;
	for (size_t i = 0; i < count; i++)
		if (!n || strncmp(environ[i], "CUDA_VISIBLE_DEVICES=", strlen("CUDA_VISIBLE_DEVICES=")) != 0)
			list[n++] = environ[i];
	return list;
}

static int start(struct hb_device *device)
{
	char program[PATH_MAX], visible[HB_UUID_TEXT_SIZE + 32];
	bool simulated = device->daemon->options.simulated;
	const char *const arguments[] = {program, "doctor", "--gpcs", simulated ? "--gpu" : NULL, "sim", NULL};
	int result = hb_install_program("hb", program, sizeof program);
	if (result < 0)
		return result;
	struct look *look = calloc(1, sizeof *look);
	char **environment = make_environment(device, visible, sizeof visible);
	result = -ENOMEM;
	if (look && environment) {
		look->daemon = device->daemon;
		memcpy(look->uuid, device->uuid, HB_UUID_BYTES);
		result = hb_command_start(&device->daemon->loop, (char **)(uintptr_t)arguments, environment, NULL,
					  TRIAL_LIMIT_MS, ended, look, &device->gpcs_trial);
	}
	free(environment);
	if (result < 0)
		free(look);
	return result;
}

void hb_gpcs_look(struct hb_device *device)
{
	if (device->gpcs_looked)
		return;
	device->gpcs_looked = true;
	int result = start(device);
	if (result < 0) {
		hb_log_warning("the trial of GPCs cannot be run: %s", strerror(-result));
		publish(device, HB_GPC_NO_TRIAL);
	}
}

void hb_gpcs_stop(struct hb_device *device)
{
	if (device->gpcs_trial)
		hb_command_kill(device->gpcs_trial);
	device->gpcs_trial = NULL;
}
