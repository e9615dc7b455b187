/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The client side of the daemon's protocol, for hb and for the shim. A call waits
 * for each answer at most for the timeout given to hb_client_open(). The client
 * starts no thread, keeps no state and logs nothing. Without a daemon
 * hb_client_open() returns -ECONNREFUSED or -ENOENT.
 */
#ifndef HB_PROTOCOL_DAEMON_CLIENT_H
#define HB_PROTOCOL_DAEMON_CLIENT_H

#include "base/error.h"
#include "protocol/protocol.h"

#include <stdbool.h>

/* The options that a process requests; see struct hb_msg_register. */
struct hb_tenant_options {
	uint32_t flags; /* enum hb_register_flags; hb_client_register() adds HB_REGISTER_PAGE itself */
	enum hb_page_priority priority;
	enum hb_engine engine;
	int64_t slo_ns;
	uint32_t attainment_ppm;
	uint16_t weight;      /* share of the GPU among LP tenants */
	uint16_t pcie_weight; /* share of PCIe among LP tenants; 0 = weight */
	uint64_t memory_bytes;
	unsigned char token[HB_TOKEN_BYTES];
	uint32_t n_gpus;
	unsigned char uuids[HB_PAGE_GPUS][HB_UUID_BYTES];
	uint64_t totals[HB_PAGE_GPUS]; /* bytes; 0 = not known */
	const char *command;           /* shown by `hb status`; NULL = none */
};

/*
 * A process's membership in its tenant: the mapped pages. Begins as
 * HB_MEMBERSHIP_NONE. If a member registers again with a restarted daemon, `page`
 * stays where it is, and new GPU pages are mapped over the old ones, so threads
 * may use the pages meanwhile.
 */
struct hb_membership {
	struct hb_page *page;                         /* NULL = not a member */
	const struct hb_gpu_page *gpus[HB_PAGE_GPUS]; /* by index of hb_page.gpus; mapped read-only */
	uint32_t n_gpus;
	uint32_t tenant, slot, generation;
	int page_fd;         /* close-on-exec; kept to hand the page over to the next daemon */
	uint64_t page_inode; /* shows whether page_fd is still the page: applications may close and reuse descriptors */
};
#define HB_MEMBERSHIP_NONE \
	{ \
		.slot = HB_PAGE_PROCESSES, .page_fd = -1 \
	}

/*
 * Connects and agrees on the version. Returns a descriptor (close-on-exec) or negative errno with *error; -EPERM also if
 * the daemon belongs to another user than root, and HB_SOCKET does not name its socket. -ETIMEDOUT: no answer within the
 * limit, which also applies to each later answer.
 */
int hb_client_open(const char *path, int timeout_ms, struct hb_error *error);
/* Changes the limit for each later answer. */
void hb_client_limit(int socket, int timeout_ms);

/*
 * Registers this process (SO_PEERCRED says which). Fills *member and, where
 * wanted, the environment for a command to be started: NAME=VALUE strings,
 * each ended by a NUL, an empty one at the end. 0 or negative errno; -EAGAIN:
 * the daemon is just starting, ask again in a second. *member is unchanged on
 * failure.
 */
int hb_client_register(int socket, const struct hb_tenant_options *options, struct hb_membership *member,
		       char *environment, size_t environment_size, struct hb_error *error);

/* Unmaps and closes the pages without a message to the daemon. For tests and hb; the shim keeps its mappings. */
void hb_membership_fini(struct hb_membership *member);

/* Lets this process leave its tenant. */
int hb_client_bye(int socket, const unsigned char token[HB_TOKEN_BYTES], struct hb_error *error);

/*
 * As hb_client_bye(), for the supervisor of a tenant. `said`: one line for the user about a fault that ended the tenant's
 * work, or "".
 */
int hb_client_bye_supervisor(int socket, const unsigned char token[HB_TOKEN_BYTES], char *said, size_t size,
			     struct hb_error *error);

/* Before this signal is sent to the tenant: ends the GPU work of the processes that it would kill; see struct hb_msg_terminate. */
int hb_client_terminate(int socket, const unsigned char token[HB_TOKEN_BYTES], int signal, struct hb_error *error);

/*
 * Makes the board of this HP process on a GPU (struct hb_page_board): one page that only this process can write to, mapped at
 * `at`, or anywhere if that is NULL. What is mapped at `at` is replaced and its first `keep` bytes are copied. Returns the
 * descriptor for hb_client_give_board(), or a negative errno.
 */
int hb_board_make(void **at, size_t keep);
/* Gives the board to the daemon; fd stays the caller's. -EPERM: this process is not HP; -ENOSPC: the list is full. */
int hb_client_give_board(int socket, const unsigned char token[HB_TOKEN_BYTES], const unsigned char uuid[HB_UUID_BYTES],
			 int fd, struct hb_error *error);
/* Maps the board with this number read-only over the page at `at`. -ENOENT: it is no longer listed. */
int hb_client_map_board(int socket, const unsigned char token[HB_TOKEN_BYTES], const unsigned char uuid[HB_UUID_BYTES],
			uint32_t number, void *at, struct hb_error *error);

/*
 * Asks for a larger lease of memory on a GPU: room for `bytes` more. -EAGAIN: the daemon asks the driver meanwhile, ask
 * again in some ms; -ENOMEM: the other LP tenants use too much.
 */
int hb_client_ask_memory(int socket, const unsigned char token[HB_TOKEN_BYTES], const unsigned char uuid[HB_UUID_BYTES],
			 uint64_t bytes, struct hb_error *error);

/* On which GPUs a program runs; see struct hb_msg_place. */
struct hb_place_options {
	unsigned char token[HB_TOKEN_BYTES];
	enum hb_page_priority priority;
	uint32_t n_gpus; /* 1..HB_PAGE_GPUS; 0 ends the placement with this token */
	uint64_t memory_bytes;
	uint32_t seconds;
	uint32_t n_allowed;
	unsigned char allowed[HB_PLACE_GPUS_MAX][HB_UUID_BYTES];
};

struct hb_placed {
	uint32_t n_gpus;
	unsigned char uuids[HB_PAGE_GPUS][HB_UUID_BYTES];
	char text[HB_PLACED_TEXT_MAX + 1]; /* the reason, for people */
};

/*
 * Asks for GPUs. -EOPNOTSUPP: the daemon is older; -ENODEV, -ENOSPC: fewer GPUs exist, or fewer suit; -ENOTSUP: the
 * daemon's driver does not list its GPUs. *placed is unchanged on failure.
 */
int hb_client_place(int socket, const struct hb_place_options *options, struct hb_placed *placed,
		    struct hb_error *error);

/* Changes a tenant; see struct hb_msg_set, whose header is filled here. */
int hb_client_set(int socket, const struct hb_msg_set *change, struct hb_error *error);

/* With `text` NULL: starts a recording of at most `seconds`. Else stops it; *text = the recording, freed by the caller. */
int hb_client_record(int socket, uint32_t seconds, char **text, struct hb_error *error);

/* Reads the daemon's status; *json is freed by the caller. */
int hb_client_status(int socket, char **json, struct hb_error *error);

/* Reads a tenant's token from 32 hexadecimal digits, the format of HB_TENANT. -EINVAL for other texts. */
int hb_token_parse(const char *text, unsigned char token[HB_TOKEN_BYTES]);
void hb_token_format(const unsigned char token[HB_TOKEN_BYTES], char text[2 * HB_TOKEN_BYTES + 1]);

#endif
