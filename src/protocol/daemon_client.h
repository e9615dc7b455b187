/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The client side of the daemon's protocol, for hb and for the shim. Every
 * call blocks for at most the timeout given to hb_client_open for each answer.
 * It starts no thread, keeps no state of its own and logs nothing; a process
 * without a daemon simply gets -ECONNREFUSED or -ENOENT here and runs on.
 */
#ifndef HB_DAEMON_CLIENT_H
#define HB_DAEMON_CLIENT_H

#include "base/error.h"
#include "protocol/protocol.h"

#include <stdbool.h>

/* What a process asks for; see struct hb_msg_register. */
struct hb_tenant_options {
	uint32_t flags; /* enum hb_register_flags; HB_REGISTER_PAGE is set by hb_client_register itself */
	enum hb_page_priority priority;
	enum hb_engine engine;
	int64_t slo_ns;
	uint32_t attainment_ppm;
	uint32_t pcie_weight;
	uint64_t memory_bytes;
	unsigned char token[HB_TOKEN_BYTES];
	uint32_t n_gpus;
	unsigned char uuids[HB_PAGE_GPUS][HB_UUID_BYTES];
	uint64_t totals[HB_PAGE_GPUS]; /* bytes; 0 = not known */
	const char *command;           /* shown by `hb status`; NULL = none */
};

/*
 * A process's place in its tenant: the mapped pages. Start with
 * HB_MEMBERSHIP_NONE. Registering again with a live one (the daemon came back)
 * keeps `page` where it is and maps new GPU pages over the old ones, so threads
 * that use them need not be stopped.
 */
struct hb_membership {
	struct hb_page *page;                   /* NULL = not a member */
	struct hb_gpu_page *gpus[HB_PAGE_GPUS]; /* by index of hb_page.gpus */
	uint32_t n_gpus;
	uint32_t tenant, slot, generation;
	int page_fd;         /* close-on-exec; kept to hand it to the next daemon */
	uint64_t page_inode; /* proves that page_fd is still ours and not reused by the application */
};
#define HB_MEMBERSHIP_NONE \
	{ \
		.slot = HB_PAGE_PROCESSES, .page_fd = -1 \
	}

/*
 * Connects and says hello. A descriptor (close-on-exec) or negative errno with *error; -EPERM also: a daemon of another
 * user, not root's, that HB_SOCKET does not name.
 */
int hb_client_open(const char *path, int timeout_ms, struct hb_error *error);

/*
 * Registers this process (SO_PEERCRED says which). Fills *member and, where
 * wanted, the environment for a command to be started: NAME=VALUE strings,
 * each ended by a NUL, an empty one at the end. 0 or negative errno; -EAGAIN:
 * the daemon is just starting, ask again in a second. *member is unchanged on
 * failure.
 */
int hb_client_register(int socket, const struct hb_tenant_options *wish, struct hb_membership *member,
		       char *environment, size_t environment_size, struct hb_error *error);

/* Unmaps and closes; the daemon is not told. For tests and hb; a shim never gives its mappings up. */
void hb_membership_fini(struct hb_membership *member);

/* This process leaves its tenant. */
int hb_client_bye(int socket, const unsigned char token[HB_TOKEN_BYTES], struct hb_error *error);

/* Changes a tenant (see struct hb_msg_set; header filled here). */
int hb_client_set(int socket, const struct hb_msg_set *change, struct hb_error *error);

/* Starts recording for at most so many seconds (`text` NULL), or stops and gives the text, to be freed by the caller. */
int hb_client_record(int socket, uint32_t seconds, char **text, struct hb_error *error);

/* The daemon's state as JSON text, to be freed by the caller. */
int hb_client_status(int socket, char **json, struct hb_error *error);

/* A tenant's token as 32 hexadecimal digits: what HB_TENANT holds. -EINVAL for anything else. */
int hb_token_parse(const char *text, unsigned char token[HB_TOKEN_BYTES]);
void hb_token_format(const unsigned char token[HB_TOKEN_BYTES], char text[2 * HB_TOKEN_BYTES + 1]);

#endif
