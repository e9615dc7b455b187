/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Describes what the daemon may ask of its helper process (helper.h), in one record of fixed size. The helper trusts nothing in it: a
 * record holds numbers and a tenant's token, never a path or a command. privileged_work.c says what the helper does.
 */
#ifndef HB_DAEMON_PRIVILEGED_REQUEST_H
#define HB_DAEMON_PRIVILEGED_REQUEST_H

#include "protocol/daemon_client.h"

#include <stddef.h>
#include <stdint.h>

#define HB_PRIVILEGED_MAGIC 0x52504248U /* "HBPR" */
#define HB_PRIVILEGED_PID_MAX 4194304   /* the largest pid that Linux gives */

/* The daemon waits for facts for a limited time. Programs may take long, and their results come later. */
enum hb_privileged_channel { HB_PRIVILEGED_FACT, HB_PRIVILEGED_PROGRAM };

enum hb_privileged_field {
	HB_PRIVILEGED_PID = 1,
	HB_PRIVILEGED_CLIENT = 2,
	HB_PRIVILEGED_SIGNAL = 4,
	HB_PRIVILEGED_UID = 8,
	HB_PRIVILEGED_PAGE = 16,
	HB_PRIVILEGED_START = 32,
	HB_PRIVILEGED_TOKEN = 64
};

/* X(kind, channel, fields that the kind uses; all others are zero) */
#define HB_PRIVILEGED_KINDS(X) \
	X(IMAGE, FACT, HB_PRIVILEGED_PID)                            /* hb_process_image() */ \
	X(BEGAN_WITH, FACT, HB_PRIVILEGED_PID | HB_PRIVILEGED_TOKEN) /* hb_process_began_with() the token */ \
	X(SIGNAL_KILLS, FACT, HB_PRIVILEGED_PID | HB_PRIVILEGED_SIGNAL) \
	X(IS_SERVER, FACT, HB_PRIVILEGED_PID)                         /* hb_mps_is_server() */ \
	X(SERVER_PAGE, FACT, HB_PRIVILEGED_PID | HB_PRIVILEGED_START) /* the page of this daemon's MPS server */ \
	X(REMOVE_SOCKET, FACT, 0)                                     /* the daemon ends */ \
	X(START_CONTROL, PROGRAM, HB_PRIVILEGED_UID)                  /* the MPS control program */ \
	X(LIST_SERVERS, PROGRAM, 0)                                   /* its command get_server_list */ \
	X(START_SERVER, PROGRAM, HB_PRIVILEGED_UID)                   /* its command start_server */ \
	X(TERMINATE_CLIENT, PROGRAM, HB_PRIVILEGED_PID | HB_PRIVILEGED_CLIENT) /* its command terminate_client */ \
	X(QUIT, PROGRAM, 0)                                                    /* its command quit */ \
	X(END_PROCESSES, PROGRAM, HB_PRIVILEGED_UID | HB_PRIVILEGED_PAGE | HB_PRIVILEGED_TOKEN)

enum hb_privileged_kind {
	HB_PRIVILEGED_NONE,
#define X(kind, channel, fields) HB_PRIVILEGED_##kind,
	HB_PRIVILEGED_KINDS(X)
#undef X
		HB_PRIVILEGED_N_KINDS
};

/* Both sides run the same program, so the layout may change with every release. */
struct hb_privileged_request {
	uint32_t magic;
	uint32_t kind;   /* enum hb_privileged_kind */
	uint64_t number; /* chosen by the daemon, returned with the answer; not 0 */
	int32_t pid;
	int32_t client;  /* pid of a client of the MPS server */
	uint32_t signal; /* 1 to 64 */
	uint32_t uid;
	uint64_t page;        /* inode number of the tenant's page; 0 = there is none */
	uint64_t start_ticks; /* of the process, see process.h; not 0 */
	unsigned char token[HB_TOKEN_BYTES];
};
_Static_assert(sizeof(struct hb_privileged_request) == 64, "the record has no padding");

/*
 * Copies a packet that came on this channel to *request if it keeps all rules. -EPROTO: it breaks one, which *why names in
 * a constant text; *request is unchanged.
 */
int hb_privileged_request_parse(const void *packet, size_t size, enum hb_privileged_channel channel,
				struct hb_privileged_request *request, const char **why);
/* The name of a kind for messages; "?" = there is no such kind. */
const char *hb_privileged_kind_name(uint32_t kind);

#endif
