/* SPDX-License-Identifier: Apache-2.0 */
/* The users of the daemon as JSON for the status: what each holds and takes of what they share. */
#ifndef HB_DAEMON_STATUS_USERS_H
#define HB_DAEMON_STATUS_USERS_H

#include "daemon/user_budget.h"

struct json_t;

/* Every user that holds or held something, at most HB_USERS_MAX; NULL when out of memory. */
struct json_t *hb_status_users(const struct hb_user_table *table);
/* {"tenants": {total, taken, kept}, ...}: the places that the users share; NULL when out of memory. */
struct json_t *hb_status_places(const struct hb_user_table *table);
/* Whether the user is shown: it has sent a message or holds something. */
bool hb_status_shows_user(const struct hb_user *user);

#endif
