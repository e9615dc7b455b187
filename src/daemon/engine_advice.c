/* SPDX-License-Identifier: Apache-2.0 */
/* Compares the two engines by two measurements; see engine_advice.h. */
#include "daemon/engine_advice.h"

#include "base/clock.h"
#include "base/hist.h"
#include "core/core.h"
#include "core/tenant.h"
#include "daemon/daemon.h"
#include "daemon/gpu_measures.h"
#include "gpu/provider.h"

#include <stdio.h>

#define SAMPLE_MIN_NS (2 * HB_NS_PER_S)
#define SAMPLES_MIN 3       /* about 15 s */
#define SAMPLES_MEMORY 12   /* the means follow about a minute */
#define GAIN_MIN_PPM 100000 /* a smaller difference is not worth a restart */
#define RARE_PPM 150000     /* presence below which the temporal engine leaves LP most of the GPU */

/* Returns false if the driver does not say how busy the tenant's processes are. */
static bool measure_busy(const struct hb_gpu *gpu, const struct hb_tenancy *tenancy, uint32_t *busy_ppm)
{
	bool is_known = false;
	uint64_t sum = 0;
	for (uint32_t slot = 0; slot < tenancy->slots_end; slot++) {
		const struct hb_member *member = &tenancy->members[slot];
		for (uint32_t i = 0; member->watch && i < gpu->use->n_users; i++) {
			const struct hb_gpu_user *user = &gpu->use->users[i];
			if (user->pid != member->pid || user->busy_ppm == HB_GPU_BUSY_UNKNOWN)
				continue;
			sum += user->busy_ppm;
			is_known = true;
		}
	}
	*busy_ppm = sum < 1000000 ? (uint32_t)sum : 1000000;
	return is_known;
}

static uint32_t follow_mean(uint32_t mean, uint32_t value, uint32_t samples)
{
	return (uint32_t)((uint64_t)mean * (samples - 1) / samples + value / samples);
}

static void take_sample(struct hb_engine_advice *advice, uint64_t requests_ns, uint32_t busy_ppm, int64_t now_ns)
{
	int64_t passed_ns = now_ns - advice->sampled_ns;
	bool is_first = !advice->sampled_ns || requests_ns < advice->requests_ns;
	if (!is_first && passed_ns < SAMPLE_MIN_NS)
		return; /* the driver was asked again at once, for an allocation */
	double presence = is_first ? 0 : (double)(requests_ns - advice->requests_ns) / (double)passed_ns;
	advice->sampled_ns = now_ns;
	advice->requests_ns = requests_ns;
	if (is_first)
		return;
	if (advice->samples < SAMPLES_MEMORY)
		advice->samples++;
	advice->presence_ppm = follow_mean(advice->presence_ppm, presence < 1 ? (uint32_t)(presence * 1e6) : 1000000,
					   advice->samples);
	advice->busy_ppm = follow_mean(advice->busy_ppm, busy_ppm, advice->samples);
}

void hb_engine_advice_update(struct hb_gpu *gpu, int64_t now_ns)
{
	for (uint32_t i = 0; gpu->use && i < gpu->tenants_end; i++) {
		const struct hb_tenancy *tenancy = hb_gpu_tenancy(gpu, i);
		const struct hb_tenant *tenant = tenancy ? hb_core_tenant(gpu->core, i) : NULL;
		uint32_t busy_ppm;
		if (tenant && tenant->latency && hb_tenancy_is_high(tenancy) && measure_busy(gpu, tenancy, &busy_ppm))
			take_sample(&gpu->measures->tenants[i].advice, tenant->latency->sum_ns, busy_ppm, now_ns);
	}
}

static long percent(uint32_t ppm)
{
	return ((long)ppm + 5000) / 10000;
}

void hb_engine_advice_text(const struct hb_gpu *gpu, const struct hb_tenancy *tenancy, char *text, size_t size)
{
	const struct hb_engine_advice *advice = &gpu->measures->tenants[tenancy->index].advice;
	text[0] = '\0';
	if (advice->samples < SAMPLES_MIN)
		return;
	if (gpu->engine == HB_ENGINE_TEMPORAL && advice->presence_ppm >= advice->busy_ppm + GAIN_MIN_PPM)
		snprintf(
			text, size,
			"A request is present %ld %% of the time but the GPU is busy %ld %%: --engine spatial would give "
			"low priority about %ld %% (shares MPS's fault domain)",
			percent(advice->presence_ppm), percent(advice->busy_ppm), 100 - percent(advice->busy_ppm));
	else if (gpu->engine == HB_ENGINE_SPATIAL && advice->presence_ppm <= RARE_PPM)
		snprintf(
			text, size,
			"A request is present %ld %% of the time: --engine temporal would give low priority about %ld %%, "
			"and a fault of low priority would not end this program",
			percent(advice->presence_ppm), 100 - percent(advice->presence_ppm));
}
