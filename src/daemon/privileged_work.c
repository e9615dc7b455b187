/* SPDX-License-Identifier: Apache-2.0 */
/* See privileged_work.h. */
#include "daemon/privileged_work.h"

#include "base/signal_action.h"
#include "daemon/end_processes.h"
#include "daemon/mps_control.h"
#include "daemon/mps_process.h"
#include "daemon/process.h"
#include "daemon/process_page.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define STEP_LIMIT_MS 10000
#define END_LIMIT_MS 5000
#define TERMINATE_LIMIT_MS 2000 /* H200: 0.14 s */

extern char **environ;

/* --- facts ------------------------------------------------------------------------------------- */

static bool began_with(pid_t pid, const unsigned char token[HB_TOKEN_BYTES])
{
	char variable[sizeof "HB_TENANT=" + 2 * HB_TOKEN_BYTES] = "HB_TENANT=";
	hb_token_format(token, variable + strlen(variable));
	return hb_process_began_with(pid, variable);
}

static int open_server_page(struct hb_mps_place *place, const struct hb_privileged_request *request, char program[256])
{
	if (!hb_mps_place_read_token(place) || !hb_mps_is_server(place->simulated, request->pid) ||
	    !began_with(request->pid, place->token))
		return -EPERM;
	hb_mps_read_program(request->pid, program);
	return hb_process_open_page(request->pid, request->start_ticks, 0);
}

void hb_privileged_answer(struct hb_mps_place *place, const struct hb_privileged_request *request,
			  struct hb_privileged_fact *fact, int *fd)
{
	*fact = (struct hb_privileged_fact){.number = request->number, .value = -EINVAL};
	*fd = -1;
	switch (request->kind) {
	case HB_PRIVILEGED_IMAGE:
		fact->value = (int64_t)hb_process_image(request->pid);
		break;
	case HB_PRIVILEGED_BEGAN_WITH:
		fact->value = began_with(request->pid, request->token);
		break;
	case HB_PRIVILEGED_SIGNAL_KILLS:
		fact->value = hb_signal_kills(request->pid, (int)request->signal);
		break;
	case HB_PRIVILEGED_IS_SERVER:
		fact->value = hb_mps_is_server(place->simulated, request->pid);
		break;
	case HB_PRIVILEGED_SERVER_PAGE:
		*fd = open_server_page(place, request, fact->program);
		fact->value = *fd < 0 ? *fd : 0;
		break;
	case HB_PRIVILEGED_REMOVE_SOCKET:
		fact->value = unlink(place->socket) < 0 ? -errno : 0;
		break;
	default:
		break;
	}
}

/* --- programs ------------------------------------------------------------------------------------ */

static int end_processes(uv_loop_t *loop, const struct hb_privileged_request *request, hb_command_done *done,
			 void *argument)
{
	char token[2 * HB_TOKEN_BYTES + 1], input[80];
	char *arguments[] = {(char *)(uintptr_t) "/proc/self/exe", (char *)(uintptr_t)HB_END_PROCESSES_OPTION, NULL};
	hb_token_format(request->token, token);
	snprintf(input, sizeof input, "%u %s %llu\n", request->uid, token, (unsigned long long)request->page);
	return hb_command_run(loop, arguments, environ, input, END_LIMIT_MS, done, argument);
}

int hb_privileged_start(struct hb_mps_place *place, uv_loop_t *loop, const struct hb_privileged_request *request,
			hb_command_done *done, void *argument)
{
	char input[64];
	switch (request->kind) {
	case HB_PRIVILEGED_START_CONTROL: {
		int result = hb_mps_place_prepare(place, request->uid);
		return result < 0 ? result : hb_mps_control_run(place, loop, "-d", NULL, STEP_LIMIT_MS, done, argument);
	}
	case HB_PRIVILEGED_LIST_SERVERS:
		return hb_mps_control_run(place, loop, NULL, "get_server_list\n", STEP_LIMIT_MS, done, argument);
	case HB_PRIVILEGED_START_SERVER:
		snprintf(input, sizeof input, "start_server -uid %u\n", request->uid);
		return hb_mps_control_run(place, loop, NULL, input, STEP_LIMIT_MS, done, argument);
	case HB_PRIVILEGED_TERMINATE_CLIENT:
		snprintf(input, sizeof input, "terminate_client %d %d\n", request->pid, request->client);
		return hb_mps_control_run(place, loop, NULL, input, TERMINATE_LIMIT_MS, done, argument);
	case HB_PRIVILEGED_QUIT:
		return hb_mps_control_run(place, loop, NULL, "quit\n", STEP_LIMIT_MS, done, argument);
	case HB_PRIVILEGED_END_PROCESSES:
		return end_processes(loop, request, done, argument);
	default:
		return -EINVAL;
	}
}
