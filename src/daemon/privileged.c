/* SPDX-License-Identifier: Apache-2.0 */
/* See privileged.h. */
#include "daemon/privileged.h"

#include "base/clock.h"
#include "base/log.h"
#include "daemon/helper.h"
#include "daemon/privileged_work.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define FACT_LIMIT_NS (300 * HB_NS_PER_MS)
/* So that all answers fit into the socket, whether or not the daemon reads them. */
#define PROGRAMS_MAX 128

/* A program that runs. */
struct waiting_program {
	struct waiting_program *next;
	struct hb_privileged *privileged;
	uint64_t number;
	hb_command_done *done;
	void *argument;
};

struct hb_privileged {
	uv_loop_t *loop;
	struct hb_mps_place place;
	struct hb_helper helper; /* facts_fd < 0: there is none */
	bool is_lost, closing;
	uint64_t last_number;
	uint64_t late_fact; /* number of the question whose answer did not come in time; 0 = none */
	struct waiting_program *waiting;
	unsigned n_waiting;
	uv_poll_t poll;
};

/* --- the helper --------------------------------------------------------------------------------- */

static void close_sockets(struct hb_privileged *privileged)
{
	close(privileged->helper.facts_fd);
	close(privileged->helper.programs_fd);
	privileged->helper.facts_fd = privileged->helper.programs_fd = -1;
}

static void free_closed(uv_handle_t *handle)
{
	struct hb_privileged *privileged = handle->data;
	close_sockets(privileged);
	free(privileged);
}

static void close_if_unused(struct hb_privileged *privileged)
{
	if (privileged->closing && !privileged->waiting && !uv_is_closing((uv_handle_t *)&privileged->poll))
		uv_close((uv_handle_t *)&privileged->poll, free_closed);
}

static void end_program(struct hb_privileged *privileged, struct waiting_program *program,
			const struct hb_command_result *result)
{
	struct waiting_program **place = &privileged->waiting;
	while (*place != program)
		place = &(*place)->next;
	*place = program->next;
	privileged->n_waiting--;
	program->done(program->argument, result);
	free(program);
}

/* The daemon cannot start another helper, because it has no rights to give to one. */
static void lose_helper(struct hb_privileged *privileged)
{
	const struct hb_command_result result = {.status = 127, .output = "the daemon's helper process has ended"};
	if (privileged->is_lost)
		return;
	privileged->is_lost = true;
	uv_poll_stop(&privileged->poll);
	waitpid(privileged->helper.pid, NULL, WNOHANG);
	hb_log_error("the helper process %d has ended: the daemon can neither start nor use MPS servers until it is "
		     "restarted; running programs continue",
		     (int)privileged->helper.pid);
	while (privileged->waiting)
		end_program(privileged, privileged->waiting, &result);
	close_if_unused(privileged);
}

static void take_result(struct hb_privileged *privileged, const struct hb_helper_result *answer)
{
	struct hb_command_result result = {.status = answer->status};
	struct waiting_program *program = privileged->waiting;
	while (program && program->number != answer->number)
		program = program->next;
	snprintf(result.output, sizeof result.output, "%.*s", (int)sizeof answer->output, answer->output);
	if (program)
		end_program(privileged, program, &result);
}

static void handle_results(uv_poll_t *poll, int status, int events)
{
	struct hb_privileged *privileged = poll->data;
	struct hb_helper_result answer;
	ssize_t n = recv(privileged->helper.programs_fd, &answer, sizeof answer, MSG_DONTWAIT);
	if (n == (ssize_t)sizeof answer)
		take_result(privileged, &answer);
	else if (n >= 0 || (errno != EAGAIN && errno != EINTR))
		lose_helper(privileged);
	close_if_unused(privileged);
}

/* --- facts --------------------------------------------------------------------------------------- */

/* Returns the bytes that were received, or negative errno. *fd = the descriptor that came with them; -1 = none. */
static ssize_t receive_fact(int from, struct hb_privileged_fact *fact, int *fd)
{
	char space[CMSG_SPACE(sizeof *fd)] = {0};
	struct iovec data = {fact, sizeof *fact};
	struct msghdr message = {
		.msg_iov = &data, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space};
	ssize_t n = recvmsg(from, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	const struct cmsghdr *header = n > 0 ? CMSG_FIRSTHDR(&message) : NULL;
	*fd = -1;
	if (header && header->cmsg_type == SCM_RIGHTS)
		memcpy(fd, CMSG_DATA(header), sizeof *fd);
	return n < 0 ? -errno : n;
}

/* Waits for the answer with this number until the time. Earlier answers came too late and are dropped. */
static int await_fact(struct hb_privileged *privileged, uint64_t number, int64_t until_ns,
		      struct hb_privileged_fact *fact, int *fd)
{
	for (;;) {
		ssize_t n = receive_fact(privileged->helper.facts_fd, fact, fd);
		if (n == (ssize_t)sizeof *fact && fact->number == number)
			return 0;
		if (*fd >= 0)
			close(*fd);
		*fd = -1; /* the caller closes what it gets */
		int64_t rest_ns = until_ns - hb_clock_now_ns();
		if (n >= 0 && n != (ssize_t)sizeof *fact)
			return -EPIPE;
		if (n < 0 && n != -EAGAIN && n != -EINTR)
			return (int)n;
		if (rest_ns <= 0)
			return -ETIMEDOUT;
		struct pollfd ready = {.fd = privileged->helper.facts_fd, .events = POLLIN};
		poll(&ready, 1, (int)((rest_ns + HB_NS_PER_MS - 1) / HB_NS_PER_MS));
	}
}

/* While an answer is late, nothing else is asked, so that a helper that hangs costs the loop no more time. */
static int ask_helper(struct hb_privileged *privileged, const struct hb_privileged_request *request,
		      struct hb_privileged_fact *fact, int *fd)
{
	if (privileged->is_lost)
		return -EPIPE;
	if (privileged->late_fact && await_fact(privileged, privileged->late_fact, 0, fact, fd) < 0)
		return -EAGAIN;
	if (privileged->late_fact && *fd >= 0)
		close(*fd);
	*fd = -1;
	privileged->late_fact = 0;
	if (send(privileged->helper.facts_fd, request, sizeof *request, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
		return -errno;
	int result = await_fact(privileged, request->number, hb_clock_now_ns() + FACT_LIMIT_NS, fact, fd);
	if (result == -ETIMEDOUT) {
		privileged->late_fact = request->number;
		hb_log_warning("the helper process %d does not answer: the daemon continues without facts about "
			       "processes until it does",
			       (int)privileged->helper.pid);
	}
	return result;
}

/* Returns the value of the fact, or negative errno. */
static int64_t ask(struct hb_privileged *privileged, struct hb_privileged_request request,
		   struct hb_privileged_fact *fact, int *fd)
{
	int result = 0;
	request.magic = HB_PRIVILEGED_MAGIC;
	request.number = ++privileged->last_number;
	*fd = -1;
	if (privileged->helper.facts_fd < 0)
		hb_privileged_answer(&privileged->place, &request, fact, fd);
	else
		result = ask_helper(privileged, &request, fact, fd);
	return result < 0 ? result : fact->value;
}

static int64_t ask_number(struct hb_privileged *privileged, struct hb_privileged_request request)
{
	struct hb_privileged_fact fact;
	int fd;
	int64_t value = ask(privileged, request, &fact, &fd);
	if (fd >= 0)
		close(fd);
	return value;
}

uint64_t hb_privileged_image(struct hb_privileged *privileged, pid_t pid)
{
	int64_t image = ask_number(privileged, (struct hb_privileged_request){.kind = HB_PRIVILEGED_IMAGE, .pid = pid});
	return image > 0 ? (uint64_t)image : 0;
}

bool hb_privileged_began_with(struct hb_privileged *privileged, pid_t pid, const unsigned char token[HB_TOKEN_BYTES])
{
	struct hb_privileged_request request = {.kind = HB_PRIVILEGED_BEGAN_WITH, .pid = pid};
	memcpy(request.token, token, sizeof request.token);
	return ask_number(privileged, request) > 0;
}

bool hb_privileged_signal_kills(struct hb_privileged *privileged, pid_t pid, int signal)
{
	return ask_number(privileged, (struct hb_privileged_request){.kind = HB_PRIVILEGED_SIGNAL_KILLS,
								     .pid = pid,
								     .signal = (uint32_t)signal}) > 0;
}

bool hb_privileged_is_server(struct hb_privileged *privileged, pid_t pid)
{
	return ask_number(privileged, (struct hb_privileged_request){.kind = HB_PRIVILEGED_IS_SERVER, .pid = pid}) > 0;
}

int hb_privileged_server_page(struct hb_privileged *privileged, pid_t pid, uint64_t start_ticks, char program[256])
{
	struct hb_privileged_fact fact;
	int fd;
	int64_t value = ask(privileged,
			    (struct hb_privileged_request){
				    .kind = HB_PRIVILEGED_SERVER_PAGE, .pid = pid, .start_ticks = start_ticks},
			    &fact, &fd);
	if (value < 0 || fd < 0)
		return value < 0 ? (int)value : -EPROTO;
	snprintf(program, 256, "%.255s", fact.program);
	return fd;
}

void hb_privileged_remove_socket(struct hb_privileged *privileged)
{
	ask_number(privileged, (struct hb_privileged_request){.kind = HB_PRIVILEGED_REMOVE_SOCKET});
}

/* --- programs ------------------------------------------------------------------------------------- */

static void free_in_process(struct hb_privileged *privileged)
{
	if (privileged->closing && !privileged->waiting)
		free(privileged);
}

static void ended_in_process(void *argument, const struct hb_command_result *result)
{
	struct waiting_program *program = argument;
	struct hb_privileged *privileged = program->privileged;
	end_program(privileged, program, result);
	free_in_process(privileged);
}

static int send_to_helper(struct hb_privileged *privileged, const struct hb_privileged_request *request)
{
	if (privileged->is_lost)
		return -EPIPE;
	return send(privileged->helper.programs_fd, request, sizeof *request, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 ? -errno
													       : 0;
}

int hb_privileged_run(struct hb_privileged *privileged, const struct hb_privileged_request *request,
		      hb_command_done *done, void *argument)
{
	struct hb_privileged_request numbered = *request;
	numbered.magic = HB_PRIVILEGED_MAGIC;
	numbered.number = ++privileged->last_number;
	struct waiting_program *program = privileged->n_waiting < PROGRAMS_MAX ? malloc(sizeof *program) : NULL;
	if (!program)
		return -EAGAIN;
	*program = (struct waiting_program){NULL, privileged, numbered.number, done, argument};
	int result = privileged->helper.facts_fd >= 0 ? send_to_helper(privileged, &numbered)
						      : hb_privileged_start(&privileged->place, privileged->loop,
									    &numbered, ended_in_process, program);
	if (result < 0) {
		free(program);
		return result;
	}
	program->next = privileged->waiting;
	privileged->waiting = program;
	privileged->n_waiting++;
	return 0;
}

/* --- life ------------------------------------------------------------------------------------------- */

struct hb_mps_place *hb_privileged_place(struct hb_privileged *privileged)
{
	return &privileged->place;
}

int hb_privileged_new(uv_loop_t *loop, const struct hb_daemon_options *options, struct hb_privileged **privileged)
{
	struct hb_privileged *made = calloc(1, sizeof *made);
	if (!made)
		return -ENOMEM;
	made->loop = loop;
	made->helper = options->helper ? *options->helper : (struct hb_helper){.facts_fd = -1, .programs_fd = -1};
	made->poll.data = made;
	hb_mps_place_init(&made->place, options);
	int result = made->helper.facts_fd < 0 ? 0 : uv_poll_init(loop, &made->poll, made->helper.programs_fd);
	if (result < 0) {
		free(made);
		return result;
	}
	if (made->helper.facts_fd >= 0)
		uv_poll_start(&made->poll, UV_READABLE, handle_results);
	*privileged = made;
	return 0;
}

void hb_privileged_free(struct hb_privileged *privileged)
{
	if (!privileged)
		return;
	privileged->closing = true;
	if (privileged->helper.facts_fd < 0)
		free_in_process(privileged);
	else
		close_if_unused(privileged);
}
