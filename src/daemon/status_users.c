/* SPDX-License-Identifier: Apache-2.0 */
/* The users of the daemon as JSON; see status_users.h. */
#include "daemon/status_users.h"

#include "base/json.h"
#include "daemon/status_tenant.h"

bool hb_status_shows_user(const struct hb_user *user)
{
	bool holds = false;
	for (size_t i = 0; i < HB_N_PLACES; i++)
		holds |= user->held[i] || user->refused[i];
	return user->is_present && (holds || user->requests);
}

static json_t *user_json(const struct hb_user *user)
{
	json_t *held = json_object(), *refused = json_object();
	for (int i = 0; i < HB_N_PLACES; i++) {
		hb_status_set(held, hb_place_key((enum hb_place_kind)i), json_integer((json_int_t)user->held[i]));
		hb_status_set(refused, hb_place_key((enum hb_place_kind)i), json_integer((json_int_t)user->refused[i]));
	}
	return json_pack("{s:s, s:I, s:o, s:o, s:I, s:I, s:i, s:I}", "user", user->name, "uid", (json_int_t)user->uid,
			 "held", held, "refused", refused, "requests", (json_int_t)user->requests, "loop_ns",
			 (json_int_t)user->loop_ns, "loop_share_ppm", (int)user->share_ppm, "log_lines_left_out",
			 (json_int_t)user->log_suppressed);
}

json_t *hb_status_users(const struct hb_user_table *table)
{
	json_t *array = json_array();
	for (size_t i = 0; array && i < HB_USERS_MAX; i++)
		if (hb_status_shows_user(&table->users[i]))
			hb_status_append(array, user_json(&table->users[i]));
	return array;
}

json_t *hb_status_places(const struct hb_user_table *table)
{
	json_t *object = json_object();
	for (int i = 0; object && i < HB_N_PLACES; i++)
		hb_status_set(object, hb_place_key((enum hb_place_kind)i),
			      json_pack("{s:i, s:i, s:i}", "total", (int)table->limits[i].total, "taken",
					(int)table->taken[i], "kept", (int)table->kept[i]));
	return object;
}
