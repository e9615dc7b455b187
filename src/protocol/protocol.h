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
 *   SET, MEMORY, BOARD         ->
 *                              <- DONE or ERROR
 *   PLACE                      ->
 *                              <- PLACED, or ERROR
 *   FETCH_BOARD                ->
 *                              <- FETCHED_BOARD + descriptor, or ERROR
 *   BYE                        ->
 *                              <- DONE (with text, see struct hb_msg_done) or ERROR
 *   TERMINATE                  ->
 *                              <- DONE when the GPU work has ended, at the latest after HB_TERMINATE_LIMIT_MS; or ERROR
 *
 * The daemon answers a request before it reads the next one. The kernel says who
 * the peer is (SO_PEERCRED), never a message. A message that breaks a rule below
 * ends the connection; a refused request gets ERROR.
 *
 * REGISTER creates a tenant or joins one. `hb run` puts a random token into the
 * environment of the processes that it starts; all processes with the same token
 * belong to one tenant, also when they register again after the daemon died. A
 * process leaves its tenant with BYE or when it ends, not by closing the
 * connection.
 *
 * If one client of an MPS server is killed while it has GPU work, the server may
 * fail the work of its other clients. So `hb run` stays as the supervisor of a
 * low-priority command inside the MPS server (HB_REGISTER_SUPERVISED): before a
 * signal that would kill processes of the tenant, it sends TERMINATE. If the
 * supervisor ends without BYE, the daemon ends the tenant's GPU work in the same
 * way and then kills the tenant's processes.
 *
 * Used by hbd, hb and the shim. Allocates nothing and needs no library.
 */
#ifndef HB_PROTOCOL_PROTOCOL_H
#define HB_PROTOCOL_PROTOCOL_H

#include "hummingbird/page.h"

#include <stddef.h>
#include <stdint.h>

#define HB_PROTOCOL_VERSION 1
#define HB_WEIGHT_MAX 1000
#define HB_SLO_LIMIT_NS (INT64_C(1) << 58) /* objectives are shorter */
#define HB_MSG_FDS_MAX (1 + HB_PAGE_GPUS)
#define HB_MSG_TEXT_MAX 32768
#define HB_MSG_MAX (HB_MSG_TEXT_MAX + 1024) /* no message is larger */
#define HB_TOKEN_BYTES 16
/* Seals of a board: it cannot be resized, and it cannot be mapped writable any more. */
#define HB_BOARD_SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL)
#define HB_UUID_BYTES 16

struct hb_msg_header {
	uint32_t size; /* of the complete message; must equal the length of the packet */
	uint16_t kind; /* enum hb_msg_kind */
	uint16_t zero;
};

/*
 * Abilities that the first release with protocol version 1 did not have; there these bits were 0. So that an
 * upgrade keeps running tenants scheduled, a change of the protocol or of a page gets a bit here (and in enum
 * hb_page_feature, if processes must see it without a message); a new version number would cut them off.
 */
enum hb_protocol_feature {
	HB_PROTOCOL_ONE_WRITER = 1,  /* the client maps GPU pages read-only (else: previous_page.h) */
	HB_PROTOCOL_SUPERVISION = 2, /* HB_REGISTER_SUPERVISED and TERMINATE */
	HB_PROTOCOL_ELASTIC = 4,     /* HB_REGISTER_ELASTIC, and MEMORY of HP */
	HB_PROTOCOL_PLACEMENT = 8,   /* PLACE */
	HB_PROTOCOL_OVER = 16,       /* HB_REGISTER_OVER */
	HB_PROTOCOL_ALL_FEATURES = 31,
};

struct hb_msg_hello {
	struct hb_msg_header header;
	uint32_t version_min, version_max; /* accepted if the range contains HB_PROTOCOL_VERSION */
	uint32_t page_version;             /* HB_PAGE_VERSION of the client */
	uint32_t features;                 /* set of enum hb_protocol_feature: what the client can do */
};

struct hb_msg_welcome {
	struct hb_msg_header header;
	uint32_t version;
	uint32_t daemon_pid;
	uint32_t page_version;
	uint32_t features; /* set of enum hb_protocol_feature: what the daemon can do */
};

struct hb_msg_error {
	struct hb_msg_header header;
	int32_t code; /* negative errno; -EAGAIN: try again in a second */
	uint32_t zero;
}; /* text: what is wrong and what to do */

enum hb_register_flags {
	HB_REGISTER_CREATE = 1,    /* a new tenant: `hb run` before it starts the command */
	HB_REGISTER_SERVER = 2,    /* the process is an MPS server: slices only, no gate, no memory limit */
	HB_REGISTER_SIMULATED = 4, /* the process uses simulated GPUs */
	HB_REGISTER_PAGE =
		8, /* the descriptor of the tenant's page, made by an earlier daemon, comes with the message */
	HB_REGISTER_MPS = 16, /* the process was started with the environment of the daemon's MPS server */
	HB_REGISTER_SUPERVISED =
		32, /* with CREATE: if the tenant runs in the MPS server, the process stays as its supervisor */
	/* with CREATE, low priority: the tenant's memory may move; only a daemon with HB_PROTOCOL_ELASTIC knows it */
	HB_REGISTER_ELASTIC = 64,
	/* with ELASTIC: what does not fit is created in memory of the host; only a daemon with HB_PROTOCOL_OVER knows it */
	HB_REGISTER_OVER = 128,
	HB_REGISTER_ALL_FLAGS = 255,
};

struct hb_msg_register {
	struct hb_msg_header header;
	uint32_t flags;
	uint32_t priority;                   /* requested, enum hb_page_priority */
	int64_t slo_ns;                      /* 0 = none, -1 = learned */
	uint32_t attainment_ppm;             /* 0 = the daemon's default */
	uint16_t pcie_weight;                /* 1..1000; 0 = weight */
	uint16_t weight;                     /* 1..1000; 0 = 1 */
	uint64_t memory_bytes;               /* limit on each GPU; 0 = none */
	unsigned char token[HB_TOKEN_BYTES]; /* not all zero */
	uint32_t slot,
		generation; /* the slot that the process already has on the tenant page; HB_PAGE_PROCESSES = none */
	uint32_t engine;    /* requested, enum hb_engine; NONE = the daemon chooses */
	uint32_t n_gpus;    /* 0 = not known yet (no CUDA so far) */
	unsigned char uuids[HB_PAGE_GPUS][HB_UUID_BYTES];
	uint64_t totals[HB_PAGE_GPUS]; /* memory of each GPU in bytes, as the driver reports it; 0 = not known */
};                                     /* text: the command line, words separated by blanks */

struct hb_msg_registered {
	struct hb_msg_header header;
	uint32_t tenant;
	uint32_t slot;       /* in hb_page.processes; HB_PAGE_PROCESSES = none (HB_REGISTER_CREATE) */
	uint32_t generation; /* of the slot */
	uint32_t n_fds;      /* the tenant's page, then one GPU page for each entry of hb_page.gpus */
};                           /* text: environment for the command, NAME=VALUE, each ended by a NUL */

/* The only names that hb accepts there. With others, such as LD_PRELOAD, a daemon could run its code in a program. */
#define HB_GRANTED_VARIABLES "CUDA_MPS_PIPE_DIRECTORY", "HB_MPS"

struct hb_msg_bye {
	struct hb_msg_header header;
	unsigned char token[HB_TOKEN_BYTES];
};

enum hb_set_fields {
	HB_SET_PRIORITY = 1,
	HB_SET_SLO = 2, /* with attainment_ppm; 0 there = unchanged */
	HB_SET_MEMORY = 4,
	HB_SET_PCIE_WEIGHT = 8,
	HB_SET_WEIGHT = 16,
	HB_SET_ALL_FIELDS = 31,
};

struct hb_msg_set {
	struct hb_msg_header header;
	uint32_t tenant;
	uint32_t fields; /* enum hb_set_fields: the members below that change */
	uint32_t priority;
	uint32_t attainment_ppm;
	int64_t slo_ns;
	uint64_t memory_bytes; /* 0 = no limit */
	uint32_t pcie_weight;  /* 1..1000 */
	uint32_t weight;       /* 1..1000 */
};

/*
 * BOARD: an HP process hands over the descriptor of its board for the GPU (struct hb_page_board). FETCH_BOARD: an LP process
 * wants the descriptor of the board with this number.
 */
struct hb_msg_board {
	struct hb_msg_header header;
	unsigned char token[HB_TOKEN_BYTES];
	unsigned char uuid[HB_UUID_BYTES];
	uint32_t number; /* FETCH_BOARD: in hb_gpu_page.boards; BOARD: 0 */
	uint32_t zero;
};

/*
 * LP: the process needs `bytes` more than its tenant's lease allows (hb_page_gpu.low_lease_bytes). DONE: the lease is larger
 * now. HP: the driver has refused an allocation of `bytes`. DONE, after 3 s at the latest: memory of LP has moved away, so
 * the process calls the driver again.
 */
struct hb_msg_memory {
	struct hb_msg_header header;
	unsigned char token[HB_TOKEN_BYTES];
	unsigned char uuid[HB_UUID_BYTES];
	uint64_t bytes;
};

enum hb_record_action { HB_RECORD_START = 1, HB_RECORD_STOP = 2 };

struct hb_msg_record {
	struct hb_msg_header header;
	uint32_t action;  /* enum hb_record_action */
	uint32_t seconds; /* START: time limit, 1 .. 3600, after which the daemon stops by itself */
};

#define HB_PLACE_GPUS_MAX 64 /* GPUs that a program may be allowed to use */
#define HB_PLACE_SECONDS 120
#define HB_PLACE_SECONDS_MAX 3600
#define HB_PLACED_TEXT_MAX 4095

/*
 * Chooses GPUs for a program that may run anywhere (core/placement.c), for `hb run --gpus` and for agents of clusters. The
 * choice counts for the next ones like a tenant. It ends with the tenant that has this token; with another PLACE with
 * this token; and, on GPUs that no process of that tenant has registered, after `seconds`. The GPUs are not reserved:
 * other programs may still use them.
 */
struct hb_msg_place {
	struct hb_msg_header header;
	unsigned char token
		[HB_TOKEN_BYTES]; /* of the tenant that will run there; or, of an agent, any that is not all zero */
	uint32_t n_gpus;          /* 1..HB_PAGE_GPUS; 0: ends the placement with this token */
	uint32_t priority;        /* enum hb_page_priority; the rules for tenants apply */
	uint64_t memory_bytes;    /* what the program will allocate on each GPU; 0 = not known */
	uint32_t seconds;         /* up to HB_PLACE_SECONDS_MAX; 0 = HB_PLACE_SECONDS */
	uint32_t n_allowed;       /* 0 = the program may use all GPUs of the machine */
	unsigned char allowed[HB_PLACE_GPUS_MAX][HB_UUID_BYTES];
};

struct hb_msg_placed {
	struct hb_msg_header header;
	uint32_t n_gpus;
	uint32_t zero;
	unsigned char uuids[HB_PAGE_GPUS][HB_UUID_BYTES]; /* in the order of the bus */
}; /* text: the choice, the reason and the order of the GPUs, for people */

#define HB_TERMINATE_LIMIT_MS 5000

/*
 * A signal is about to be sent to the tenant: ends the GPU work of those of its processes that the signal would kill
 * (base/signal_action.h) and that are clients of the MPS server. Kills nothing. For the tenant's user and root.
 */
struct hb_msg_terminate {
	struct hb_msg_header header;
	unsigned char token[HB_TOKEN_BYTES];
	uint32_t signal; /* 1..64; 0 = of all its processes */
	uint32_t zero;
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
}; /* text, only after BYE of a supervisor: one line for the user about a fault that ended the tenant's work; or none */

enum hb_msg_kind {
#define HB_MESSAGE(name, number, sender, type, text_max, fds_max) HB_MSG_##name = number,
#include "protocol/messages.def"
#undef HB_MESSAGE
};

enum hb_msg_sender { HB_SENDER_CLIENT, HB_SENDER_DAEMON };

/* Any message; a buffer for receiving. */
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
 * set to a constant string. Reads nothing beyond n.
 */
int hb_msg_check(const union hb_msg *message, size_t n, size_t n_fds, enum hb_msg_sender sender, const char **why);

/* The text after the fixed part of a checked message and its length (not NUL-terminated). */
const char *hb_msg_text(const union hb_msg *message, size_t *length);

/* Starts a message of this kind: clears the fixed part and sets the header without text. */
void hb_msg_init(union hb_msg *message, enum hb_msg_kind kind);
/* Appends text, cut to the space that the kind of message allows. */
void hb_msg_add_text(union hb_msg *message, const char *text, size_t length);

/* "REGISTER" and so on; "?" for unknown numbers. */
const char *hb_msg_name(unsigned kind);

#endif
