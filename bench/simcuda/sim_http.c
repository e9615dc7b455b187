/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A small HTTP inference server for the simulated GPU, written as one would
 * without Hummingbird: one thread, poll, keep-alive. A POST's body is "decoded"
 * on the CPU (PREPARE_US), then one kernel of KERNEL_US runs and is awaited.
 *
 *   sim_http KERNEL_US PREPARE_US     prints "port N", serves until it is ended
 */
#include "nvidia/cuda_abi.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { CONNECTIONS = 32, ROOM = 64 * 1024 };

#define CALLS(X) \
	X(cuInit) \
	X(cuCtxCreate_v2) \
	X(cuModuleLoadData) X(cuModuleGetFunction) X(cuStreamCreate) X(cuLaunchKernel) X(cuStreamSynchronize)
#define DECLARE(name) static __typeof__(&name) p_##name;
CALLS(DECLARE)
#define CHECK(call) \
	do { \
		if (p_##call != CUDA_SUCCESS) { \
			fprintf(stderr, "sim_http: " #call " failed\n"); \
			exit(1); \
		} \
	} while (0)

struct connection {
	size_t filled;
	char data[ROOM];
};

static struct pollfd polled[1 + CONNECTIONS];
static struct connection connections[1 + CONNECTIONS];
static CUfunction kernel;
static CUstream stream;
static int64_t prepare_ns;

static void set_up_gpu(const char *kernel_us)
{
	char image[128];
	CUcontext context;
	CUmodule module;
	void *library = dlopen("libcuda.so.1", RTLD_NOW);
	if (!library) {
		fprintf(stderr, "sim_http: %s\n", dlerror());
		exit(1);
	}
#define RESOLVE(name) p_##name = (__typeof__(p_##name))dlsym(library, #name);
	CALLS(RESOLVE)
	snprintf(image, sizeof image, "HBSIM1\nkernel work ns=%ld\n", atol(kernel_us) * 1000);
	CHECK(cuInit(0));
	CHECK(cuCtxCreate_v2(&context, 0, 0));
	CHECK(cuModuleLoadData(&module, image));
	CHECK(cuModuleGetFunction(&kernel, module, "work"));
	CHECK(cuStreamCreate(&stream, 1));
}

static int64_t now_ns(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * INT64_C(1000000000) + time.tv_nsec;
}

static void infer(void)
{
	int64_t ready = now_ns() + prepare_ns;
	while (now_ns() < ready)
		;
	CHECK(cuLaunchKernel(kernel, 132, 1, 1, 256, 1, 1, 0, stream, NULL, NULL));
	CHECK(cuStreamSynchronize(stream));
}

/* Bytes of the first request if it is complete, else 0. */
static size_t request_bytes(const struct connection *connection)
{
	const char *end = memmem(connection->data, connection->filled, "\r\n\r\n", 4);
	const char *length = end ? memmem(connection->data, (size_t)(end - connection->data), "Content-Length: ", 16)
				 : NULL;
	if (!end)
		return 0;
	size_t bytes = (size_t)(end - connection->data) + 4 + (length ? strtoul(length + 16, NULL, 10) : 0);
	return bytes <= connection->filled ? bytes : 0;
}

/* False: the connection is over. */
static bool serve(int fd, struct connection *connection)
{
	static const char answer[] = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
	ssize_t got = recv(fd, connection->data + connection->filled, ROOM - connection->filled, 0);
	if (got <= 0)
		return false;
	connection->filled += (size_t)got;
	for (size_t bytes; (bytes = request_bytes(connection)) > 0;) {
		memmove(connection->data, connection->data + bytes, connection->filled - bytes);
		connection->filled -= bytes;
		infer();
		if (send(fd, answer, sizeof answer - 1, MSG_NOSIGNAL) < 0)
			return false;
	}
	return connection->filled < ROOM;
}

static void take_connection(void)
{
	int fd = accept(polled[0].fd, NULL, NULL);
	for (int i = 1; fd >= 0 && i <= CONNECTIONS; i++) {
		if (polled[i].fd >= 0)
			continue;
		polled[i] = (struct pollfd){.fd = fd, .events = POLLIN};
		connections[i].filled = 0;
		return;
	}
	if (fd >= 0)
		close(fd);
}

static void listen_and_tell(void)
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t length = sizeof address;
	polled[0] = (struct pollfd){.fd = socket(AF_INET, SOCK_STREAM, 0), .events = POLLIN};
	if (bind(polled[0].fd, (struct sockaddr *)&address, length) < 0 || listen(polled[0].fd, CONNECTIONS) < 0 ||
	    getsockname(polled[0].fd, (struct sockaddr *)&address, &length) < 0) {
		perror("sim_http");
		exit(1);
	}
	printf("port %d\n", ntohs(address.sin_port));
	fflush(stdout);
}

int main(int argc, char **argv)
{
	if (argc != 3) {
		fprintf(stderr, "usage: sim_http KERNEL_US PREPARE_US\n");
		return 2;
	}
	prepare_ns = atoll(argv[2]) * 1000;
	set_up_gpu(argv[1]);
	infer();
	for (int i = 1; i <= CONNECTIONS; i++)
		polled[i].fd = -1;
	listen_and_tell();
	for (;;) {
		if (poll(polled, 1 + CONNECTIONS, -1) < 0)
			continue;
		if (polled[0].revents & POLLIN)
			take_connection();
		for (int i = 1; i <= CONNECTIONS; i++)
			if (polled[i].fd >= 0 && polled[i].revents && !serve(polled[i].fd, &connections[i])) {
				close(polled[i].fd);
				polled[i].fd = -1;
			}
	}
}
