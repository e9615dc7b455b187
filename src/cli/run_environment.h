/* SPDX-License-Identifier: Apache-2.0 */
/* Sets the environment of the command of `hb run` in hb's own process, which then executes the command. */
#ifndef HB_CLI_RUN_ENVIRONMENT_H
#define HB_CLI_RUN_ENVIRONMENT_H

#include "base/error.h"
#include "protocol/daemon_client.h"

#include <stdbool.h>

/*
 * For a tenant: its options, the daemon's socket, the variables that the daemon granted (hb_client_register()), the shim's
 * folder first on the library path and, with `signs`, libhb-signs preloaded. 0, or negative errno with *error.
 */
int hb_run_set_environment(const struct hb_tenant_options *options, const char *socket_path, const char *from_daemon,
			   bool signs, struct hb_error *error);

/*
 * For a command that runs without Hummingbird: hb's own environment without HB_TENANT, so that a shim that is already on
 * the library path does not wait for the daemon. With simulated GPUs their driver comes first on the library path.
 */
int hb_run_set_environment_alone(bool simulated, struct hb_error *error);

#endif
