/* SPDX-License-Identifier: Apache-2.0 */
/* The client side of the protocol; see daemon_client.h. */
#include "protocol/daemon_client.h"

#include "base/clock.h"
#include "base/fault_point.h"
#include "base/map_over.h"
#include "hummingbird/page_trace.h"
#include "protocol/socket_path.h"
#include "protocol/wire.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

/* Some applications (daemons, shells) close all low descriptors, so the page's descriptor is a high one. */
#define FD_FLOOR 512

/* The time limit of an answer is split into parts: if the machine pauses, which stops the daemon, too, one part expires. */
#define LIMIT_PARTS 20

/* Waits for input in spite of signals. limit_ms 0: without a limit. */
static bool wait_readable(int socket, int limit_ms)
{
	struct pollfd answer = {.fd = socket, .events = POLLIN};
	int64_t until_ns = hb_clock_now_ns() + limit_ms * HB_NS_PER_MS;
	int ready, left_ms = limit_ms ? limit_ms : -1;
	while ((ready = poll(&answer, 1, left_ms)) < 0 && errno == EINTR) {
		int64_t left_ns = until_ns - hb_clock_now_ns();
		if (limit_ms)
			left_ms = left_ns > 0 ? (int)(left_ns / HB_NS_PER_MS) : 0;
	}
	return ready > 0;
}

static bool wait_for_answer(int socket)
{
	struct timeval limit = {0};
	socklen_t size = sizeof limit;
	getsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &limit, &size);
	int64_t part_ms = ((int64_t)limit.tv_sec * 1000 + limit.tv_usec / 1000) / LIMIT_PARTS;
	for (int part = 0; part < LIMIT_PARTS; part++)
		if (wait_readable(socket, (int)part_ms))
			return true;
	return false;
}

static int receive_answer(int socket, union hb_msg *message, struct hb_wire_fds *fds, unsigned expected,
			  struct hb_error *error)
{
	const char *why = "";
	fds->n = 0;
	int result = wait_for_answer(socket) ? hb_wire_receive(socket, HB_SENDER_DAEMON, message, fds, &why) : -EAGAIN;
	if (result < 0)
		hb_wire_close_fds(fds);
	if (result == -EPROTO)
		return hb_error_set(error, result, "the daemon's answer is damaged: %s", why);
	if (result == -EAGAIN)
		return hb_error_set(error, -ETIMEDOUT, "the daemon does not answer; read its log and restart it");
	if (result < 0)
		return hb_error_set(error, result, "the daemon closed the connection: %s", strerror(-result));
	if (message->header.kind == HB_MSG_ERROR) {
		size_t length;
		const char *text = hb_msg_text(message, &length);
		return hb_error_set(error, message->as_ERROR.code, "%.*s", (int)length, text);
	}
	if (message->header.kind == expected)
		return 0;
	hb_wire_close_fds(fds);
	return hb_error_set(error, -EPROTO, "unexpected answer %s", hb_msg_name(message->header.kind));
}

/* Sends a request and receives the first answer, in the same buffer. */
static int call_daemon(int socket, union hb_msg *message, int fd, struct hb_wire_fds *fds, unsigned expected,
		       struct hb_error *error)
{
	int result = hb_wire_send(socket, message, &fd, fd >= 0);
	if (expected == HB_MSG_REGISTERED)
		HB_FAULT(client_register_sent);
	fds->n = 0;
	if (result < 0)
		return hb_error_set(error, result, "cannot send to the daemon: %s", strerror(-result));
	return receive_answer(socket, message, fds, expected, error);
}

/* Greets the daemon; may be repeated. *features = what the daemon can do: set of enum hb_protocol_feature. */
static int say_hello(int socket, uint32_t *features, struct hb_error *error)
{
	struct hb_wire_fds fds;
	union hb_msg *message = malloc(sizeof *message);
	if (!message)
		return hb_error_set(error, -ENOMEM, "out of memory");
	hb_msg_init(message, HB_MSG_HELLO);
	message->as_HELLO.version_min = HB_PROTOCOL_VERSION;
	message->as_HELLO.version_max = HB_PROTOCOL_VERSION;
	message->as_HELLO.page_version = HB_PAGE_VERSION;
	message->as_HELLO.features = HB_PROTOCOL_ALL_FEATURES;
	int result = call_daemon(socket, message, -1, &fds, HB_MSG_WELCOME, error);
	if (!result && message->as_WELCOME.page_version != HB_PAGE_VERSION)
		result = hb_error_set(error, -EPROTO,
				      "the daemon has page version %u, this program %u: restart the older one",
				      message->as_WELCOME.page_version, HB_PAGE_VERSION);
	if (!result)
		*features = message->as_WELCOME.features;
	free(message);
	return result;
}

void hb_client_limit(int socket, int timeout_ms)
{
	/* A limit of 0 would mean no limit. */
	int ms = timeout_ms > LIMIT_PARTS ? timeout_ms : LIMIT_PARTS;
	struct timeval limit = {.tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000};
	setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
	setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
}

static int connect_to(const char *path, int timeout_ms)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	if (strlen(path) >= sizeof address.sun_path)
		return -ENAMETOOLONG;
	strcpy(address.sun_path, path);
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	hb_client_limit(fd, timeout_ms);
	int result;
	do
		result = connect(fd, (struct sockaddr *)&address, sizeof address);
	while (result < 0 && errno == EINTR);
	if (result == 0)
		return fd;
	result = -errno;
	close(fd);
	return result;
}

/*
 * A daemon's answer changes the environment of programs, so the daemon must belong to root or to this user: a folder in
 * /tmp, or one named by an inherited environment, may belong to another user. A socket that HB_SOCKET names is accepted
 * as the user's choice, and so is the system's folder, where only root makes sockets (in a container, root may have
 * another user id).
 */
static int check_server(int fd, const char *path, struct hb_error *error)
{
	struct ucred server;
	socklen_t size = sizeof server;
	const char *chosen = getenv("HB_SOCKET");
	if ((chosen && *chosen) || strncmp(path, HB_SYSTEM_DIR "/", strlen(HB_SYSTEM_DIR "/")) == 0)
		return 0;
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &server, &size) < 0)
		return hb_error_set(error, -errno, "%s: cannot find out to which user the daemon belongs: %s", path,
				    strerror(errno));
	if (server.uid == 0 || server.uid == geteuid())
		return 0;
	return hb_error_set(error, -EPERM,
			    "%s: the daemon belongs to user %u, neither to root nor to you; set XDG_RUNTIME_DIR to a "
			    "folder of your own, or HB_SOCKET to this path to use that daemon",
			    path, (unsigned)server.uid);
}

int hb_client_open(const char *path, int timeout_ms, struct hb_error *error)
{
	int64_t until_ns = hb_clock_now_ns() + timeout_ms * HB_NS_PER_MS;
	uint32_t features;
	int fd = connect_to(path, timeout_ms);
	if (fd == -EAGAIN) /* too many clients wait for a daemon that does not accept them */
		return hb_error_set(error, -ETIMEDOUT, "%s: the daemon does not accept connections; restart it", path);
	if (fd < 0)
		return hb_error_set(error, fd, "%s: no daemon answers there: %s", path, strerror(-fd));
	HB_FAULT(client_connected);
	hb_client_limit(fd, (int)((until_ns - hb_clock_now_ns()) / HB_NS_PER_MS));
	int result = check_server(fd, path, error);
	if (result == 0)
		result = say_hello(fd, &features, error);
	HB_FAULT(client_greeted);
	hb_client_limit(fd, timeout_ms);
	if (result == 0)
		return fd;
	close(fd);
	return result;
}

static void fill_register(struct hb_msg_register *m, const struct hb_tenant_options *options)
{
	m->flags = options->flags & ~(uint32_t)HB_REGISTER_PAGE;
	m->priority = options->priority;
	m->engine = options->engine;
	m->slo_ns = options->slo_ns;
	m->attainment_ppm = options->attainment_ppm;
	m->weight = options->weight > 1 ? options->weight : 0; /* a daemon before weights refuses other values */
	m->pcie_weight = options->pcie_weight;
	m->memory_bytes = options->memory_bytes;
	memcpy(m->token, options->token, sizeof m->token);
	m->slot = HB_PAGE_PROCESSES;
	m->n_gpus = options->n_gpus;
	memcpy(m->uuids, options->uuids, sizeof m->uuids);
	memcpy(m->totals, options->totals, sizeof m->totals);
}

/* Returns the descriptor of the page, or -1 if the application has closed or replaced it. */
static int find_page_fd(const struct hb_membership *member)
{
	struct stat found;
	if (member->page_fd < 0 || fstat(member->page_fd, &found) < 0 || found.st_ino != member->page_inode)
		return -1;
	return member->page_fd;
}

static int map_page(struct hb_membership *member, int fd)
{
	struct stat found;
	if (fstat(fd, &found) < 0)
		return -errno;
	if (!hb_page_size_is_known((size_t)found.st_size))
		return -EPROTO;
	if (member->page) /* registered again: the daemon continues with the same page */
		return found.st_ino == member->page_inode ? 0 : -EPROTO;
	struct hb_page *page = mmap(NULL, sizeof *page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (page == MAP_FAILED)
		return -errno;
	if (page->magic != HB_PAGE_MAGIC || page->version != HB_PAGE_VERSION || page->size_bytes != sizeof *page) {
		munmap(page, sizeof *page);
		return -EPROTO;
	}
	int high = fcntl(fd, F_DUPFD_CLOEXEC, FD_FLOOR);
	member->page_fd = high >= 0 ? high : fcntl(fd, F_DUPFD_CLOEXEC, 3);
	member->page_inode = found.st_ino;
	member->page = page;
	return 0;
}

static int map_gpu(struct hb_membership *member, uint32_t index, int fd)
{
	const struct hb_gpu_page *old = member->gpus[index];
	struct stat found;
	if (fstat(fd, &found) < 0 || found.st_size != (off_t)sizeof *old)
		return -EPROTO;
	void *page = hb_map_over((void *)(uintptr_t)old, sizeof *old, PROT_READ, MAP_SHARED, fd);
	if (page == MAP_FAILED)
		return -errno;
	member->gpus[index] = page;
	return 0;
}

static int take_grant(struct hb_membership *member, const struct hb_msg_registered *grant,
		      const struct hb_wire_fds *fds)
{
	struct hb_membership taken = *member;
	int result = map_page(&taken, fds->fd[0]);
	HB_FAULT(client_page_mapped);
	for (uint32_t i = 0; result == 0 && i + 1 < fds->n; i++)
		result = map_gpu(&taken, i, fds->fd[i + 1]);
	if (result < 0) {
		if (!member->page)
			hb_membership_fini(&taken);
		return result;
	}
	taken.n_gpus = (uint32_t)fds->n - 1;
	taken.tenant = grant->tenant;
	taken.slot = grant->slot;
	taken.generation = grant->generation;
	*member = taken;
	return 0;
}

static void copy_environment(const union hb_msg *message, char *environment, size_t size)
{
	size_t length;
	const char *text = hb_msg_text(message, &length);
	if (!environment || size < 2)
		return;
	if (length > size - 2) /* cannot happen if the buffer has the size of a message; a value is never cut */
		length = 0;
	memcpy(environment, text, length);
	environment[length] = environment[length + 1] = '\0';
}

int hb_client_register(int socket, const struct hb_tenant_options *options, struct hb_membership *member,
		       char *environment, size_t environment_size, struct hb_error *error)
{
	struct hb_wire_fds fds;
	union hb_msg *message = malloc(sizeof *message);
	if (!message)
		return hb_error_set(error, -ENOMEM, "out of memory");
	hb_msg_init(message, HB_MSG_REGISTER);
	fill_register(&message->as_REGISTER, options);
	int page_fd = find_page_fd(member);
	if (page_fd >= 0)
		message->as_REGISTER.flags |= HB_REGISTER_PAGE;
	if (member->page) {
		message->as_REGISTER.slot = member->slot;
		message->as_REGISTER.generation = member->generation;
	}
	if (options->command)
		hb_msg_add_text(message, options->command, strlen(options->command));
	int result = call_daemon(socket, message, page_fd, &fds, HB_MSG_REGISTERED, error);
	if (result == 0) {
		HB_FAULT(client_granted);
		copy_environment(message, environment, environment_size);
		result = take_grant(member, &message->as_REGISTERED, &fds);
		if (result < 0)
			hb_error_set(error, result, "cannot use the daemon's pages: %s", strerror(-result));
		hb_wire_close_fds(&fds);
		HB_FAULT(client_registered);
	}
	free(message);
	return result;
}

void hb_membership_fini(struct hb_membership *member)
{
	for (size_t i = 0; i < HB_PAGE_GPUS; i++)
		if (member->gpus[i])
			munmap((void *)(uintptr_t)member->gpus[i], sizeof *member->gpus[i]);
	if (member->page)
		munmap(member->page, sizeof *member->page);
	if (member->page_fd >= 0)
		close(member->page_fd);
	*member = (struct hb_membership)HB_MEMBERSHIP_NONE;
}

static int call_for_done(int socket, union hb_msg *message, struct hb_error *error)
{
	struct hb_wire_fds fds;
	int result = call_daemon(socket, message, -1, &fds, HB_MSG_DONE, error);
	free(message);
	return result;
}

int hb_client_bye_supervisor(int socket, const unsigned char token[HB_TOKEN_BYTES], char *said, size_t size,
			     struct hb_error *error)
{
	struct hb_wire_fds fds;
	union hb_msg *message = malloc(sizeof *message);
	if (!message)
		return hb_error_set(error, -ENOMEM, "out of memory");
	hb_msg_init(message, HB_MSG_BYE);
	memcpy(message->as_BYE.token, token, HB_TOKEN_BYTES);
	int result = call_daemon(socket, message, -1, &fds, HB_MSG_DONE, error);
	if (result == 0 && size) {
		size_t length;
		const char *text = hb_msg_text(message, &length);
		snprintf(said, size, "%.*s", (int)length, text);
	}
	free(message);
	return result;
}

int hb_client_bye(int socket, const unsigned char token[HB_TOKEN_BYTES], struct hb_error *error)
{
	return hb_client_bye_supervisor(socket, token, NULL, 0, error);
}

int hb_client_terminate(int socket, const unsigned char token[HB_TOKEN_BYTES], int signal, struct hb_error *error)
{
	union hb_msg *message = malloc(sizeof *message);
	if (!message)
		return hb_error_set(error, -ENOMEM, "out of memory");
	hb_msg_init(message, HB_MSG_TERMINATE);
	memcpy(message->as_TERMINATE.token, token, HB_TOKEN_BYTES);
	message->as_TERMINATE.signal = (uint32_t)signal;
	return call_for_done(socket, message, error);
}

/* --- boards --- */

int hb_board_make(void **at, size_t keep)
{
	unsigned char kept[256];
	int fd = memfd_create("hb-board", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0)
		return -errno;
	if (*at && keep <= sizeof kept)
		memcpy(kept, *at, keep);
	void *page = MAP_FAILED;
	if (ftruncate(fd, HB_PAGE_BOARD_BYTES) == 0 && (!*at || pwrite(fd, kept, keep, 0) == (ssize_t)keep))
		page = hb_map_over(*at, HB_PAGE_BOARD_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd);
	if (page != MAP_FAILED)
		*at = page;
	if (page != MAP_FAILED && fcntl(fd, F_ADD_SEALS, HB_BOARD_SEALS) == 0)
		return fd;
	int result = -errno;
	close(fd);
	return result;
}

static void fill_board(struct hb_msg_board *m, const unsigned char *token, const unsigned char *uuid)
{
	memcpy(m->token, token, HB_TOKEN_BYTES);
	memcpy(m->uuid, uuid, HB_UUID_BYTES);
}

int hb_client_give_board(int socket, const unsigned char token[HB_TOKEN_BYTES], const unsigned char uuid[HB_UUID_BYTES],
			 int fd, struct hb_error *error)
{
	struct hb_wire_fds fds;
	union hb_msg *message = malloc(sizeof *message);
	if (!message)
		return hb_error_set(error, -ENOMEM, "out of memory");
	hb_msg_init(message, HB_MSG_BOARD);
	fill_board(&message->as_BOARD, token, uuid);
	int result = call_daemon(socket, message, fd, &fds, HB_MSG_DONE, error);
	free(message);
	return result;
}

int hb_client_map_board(int socket, const unsigned char token[HB_TOKEN_BYTES], const unsigned char uuid[HB_UUID_BYTES],
			uint32_t number, void *at, struct hb_error *error)
{
	struct hb_wire_fds fds;
	union hb_msg *message = malloc(sizeof *message);
	if (!message)
		return hb_error_set(error, -ENOMEM, "out of memory");
	hb_msg_init(message, HB_MSG_FETCH_BOARD);
	fill_board(&message->as_FETCH_BOARD, token, uuid);
	message->as_FETCH_BOARD.number = number;
	int result = call_daemon(socket, message, -1, &fds, HB_MSG_FETCHED_BOARD, error);
	free(message);
	if (result < 0)
		return result;
	if (hb_map_over(at, HB_PAGE_BOARD_BYTES, PROT_READ, MAP_SHARED, fds.fd[0]) == MAP_FAILED)
		result = hb_error_set(error, -errno, "cannot map a board: %s", strerror(errno));
	hb_wire_close_fds(&fds);
	return result;
}

int hb_client_ask_memory(int socket, const unsigned char token[HB_TOKEN_BYTES], const unsigned char uuid[HB_UUID_BYTES],
			 uint64_t bytes, struct hb_error *error)
{
	union hb_msg *message = malloc(sizeof *message);
	if (!message)
		return hb_error_set(error, -ENOMEM, "out of memory");
	hb_msg_init(message, HB_MSG_MEMORY);
	memcpy(message->as_MEMORY.token, token, HB_TOKEN_BYTES);
	memcpy(message->as_MEMORY.uuid, uuid, HB_UUID_BYTES);
	message->as_MEMORY.bytes = bytes;
	return call_for_done(socket, message, error);
}

/* The answer to PLACE, which is in `message`. */
static int ask_place(int socket, union hb_msg *message, struct hb_placed *placed, struct hb_error *error)
{
	struct hb_wire_fds fds;
	size_t length;
	int result = call_daemon(socket, message, -1, &fds, HB_MSG_PLACED, error);
	if (result < 0)
		return result;
	const char *text = hb_msg_text(message, &length);
	placed->n_gpus = message->as_PLACED.n_gpus;
	memcpy(placed->uuids, message->as_PLACED.uuids, sizeof placed->uuids);
	memcpy(placed->text, text, length);
	placed->text[length] = '\0';
	return 0;
}

int hb_client_place(int socket, const struct hb_place_options *options, struct hb_placed *placed,
		    struct hb_error *error)
{
	uint32_t features;
	int result = say_hello(socket, &features, error);
	if (result == 0 && !(features & HB_PROTOCOL_PLACEMENT))
		result = hb_error_set(error, -EOPNOTSUPP, "the daemon is older and cannot choose GPUs: restart it");
	union hb_msg *message = result < 0 ? NULL : malloc(sizeof *message);
	if (!message)
		return result < 0 ? result : hb_error_set(error, -ENOMEM, "out of memory");
	hb_msg_init(message, HB_MSG_PLACE);
	struct hb_msg_place *m = &message->as_PLACE;
	memcpy(m->token, options->token, HB_TOKEN_BYTES);
	m->n_gpus = options->n_gpus;
	m->priority = options->priority;
	m->memory_bytes = options->memory_bytes;
	m->seconds = options->seconds;
	m->n_allowed = options->n_allowed;
	memcpy(m->allowed, options->allowed, sizeof m->allowed);
	result = ask_place(socket, message, placed, error);
	free(message);
	return result;
}

int hb_client_set(int socket, const struct hb_msg_set *change, struct hb_error *error)
{
	union hb_msg *message = malloc(sizeof *message);
	if (!message)
		return hb_error_set(error, -ENOMEM, "out of memory");
	hb_msg_init(message, HB_MSG_SET);
	struct hb_msg_header header = message->header;
	message->as_SET = *change;
	message->header = header;
	return call_for_done(socket, message, error);
}

/* Collects TEXT messages until the one without `more`; the first is already in *message. */
static int read_text(int socket, union hb_msg *message, char **text, struct hb_error *error)
{
	char *joined = NULL;
	size_t used = 0;
	for (;;) {
		size_t length;
		const char *part = hb_msg_text(message, &length);
		char *grown = realloc(joined, used + length + 1);
		if (!grown) {
			free(joined);
			return hb_error_set(error, -ENOMEM, "out of memory");
		}
		joined = grown;
		memcpy(joined + used, part, length);
		used += length;
		joined[used] = '\0';
		if (!message->as_TEXT.more)
			break;
		struct hb_wire_fds fds;
		int result = receive_answer(socket, message, &fds, HB_MSG_TEXT, error);
		if (result < 0) {
			free(joined);
			return result;
		}
	}
	*text = joined;
	return 0;
}

int hb_client_record(int socket, uint32_t seconds, char **text, struct hb_error *error)
{
	struct hb_wire_fds fds;
	union hb_msg *message = malloc(sizeof *message);
	if (!message)
		return hb_error_set(error, -ENOMEM, "out of memory");
	hb_msg_init(message, HB_MSG_RECORD);
	message->as_RECORD.action = text ? HB_RECORD_STOP : HB_RECORD_START;
	message->as_RECORD.seconds = seconds;
	if (!text)
		return call_for_done(socket, message, error);
	int result = call_daemon(socket, message, -1, &fds, HB_MSG_TEXT, error);
	if (result == 0)
		result = read_text(socket, message, text, error);
	free(message);
	return result;
}

int hb_client_status(int socket, char **json, struct hb_error *error)
{
	struct hb_wire_fds fds;
	union hb_msg *message = malloc(sizeof *message);
	if (!message)
		return hb_error_set(error, -ENOMEM, "out of memory");
	hb_msg_init(message, HB_MSG_STATUS);
	int result = call_daemon(socket, message, -1, &fds, HB_MSG_TEXT, error);
	if (result == 0)
		result = read_text(socket, message, json, error);
	free(message);
	return result;
}

static int hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

int hb_token_parse(const char *text, unsigned char token[HB_TOKEN_BYTES])
{
	unsigned char parsed[HB_TOKEN_BYTES];
	if (!text || strlen(text) != 2 * HB_TOKEN_BYTES)
		return -EINVAL;
	for (size_t i = 0; i < HB_TOKEN_BYTES; i++) {
		int high = hex_digit(text[2 * i]), low = hex_digit(text[2 * i + 1]);
		if (high < 0 || low < 0)
			return -EINVAL;
		parsed[i] = (unsigned char)(high << 4 | low);
	}
	memcpy(token, parsed, sizeof parsed);
	return 0;
}

void hb_token_format(const unsigned char token[HB_TOKEN_BYTES], char text[2 * HB_TOKEN_BYTES + 1])
{
	for (size_t i = 0; i < HB_TOKEN_BYTES; i++)
		snprintf(text + 2 * i, 3, "%02x", token[i]);
}
