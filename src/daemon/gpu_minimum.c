/* SPDX-License-Identifier: Apache-2.0 */
/* The guaranteed minimum of LP; see gpu_minimum.h. */
#include "daemon/gpu_minimum.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/units.h"
#include "core/low_minimum.h"
#include "daemon/daemon.h"
#include "daemon/daemon_config.h"
#include "daemon/gpu_core.h"
#include "daemon/gpu_gates.h"

#include <stdio.h>

#define PPM INT64_C(1000000)
#define PPM_OF_PERCENT 10000
/* The rate alone is a mean that forgets within about eight ticks. */
#define RATE_SHIFT 3

uint32_t hb_low_minimum_ppm(const struct hb_daemon *daemon)
{
	return hb_daemon_config_low_minimum_ppm(&daemon->config);
}

/* --- progress ------------------------------------------------------------------------------ */

/* Launches of all LP tenants since the last tick; those of each tenant in `launched`. */
static uint64_t count_low_launches(struct hb_gpu *gpu, uint64_t launched[HB_TENANCIES_MAX])
{
	uint64_t sum = 0;
	for (uint32_t i = 0; i < gpu->tenants_end; i++) {
		const struct hb_tenancy *tenancy = hb_gpu_tenancy(gpu, i);
		launched[i] = 0;
		if (!tenancy || !hb_tenancy_is_low(tenancy))
			continue;
		uint64_t launches = hb_gpu_count_launches(gpu, i), *before = &gpu->progress.launches[i];
		launched[i] = launches > *before ? launches - *before : 0;
		*before = launches;
		sum += launched[i];
	}
	return sum;
}

static void post_progress(struct hb_gpu *gpu, const uint64_t launched[HB_TENANCIES_MAX], int64_t interval_ns,
			  int64_t now_ns)
{
	const struct hb_low_progress *progress = &gpu->progress;
	for (uint32_t i = 0; i < gpu->tenants_end; i++) {
		struct hb_event event = {.kind = HB_EVENT_PROGRESS, .tenant = i};
		if (!launched[i])
			continue;
		__int128 work_ns = (__int128)launched[i] * HB_NS_PER_S * 1024 / (__int128)progress->alone_q10;
		event.progress.work_ns = work_ns < interval_ns ? (int64_t)work_ns : interval_ns;
		hb_gpu_post(gpu, now_ns, &event);
	}
}

static void report_progress(struct hb_gpu *gpu, int64_t now_ns)
{
	struct hb_low_progress *progress = &gpu->progress;
	uint64_t launched[HB_TENANCIES_MAX];
	uint64_t sum = count_low_launches(gpu, launched);
	int64_t interval_ns = now_ns - progress->tick_ns;
	bool valid = progress->tick_ns && interval_ns > 0 && progress->n_low == gpu->n_low;
	progress->tick_ns = now_ns;
	if (progress->n_low != gpu->n_low)
		progress->alone_q10 = 0; /* other tenants launch at another rate */
	progress->n_low = gpu->n_low;
	if (!valid || !sum)
		return;
	int64_t rate_q10 = (int64_t)((__int128)sum * HB_NS_PER_S * 1024 / interval_ns);
	if (gpu->page->high_at_work == 0)
		progress->alone_q10 += progress->alone_q10 ? (rate_q10 - progress->alone_q10) / (1 << RATE_SHIFT)
							   : rate_q10;
	if (progress->alone_q10 > 0)
		post_progress(gpu, launched, interval_ns, now_ns);
}

/* --- what it means for objectives ------------------------------------------------------------ */

static void describe_high(const struct hb_tenant *tenant, const struct hb_low_minimum_view *view, uint32_t ppm,
			  char *text, size_t size)
{
	char alone[HB_UNITS_TEXT_MAX], latency[HB_UNITS_TEXT_MAX], slo[HB_UNITS_TEXT_MAX];
	if (!view->applies) {
		snprintf(
			text, size,
			"the low-priority minimum of %u %% leaves high priority %u %% of the GPU while it applies; it is "
			"not known yet how long a request takes alone, or there is no objective",
			ppm / PPM_OF_PERCENT, view->slices.high_ppm / PPM_OF_PERCENT);
		return;
	}
	hb_duration_format(view->alone_ns, alone);
	hb_duration_format(view->latency_ns, latency);
	hb_duration_format(tenant->slo_ns, slo);
	snprintf(
		text, size,
		"the low-priority minimum of %u %% leaves high priority %u %% of the GPU while it applies: a request of "
		"%s alone takes up to %s, so the objective of %s %s be kept",
		ppm / PPM_OF_PERCENT, view->slices.high_ppm / PPM_OF_PERCENT, alone, latency, slo,
		view->kept ? "can" : "cannot");
}

bool hb_gpu_minimum_describe(const struct hb_gpu *gpu, const struct hb_tenancy *tenancy, bool *kept, char *text,
			     size_t size)
{
	uint32_t ppm = hb_low_minimum_ppm(gpu->daemon);
	const struct hb_tenant *tenant = hb_core_tenant(gpu->core, tenancy->index);
	struct hb_low_minimum_view view;
	if (!ppm || !tenant || hb_tenancy_is_server(tenancy))
		return false;
	*kept = true;
	if (hb_tenancy_is_low(tenancy)) {
		snprintf(text, size,
			 "%u %% of the GPU for all low-priority programs together, whatever high priority does",
			 ppm / PPM_OF_PERCENT);
	} else if (gpu->engine == HB_ENGINE_SPATIAL) {
		snprintf(
			text, size,
			"the low-priority minimum of %u %%: while low priority falls below it, low priority runs on at least "
			"%u %% of the SMs during requests, too; whether the objective can be kept is not predicted",
			ppm / PPM_OF_PERCENT, ppm / PPM_OF_PERCENT);
	} else {
		hb_low_minimum_look(gpu->core, tenancy->index, &view);
		*kept = view.kept;
		describe_high(tenant, &view, ppm, text, size);
	}
	return true;
}

/* Warns once for each tenant, and again after the objective could be kept for a while. */
static void warn_about_objectives(struct hb_gpu *gpu)
{
	char text[400];
	for (uint32_t i = 0; i < gpu->tenants_end; i++) {
		const struct hb_tenancy *tenancy = hb_gpu_tenancy(gpu, i);
		bool kept = true;
		if (!tenancy || !hb_tenancy_is_high(tenancy) ||
		    !hb_gpu_minimum_describe(gpu, tenancy, &kept, text, sizeof text))
			kept = true;
		else if (!kept && !gpu->progress.warned[i])
			hb_log_warning("GPU %u, tenant %u: %s", gpu->number, tenancy->number, text);
		gpu->progress.warned[i] = !kept;
	}
}

void hb_gpu_minimum_tick(struct hb_gpu *gpu, int64_t now_ns)
{
	if (!gpu->core_config.low_minimum_ppm)
		return;
	report_progress(gpu, now_ns);
	warn_about_objectives(gpu);
}
