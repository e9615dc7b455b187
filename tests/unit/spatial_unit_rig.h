/* SPDX-License-Identifier: Apache-2.0 */
/* A board with one HP process that serves requests, for the unit tests of the spatial engine. */
#ifndef HB_TESTS_SLACK_RIG_H
#define HB_TESTS_SLACK_RIG_H

#include "decide/spatial_high.h"
#include "decide/spatial_low.h"

#define US INT64_C(1000)
#define MS INT64_C(1000000)
#define SMS 132

struct service {
	struct hb_spatial_board board;
	struct hb_spatial_beacon *beacon;
	struct hb_spatial_high high;
	int64_t now_ns;
};

static inline void start_service(struct service *service)
{
	service->now_ns = 10 * MS;
	service->beacon = hb_spatial_claim(&service->board, 77);
	hb_spatial_high_init(&service->high, service->beacon, SMS);
}

static inline uint32_t reserve_of(const struct service *service)
{
	return service->beacon->reserve & HB_SPATIAL_RESERVE_MASK;
}

/* As the daemon takes the board of a process that has ended from the list. */
static inline void free_beacon(struct hb_spatial_beacon *beacon)
{
	*beacon = (struct hb_spatial_beacon){.owner = 0};
}

/* Short windows that a few kernels fill, for tests that count launches. */
static inline void set_short_windows(struct hb_spatial_limits *limits)
{
	limits->window_ns = limits->open_ns = 100 * US;
	limits->ahead_ns = 200 * US;
	limits->beside_ns = limits->tight_ns = 60 * US;
	limits->steady_ns = 400 * US;
	limits->mark_ns = 30 * US;
}

/* A request of `launches` launches, evenly over took_ns, then a pause of as much. */
static inline void serve(struct service *service, uint32_t launches, int64_t took_ns)
{
	hb_spatial_high_begin(&service->high, service->now_ns, 0);
	for (uint32_t i = 0; i < launches; i++) {
		service->now_ns += took_ns / launches;
		hb_spatial_high_launch(&service->high, service->now_ns);
	}
	hb_spatial_high_end(&service->high, service->now_ns);
	service->now_ns += took_ns;
}

/* HP has learned its time alone, and its allowance is a twentieth. */
static inline void let_beside(struct service *service)
{
	service->high.allowance_ppm = 50000;
	for (uint32_t i = 0; i < HB_SPATIAL_FIRST_CLOSED; i++)
		serve(service, 160, 2 * MS);
}

#endif
