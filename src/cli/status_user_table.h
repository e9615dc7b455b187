/* SPDX-License-Identifier: Apache-2.0 */
/* Prints the users of `hb status`: what each holds and takes of what users share. */
#ifndef HB_CLI_STATUS_USER_TABLE_H
#define HB_CLI_STATUS_USER_TABLE_H

#include "cli/column_help.h"

#include <jansson.h>

/* The columns, with their help. */
#define HB_STATUS_USER_COLUMNS 6
extern const struct hb_column_help hb_status_user_columns[HB_STATUS_USER_COLUMNS];

/* Prints the table if there are several users, or if one was refused something. `root` is the status. */
void hb_status_print_users(const json_t *root);

#endif
