/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Budgets of users: how many tenants, processes, connections and so on each user
 * holds, how much time of the event loop and how many lines of the log it takes,
 * and whether it may take more. Pure: reads no clock and knows no daemon. The
 * daemon has one table for the one thread of its event loop.
 *
 * A seat is the right to k places of each kind. There are `users` seats and one for
 * root. A user gets a seat with its first place if one is free, and loses it when it
 * holds nothing. Further users compete for the places that are not kept. A
 * user with a seat misses k - held places, or none if it holds k or more. An unclaimed seat
 * misses k. The one rule: a user may take a place if afterwards every other seat could
 * still get what it misses, that is, if
 *
 *	free > sum of what the other seats miss.
 *
 * It follows that a user with a seat that holds fewer than k places is never
 * refused:
 * 1. free >= sum of what all seats miss. This is true at the start, because k is
 *    at most total / seats. A take by a user that misses places lowers both sides by one.
 *    A take by a user that misses none lowers `free` only, and the rule allowed it
 *    because free > sum. Giving a place back raises `free` by one and the sum
 *    by at most one. Moving a seat to another user never raises the sum.
 * 2. If a user misses at least one place, then free >= sum of all > sum of the
 *    others, so the rule lets it take a place.
 */
#ifndef HB_DAEMON_USER_BUDGET_H
#define HB_DAEMON_USER_BUDGET_H

#include "base/log.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define HB_USERS_MAX 64                       /* users that hold places at the same time; more are refused */
#define HB_USERS_KEPT_MAX 32                  /* users for whom places may be kept */
#define HB_USERS_KEPT 16                      /* the default of the configuration key `users` */
#define HB_USER_NAME_MAX 64                   /* as in struct hb_peer */
#define HB_USER_LOG_LINES 100                 /* lines that a user may cause at once, */
#define HB_USER_LOG_NS INT64_C(1000000000)    /* and then one in this time */
#define HB_USER_SHARE_NS INT64_C(10000000000) /* the share of loop time is counted over this time */

enum hb_place_kind {
#define HB_PLACE(NAME, key, words) HB_PLACE_##NAME,
#include "daemon/user_places.def"
	HB_N_PLACES
};

struct hb_place_limit {
	uint32_t total; /* places of all users together */
	uint32_t most;  /* the most places of one user; 0 = as many as the rule above allows */
};

struct hb_user {
	uid_t uid;
	char name[HB_USER_NAME_MAX];
	bool is_present; /* this record is used */
	bool has_seat;   /* k places of each kind are kept for this user */
	uint32_t held[HB_N_PLACES];
	uint64_t refused[HB_N_PLACES]; /* takes that were refused */
	uint64_t requests;             /* messages that were served */
	int64_t loop_ns;               /* time of the event loop that they took */
	int64_t window_ns;             /* the same since the last count of shares */
	uint32_t share_ppm;            /* share of the event loop's time in the last HB_USER_SHARE_NS */
	int64_t log_ns;                /* lines are left out while this is too far ahead of the clock */
	uint64_t log_waiting;          /* lines left out since the last one that was written */
	uint64_t log_suppressed;       /* lines left out so far */
	int64_t used_ns;               /* last use of the record */
};

struct hb_user_table {
	struct hb_user users[HB_USERS_MAX]; /* the first is root, which always has a seat */
	struct hb_place_limit limits[HB_N_PLACES];
	uint32_t kept[HB_N_PLACES]; /* k of the rule above */
	uint32_t taken[HB_N_PLACES];
	uint32_t seats, seats_claimed; /* with root's */
	int64_t window_since_ns;
};

/* `users` = the number of users beside root for whom places are kept; 0 = none are kept, the first users get them. */
void hb_user_table_init(struct hb_user_table *table, const struct hb_place_limit limits[HB_N_PLACES], uint32_t users);
/*
 * The record of this user. A new user gets an unused record or that of the user who has held nothing for
 * longest; NULL: HB_USERS_MAX users hold places. A record that holds places stays where it is.
 */
struct hb_user *hb_user_find(struct hb_user_table *table, uid_t uid, const char *name, int64_t now_ns);

/* Takes a place if the user may have it; a refusal is counted. */
bool hb_user_take(struct hb_user_table *table, struct hb_user *user, enum hb_place_kind kind);
/* Whether hb_user_take() would succeed. */
bool hb_user_may_take(const struct hb_user_table *table, const struct hb_user *user, enum hb_place_kind kind);
/* Takes a place in any case: for what exists already. Other users may then get less than is kept for them. */
void hb_user_take_anyway(struct hb_user_table *table, struct hb_user *user, enum hb_place_kind kind);
/* Gives `n` places back. */
void hb_user_give(struct hb_user_table *table, struct hb_user *user, enum hb_place_kind kind, uint32_t n);
/* The user that holds most of these. */
struct hb_user *hb_user_largest(struct hb_user_table *table, enum hb_place_kind kind);
/* Writes why the user may not take a place, who holds the others, and what to do. Returns `text`. */
const char *hb_user_explain(struct hb_user_table *table, const struct hb_user *user, enum hb_place_kind kind,
			    char *text, size_t size);
/* "tenants" and so on: the key of the status and of the metrics. */
const char *hb_place_key(enum hb_place_kind kind);

/* A message of this user was served and took this much time of the event loop. */
void hb_user_charge(struct hb_user *user, int64_t spent_ns);
/* Whether a line about this user may be written now. Returns in *waiting the lines left out since the last one. */
bool hb_user_may_log(struct hb_user *user, int64_t now_ns, uint64_t *waiting);
/* Writes a line that the user caused, unless it has caused too many; NULL: the daemon itself, always. */
void hb_user_log(struct hb_user *user, int64_t now_ns, enum hb_log_level level, const char *format, ...)
	__attribute__((format(printf, 4, 5)));
/* Every HB_TICK_MS: counts the shares of the event loop's time, and reports lines that were left out. */
void hb_user_table_tick(struct hb_user_table *table, int64_t now_ns);

#endif
