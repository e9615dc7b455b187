/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides whose request the event loop serves next: users in turn, not
 * connections in turn (deficit round robin on measured time). Pure: the caller
 * measures how long a request took. Used by socket_server.c.
 *
 * Each user in turn is served until its requests took HB_FAIR_QUANTUM_NS. Time that a
 * request took beyond that is subtracted from the user's next turns. If n other users
 * have requests and no request takes longer than c, then a user's request is
 * served after at most n * (HB_FAIR_QUANTUM_NS + c) of other users' requests, however many
 * requests and connections they have, if the user's own requests took no more than
 * its turns.
 */
#ifndef HB_DAEMON_FAIR_QUEUE_H
#define HB_DAEMON_FAIR_QUEUE_H

#include "daemon/user_budget.h"

#define HB_FAIR_QUANTUM_NS INT64_C(1000000)

/* A waiting request; a member of the record of its connection. Begins all zero. */
struct hb_fair_entry {
	struct hb_fair_entry *next;
	uint32_t user; /* index in struct hb_user_table */
	bool is_waiting;
};

/* The waiting requests of one user, first come, first served. */
struct hb_fair_user {
	struct hb_fair_entry *first, *last;
	int64_t credit_ns; /* time that the user may still take in this turn; negative = it took too much */
};

/* Begins all zero. */
struct hb_fair_queue {
	struct hb_fair_user users[HB_USERS_MAX];
	uint32_t turn; /* the user whose turn it is */
	uint32_t n;    /* waiting requests */
};

/* Adds a request of this user; one that waits already stays where it is. */
void hb_fair_queue_add(struct hb_fair_queue *queue, struct hb_fair_entry *entry, uint32_t user);
/* Removes a request that may be waiting. */
void hb_fair_queue_remove(struct hb_fair_queue *queue, struct hb_fair_entry *entry);
/* Takes the request that is to be served now; NULL = none waits. */
struct hb_fair_entry *hb_fair_queue_next(struct hb_fair_queue *queue);
/* The last request of this user took so long. */
void hb_fair_queue_charge(struct hb_fair_queue *queue, uint32_t user, int64_t spent_ns);

#endif
