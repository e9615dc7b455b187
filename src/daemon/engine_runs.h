/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures runs of HP tenants for `engine: auto`: while LP works beside an HP
 * tenant, counts the tenant's requests and LP's launches. Each minute, and when the tenant ends,
 * records in the history (engine_history.h) what its engine achieved, and saves the history (engine_file.h).
 */
#ifndef HB_DAEMON_ENGINE_RUNS_H
#define HB_DAEMON_ENGINE_RUNS_H

#include "daemon/gpu_record.h"

/* Every HB_TICK_MS, after hb_gpu_measure_launches() of all tenants. */
void hb_engine_runs_update(struct hb_gpu *gpu, int64_t now_ns);
/* Records the run of an HP tenant that ends now. */
void hb_engine_runs_end(struct hb_tenancy *tenancy);
/* Whether a new HP tenant should use the spatial engine, judging by earlier runs of its program. Sets its engine_why. */
bool hb_engine_prefers_spatial(struct hb_tenancy *tenancy, bool is_possible);

#endif
