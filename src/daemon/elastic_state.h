/* SPDX-License-Identifier: Apache-2.0 */
/* The state of elastic memory on one GPU. gpu_elastic.c writes it, status_elastic.c reads it. */
#ifndef HB_DAEMON_ELASTIC_STATE_H
#define HB_DAEMON_ELASTIC_STATE_H

#include "daemon/tenant_record.h"

struct hb_gpu;

enum hb_elastic_need_state {
	HB_NEED_NONE,
	HB_NEED_ASKED, /* waits for the driver's answer */
	HB_NEED_POSTED /* waits for the core's answer */
};

/* HP: an allocation that did not fit. */
struct hb_elastic_need {
	enum hb_elastic_need_state state;
	uint64_t bytes;
	int64_t asked_ns;
	int64_t answered_ns; /* when the last one was met; 0 = it was not */
	uint64_t sequence;   /* the core serves the needs in this order */
	bool trusts_free;    /* false: the driver refused the allocation although this much was free */
};

/* LP: an order in progress. */
struct hb_memory_order {
	bool is_active;
	enum hb_order_direction direction;
	uint32_t waiting;                    /* bit set of the records whose result is missing */
	uint32_t sequences[HB_PAGE_ELASTIC]; /* of the last order of each record */
	uint64_t most[HB_PAGE_ELASTIC];      /* bytes that each record had to move when it was asked */
	uint64_t bytes, reported;            /* asked for, and reported so far */
	int64_t given_ns, answered_ns;       /* 0 = results are missing */
	enum hb_move_result reason;          /* of the last result */
	uint32_t asker;                      /* number of the HP tenant that needs the memory; 0 = none */
	struct hb_gpu *left;                 /* HB_ORDER_LEAVE: the peer that the memory leaves */
};

/* The last move of an LP tenant. */
struct hb_elastic_move {
	uint64_t bytes, asked_bytes;
	int64_t took_ns, at_ns; /* at_ns 0 = there was none */
	uint32_t for_tenant;    /* number of the HP tenant; 0 = none */
	bool home;
	const char *result;
};

/* An HP tenant for which an LP tenant moved memory. */
struct hb_elastic_asker {
	uint32_t tenant; /* number; 0 = unused */
	uint64_t moves, bytes;
	int64_t move_ns, last_ns;
};
/* A new asker replaces the one whose last move is the oldest. */
#define HB_ELASTIC_ASKERS 8

struct hb_elastic_tenant {
	struct hb_elastic_need need;
	struct hb_memory_order order;
	/* The tenant waits for its memory: the driver is asked for free memory, then the core knows. */
	bool wakes;
	int64_t wake_ns;        /* when it was asked; 0 = the core knows */
	uint64_t movable, away; /* as the core knows them */
	struct hb_elastic_move last;
	/* Moves away [0] and home [1]: number, bytes, time. */
	uint64_t moves[2], moved_bytes[2], refused;
	int64_t move_ns[2];
	struct hb_elastic_asker askers[HB_ELASTIC_ASKERS];
};

/* The last need that was not met. */
struct hb_elastic_failure {
	uint32_t tenant; /* number; 0 = there was none */
	uint64_t bytes;
	const char *why;
	int64_t at_ns;
};

struct hb_elastic_gpu {
	struct hb_elastic_tenant tenants[HB_TENANCIES_MAX]; /* by index of hb_daemon.tenancies */
	uint32_t n_needs;                                   /* that wait */
	uint64_t next_sequence;
	struct hb_gpu *peer;   /* where memory of this GPU's tenants is, or moves next; NULL = on no peer */
	uint32_t leaving;      /* orders to tenants of other GPUs, to leave this one */
	uint64_t left_bytes;   /* what they have moved so far */
	bool evicts;           /* for HP: the core waits for the event memory_evicted */
	uint32_t evicts_for;   /* index of that tenant */
	int64_t taken_back_ns; /* when memory was last taken back for an LP tenant of this GPU */
	int64_t asked_back_ns; /* when such a tenant last asked, and the driver was asked how much is free; 0 = it has answered */
	uint64_t free_bytes;   /* free memory before the moves that are not counted yet */
	int64_t sample_ns;     /* when the driver was last asked */
	int64_t hold_until_ns; /* until then LP gets no more memory */
	uint64_t needs, needs_met, needs_failed;
	struct hb_elastic_failure failure;
};

#endif
