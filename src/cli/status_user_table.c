/* SPDX-License-Identifier: Apache-2.0 */
/* The users of `hb status`; see status_user_table.h. */
#include "cli/status_user_table.h"

#include "cli/status_fields.h"

#include <stdbool.h>
#include <stdio.h>

/* X(format, title, help); the column of the user has the help of the same column of tenants. */
#define COLUMNS(X) \
	X("%8s ", "tenants", "users: tenants that the user has") \
	X("%10s ", "processes", "users: processes that use CUDA") \
	X("%12s ", "connections", "users: connections to the daemon") \
	X("%11s ", "daemon time", "users: share of the daemon's time that the user's messages took") \
	X("%8s ", "refused", "users: requests refused because the user held too many places") \
	X("%15s\n", "log lines cut", "users: lines about the user that were left out of the daemon's log")
const struct hb_column_help hb_status_user_columns[HB_STATUS_USER_COLUMNS] = {
#define X(format, title, help) {title, help},
	COLUMNS(X)
#undef X
};

static long long sum_refused(const json_t *user)
{
	long long sum = 0;
	const char *key;
	json_t *value;
	json_object_foreach(json_object_get(user, "refused"), key, value) sum += json_integer_value(value);
	return sum;
}

static bool is_worth_showing(const json_t *users)
{
	const json_t *user;
	size_t i;
	if (json_array_size(users) > 1)
		return true;
	json_array_foreach(users, i,
			   user) if (sum_refused(user) || hb_status_number(user, "log_lines_left_out")) return true;
	return false;
}

static void print_user(const json_t *user)
{
	const json_t *held = json_object_get(user, "held");
	printf("%-12s %8lld %10lld %12lld %9.2f %% %8lld %15lld\n", hb_status_text(user, "user"),
	       (long long)hb_status_number(held, "tenants"), (long long)hb_status_number(held, "processes"),
	       (long long)hb_status_number(held, "connections"), (double)hb_status_number(user, "loop_share_ppm") / 1e4,
	       sum_refused(user), (long long)hb_status_number(user, "log_lines_left_out"));
}

void hb_status_print_users(const json_t *root)
{
	const json_t *users = json_object_get(root, "users"), *user;
	size_t i;
	if (!is_worth_showing(users))
		return;
	printf("\n%-12s ", "user");
#define X(format, title, help) printf(format, title);
	COLUMNS(X)
#undef X
	json_array_foreach(users, i, user) print_user(user);
}
