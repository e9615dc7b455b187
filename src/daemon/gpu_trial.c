/* SPDX-License-Identifier: Apache-2.0 */
/* Runs trials on a GPU as child processes; see gpu_trial.h. */
#include "daemon/gpu_trial.h"

#include "base/install_path.h"
#include "base/uuid.h"
#include "daemon/command.h"
#include "daemon/daemon.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TRIAL_LIMIT_MS 60000

extern char **environ;

/* A running child process. It may outlive the record of its GPU. */
struct hb_gpu_trial {
	struct hb_gpu *gpu; /* NULL = the record was freed */
	struct hb_command *command;
	hb_gpu_trial_ended *ended;
};

static void trial_ended(void *argument, const struct hb_command_result *result)
{
	struct hb_gpu_trial *trial = argument;
	if (trial->gpu) {
		trial->gpu->trial = NULL;
		trial->ended(trial->gpu, result->output);
	}
	free(trial);
}

/* Returns the daemon's environment with this GPU as the only visible one. The list shares its entries with `environ`. */
static char **make_environment(const struct hb_gpu *gpu, char *visible, size_t size)
{
	size_t n = 0, count = 0;
	char uuid[HB_UUID_TEXT_SIZE];
	while (environ[count])
		count++;
	char **list = calloc(count + 2, sizeof *list);
	if (!list)
		return NULL;
	snprintf(visible, size, "CUDA_VISIBLE_DEVICES=%s", hb_uuid_format(gpu->uuid, uuid));
	/* Simulated GPUs have no UUID that CUDA accepts: the child process takes the first one. */
	if (!gpu->daemon->options.simulated)
		list[n++] = visible;
	for (size_t i = 0; i < count; i++)
		if (!n || strncmp(environ[i], "CUDA_VISIBLE_DEVICES=", strlen("CUDA_VISIBLE_DEVICES=")) != 0)
			list[n++] = environ[i];
	return list;
}

int hb_gpu_trial_start(struct hb_gpu *gpu, const char *option, hb_gpu_trial_ended *ended)
{
	char program[PATH_MAX], visible[HB_UUID_TEXT_SIZE + 32];
	bool simulated = gpu->daemon->options.simulated;
	const char *const arguments[] = {program, "doctor", option, simulated ? "--gpu" : NULL, "sim", NULL};
	if (gpu->trial)
		return -EBUSY;
	int result = hb_install_program("hb", program, sizeof program);
	if (result < 0)
		return result;
	struct hb_gpu_trial *trial = calloc(1, sizeof *trial);
	char **environment = make_environment(gpu, visible, sizeof visible);
	result = -ENOMEM;
	if (trial && environment)
		result = hb_command_start(&gpu->daemon->loop, (char **)(uintptr_t)arguments, environment, NULL,
					  TRIAL_LIMIT_MS, trial_ended, trial, &trial->command);
	free(environment);
	if (result < 0) {
		free(trial);
		return result;
	}
	trial->gpu = gpu;
	trial->ended = ended;
	gpu->trial = trial;
	return 0;
}

void hb_gpu_trial_cancel(struct hb_gpu *gpu)
{
	if (!gpu->trial)
		return;
	gpu->trial->gpu = NULL;
	hb_command_kill(gpu->trial->command);
	gpu->trial = NULL;
}
