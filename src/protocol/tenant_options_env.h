/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Passes the options of `hb run` to the processes that it starts: one environment
 * variable for each member of struct hb_tenant_options. hb writes the variables,
 * the shim reads them. Values are plain numbers of ns and bytes.
 *
 *   HB_TENANT           token, 32 hexadecimal digits; or "container" (container_token.h)
 *   HB_PRIORITY         high | low
 *   HB_SLO_NS           -1 = learned
 *   HB_ATTAINMENT_PPM   share of requests that must meet the SLO
 *   HB_MEMORY_BYTES     limit on each GPU
 *   HB_PCIE_WEIGHT      1..1000
 *   HB_ENGINE           temporal | turns | spatial
 *   HB_ROLE             server: the process is an MPS server
 *   HB_MPS              1: started with the environment of the daemon's MPS server
 *   HB_GPU              sim: simulated GPUs
 */
#ifndef HB_PROTOCOL_TENANT_OPTIONS_ENV_H
#define HB_PROTOCOL_TENANT_OPTIONS_ENV_H

#include "protocol/daemon_client.h"

/* The names of these variables, then NULL. */
extern const char *const hb_tenant_option_variables[];

/* Sets priority low, no limits and no token, as for a process that was started without `hb run`. */
void hb_tenant_options_init(struct hb_tenant_options *options);
/* Reads the options that the environment has; invalid values are ignored (fail open). -ENOENT: there is no HB_TENANT. */
int hb_tenant_options_from_environment(struct hb_tenant_options *options);
/* Calls write() for each of the variables above; value NULL = it does not apply. Returns the first negative result, or 0. */
int hb_tenant_options_each(const struct hb_tenant_options *options,
			   int (*write)(void *argument, const char *name, const char *value), void *argument);
/* Sets the variables above, and removes those that do not apply. 0 or negative errno. */
int hb_tenant_options_to_environment(const struct hb_tenant_options *options);

#endif
