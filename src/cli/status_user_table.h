/* SPDX-License-Identifier: Apache-2.0 */
/* Prints the users of `hb status`: what each holds and takes of what users share. */
#ifndef HB_CLI_STATUS_USER_TABLE_H
#define HB_CLI_STATUS_USER_TABLE_H

#include <jansson.h>

/* Prints the table if there are several users, or if one was refused something. `root` is the status. */
void hb_status_print_users(const json_t *root);

#endif
