/* SPDX-License-Identifier: Apache-2.0 */
/* See gpu_measures.h. */
#include "daemon/gpu_measures.h"

#include "daemon/daemon.h"
#include "gpu/provider.h"

#include <stdio.h>
#include <stdlib.h>

struct hb_gpu_measures *hb_gpu_measures_new(const struct hb_gpu *gpu)
{
	const struct hb_provider *provider = hb_provider_of(gpu->daemon->options.simulated);
	struct hb_gpu_measures *made = calloc(1, sizeof *made);
	if (!made || !(made->usage = hb_gpu_usage_new())) {
		free(made);
		return NULL;
	}
	provider->gpu_name(gpu->uuid, made->name, sizeof made->name);
	int index = provider->gpu_index(gpu->uuid);
	if (index >= 0)
		snprintf(made->index, sizeof made->index, "%d", index);
	return made;
}

void hb_gpu_measures_free(struct hb_gpu_measures *measures)
{
	for (uint32_t i = 0; measures && i < HB_TENANCIES_MAX; i++)
		free(measures->tenants[i].wait);
	if (measures)
		hb_gpu_usage_free(measures->usage);
	free(measures);
}

void hb_gpu_measures_reset(struct hb_gpu *gpu, uint32_t tenancy)
{
	struct hb_tenant_measures *measures = &gpu->measures->tenants[tenancy];
	hb_gpu_usage_forget(gpu->measures->usage, tenancy);
	free(measures->wait);
	*measures = (struct hb_tenant_measures){.closed_ns = 0};
}

static void end_wait(struct hb_tenant_measures *measures, int64_t now_ns)
{
	if (!measures->waiting_ns)
		return;
	if (!measures->wait)
		measures->wait = calloc(1, sizeof *measures->wait);
	if (measures->wait)
		hb_hist_record(measures->wait, now_ns - measures->waiting_ns);
	measures->waiting_ns = 0;
}

void hb_gpu_measure_gate(struct hb_gpu *gpu, uint32_t tenancy, bool in_flight, int64_t now_ns)
{
	struct hb_tenant_measures *measures = &gpu->measures->tenants[tenancy];
	enum hb_gate_state gate = gpu->tenants[tenancy].gate;
	if (gate == HB_GATE_OPEN) {
		end_wait(measures, now_ns);
		measures->closed_ns = 0;
	} else if (gate == HB_GATE_CLOSED && in_flight && !measures->closed_ns) {
		measures->closed_ns = now_ns;
		measures->preemptions++;
	}
}

void hb_gpu_measure_poll(struct hb_gpu *gpu, uint32_t tenancy, bool waiting, bool drained, int64_t now_ns)
{
	struct hb_tenant_measures *measures = &gpu->measures->tenants[tenancy];
	if (waiting && !measures->waiting_ns && gpu->tenants[tenancy].gate != HB_GATE_OPEN)
		measures->waiting_ns = now_ns;
	if (!waiting)
		end_wait(measures, now_ns);
	if (!drained || !measures->closed_ns)
		return;
	bool turn = gpu->engine == HB_ENGINE_TURNS;
	hb_hist_record(turn ? &gpu->measures->turn : &gpu->measures->preemption, now_ns - measures->closed_ns);
	measures->closed_ns = 0;
}

void hb_gpu_measure_launches(struct hb_gpu *gpu, uint32_t tenancy, uint64_t launches, int64_t now_ns)
{
	struct hb_tenant_measures *measures = &gpu->measures->tenants[tenancy];
	if (measures->tick_ns && launches != measures->launches)
		measures->active_ns += (uint64_t)(now_ns - measures->tick_ns);
	measures->tick_launches = measures->tick_ns && launches > measures->launches ? launches - measures->launches
										     : 0;
	measures->launched += measures->tick_launches;
	measures->launches = launches;
	measures->tick_ns = now_ns;
}
