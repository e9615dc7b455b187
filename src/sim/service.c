/* SPDX-License-Identifier: Apache-2.0 */
/* See service.h. */
#include "sim/service.h"

#include <errno.h>

struct hb_sim_phase hb_service_phase(const struct hb_sim_tenant *tenant, uint32_t index)
{
	if (index)
		return tenant->later[index - 1];
	return (struct hb_sim_phase){.workload = tenant->workload,
				     .graph = tenant->graph,
				     .arrivals = tenant->arrivals,
				     .tokens = tenant->tokens};
}

int hb_service_arrivals_init(struct hb_service_arrivals *arrivals, const struct hb_sim_tenant *tenant, uint64_t seed,
			     struct hb_error *error)
{
	*arrivals = (struct hb_service_arrivals){0};
	for (uint32_t i = 0; i < hb_service_phases(tenant); i++) {
		struct hb_sim_phase phase = hb_service_phase(tenant, i);
		int code = hb_arrivals_new(phase.arrivals, seed, &arrivals->of[i], error);
		if (code)
			return code;
		arrivals->from_ns[i] = phase.from_ns;
		arrivals->n = i + 1;
		if (tenant->n_later && hb_arrivals_kind(arrivals->of[i]) == HB_ARRIVE_CLOSED)
			return hb_error_set(error, -EINVAL,
					    "arrivals 'closed': a service with several phases needs a rate in each");
	}
	return 0;
}

void hb_service_arrivals_fini(struct hb_service_arrivals *arrivals)
{
	for (uint32_t i = 0; i < arrivals->n; i++)
		hb_arrivals_free(arrivals->of[i]);
	arrivals->n = 0;
}

int64_t hb_service_arrivals_next(struct hb_service_arrivals *arrivals, uint32_t *phase)
{
	for (;;) {
		bool last = arrivals->at + 1 >= arrivals->n;
		int64_t next_ns = hb_arrivals_next(arrivals->of[arrivals->at]);
		if (next_ns != INT64_MAX)
			next_ns += arrivals->from_ns[arrivals->at];
		if (last || next_ns < arrivals->from_ns[arrivals->at + 1]) {
			*phase = arrivals->at;
			return next_ns;
		}
		arrivals->at++;
	}
}
