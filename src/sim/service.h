/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The phases of a service that changes its kind of request, and their arrivals. A tenant
 * without phases has one. Each phase has its own generator of arrivals, which begins when
 * the phase does. Used by program.c.
 */
#ifndef HB_SIM_SERVICE_H
#define HB_SIM_SERVICE_H

#include "sim/sim.h"

/* Number of phases of a tenant, and what it serves in each. */
static inline uint32_t hb_service_phases(const struct hb_sim_tenant *tenant)
{
	return 1 + tenant->n_later;
}
struct hb_sim_phase hb_service_phase(const struct hb_sim_tenant *tenant, uint32_t index);

struct hb_service_arrivals {
	struct hb_arrivals *of[HB_SIM_PHASES_MAX];
	int64_t from_ns[HB_SIM_PHASES_MAX];
	uint32_t n, at;
};

/* 0, -EINVAL (arrivals; `closed` only without other phases), -ENOMEM. Call fini in every case. */
int hb_service_arrivals_init(struct hb_service_arrivals *arrivals, const struct hb_sim_tenant *tenant, uint64_t seed,
			     struct hb_error *error);
void hb_service_arrivals_fini(struct hb_service_arrivals *arrivals);
/* The time of the next request and its phase; INT64_MAX = there is none. */
int64_t hb_service_arrivals_next(struct hb_service_arrivals *arrivals, uint32_t *phase);

#endif
