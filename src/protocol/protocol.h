/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon's protocol: small binary messages over a unix SOCK_SEQPACKET
 * socket, one message a packet, same machine only (native byte order). The
 * table is messages.def; each message is a header, a fixed struct and, for
 * some, text that fills the rest.
 *
 *   client                       daemon
 *   HELLO (versions it speaks) ->
 *                              <- WELCOME (the version from now on) or ERROR
 *   REGISTER                   ->
 *                              <- REGISTERED + page descriptors, or ERROR
 *   STATUS                     ->
 *                              <- TEXT, TEXT ... (JSON, `more` until the last)
 *   RECORD (start, stop)       ->
 *                              <- DONE; for stop TEXT, TEXT ... (core/recording.h); or ERROR
 *   SET, BYE                   ->
 *                              <- DONE or ERROR
 *
 * A request is answered before the next is read. Who the peer is comes from
 * SO_PEERCRED, never from a message. A message that breaks a rule below ends
 * the connection; a request that is merely refused gets ERROR.
 *
 * REGISTER creates a tenant or joins one: tenants are named by a random token
 * that `hb run` puts into the environment of what it starts, so every process
 * of the tree (and, after a daemon's death, every survivor) finds its tenant
 * again by registering with the same token. The connection may be closed at
 * any time; a process leaves its tenant with BYE or by dying, not by hanging up.
 *
 * Used by hbd, hb and the shim: no allocation, no library. It must not act.
 */
#ifndef HB_DAEMON_PROTOCOL_H
#define HB_DAEMON_PROTOCOL_H

#include "hummingbird/page.h"

#include <stddef.h>
#include <stdint.h>

#define HB_PROTOCOL_VERSION 1
#define HB_MSG_FDS_MAX (1 + HB_PAGE_GPUS)
#define HB_MSG_TEXT_MAX 32768
#define HB_MSG_MAX (HB_MSG_TEXT_MAX + 1024) /* no message is larger */
#define HB_TOKEN_BYTES 16
#define HB_UUID_BYTES 16

struct hb_msg_header {
	uint32_t size; /* whole message; must equal the packet's length */
	uint16_t kind; /* enum hb_msg_kind */
	uint16_t zero;
};

struct hb_msg_hello {
	struct hb_msg_header header;
	uint32_t version_min, version_max; /* a range that holds HB_PROTOCOL_VERSION is accepted */
	uint32_t page_version;             /* HB_PAGE_VERSION of the client */
	uint32_t zero;
};

struct hb_msg_welcome {
	struct hb_msg_header header;
	uint32_t version;
	uint32_t daemon_pid;
	uint32_t page_version;
	uint32_t zero;
};

struct hb_msg_error {
	struct hb_msg_header header;
	int32_t code; /* negative errno; -EAGAIN: ask again in a second */
	uint32_t zero;
}; /* text: what is wrong and what to do */

enum hb_register_flags {
	HB_REGISTER_CREATE = 1,    /* a new tenant: `hb run` before it starts the command */
	HB_REGISTER_SERVER = 2,    /* the process is an MPS server: slices only, no gate, no memory limit */
	HB_REGISTER_SIMULATED = 4, /* its GPUs are simulated */
	HB_REGISTER_PAGE = 8,      /* the tenant's page comes along, from the time of an earlier daemon */
	HB_REGISTER_MPS = 16,      /* it was started with the environment of the daemon's MPS server */
	HB_REGISTER_ALL_FLAGS = 31,
};

struct hb_msg_register {
	struct hb_msg_header header;
	uint32_t flags;
	uint32_t priority;                   /* asked for, enum hb_page_priority */
	int64_t slo_ns;                      /* 0 = none, -1 = learn it */
	uint32_t attainment_ppm;             /* 0 = the daemon's default */
	uint32_t pcie_weight;                /* 1..1000; 0 = 1 */
	uint64_t memory_bytes;               /* limit on each GPU; 0 = none */
	unsigned char token[HB_TOKEN_BYTES]; /* not all zero */
	uint32_t slot,
		generation; /* what it holds on the tenant's page; slot HB_PAGE_PROCESSES = none, it has just begun */
	uint32_t engine;    /* asked for, enum hb_engine; NONE = the daemon's choice */
	uint32_t n_gpus;    /* 0 = not known yet (no CUDA so far) */
	unsigned char uuids[HB_PAGE_GPUS][HB_UUID_BYTES];
	uint64_t totals[HB_PAGE_GPUS]; /* their memory in bytes as the driver tells it; 0 = not known */
};                                     /* text: the command line, words separated by blanks */

struct hb_msg_registered {
	struct hb_msg_header header;
	uint32_t tenant;
	uint32_t slot;       /* in hb_page.processes; HB_PAGE_PROCESSES = none (HB_REGISTER_CREATE) */
	uint32_t generation; /* of the slot */
	uint32_t n_fds;      /* the tenant's page, then one GPU page for each entry of hb_page.gpus */
};                           /* text: environment for the command, NAME=VALUE, each ended by a NUL */

/* The names that may be in it. Others are refused: LD_PRELOAD, for one, would let a daemon run its code in a program. */
#define HB_GRANTED_VARIABLES "CUDA_MPS_PIPE_DIRECTORY", "HB_MPS"

struct hb_msg_bye {
	struct hb_msg_header header;
	unsigned char token[HB_TOKEN_BYTES];
};

enum hb_set_fields {
	HB_SET_PRIORITY = 1,
	HB_SET_SLO = 2, /* attainment_ppm goes with it; 0 = leave that as it is */
	HB_SET_MEMORY = 4,
	HB_SET_WEIGHT = 8,
	HB_SET_ALL_FIELDS = 15,
};

struct hb_msg_set {
	struct hb_msg_header header;
	uint32_t tenant;
	uint32_t fields; /* enum hb_set_fields: which of the following to change */
	uint32_t priority;
	uint32_t attainment_ppm;
	int64_t slo_ns;
	uint64_t memory_bytes; /* 0 = no limit */
	uint32_t pcie_weight;  /* 1..1000 */
	uint32_t zero;
};

enum hb_record_action { HB_RECORD_START = 1, HB_RECORD_STOP = 2 };

struct hb_msg_record {
	struct hb_msg_header header;
	uint32_t action;  /* enum hb_record_action */
	uint32_t seconds; /* START: the longest it may take, 1 .. 3600; the daemon stops by itself then */
};

struct hb_msg_status {
	struct hb_msg_header header;
	uint32_t zero[2];
};

struct hb_msg_text {
	struct hb_msg_header header;
	uint32_t more; /* 1 = another TEXT follows */
	uint32_t zero;
};

struct hb_msg_done {
	struct hb_msg_header header;
	uint32_t zero[2];
};

enum hb_msg_kind {
#define HB_MESSAGE(name, number, sender, type, text_max, fds_max) HB_MSG_##name = number,
#include "protocol/messages.def"
#undef HB_MESSAGE
};

enum hb_msg_sender { HB_SENDER_CLIENT, HB_SENDER_DAEMON };

/* Any message, for receiving into. */
union hb_msg {
	struct hb_msg_header header;
#define HB_MESSAGE(name, number, sender, type, text_max, fds_max) type as_##name;
#include "protocol/messages.def"
#undef HB_MESSAGE
	unsigned char bytes[HB_MSG_MAX];
};

/*
 * Checks a received packet of n bytes with n_fds descriptors: known kind, sent
 * by the right side, lengths, every field in range. 0, or -EPROTO with *why
 * set to a constant string. Looks at nothing beyond n.
 */
int hb_msg_check(const union hb_msg *message, size_t n, size_t n_fds, enum hb_msg_sender sender, const char **why);

/* The text after the fixed part of a checked message and its length (not NUL-terminated). */
const char *hb_msg_text(const union hb_msg *message, size_t *length);

/* Starts a message of this kind: clears the fixed part and sets the header without text. */
void hb_msg_init(union hb_msg *message, enum hb_msg_kind kind);
/* Appends text, cut to what the kind allows and what is left. */
void hb_msg_add_text(union hb_msg *message, const char *text, size_t length);

/* "REGISTER" and so on; "?" for numbers that are none. */
const char *hb_msg_name(unsigned kind);

#endif
