/* SPDX-License-Identifier: Apache-2.0 */
/* The GPUs of `hb run --gpus N`: which ones the command may use, and which ones the daemon chose. */
#ifndef HB_CLI_RUN_PLACE_H
#define HB_CLI_RUN_PLACE_H

#include "protocol/daemon_client.h"

/*
 * Asks the daemon at this socket for n GPUs for the tenant, among those that CUDA_VISIBLE_DEVICES allows. 0, or negative
 * errno with *error.
 */
int hb_run_place(const struct hb_tenant_options *options, uint32_t n, int socket, struct hb_placed *placed,
		 struct hb_error *error);
/* Sets CUDA_VISIBLE_DEVICES to the UUIDs that the daemon chose. 0, or negative errno with *error. */
int hb_run_set_visible(const struct hb_placed *placed, struct hb_error *error);

#endif
