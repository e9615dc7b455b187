/* SPDX-License-Identifier: Apache-2.0 */
/* What a tenant may wish for, read from the command line in one way by `hb run` and `hb set`. */
#ifndef HB_CLI_WISH_OPTIONS_H
#define HB_CLI_WISH_OPTIONS_H

#include "protocol/daemon_client.h"

/*
 * Each takes an option's value into the wish: -1, or after a message that names
 * command, option and value the exit status.
 */
int hb_tenant_options_take_priority(const char *command, struct hb_tenant_options *wish, const char *value);
int hb_tenant_options_take_slo(const char *command, struct hb_tenant_options *wish, const char *value);
int hb_tenant_options_take_memory(const char *command, struct hb_tenant_options *wish, const char *value);
int hb_tenant_options_take_weight(const char *command, struct hb_tenant_options *wish, const char *value);

#endif
