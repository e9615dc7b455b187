/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzz target: bytes that a client sends to the gRPC port. The first byte chooses
 * whether the preface and SETTINGS of HTTP/2 come before the input. A server with
 * one model runs in this process; each input is one connection. The server must
 * close it, stay ready, and give back its memory.
 */
#include "fuzz.h"
#include "server/grpc/kserve_grpc.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define PREFACE "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
#define NO_SETTINGS "\0\0\0\4\0\0\0\0\0"
#define ANSWER_LEAST 60 /* SETTINGS alone are shorter */
#define CLOSE_MS 20000  /* a server that does not close a finished connection is a finding */

static struct hb_memory_budget budget = {.limit_bytes = 8 << 20};
static struct hb_kserve_grpc *server;
static struct sockaddr_in address = {.sin_family = AF_INET};

static void make_model(char *folder)
{
	char path[128];
	snprintf(path, sizeof path, "%s/echo", folder);
	FUZZ_REQUIRE(mkdir(path, 0700) == 0);
	snprintf(path, sizeof path, "%s/echo/model.yaml", folder);
	FILE *file = fopen(path, "w");
	FUZZ_REQUIRE(file && fputs("platform: echo\n"
				   "inputs: [{name: x, datatype: FP32, shape: [-1]}]\n"
				   "outputs: [{name: y, datatype: FP32, shape: [-1]}]\n",
				   file) >= 0);
	fclose(file);
}

static void remove_model(const char *folder)
{
	char path[128];
	snprintf(path, sizeof path, "%s/echo/model.yaml", folder);
	unlink(path);
	snprintf(path, sizeof path, "%s/echo", folder);
	rmdir(path);
	rmdir(folder);
}

static void start_server(void)
{
	static char folder[] = "/tmp/hb-fuzz-grpc-XXXXXX";
	struct hb_error error = {""};
	signal(SIGPIPE, SIG_IGN);
	FUZZ_REQUIRE(mkdtemp(folder));
	make_model(folder);
	static struct hb_dispatch_config dispatch_config = {.policy = "ours", .queue_max = 64, .speed = 1};
	static struct hb_access_config access_config = {
		.control = HB_TO_LOOPBACK, .shared_memory = HB_TO_LOOPBACK, .prefix = "no-such-object-"};
	struct hb_kserve_grpc_config config = {
		.connections = 64, .client_connections = 64, .body_bytes = 1 << 20, .idle_s = 60, .memory = &budget};
	struct sockaddr_in any = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	memcpy(&config.address, &any, sizeof any);
	dispatch_config.models = folder;
	int result = hb_dispatch_new(&dispatch_config, &config.dispatch, &error);
	config.shared_memory = hb_shared_memory_new();
	if (result == 0)
		result = hb_access_new(&access_config, &config.access, &error);
	if (result == 0)
		result = hb_kserve_grpc_new(&config, &server, &error);
	if (result)
		fprintf(stderr, "%s\n", error.text);
	remove_model(folder);
	FUZZ_REQUIRE(result == 0 && config.shared_memory);
	address = any;
	address.sin_port = htons(hb_kserve_grpc_port(server));
}

static void send_all(int fd, const void *bytes, size_t size)
{
	const char *at = bytes;
	while (size) {
		ssize_t n = send(fd, at, size, 0);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return; /* the server has closed the connection */
		at += n;
		size -= (size_t)n;
	}
}

/* libFuzzer's timer interrupts calls that wait. */
static bool has_bytes_or_end(int fd)
{
	struct pollfd ready = {.fd = fd, .events = POLLIN};
	int n;
	do
		n = poll(&ready, 1, CLOSE_MS);
	while (n < 0 && errno == EINTR);
	return n == 1;
}

static size_t read_to_end(int fd)
{
	char answer[65536];
	size_t sum = 0;
	ssize_t n;
	do {
		FUZZ_REQUIRE(has_bytes_or_end(fd));
		n = recv(fd, answer, sizeof answer, MSG_DONTWAIT);
		sum += n > 0 ? (size_t)n : 0;
	} while (n > 0);
	return sum;
}

/* Sends the bytes on a connection of their own, and waits until the server has closed it. Returns the bytes of its answer. */
static size_t exchange(bool preface, const uint8_t *data, size_t size)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	FUZZ_REQUIRE(fd >= 0);
	while (connect(fd, (struct sockaddr *)&address, sizeof address) != 0 && errno != EISCONN)
		FUZZ_REQUIRE(errno == EINTR || errno == EALREADY);
	if (preface) {
		send_all(fd, PREFACE, sizeof PREFACE - 1);
		send_all(fd, NO_SETTINGS, sizeof NO_SETTINGS - 1);
	}
	send_all(fd, data, size);
	shutdown(fd, SHUT_WR);
	size_t answered = read_to_end(fd);
	close(fd);
	return answered;
}

/* A server that refuses every client would find nothing: a call must be answered. */
static void check_server(void)
{
	static const char path[] = "/inference.GRPCInferenceService/ServerLive";
	uint8_t frames[256] = {0, 0, 0, 1, 4, 0, 0, 0, 1}, *at = frames + 9;
	const char *const fields[] = {":method", "POST",       ":scheme",   "http",         ":path",
				      path,      ":authority", "localhost", "content-type", "application/grpc"};
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
	FUZZ_REQUIRE(exchange(true, frames, (size_t)(at - frames) + sizeof message) > ANSWER_LEAST);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (!server) {
		start_server();
		check_server();
	}
	if (size == 0)
		return 0;
	exchange(data[0] & 1, data + 1, size - 1);
	FUZZ_REQUIRE(budget.used_bytes <= budget.limit_bytes);
	return 0;
}
