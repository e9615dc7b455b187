/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Chooses the engine of a tenant and of a GPU. A tenant's engine is chosen when
 * the tenant is made: its processes get their CUDA context inside or outside
 * the MPS server, depending on their environment, and cannot move later.
 *
 * HP decides: outside the MPS server a GPU is shared in time (temporal), inside
 * the server in space (spatial). Both at once would make the server one of two
 * contexts that the hardware switches between, and neither engine could keep its
 * promise, so the second kind is refused. The daemon does not know yet which
 * GPUs a new tenant will use: the rule holds for the whole daemon.
 *
 * A tenant that requests no engine joins what is running. If nothing is
 * running, the configuration decides; `engine: auto` uses what each engine
 * showed in earlier runs of the program (engine_runs.h) and takes temporal if
 * nothing is known or spatial is impossible.
 */
#ifndef HB_DAEMON_ENGINE_CHOICE_H
#define HB_DAEMON_ENGINE_CHOICE_H

#include "base/error.h"
#include "daemon/gpu_record.h"

/* Chooses the engine of a new tenant. 0, or negative errno with *error: its engine excludes one that is running. */
int hb_engine_admit(struct hb_daemon *daemon, struct hb_tenancy *tenancy, struct hb_error *error);
/* Spatial turned out to be impossible: goes back to temporal if `auto` chose spatial. False: the user requested it. */
bool hb_engine_fall_back(struct hb_tenancy *tenancy, const char *why);
/* Whether the tenant's processes are to be clients of the MPS server. */
bool hb_engine_uses_mps(const struct hb_tenancy *tenancy);
/* The engine of a GPU with its present tenants. */
enum hb_engine hb_engine_of_gpu(const struct hb_gpu *gpu);
/* The engine of a GPU without tenants. */
enum hb_engine hb_engine_default(const struct hb_daemon *daemon);

#endif
