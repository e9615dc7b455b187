/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Looks up the names of users on threads, because the sources of names (NSS) may be
 * servers that do not answer. Names are kept, and looked up again after a while.
 */
#ifndef HB_DAEMON_USER_NAMES_H
#define HB_DAEMON_USER_NAMES_H

#include <stdbool.h>
#include <sys/types.h>
#include <uv.h>

#define HB_USER_NAME_SIZE 64

struct hb_user_names;

/* Called in the loop: the name of this user is known now. */
typedef void hb_user_name_found(void *argument, uid_t uid);

/* 0 or negative errno. */
int hb_user_names_new(uv_loop_t *loop, hb_user_name_found *found, void *argument, struct hb_user_names **names);
/* Waits for no thread. NULL is allowed. */
void hb_user_names_free(struct hb_user_names *names);

/*
 * Writes the user's name, or the uid in digits if the user has none or none is known yet. False: it is being looked up, and
 * `found` is called when that has ended.
 */
bool hb_user_names_find(struct hb_user_names *names, uid_t uid, char name[HB_USER_NAME_SIZE]);

#endif
