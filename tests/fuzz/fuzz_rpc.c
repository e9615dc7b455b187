/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzz target: bytes that a client sends to the sockets of hb-k8s (src/grpc/rpc_server.c). The first byte chooses whether the
 * preface and SETTINGS of HTTP/2 come before the input. Each input is one connection to a server in this process, with a
 * method that answers at once, a stream, and a method that answers later. The server must close the connection and stay
 * ready, and a call that was deferred must end.
 */
#include "device_plugin.pb-c.h"
#include "fuzz.h"
#include "grpc/rpc_server.h"

#include <errno.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define PREFACE "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0"
#define ANSWER_LEAST 60  /* bytes; SETTINGS alone are shorter */
#define TURNS_MAX 100000 /* of the loop; a connection that is still open then is a finding */
#define LATER_MAX 256

static uv_loop_t loop;
static struct hb_rpc_server *server;
static struct sockaddr_un address = {.sun_family = AF_UNIX};
static struct hb_rpc_call *later[LATER_MAX];
static size_t n_later;

static void answer_options(struct hb_rpc_call *call, void *service, const ProtobufCMessage *request)
{
	V1beta1__DevicePluginOptions options = V1BETA1__DEVICE_PLUGIN_OPTIONS__INIT;
	options.pre_start_required = ((const V1beta1__AllocateRequest *)request)->n_container_requests > 1;
	options.get_preferred_allocation_available = true;
	hb_rpc_answer(call, &options.base);
}

static void answer_later(struct hb_rpc_call *call, void *service, const ProtobufCMessage *request)
{
	if (n_later == LATER_MAX) {
		hb_rpc_fail(call, HB_RPC_RESOURCE_EXHAUSTED, "too many calls");
		return;
	}
	hb_rpc_defer(call);
	later[n_later++] = call;
}

static const struct hb_rpc_method methods[] = {
	{"/fuzz.Service/Now", &v1beta1__allocate_request__descriptor, answer_options, false},
	{"/fuzz.Service/Watch", &v1beta1__allocate_request__descriptor, answer_options, true},
	{"/fuzz.Service/Later", &v1beta1__allocate_request__descriptor, answer_later, false},
	{NULL, NULL, NULL, false}};

static void finish_calls(void)
{
	V1beta1__Empty empty = V1BETA1__EMPTY__INIT;
	while (n_later) {
		struct hb_rpc_call *call = later[--n_later];
		hb_rpc_answer(call, &empty.base);
		hb_rpc_finish(call);
	}
}

static void start_server(void)
{
	struct hb_error error = {""};
	signal(SIGPIPE, SIG_IGN);
	snprintf(address.sun_path, sizeof address.sun_path, "/tmp/hb-fuzz-rpc-%d.sock", (int)getpid());
	FUZZ_REQUIRE(uv_loop_init(&loop) == 0);
	FUZZ_REQUIRE(hb_rpc_server_open(&loop, address.sun_path, methods, NULL, &server, &error) == 0);
}

static void stop_server(void)
{
	unlink(address.sun_path);
}

/* Runs the loop until the server has closed the connection. */
static void read_to_end(int fd)
{
	char answer[65536];
	ssize_t n;
	for (int turn = 0; turn < TURNS_MAX; turn++) {
		uv_run(&loop, UV_RUN_NOWAIT);
		/* Some calls end before their stream does, some after it. */
		if (turn % 2)
			finish_calls();
		do
			n = recv(fd, answer, sizeof answer, MSG_DONTWAIT);
		while (n > 0);
		if (n == 0 || errno == ECONNRESET)
			return;
	}
	FUZZ_REQUIRE(!"the server closed the connection");
}

static void send_all(int fd, const void *bytes, size_t size)
{
	const char *at = bytes;
	while (size) {
		ssize_t n = send(fd, at, size, MSG_DONTWAIT);
		if (n < 0 && errno != EAGAIN && errno != EINTR)
			return; /* the server has closed the connection */
		uv_run(&loop, UV_RUN_NOWAIT);
		at += n > 0 ? n : 0;
		size -= n > 0 ? (size_t)n : 0;
	}
}

/* Sends the bytes on a connection of their own. */
static int connect_and_send(bool preface, const uint8_t *data, size_t size)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	FUZZ_REQUIRE(fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof address) == 0);
	if (preface)
		send_all(fd, PREFACE, sizeof PREFACE - 1);
	send_all(fd, data, size);
	return fd;
}

static void end_connection(int fd)
{
	shutdown(fd, SHUT_WR);
	read_to_end(fd);
	close(fd);
	finish_calls();
}

/* Sends a call without arguments, and waits for its answer. */
static void check_method(const char *path)
{
	uint8_t frames[256] = {0, 0, 0, 1, 4, 0, 0, 0, 1}, *at = frames + 9;
	const char *const fields[] = {":method", "POST", ":scheme", "http", ":path", path, ":authority", "localhost"};
	for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
		if (i % 2 == 0)
			*at++ = 0; /* a field that enters no table */
		*at++ = (uint8_t)strlen(fields[i]);
		memcpy(at, fields[i], strlen(fields[i]));
		at += strlen(fields[i]);
	}
	frames[2] = (uint8_t)(at - frames - 9);
	static const uint8_t message[] = {0, 0, 5, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0};
	memcpy(at, message, sizeof message);
	int fd = connect_and_send(true, frames, (size_t)(at - frames) + sizeof message);
	char answer[4096];
	size_t sum = 0;
	for (int turn = 0; turn < TURNS_MAX && sum < ANSWER_LEAST; turn++) {
		uv_run(&loop, UV_RUN_NOWAIT);
		finish_calls();
		ssize_t n = recv(fd, answer, sizeof answer, MSG_DONTWAIT);
		sum += n > 0 ? (size_t)n : 0;
	}
	FUZZ_REQUIRE(sum >= ANSWER_LEAST);
	end_connection(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (!server) {
		start_server();
		/* A server that refuses every client would find nothing. */
		for (size_t i = 0; methods[i].path; i++)
			check_method(methods[i].path);
		atexit(stop_server);
	}
	if (size == 0)
		return 0;
	end_connection(connect_and_send(data[0] & 1, data + 1, size - 1));
	return 0;
}
