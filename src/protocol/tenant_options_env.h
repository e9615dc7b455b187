/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How `hb run` tells the processes it starts what they are: one environment
 * variable for each part of a wish (struct hb_tenant_options). hb writes them, the shim
 * reads them. Values are for machines: plain numbers of ns and bytes.
 *
 *   HB_TENANT           token, 32 hexadecimal digits
 *   HB_PRIORITY         high | low
 *   HB_SLO_NS           -1 = learn it
 *   HB_ATTAINMENT_PPM   share of requests that must meet it
 *   HB_MEMORY_BYTES     limit on each GPU
 *   HB_PCIE_WEIGHT      1..1000
 *   HB_ENGINE           temporal | turns | spatial
 *   HB_ROLE             server: the process is an MPS server
 *   HB_MPS              1: started with the environment of the daemon's MPS server
 *   HB_GPU              sim: simulated GPUs
 */
#ifndef HB_DAEMON_WISH_ENV_H
#define HB_DAEMON_WISH_ENV_H

#include "protocol/daemon_client.h"

/* Priority low, no limits, no token: what a process asks that was started without `hb run`. */
void hb_tenant_options_init(struct hb_tenant_options *wish);
/* Replaces what the environment names; a value that is none is ignored (fail open). -ENOENT: no HB_TENANT. */
int hb_tenant_options_from_environment(struct hb_tenant_options *wish);
/* setenv() of every variable above, unsetenv() of those that do not apply. 0 or negative errno. */
int hb_tenant_options_to_environment(const struct hb_tenant_options *wish);

#endif
