/* SPDX-License-Identifier: Apache-2.0 */
/* Starts, watches and stops the MPS server; see mps_server.h. */
#include "daemon/mps_server.h"

#include "base/log.h"
#include "daemon/command.h"
#include "daemon/daemon.h"
#include "daemon/mps_place.h"
#include "daemon/privileged.h"
#include "daemon/tenancy.h"
#include "gpu/provider.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ASK_EVERY_MS 100
#define ASKS_MAX 100 /* the server has ten seconds to start */

struct hb_mps {
	struct hb_daemon *daemon;
	enum hb_mps_state state;
	struct hb_mps_events events;
	bool ours;        /* this daemon started the control program, or found it running in its own folder */
	bool left_behind; /* an earlier daemon's control program may still run */
	bool unknown;     /* a server of an earlier daemon may still run, with clients of any user */
	bool again;       /* hb_mps_start() was called while the server was stopping */
	char why[200];
	struct hb_mps_place *place;
	unsigned asks;
	pid_t server; /* 0 = not known */
	uid_t uid;    /* the user whose programs the server serves; MPS serves one user at a time */
	uv_timer_t timer;
	bool closing, timer_closed;
	unsigned steps; /* commands running */
};

static const char *const state_texts[] = {
#define X(name, text) [HB_MPS_##name] = text,
	HB_MPS_STATE_LIST(X)
#undef X
};

static void set_state(struct hb_mps *mps, enum hb_mps_state state, const char *why)
{
	mps->state = state;
	snprintf(mps->why, sizeof mps->why, "%.*s", (int)strcspn(why, "\n"), why);
	hb_log_info("MPS server: %s%s%s", state_texts[state], *why ? ": " : "", mps->why);
	if (!mps->closing && state != HB_MPS_STARTING)
		mps->events.changed(mps->daemon);
}

/* --- steps --------------------------------------------------------------------------- */

static int run_step(struct hb_mps *mps, enum hb_privileged_kind kind, hb_command_done *done)
{
	bool has_user = kind == HB_PRIVILEGED_START_CONTROL || kind == HB_PRIVILEGED_START_SERVER;
	const struct hb_privileged_request request = {.kind = kind, .uid = has_user ? mps->uid : 0};
	int result = hb_privileged_run(mps->daemon->privileged, &request, done, mps);
	mps->steps += result == 0;
	return result;
}

static void free_when_idle(struct hb_mps *mps)
{
	if (mps->timer_closed && mps->steps == 0)
		free(mps);
}

/* Every callback of a command calls this first. False: the daemon is ending, so the result does not matter. */
static bool count_step(struct hb_mps *mps)
{
	mps->steps--;
	if (!mps->closing)
		return true;
	free_when_idle(mps);
	return false;
}

/* --- commands of other parts --- */

struct mps_termination {
	struct hb_mps *mps;
	pid_t client;
	void (*done)(void *argument);
	void *argument;
};

static void client_terminated(void *argument, const struct hb_command_result *result)
{
	struct mps_termination *termination = argument;
	if (result->status != 0 || strcmp(result->output, "0\n") != 0)
		hb_log_info("MPS control program: terminate_client %d: %.200s", (int)termination->client,
			    result->output[0] ? result->output : "failed");
	termination->done(termination->argument);
	count_step(termination->mps);
	free(termination);
}

int hb_mps_terminate(struct hb_mps *mps, pid_t client, void (*done)(void *argument), void *argument)
{
	const struct hb_privileged_request request = {
		.kind = HB_PRIVILEGED_TERMINATE_CLIENT, .pid = mps->server, .client = client};
	struct mps_termination *termination = calloc(1, sizeof *termination);
	if (!termination)
		return -ENOMEM;
	*termination = (struct mps_termination){.mps = mps, .client = client, .done = done, .argument = argument};
	int result = hb_privileged_run(mps->daemon->privileged, &request, client_terminated, termination);
	mps->steps += result == 0;
	if (result < 0)
		free(termination);
	return result;
}

static void fail_step(struct hb_mps *mps, const char *step, int result)
{
	char why[160];
	snprintf(why, sizeof why, "%s: %s", step, strerror(-result));
	set_state(mps, HB_MPS_FAILED, why);
}

static void ask_for_server(struct hb_mps *mps);

/* The list of servers has one pid in each line; no other output of the program begins with a digit. */
static pid_t parse_server(const char *output)
{
	long pid = strtol(output, NULL, 10);
	return pid > 1 && pid < INT_MAX ? (pid_t)pid : 0;
}

static void read_server_list(void *argument, const struct hb_command_result *result)
{
	struct hb_mps *mps = argument;
	if (!count_step(mps) || mps->state != HB_MPS_STARTING)
		return;
	mps->server = result->status == 0 ? parse_server(result->output) : 0;
	if (mps->server) {
		set_state(mps, HB_MPS_READY, "");
		return;
	}
	if (++mps->asks < ASKS_MAX) {
		ask_for_server(mps);
		return;
	}
	set_state(mps, HB_MPS_FAILED,
		  result->output[0] ? result->output : "no server started within ten seconds; see its log folder");
}

static void ask_now(uv_timer_t *timer)
{
	struct hb_mps *mps = timer->data;
	int result = run_step(mps, HB_PRIVILEGED_LIST_SERVERS, read_server_list);
	if (result < 0)
		fail_step(mps, "get_server_list", result);
}

static void ask_for_server(struct hb_mps *mps)
{
	uv_timer_start(&mps->timer, ask_now, mps->asks ? ASK_EVERY_MS : 0, 0);
}

static void server_started(void *argument, const struct hb_command_result *result)
{
	struct hb_mps *mps = argument;
	if (!count_step(mps) || mps->state != HB_MPS_STARTING)
		return;
	mps->asks = 0;
	ask_for_server(mps);
}

static void start_server(struct hb_mps *mps)
{
	int result = run_step(mps, HB_PRIVILEGED_START_SERVER, server_started);
	if (result < 0)
		fail_step(mps, "start_server", result);
}

static void control_started(void *argument, const struct hb_command_result *result)
{
	struct hb_mps *mps = argument;
	if (!count_step(mps) || mps->state != HB_MPS_STARTING)
		return;
	/* A control program that an earlier daemon left is as good: only this user's daemons write to the folder. */
	if (result->status != 0 && !strstr(result->output, "already running")) {
		set_state(mps, HB_MPS_FAILED, result->output[0] ? result->output : "nvidia-cuda-mps-control -d failed");
		return;
	}
	mps->ours = true;
	start_server(mps);
}

/* --- a server that an earlier daemon left --- */

static void read_old_server(void *argument, const struct hb_command_result *result)
{
	struct hb_mps *mps = argument;
	pid_t server = result->status == 0 ? parse_server(result->output) : 0;
	if (!count_step(mps))
		return;
	mps->unknown &= result->status != 0 || server;
	if (!server)
		return;
	char why[160];
	int failed = mps->events.found(mps->daemon, server);
	if (failed < 0) {
		snprintf(why, sizeof why, "the server of an earlier daemon, process %d, is not a tenant yet: %s",
			 (int)server, strerror(-failed));
		if (mps->state == HB_MPS_IDLE)
			set_state(mps, HB_MPS_IDLE, why);
		return;
	}
	hb_mps_server_registered(mps, mps->server ? mps->server : server);
	hb_daemon_wake(mps->daemon);
}

void hb_mps_find_old_server(struct hb_mps *mps)
{
	if (mps->left_behind && mps->state == HB_MPS_IDLE &&
	    run_step(mps, HB_PRIVILEGED_LIST_SERVERS, read_old_server) < 0)
		hb_log_info("cannot ask the MPS control program whether an earlier daemon's server still runs");
}

/* --- for the daemon ---------------------------------------------------------------------- */

/* The user of the running server; it may have been started by an earlier daemon. */
static uid_t server_user(const struct hb_mps *mps)
{
	const struct hb_tenancy *server = hb_tenancy_find(mps->daemon, mps->place->token);
	return server ? server->peer.uid : mps->uid;
}

bool hb_mps_may_serve(const struct hb_mps *mps, uid_t uid)
{
	return mps->state == HB_MPS_READY ? server_user(mps) == uid : mps->unknown;
}

bool hb_mps_has_tenant(const struct hb_tenancy *tenancy)
{
	return (tenancy->flags & HB_REGISTER_MPS) && !hb_tenancy_is_server(tenancy) &&
	       hb_mps_may_serve(tenancy->daemon->mps, tenancy->peer.uid);
}

static bool has_program(const struct hb_mps *mps, const char **why)
{
	char program[PATH_MAX];
	return hb_provider_of(mps->place->simulated)->mps_control(program, sizeof program, why) == 0;
}

void hb_mps_start(struct hb_mps *mps, uid_t uid)
{
	const char *why = "";
	/* The server of another user, none of whose programs is left: the caller has checked that. */
	if (mps->state == HB_MPS_READY && server_user(mps) != uid)
		hb_mps_stop(mps);
	if (mps->state == HB_MPS_STOPPING) {
		mps->again = true;
		mps->uid = uid;
	}
	if (mps->state != HB_MPS_IDLE && mps->state != HB_MPS_FAILED)
		return;
	if (!has_program(mps, &why)) {
		set_state(mps, HB_MPS_OFF, why);
		return;
	}
	mps->uid = uid;
	set_state(mps, HB_MPS_STARTING, "");
	int result = run_step(mps, HB_PRIVILEGED_START_CONTROL, control_started);
	if (result < 0)
		fail_step(mps, mps->place->pipe_dir, result);
}

bool hb_mps_starts_for_other(const struct hb_mps *mps, uid_t uid)
{
	bool starts = mps->state == HB_MPS_STARTING || (mps->state == HB_MPS_STOPPING && mps->again);
	return starts && mps->uid != uid;
}

static void server_stopped(void *argument, const struct hb_command_result *result)
{
	struct hb_mps *mps = argument;
	if (!count_step(mps))
		return;
	mps->ours = false;
	if (!mps->again) {
		set_state(mps, HB_MPS_IDLE, "");
		return;
	}
	/* Without an event in between: programs wait for the next server. */
	mps->again = false;
	mps->state = HB_MPS_IDLE;
	hb_mps_start(mps, mps->uid);
}

void hb_mps_stop(struct hb_mps *mps)
{
	bool running = mps->ours && (mps->state == HB_MPS_READY || mps->state == HB_MPS_FAILED);
	if (!running && !(mps->left_behind && mps->state == HB_MPS_IDLE))
		return;
	mps->left_behind = mps->unknown = false;
	set_state(mps, HB_MPS_STOPPING, "");
	if (run_step(mps, HB_PRIVILEGED_QUIT, server_stopped) < 0)
		set_state(mps, HB_MPS_FAILED, "cannot run the control program to stop it");
}

void hb_mps_server_ended(struct hb_mps *mps)
{
	mps->unknown = false;
	if (mps->state == HB_MPS_READY)
		set_state(mps, HB_MPS_FAILED, "the server has ended; the next low-priority tenant starts it again");
}

void hb_mps_server_registered(struct hb_mps *mps, pid_t server)
{
	if (mps->state == HB_MPS_OFF)
		return;
	mps->server = server; /* the control program starts a new one by itself when the old one has ended */
	if (mps->state == HB_MPS_READY)
		return;
	mps->ours = true;
	mps->unknown = false;
	if (mps->state == HB_MPS_IDLE || mps->state == HB_MPS_FAILED)
		set_state(mps, HB_MPS_READY, "");
}

enum hb_mps_state hb_mps_state(const struct hb_mps *mps)
{
	return mps->state;
}

const char *hb_mps_state_text(const struct hb_mps *mps)
{
	return state_texts[mps->state];
}

const char *hb_mps_why(const struct hb_mps *mps)
{
	return mps->why;
}

const char *hb_mps_pipe_dir(const struct hb_mps *mps)
{
	return mps->place->pipe_dir;
}

pid_t hb_mps_server_pid(const struct hb_mps *mps)
{
	return mps->state == HB_MPS_READY ? mps->server : 0;
}

const unsigned char *hb_mps_token(const struct hb_mps *mps)
{
	return mps->place->token;
}

int hb_mps_new(struct hb_daemon *daemon, const struct hb_mps_events *events, struct hb_mps **mps)
{
	struct hb_mps *made = calloc(1, sizeof *made);
	if (!made)
		return -ENOMEM;
	made->daemon = daemon;
	made->events = *events;
	made->place = hb_privileged_place(daemon->privileged);
	int result = hb_mps_place_make_token(made->place);
	if (result < 0) {
		free(made);
		return result;
	}
	uv_timer_init(&daemon->loop, &made->timer);
	made->timer.data = made;
	const char *why = "";
	bool wanted = daemon->config.mps && daemon->config.engine != HB_CONFIG_ENGINE_TURNS;
	if (!wanted)
		snprintf(made->why, sizeof made->why, "switched off in the configuration");
	else if (!has_program(made, &why))
		snprintf(made->why, sizeof made->why, "%s", why);
	char control[sizeof made->place->pipe_dir + 16];
	snprintf(control, sizeof control, "%s/control", made->place->pipe_dir);
	made->left_behind = made->unknown = access(control, F_OK) == 0;
	made->state = made->why[0] ? HB_MPS_OFF : HB_MPS_IDLE;
	*mps = made;
	return 0;
}

static void timer_closed(uv_handle_t *handle)
{
	struct hb_mps *mps = handle->data;
	mps->timer_closed = true;
	free_when_idle(mps);
}

void hb_mps_free(struct hb_mps *mps)
{
	if (!mps)
		return;
	mps->closing = true;
	uv_close((uv_handle_t *)&mps->timer, timer_closed);
}
