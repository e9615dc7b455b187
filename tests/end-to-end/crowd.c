/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One process that takes as many places of the daemon as it gets, for tests of the budgets of users:
 *   crowd SOCKET tenants|processes|gpus|connections|burst FIRST N
 * tenants: leads N tenants. processes: joins N tenants, made if they are new. gpus: the same,
 * each with a GPU that does not exist. connections: opens N connections. burst: opens N connections
 * and, after a line on standard input, asks for a tenant on each, without reading an answer. FIRST
 * is the number of the first tenant and GPU. Prints "got N" and, if the daemon refused the next one,
 * "refused: TEXT"; then waits for a line on its standard input.
 */
#include "protocol/daemon_client.h"
#include "protocol/wire.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TIMEOUT_MS 60000
#define BURST_MAX 200

static struct hb_tenant_options make_options(uint32_t number, uint32_t flags)
{
	struct hb_tenant_options options = {
		.flags = flags | HB_REGISTER_SIMULATED, .engine = HB_ENGINE_TURNS, .command = "crowd"};
	memcpy(options.token, "crowd", 5);
	memcpy(options.token + 8, &number, sizeof number);
	return options;
}

static int take_tenant(int socket, uint32_t number, uint32_t flags, uint32_t n_gpus, struct hb_error *error)
{
	struct hb_tenant_options options = make_options(number, flags);
	struct hb_membership member = HB_MEMBERSHIP_NONE;
	options.n_gpus = n_gpus;
	for (uint32_t i = 0; i < n_gpus; i++) {
		uint32_t gpu = number + i;
		memset(options.uuids[i], 0xc0, HB_UUID_BYTES);
		memcpy(options.uuids[i], &gpu, sizeof gpu);
	}
	int result = hb_client_register(socket, &options, &member, NULL, 0, error);
	hb_membership_fini(&member);
	return result;
}

static int take(const char *path, int socket, const char *what, uint32_t number, struct hb_error *error)
{
	if (strcmp(what, "tenants") == 0)
		return take_tenant(socket, number, HB_REGISTER_CREATE, 0, error);
	if (strcmp(what, "connections") != 0) {
		int result = take_tenant(socket, number, HB_REGISTER_CREATE, 0, error);
		if (result < 0 && result != -EEXIST) /* another process leads the tenant */
			return result;
		*error = (struct hb_error){""};
		return take_tenant(socket, number, 0, strcmp(what, "gpus") == 0, error);
	}
	int fd = hb_client_open(path, TIMEOUT_MS, error);
	return fd < 0 ? fd : 0;
}

static void wait_for_line(void)
{
	char line[16];
	if (!fgets(line, sizeof line, stdin))
		exit(1);
}

static void send_register(int fd, uint32_t number)
{
	static union hb_msg message;
	struct hb_tenant_options options = make_options(number, HB_REGISTER_CREATE);
	hb_msg_init(&message, HB_MSG_REGISTER);
	message.as_REGISTER.flags = options.flags;
	message.as_REGISTER.engine = options.engine;
	message.as_REGISTER.slot = HB_PAGE_PROCESSES;
	memcpy(message.as_REGISTER.token, options.token, HB_TOKEN_BYTES);
	if (hb_wire_send(fd, &message, NULL, 0) < 0)
		exit(1);
}

static int send_burst(const char *path, uint32_t first, uint32_t n)
{
	static int fds[BURST_MAX];
	struct hb_error error = {""};
	for (uint32_t i = 0; i < n; i++) {
		fds[i] = hb_client_open(path, TIMEOUT_MS, &error);
		if (fds[i] < 0)
			return 1;
	}
	printf("got %u\nall\n", n);
	fflush(stdout);
	wait_for_line();
	for (uint32_t i = 0; i < n; i++)
		send_register(fds[i], first + i);
	puts("sent");
	fflush(stdout);
	wait_for_line();
	return 0;
}

int main(int argc, char **argv)
{
	struct hb_error error = {""};
	if (argc != 5)
		return 2;
	const char *what = argv[2];
	uint32_t first = (uint32_t)strtoul(argv[3], NULL, 10), n = (uint32_t)strtoul(argv[4], NULL, 10), got = 0;
	if (strcmp(what, "burst") == 0)
		return n <= BURST_MAX ? send_burst(argv[1], first, n) : 2;
	int socket = hb_client_open(argv[1], TIMEOUT_MS, &error);
	while (socket >= 0 && got < n && take(argv[1], socket, what, first + got, &error) == 0)
		got++;
	printf("got %u\n", got);
	printf(error.text[0] ? "refused: %s\n" : "%s\n", error.text[0] ? error.text : "all");
	fflush(stdout);
	wait_for_line();
	return 0;
}
