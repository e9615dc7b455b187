/* SPDX-License-Identifier: Apache-2.0 */
/* Counts the places of each user; see user_budget.h. */
#include "daemon/user_budget.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const char *const place_keys[] = {
#define HB_PLACE(NAME, key, words) key,
#include "daemon/user_places.def"
};

static const char *const place_words[] = {
#define HB_PLACE(NAME, key, words) words,
#include "daemon/user_places.def"
};

/* A quarter of all places is kept, and at least one for each seat if there are enough. */
static uint32_t choose_kept(uint32_t total, uint32_t seats)
{
	uint32_t kept = seats ? total / 4 / seats : 0;
	return kept == 0 && seats && total > seats ? 1 : kept;
}

void hb_user_table_init(struct hb_user_table *table, const struct hb_place_limit limits[HB_N_PLACES], uint32_t users)
{
	*table = (struct hb_user_table){.seats = users ? users + 1 : 0};
	memcpy(table->limits, limits, sizeof table->limits);
	for (size_t i = 0; i < HB_N_PLACES; i++)
		table->kept[i] = choose_kept(limits[i].total, table->seats);
	table->users[0] = (struct hb_user){.name = "root", .is_present = true, .has_seat = table->seats > 0};
	table->seats_claimed = table->seats > 0;
}

static bool holds_nothing(const struct hb_user *user)
{
	for (size_t i = 0; i < HB_N_PLACES; i++)
		if (user->held[i])
			return false;
	return true;
}

/* --- records ------------------------------------------------------------------------------ */

/* An unused record, or that of the user who has held nothing for longest. */
static struct hb_user *find_idle(struct hb_user_table *table)
{
	struct hb_user *oldest = NULL;
	for (struct hb_user *user = table->users + 1; user < table->users + HB_USERS_MAX; user++) {
		if (!user->is_present)
			return user;
		if (holds_nothing(user) && (!oldest || user->used_ns < oldest->used_ns))
			oldest = user;
	}
	return oldest;
}

struct hb_user *hb_user_find(struct hb_user_table *table, uid_t uid, const char *name, int64_t now_ns)
{
	struct hb_user *user = NULL;
	for (size_t i = 0; !user && i < HB_USERS_MAX; i++)
		if (table->users[i].is_present && table->users[i].uid == uid)
			user = &table->users[i];
	if (!user) {
		user = find_idle(table);
		if (!user)
			return NULL;
		*user = (struct hb_user){.uid = uid, .is_present = true};
		snprintf(user->name, sizeof user->name, "%s", name);
	}
	user->used_ns = now_ns;
	return user;
}

/* --- places --------------------------------------------------------------------------------- */

static uint32_t count_missing(const struct hb_user_table *table, const struct hb_user *user, enum hb_place_kind kind)
{
	uint32_t kept = user->has_seat ? table->kept[kind] : 0;
	return user->held[kind] < kept ? kept - user->held[kind] : 0;
}

/* Returns how many places the other seats miss. `user` claims a seat if there is an unclaimed one. */
static uint32_t count_missing_of_others(const struct hb_user_table *table, const struct hb_user *user,
					enum hb_place_kind kind)
{
	uint32_t unclaimed = table->seats - table->seats_claimed;
	if (!user->has_seat && unclaimed)
		unclaimed--;
	uint32_t missing = unclaimed * table->kept[kind];
	for (size_t i = 0; i < HB_USERS_MAX; i++)
		if (&table->users[i] != user)
			missing += count_missing(table, &table->users[i], kind);
	return missing;
}

bool hb_user_may_take(const struct hb_user_table *table, const struct hb_user *user, enum hb_place_kind kind)
{
	const struct hb_place_limit *limit = &table->limits[kind];
	uint32_t unused = limit->total > table->taken[kind] ? limit->total - table->taken[kind] : 0;
	if (limit->most && user->held[kind] >= limit->most)
		return false;
	return unused > count_missing_of_others(table, user, kind);
}

static void claim_seat(struct hb_user_table *table, struct hb_user *user)
{
	if (user->has_seat || table->seats_claimed >= table->seats)
		return;
	user->has_seat = true;
	table->seats_claimed++;
}

/* The seat of a user that holds nothing any more goes to a user that has none. Root keeps its seat. */
static void pass_seat(struct hb_user_table *table, struct hb_user *user)
{
	if (user == table->users || !user->has_seat || !holds_nothing(user))
		return;
	user->has_seat = false;
	table->seats_claimed--;
	for (size_t i = 0; i < HB_USERS_MAX; i++)
		if (table->users[i].is_present && !holds_nothing(&table->users[i]))
			claim_seat(table, &table->users[i]);
}

void hb_user_take_anyway(struct hb_user_table *table, struct hb_user *user, enum hb_place_kind kind)
{
	claim_seat(table, user);
	user->held[kind]++;
	table->taken[kind]++;
}

bool hb_user_take(struct hb_user_table *table, struct hb_user *user, enum hb_place_kind kind)
{
	if (!hb_user_may_take(table, user, kind)) {
		user->refused[kind]++;
		return false;
	}
	hb_user_take_anyway(table, user, kind);
	return true;
}

void hb_user_give(struct hb_user_table *table, struct hb_user *user, enum hb_place_kind kind, uint32_t n)
{
	user->held[kind] -= n;
	table->taken[kind] -= n;
	pass_seat(table, user);
}

const char *hb_place_key(enum hb_place_kind kind)
{
	return place_keys[kind];
}

struct hb_user *hb_user_largest(struct hb_user_table *table, enum hb_place_kind kind)
{
	struct hb_user *largest = table->users;
	for (size_t i = 1; i < HB_USERS_MAX; i++)
		if (table->users[i].held[kind] > largest->held[kind])
			largest = &table->users[i];
	return largest;
}

const char *hb_user_explain(struct hb_user_table *table, const struct hb_user *user, enum hb_place_kind kind,
			    char *text, size_t size)
{
	const struct hb_place_limit *limit = &table->limits[kind];
	const struct hb_user *largest = hb_user_largest(table, kind);
	if (limit->most && user->held[kind] >= limit->most)
		snprintf(text, size,
			 "user %s has %u %s, the most that hummingbird.yaml allows one user (user_%s): end some of "
			 "them; `hb status` lists them",
			 user->name, user->held[kind], place_words[kind], place_keys[kind]);
	else if (table->taken[kind] >= limit->total)
		snprintf(text, size,
			 "the daemon has %u %s, which is its limit; user %s has %u of them, you have %u: `hb status` "
			 "lists them",
			 limit->total, place_words[kind], largest->name, largest->held[kind], user->held[kind]);
	else
		snprintf(text, size,
			 "user %s has %u %s; the daemon has room for %u, and keeps the %u that are left for other "
			 "users%s%s%s: end some of them; `hb status` lists them",
			 user->name, user->held[kind], place_words[kind], limit->total,
			 limit->total - table->taken[kind], largest != user ? " (user " : "",
			 largest != user ? largest->name : "", largest != user ? " has the most)" : "");
	return text;
}

/* --- the event loop's time and the log ------------------------------------------------------- */

void hb_user_charge(struct hb_user *user, int64_t spent_ns)
{
	user->requests++;
	user->loop_ns += spent_ns;
	user->window_ns += spent_ns;
}

static void count_shares(struct hb_user_table *table, int64_t now_ns)
{
	int64_t window_ns = now_ns - table->window_since_ns;
	if (window_ns < HB_USER_SHARE_NS)
		return;
	for (size_t i = 0; i < HB_USERS_MAX; i++) {
		struct hb_user *user = &table->users[i];
		/* The first window began when the table was made, at an unknown time. */
		user->share_ppm = table->window_since_ns ? (uint32_t)(user->window_ns * 1000000 / window_ns) : 0;
		user->window_ns = 0;
	}
	table->window_since_ns = now_ns;
}

bool hb_user_may_log(struct hb_user *user, int64_t now_ns, uint64_t *waiting)
{
	int64_t since_ns = user->log_ns > now_ns ? user->log_ns : now_ns;
	if (since_ns - now_ns > (HB_USER_LOG_LINES - 1) * HB_USER_LOG_NS) {
		user->log_waiting++;
		user->log_suppressed++;
		return false;
	}
	user->log_ns = since_ns + HB_USER_LOG_NS;
	*waiting = user->log_waiting;
	user->log_waiting = 0;
	return true;
}

static void report_waiting(const struct hb_user *user, uint64_t waiting)
{
	if (waiting)
		hb_log_warning("%llu lines about user %s were left out of this log, because they were too many",
			       (unsigned long long)waiting, user->name);
}

void hb_user_log(struct hb_user *user, int64_t now_ns, enum hb_log_level level, const char *format, ...)
{
	uint64_t waiting;
	char line[640];
	if (!hb_log_enabled(level) || (user && !hb_user_may_log(user, now_ns, &waiting)))
		return;
	if (user)
		report_waiting(user, waiting);
	va_list arguments;
	va_start(arguments, format);
	vsnprintf(line, sizeof line, format, arguments);
	va_end(arguments);
	hb_log_write(level, "%s", line);
}

void hb_user_table_tick(struct hb_user_table *table, int64_t now_ns)
{
	count_shares(table, now_ns);
	for (size_t i = 0; i < HB_USERS_MAX; i++) {
		struct hb_user *user = &table->users[i];
		uint64_t waiting;
		if (user->log_waiting && user->log_ns - now_ns <= (HB_USER_LOG_LINES - 1) * HB_USER_LOG_NS &&
		    hb_user_may_log(user, now_ns, &waiting))
			report_waiting(user, waiting);
	}
}
