/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Starts, controls and ends hb-demand-tenant (demand_tenant.c), which keeps the GPU busy while the demand of a model is
 * measured. Used by server/models/demand_trial.c, under the dispatcher's lock. No function blocks.
 */
#ifndef HB_SERVER_DEMAND_PROCESS_H
#define HB_SERVER_DEMAND_PROCESS_H

#include "server/backends/demand_page.h"
#include "server/backends/worker_process.h"

#include <stdbool.h>

struct hb_demand_process {
	struct hb_worker_process process;
	struct hb_demand_page *page; /* NULL = not started */
	int memory, doorbell;
};

/* What the tenant has measured at its start. */
struct hb_demand_probe {
	uint32_t sms;
	double probe_ns;
	double latency_ns[2], bytes_per_ns[2];
};

/*
 * Starts the tenant with low priority for the trial of a model. `sms` is the number of the GPU's SMs, 0 = not known. Returns
 * 0, or negative errno with *error. End it in both cases.
 */
int hb_demand_process_start(struct hb_demand_process *process, const struct hb_model_config *model,
			    const struct hb_worker_place *place, uint32_t sms, struct hb_error *error);
/*
 * Returns whether the tenant is ready, with what it has measured in *probe: 1; 0 = not yet; negative errno with *error = it
 * has ended or cannot run.
 */
int hb_demand_process_poll(struct hb_demand_process *process, struct hb_demand_probe *probe, struct hb_error *error);
/* Lets the tenant execute this from now on. Costs nothing if it does so already or was not started. */
void hb_demand_process_set_mode(struct hb_demand_process *process, enum hb_demand_mode mode);
/* Returns whether kernels of this mode run now. */
bool hb_demand_process_runs(const struct hb_demand_process *process, enum hb_demand_mode mode);
/* Returns a number that changes when the tenant, while it executes a mode, leaves the GPU without its kernels. */
uint32_t hb_demand_process_gaps(const struct hb_demand_process *process);
/* Ends the tenant. It may have been ended or not started. */
void hb_demand_process_end(struct hb_demand_process *process);

#endif
