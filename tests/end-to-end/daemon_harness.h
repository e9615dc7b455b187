/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For tests with a real hbd: starts one in a folder of its own, asks it for its
 * status, ends it. No test waits for time to pass: a status answer comes after
 * the daemon has seen every death that came before the question, because it
 * looks at all pidfds in the turn of its loop in which it accepts a connection.
 */
#ifndef HB_TESTS_DAEMON_HARNESS_H
#define HB_TESTS_DAEMON_HARNESS_H

#include "../unit/unit.h"
#include "base/json.h"
#include "protocol/tenant_options_env.h"

#include <sys/types.h>

struct hb_gate;

struct daemon {
	pid_t pid;
	int status;     /* of its end, where pid is -1 */
	bool simulated; /* started with --gpu sim */
	char dir[64];
	char socket[96];
};

/* Writes `config` (NULL = none) and starts the program; returns once it answers, or has ended (pid -1). */
void daemon_start(struct daemon *daemon, const char *program, const char *config);
/* The same folder and socket again, after an end. */
void daemon_start_again(struct daemon *daemon, const char *program);
/* Sends the signal, waits for the end, gives the wait status. */
int daemon_end(struct daemon *daemon, int signal);
/* Removes the folder. */
void daemon_clean(struct daemon *daemon);

int daemon_connect(const struct daemon *daemon);
json_t *daemon_status(const struct daemon *daemon);
/* Tenants that the status lists. */
size_t daemon_tenants(const struct daemon *daemon);
/* Descriptors that the daemon has open when all ended connections are closed. */
size_t daemon_fds(const struct daemon *daemon);

/* A wish with a token made of `seed`, and one GPU. */
struct hb_tenant_options wish_of(unsigned seed, enum hb_page_priority priority);
/* Registers on a connection of its own; 0 or negative errno. */
int join(const struct daemon *daemon, const struct hb_tenant_options *wish, struct hb_membership *member);
int create(const struct daemon *daemon, struct hb_tenant_options wish);
/* The same, with the environment that `hb run` would give its command. */
int create_with(const struct daemon *daemon, struct hb_tenant_options wish, char *environment, size_t size);

/* The gate of a process on the GPU at that place of its wish. */
struct hb_gate *gate_of(const struct hb_membership *member, uint32_t gpu);

/* A child process that runs `body` and then stays until it is killed; returns once the body has ended with this status. */
pid_t child_start(int (*body)(void *argument), void *argument, int *status);
void child_kill(pid_t child);

#endif
