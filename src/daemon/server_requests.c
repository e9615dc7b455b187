/* SPDX-License-Identifier: Apache-2.0 */
/* Serves the requests that clients send; see server_requests.h. */
#include "daemon/server_requests.h"

#include "base/clock.h"
#include "base/fault_point.h"
#include "daemon/gpu_processes.h"
#include "daemon/job_registration.h"
#include "daemon/mps_faults.h"
#include "daemon/page_memory.h"
#include "daemon/placements.h"
#include "daemon/recorder.h"
#include "daemon/registration.h"
#include "daemon/status_answers.h"
#include "daemon/supervision.h"
#include "daemon/tenancy.h"
#include "daemon/tenant_requests.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int serve_hello(struct hb_connection *connection)
{
	struct hb_server *server = connection->server;
	const struct hb_msg_hello hello = server->message.as_HELLO;
	char text[160];
	if (hello.version_min > HB_PROTOCOL_VERSION || hello.version_max < HB_PROTOCOL_VERSION) {
		snprintf(text, sizeof text,
			 "this daemon uses protocol version %d, the client %u to %u: update the older one",
			 HB_PROTOCOL_VERSION, hello.version_min, hello.version_max);
		return hb_connection_error(connection, -EPROTONOSUPPORT, text);
	}
	connection->greeted = true;
	connection->features = hello.features;
	HB_FAULT(daemon_greeted);
	hb_msg_init(&server->message, HB_MSG_WELCOME);
	server->message.as_WELCOME.version = HB_PROTOCOL_VERSION;
	server->message.as_WELCOME.daemon_pid = (uint32_t)getpid();
	server->message.as_WELCOME.page_version = HB_PAGE_VERSION;
	server->message.as_WELCOME.features = HB_PROTOCOL_ALL_FEATURES;
	return hb_connection_answer(connection, NULL, 0);
}

static int serve_register(struct hb_connection *connection, const struct hb_wire_fds *fds)
{
	struct hb_server *server = connection->server;
	struct hb_grant grant;
	struct hb_error error = {""};
	size_t length;
	HB_FAULT(daemon_register_read);
	/* A copy: the registration may start the MPS server, and answers to other clients use the same buffer. */
	const struct hb_msg_register request = server->message.as_REGISTER;
	const char *command = hb_msg_text(&server->message, &length);
	struct hb_peer peer = connection->peer;
	int result = hb_peer_open(connection->fd, &peer);
	if (result < 0)
		hb_error_set(&error, result, "cannot watch process %d, which connected: %s", (int)peer.pid,
			     strerror(-result));
	else if (fds->n && !hb_page_is_sealed(fds->fd[0]))
		result = hb_error_set(&error, -EPROTO, "the descriptor is not a page of a tenant");
	else
		result = hb_register(server->daemon, &peer, &request, command, length, fds->n ? fds->fd[0] : -1, &grant,
				     &error);
	hb_peer_close(&peer);
	if (result < 0)
		return hb_connection_error(connection, result, error.text);
	HB_FAULT(daemon_registered);
	if (grant.wait) {
		connection->wait = HB_WAIT_MPS;
		connection->wait_number = grant.tenancy->number;
		return 0;
	}
	result = hb_connection_registered(connection, grant.tenancy, grant.slot);
	HB_FAULT(daemon_answered);
	return result;
}

int hb_request_answer_bye(struct hb_connection *connection, uint32_t tenant)
{
	char text[512];
	hb_mps_faults_text(connection->server->daemon->faults, tenant, text, sizeof text);
	return hb_connection_done_text(connection, text);
}

static int serve_bye(struct hb_connection *connection)
{
	struct hb_daemon *daemon = connection->server->daemon;
	const struct hb_msg_bye bye = connection->server->message.as_BYE;
	if (hb_supervision_leave(daemon->supervision, bye.token, connection->peer.pid))
		return hb_connection_done(connection);
	struct hb_tenancy *tenancy = hb_tenancy_find_for(daemon, bye.token, &connection->peer);
	bool leads = tenancy && tenancy->leader.watch && tenancy->leader.pid == connection->peer.pid;
	bool supervisor = leads && tenancy->flags & HB_REGISTER_SUPERVISED;
	uint32_t number = supervisor ? tenancy->number : 0;
	bool undecided = supervisor && hb_mps_faults_wait(tenancy);
	/* Root reports on behalf of the process that it registered. */
	bool for_job = tenancy && tenancy->peer.by_root && connection->peer.uid == 0;
	if (!tenancy || hb_tenancy_leave(tenancy, for_job ? tenancy->peer.pid : connection->peer.pid) < 0)
		return hb_connection_error(connection, -ESRCH,
					   "this process does not belong to the tenant with that token");
	hb_daemon_wake(daemon);
	if (undecided) {
		connection->wait = HB_WAIT_FAULT;
		connection->wait_number = number;
		return 0;
	}
	return number ? hb_request_answer_bye(connection, number) : hb_connection_done(connection);
}

/* A signal is about to be sent to the tenant; see struct hb_msg_terminate. */
static int serve_terminate(struct hb_connection *connection)
{
	const struct hb_msg_terminate request = connection->server->message.as_TERMINATE;
	struct hb_tenancy *tenancy = hb_tenancy_find_for(connection->server->daemon, request.token, &connection->peer);
	if (!tenancy)
		return hb_connection_error(connection, -ESRCH, "no tenant has that token");
	if (connection->peer.uid != tenancy->peer.uid && connection->peer.uid != 0)
		return hb_connection_error(connection, -EPERM, "only the tenant's user and root may end its work");
	connection->wait_number = hb_supervision_terminate(tenancy, (int)request.signal);
	if (!connection->wait_number)
		return hb_connection_done(connection);
	connection->wait = HB_WAIT_TERMINATION;
	return 0;
}

static int answer_result(struct hb_connection *connection, int result, const struct hb_error *error)
{
	return result < 0 ? hb_connection_error(connection, result, error->text) : hb_connection_done(connection);
}

static int serve_memory(struct hb_connection *connection)
{
	struct hb_error error = {""};
	struct hb_memory_waiter waiter;
	int result = hb_tenant_asks_memory(connection->server->daemon, &connection->peer,
					   &connection->server->message.as_MEMORY, &waiter, &error);
	if (result == -EINPROGRESS) {
		connection->wait = HB_WAIT_MEMORY;
		connection->wait_gpu = waiter.gpu;
		connection->wait_number = waiter.tenant;
		return 0;
	}
	return answer_result(connection, result, &error);
}

static int serve_board(struct hb_connection *connection, const struct hb_wire_fds *fds)
{
	struct hb_error error = {""};
	int result = hb_tenant_gives_board(connection->server->daemon, &connection->peer,
					   &connection->server->message.as_BOARD, fds->fd[0], &error);
	return answer_result(connection, result, &error);
}

static int serve_fetch_board(struct hb_connection *connection)
{
	union hb_msg *message = &connection->server->message;
	struct hb_error error = {""};
	int fd = hb_tenant_fetches_board(connection->server->daemon, &connection->peer, &message->as_FETCH_BOARD,
					 &error);
	if (fd < 0)
		return hb_connection_error(connection, fd, error.text);
	hb_msg_init(message, HB_MSG_FETCHED_BOARD);
	return hb_connection_answer(connection, &fd, 1);
}

int hb_request_answer_place(struct hb_connection *connection)
{
	struct hb_server *server = connection->server;
	struct hb_error error = {""};
	struct hb_peer peer = connection->peer;
	int result = hb_peer_open(connection->fd, &peer);
	if (result < 0)
		hb_error_set(&error, result, "cannot watch process %d, which connected: %s", (int)peer.pid,
			     strerror(-result));
	else
		result = hb_placements_serve(server->daemon->placements, &peer, connection->place, &server->message,
					     &error);
	hb_peer_close(&peer);
	free(connection->place);
	connection->place = NULL;
	return result < 0 ? hb_connection_error(connection, result, error.text)
			  : hb_connection_answer(connection, NULL, 0);
}

/* The choice needs to know how much memory is free, so the driver is asked first. */
static int serve_place(struct hb_connection *connection)
{
	struct hb_daemon *daemon = connection->server->daemon;
	struct hb_error error = {""};
	int result = hb_placements_prepare(daemon->placements, &error);
	if (result < 0)
		return hb_connection_error(connection, result, error.text);
	connection->place = malloc(sizeof *connection->place);
	if (!connection->place)
		return hb_connection_error(connection, -ENOMEM, "out of memory");
	*connection->place = connection->server->message.as_PLACE;
	if (!hb_gpu_processes_poll(daemon->processes))
		return hb_request_answer_place(connection);
	connection->wait = HB_WAIT_PLACE;
	return 0;
}

/* Finds out whether the client is in a container. 0 or negative errno. */
static int identify_client(const struct hb_connection *connection, struct hb_peer *peer)
{
	*peer = connection->peer;
	int result = hb_peer_open(connection->fd, peer);
	hb_peer_close(peer);
	return result;
}

static bool is_machine_root(const struct hb_peer *peer)
{
	return peer->uid == 0 && !peer->is_contained;
}

static bool is_root_or_owner(const struct hb_daemon *daemon, const struct hb_peer *peer)
{
	return is_machine_root(peer) || (peer->uid == daemon->owner && !peer->is_contained);
}

/* A process in a container may change the tenant that is this container, but no other tenant of its user. */
static bool may_change(const struct hb_peer *peer, const struct hb_tenancy *tenancy)
{
	bool same_place = !peer->is_contained || (tenancy->peer.is_contained &&
						  strcmp(peer->place.container, tenancy->peer.place.container) == 0);
	return is_root_or_owner(tenancy->daemon, peer) || (peer->uid == tenancy->peer.uid && same_place);
}

static int serve_set(struct hb_connection *connection)
{
	struct hb_daemon *daemon = connection->server->daemon;
	const struct hb_msg_set change = connection->server->message.as_SET;
	struct hb_tenancy *tenancy = hb_tenancy_numbered(daemon, change.tenant);
	struct hb_error error = {""};
	char reduced[160];
	struct hb_peer peer;
	if (!tenancy || hb_tenancy_is_server(tenancy)) {
		hb_error_set(&error, -ESRCH, "no tenant has the id %u; `hb status` shows the ids", change.tenant);
		return hb_connection_error(connection, -ESRCH, error.text);
	}
	if (identify_client(connection, &peer) < 0 || !may_change(&peer, tenancy))
		return hb_connection_error(connection, -EPERM,
					   "only the tenant's user and root may change it, from outside of containers");
	struct hb_rights wanted = tenancy->rights;
	if (change.fields & HB_SET_PRIORITY)
		wanted.priority = (enum hb_page_priority)change.priority;
	if (change.fields & HB_SET_SLO)
		wanted.slo_ns = change.slo_ns;
	if (change.fields & HB_SET_MEMORY)
		wanted.memory_bytes = change.memory_bytes;
	/* The rules for the tenant's own user apply to everyone who changes it, except root. */
	struct hb_rights granted = hb_admit(&daemon->config, daemon->options.system_mode, &tenancy->peer, &wanted,
					    reduced);
	bool allowed = !reduced[0] && hb_job_may_have(tenancy, &wanted, reduced);
	if (!allowed && !is_machine_root(&peer))
		return hb_connection_error(connection, -EPERM, reduced);
	int result = hb_tenancy_set(tenancy, &change, is_machine_root(&peer) ? &wanted : &granted, &error);
	HB_FAULT(daemon_set);
	hb_daemon_wake(daemon);
	return answer_result(connection, result, &error);
}

static int serve_status(struct hb_connection *connection)
{
	hb_status_answers_ask(connection);
	return 0;
}

static int stop_recording(struct hb_connection *connection)
{
	int code;
	char *text = hb_recorder_stop(connection->server->daemon, &code);
	connection->text = hb_shared_text_new(text, text ? strlen(text) : 0);
	if (!connection->text)
		return hb_connection_error(connection, code,
					   code == -ENOENT ? "no recording is running" : "out of memory");
	connection->text_sent = 0;
	return hb_connection_text(connection);
}

/* A recording shows what all tenants do, so only root and the user of the daemon may record. */
static int serve_record(struct hb_connection *connection)
{
	const struct hb_msg_record request = connection->server->message.as_RECORD;
	struct hb_peer peer;
	if (identify_client(connection, &peer) < 0 || !is_root_or_owner(connection->server->daemon, &peer))
		return hb_connection_error(connection, -EPERM,
					   "only root and the daemon's own user may record: run the command as one of "
					   "them, outside of containers");
	if (request.action == HB_RECORD_STOP)
		return stop_recording(connection);
	int result = hb_recorder_start(connection->server->daemon, (int64_t)request.seconds * HB_NS_PER_S);
	if (result < 0)
		return hb_connection_error(connection, result,
					   result == -EBUSY ? "another recording is running" : "out of memory");
	return hb_connection_done(connection);
}

int hb_request_serve(struct hb_connection *connection, const struct hb_wire_fds *fds)
{
	unsigned kind = connection->server->message.header.kind;
	if (kind != HB_MSG_HELLO && !connection->greeted)
		return -EPROTO;
	switch (kind) {
	case HB_MSG_HELLO:
		return serve_hello(connection);
	case HB_MSG_REGISTER:
		return serve_register(connection, fds);
	case HB_MSG_BYE:
		return serve_bye(connection);
	case HB_MSG_TERMINATE:
		return serve_terminate(connection);
	case HB_MSG_SET:
		return serve_set(connection);
	case HB_MSG_STATUS:
		return serve_status(connection);
	case HB_MSG_BOARD:
		return serve_board(connection, fds);
	case HB_MSG_FETCH_BOARD:
		return serve_fetch_board(connection);
	case HB_MSG_MEMORY:
		return serve_memory(connection);
	case HB_MSG_PLACE:
		return serve_place(connection);
	case HB_MSG_RECORD:
		return serve_record(connection);
	default:
		return -EPROTO;
	}
}
