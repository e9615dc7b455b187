/* SPDX-License-Identifier: Apache-2.0 */
/* See helper.h. */
#include "daemon/helper.h"

#include "base/log.h"
#include "daemon/privileged_work.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

struct helper_server {
	uv_loop_t loop;
	uv_poll_t facts, programs;
	int facts_fd, programs_fd;
	bool broke_rule; /* the daemon did */
	struct hb_mps_place place;
};

/* A program that runs. */
struct helper_program {
	struct helper_server *server;
	uint64_t number;
};

static struct helper_server helper_server;

static void stop_serving(struct helper_server *server, const char *rule)
{
	if (rule && !server->broke_rule)
		hb_log_error("the daemon sent a request that breaks a rule (%s): the helper process ends", rule);
	server->broke_rule |= rule != NULL;
	uv_stop(&server->loop);
}

/* Returns whether a request was read. The end of the daemon ends the helper. */
static bool read_request(struct helper_server *server, int fd, enum hb_privileged_channel channel,
			 struct hb_privileged_request *request)
{
	struct hb_privileged_request packet[2]; /* twice the size, so that a packet that is too long is noticed */
	const char *why;
	ssize_t n = recv(fd, packet, sizeof packet, MSG_DONTWAIT);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return false;
	if (n <= 0) {
		stop_serving(server, NULL);
		return false;
	}
	if (hb_privileged_request_parse(packet, (size_t)n, channel, request, &why) == 0)
		return true;
	stop_serving(server, why);
	return false;
}

/* --- facts --------------------------------------------------------------------------------------- */

static void send_fact(struct helper_server *server, struct hb_privileged_fact *fact, int fd)
{
	char space[CMSG_SPACE(sizeof fd)] = {0};
	struct iovec data = {fact, sizeof *fact};
	struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1};
	if (fd >= 0) {
		message.msg_control = space;
		message.msg_controllen = sizeof space;
		struct cmsghdr *header = CMSG_FIRSTHDR(&message);
		header->cmsg_level = SOL_SOCKET;
		header->cmsg_type = SCM_RIGHTS;
		header->cmsg_len = CMSG_LEN(sizeof fd);
		memcpy(CMSG_DATA(header), &fd, sizeof fd);
	}
	if (sendmsg(server->facts_fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
		stop_serving(server, errno == EAGAIN ? "answers are not read" : NULL);
}

static void handle_fact(uv_poll_t *poll, int status, int events)
{
	struct helper_server *server = poll->data;
	struct hb_privileged_request request;
	struct hb_privileged_fact fact;
	int fd;
	if (!read_request(server, server->facts_fd, HB_PRIVILEGED_FACT, &request))
		return;
	hb_privileged_answer(&server->place, &request, &fact, &fd);
	send_fact(server, &fact, fd);
	if (fd >= 0)
		close(fd);
}

/* --- programs ------------------------------------------------------------------------------------ */

static void send_result(struct helper_server *server, uint64_t number, int status, const char *output)
{
	struct hb_helper_result result = {.number = number, .status = status};
	snprintf(result.output, sizeof result.output, "%.*s", HB_HELPER_OUTPUT_MAX - 1, output);
	if (send(server->programs_fd, &result, sizeof result, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
		stop_serving(server, errno == EAGAIN ? "results are not read" : NULL);
}

static void handle_end(void *argument, const struct hb_command_result *result)
{
	struct helper_program *program = argument;
	send_result(program->server, program->number, result->status, result->output);
	free(program);
}

static void handle_program(uv_poll_t *poll, int status, int events)
{
	struct helper_server *server = poll->data;
	struct hb_privileged_request request;
	if (!read_request(server, server->programs_fd, HB_PRIVILEGED_PROGRAM, &request))
		return;
	struct helper_program *program = malloc(sizeof *program);
	int result = -ENOMEM;
	if (program) {
		*program = (struct helper_program){server, request.number};
		result = hb_privileged_start(&server->place, &server->loop, &request, handle_end, program);
	}
	if (result == 0)
		return;
	free(program);
	send_result(server, request.number, 127, strerror(-result));
}

/* --- life ------------------------------------------------------------------------------------------ */

int hb_helper_serve(const struct hb_daemon_options *options, int facts_fd, int programs_fd)
{
	struct helper_server *server = &helper_server;
	*server = (struct helper_server){.facts_fd = facts_fd, .programs_fd = programs_fd};
	hb_mps_place_init(&server->place, options);
	int result = uv_loop_init(&server->loop);
	if (result < 0) {
		hb_log_error("the helper process has no event loop: %s", uv_strerror(result));
		return 1;
	}
	uv_poll_init(&server->loop, &server->facts, facts_fd);
	uv_poll_init(&server->loop, &server->programs, programs_fd);
	server->facts.data = server->programs.data = server;
	uv_poll_start(&server->facts, UV_READABLE, handle_fact);
	uv_poll_start(&server->programs, UV_READABLE, handle_program);
	uv_run(&server->loop, UV_RUN_DEFAULT);
	/* Programs that run, such as the end of an MPS server, continue without the helper. */
	return server->broke_rule;
}

/* Returns only in the daemon. */
static pid_t fork_helper(const struct hb_daemon_options *options, const int facts[2], const int programs[2])
{
	pid_t pid = fork();
	if (pid != 0)
		return pid;
	close(facts[0]);
	close(programs[0]);
	if (options->ready_fd >= 0)
		close(options->ready_fd);
	/* Signals for the daemon's group, for example from a terminal: the daemon ends first. */
	signal(SIGINT, SIG_IGN);
	signal(SIGTERM, SIG_IGN);
	signal(SIGHUP, SIG_IGN);
	prctl(PR_SET_NAME, "hbd-helper");
	exit(hb_helper_serve(options, facts[1], programs[1]));
}

static void close_pair(const int pair[2])
{
	close(pair[0]);
	close(pair[1]);
}

int hb_helper_start(const struct hb_daemon_options *options, struct hb_helper *helper)
{
	int facts[2], programs[2];
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, facts) < 0)
		return -errno;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, programs) < 0) {
		int result = -errno;
		close_pair(facts);
		return result;
	}
	pid_t pid = fork_helper(options, facts, programs);
	if (pid < 0) {
		int result = -errno;
		close_pair(facts);
		close_pair(programs);
		return result;
	}
	close(facts[1]);
	close(programs[1]);
	*helper = (struct hb_helper){.pid = pid, .facts_fd = facts[0], .programs_fd = programs[0]};
	return 0;
}
