/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The spatial engine in an HP process; see shim_spatial.h. A request is what
 * shim_foresight.c infers, or what the application reports. Its begin and its end
 * are one store each to this process's board; decide/spatial_high.h
 * learns from the requests.
 *
 * Threads only try to enter: a thread that finds another one inside skips its
 * update, because a launch that is not counted does no harm.
 */
#include "base/clock.h"
#include "decide/spatial_high.h"
#include "shim/extension.h"
#include "shim/page_requests.h"
#include "shim/shim.h"
#include "shim/shim_spatial.h"

static atomic_bool entered; /* a thread is inside; guards the next five */
static struct hb_spatial_high highs[HB_PAGE_GPUS];
static bool has_begun[HB_PAGE_GPUS];        /* highs[] of this GPU is initialised */
static uint32_t read_ppm[HB_PAGE_GPUS];     /* allowance last read from the page */
static unsigned serving_gpu = HB_PAGE_GPUS; /* GPU of the request in progress; HB_PAGE_GPUS = none */
static unsigned served_gpu = HB_PAGE_GPUS;  /* GPU of the last request */

static bool try_enter_state(void)
{
	return !atomic_exchange_explicit(&entered, true, memory_order_acquire);
}

static void leave_state(void)
{
	atomic_store_explicit(&entered, false, memory_order_release);
}

static uint32_t count_sms(void)
{
	CUdevice device;
	int sms = 0;
	if (HB_REAL(cuCtxGetDevice)(&device) != CUDA_SUCCESS ||
	    HB_REAL(cuDeviceGetAttribute)(&sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device) != CUDA_SUCCESS)
		return 0;
	return sms > 0 ? (uint32_t)sms : 0;
}

/* Uses this process's board as soon as there is one; what was learned before stays. */
static void claim_record(struct hb_spatial_high *high, unsigned gpu, uint32_t owner)
{
	struct hb_spatial_beacon *beacon = hb_shim_spatial_own_beacon(gpu);
	if (!beacon || (high->beacon == beacon && atomic_load_explicit(&beacon->owner, memory_order_relaxed)))
		return;
	high->beacon = beacon;
	hb_spatial_high_tell(high);
	atomic_store_explicit(&beacon->owner, owner, memory_order_release);
}

/* The daemon changes the allowance now and then. */
static void update_allowance(struct hb_spatial_high *high, const struct hb_place *place, unsigned gpu)
{
	uint32_t ppm = atomic_load_explicit(&place->page->gpus[gpu].allowance_ppm, memory_order_relaxed);
	if (ppm != read_ppm[gpu])
		high->allowance_ppm = read_ppm[gpu] = ppm;
}

/* Returns the state of the current GPU if this process is HP in the spatial engine there; else NULL. */
static struct hb_spatial_high *find_own_state(unsigned *gpu)
{
	const struct hb_place *place = hb_place();
	*gpu = hb_tenant_gpu();
	if (!place->page || *gpu >= HB_PAGE_GPUS || !place->gpus[*gpu] || !hb_tenant_is_high() ||
	    atomic_load_explicit(&place->page->gpus[*gpu].engine, memory_order_relaxed) != HB_ENGINE_SPATIAL)
		return NULL;
	struct hb_spatial_high *high = &highs[*gpu];
	if (!has_begun[*gpu]) {
		uint32_t sms = count_sms();
		if (!sms)
			return NULL;
		hb_spatial_high_init(high, NULL, sms);
		read_ppm[*gpu] = 0;
		has_begun[*gpu] = true;
	}
	claim_record(high, *gpu, atomic_load_explicit(&place->process->pid, memory_order_relaxed));
	update_allowance(high, place, *gpu);
	return high;
}

void hb_shim_spatial_high_begin(int64_t deadline_ns)
{
	unsigned gpu;
	if (!(hb_place()->page) || !try_enter_state())
		return;
	struct hb_spatial_high *high = find_own_state(&gpu);
	if (high && !high->serving) {
		hb_spatial_high_set_slo(high, atomic_load_explicit(&hb_place()->page->slo_ns, memory_order_relaxed));
		hb_spatial_high_begin(high, hb_clock_now_ns(), deadline_ns);
		if (hb_shim_extension.high_begin)
			hb_shim_extension.high_begin(high);
		hb_page_requests_begin(high->begin_ns, deadline_ns);
		serving_gpu = served_gpu = gpu;
	}
	leave_state();
}

/* The next request is assumed to use the GPU of the last one. */
void hb_shim_spatial_high_expect(int64_t from_ns, int64_t until_ns)
{
	if (!try_enter_state())
		return;
	if (served_gpu < HB_PAGE_GPUS && has_begun[served_gpu])
		hb_spatial_high_expect(&highs[served_gpu], from_ns, until_ns);
	leave_state();
}

void hb_shim_spatial_high_launch(unsigned fn, const uint64_t *args)
{
	if (!try_enter_state())
		return;
	if (serving_gpu < HB_PAGE_GPUS && hb_shim_extension.high_launch)
		hb_shim_extension.high_launch(hb_shim_spatial_find_function(fn, args));
	if (serving_gpu < HB_PAGE_GPUS)
		hb_spatial_high_need(&highs[serving_gpu], hb_shim_spatial_needed_sms(fn, args));
	if (serving_gpu < HB_PAGE_GPUS && hb_spatial_high_count(&highs[serving_gpu]))
		hb_spatial_high_pass(&highs[serving_gpu], hb_clock_now_ns());
	leave_state();
}

void hb_shim_spatial_high_wait(void)
{
	if (!try_enter_state())
		return;
	if (serving_gpu < HB_PAGE_GPUS)
		hb_spatial_high_wait(&highs[serving_gpu], hb_clock_now_ns());
	leave_state();
}

int64_t hb_shim_spatial_high_end(int64_t *harm_ns, uint32_t *kind)
{
	int64_t begin_ns = 0;
	*harm_ns = -1;
	*kind = 0;
	if (!hb_place()->page || !try_enter_state())
		return 0;
	if (serving_gpu < HB_PAGE_GPUS) {
		struct hb_spatial_high *high = &highs[serving_gpu];
		begin_ns = high->begin_ns;
		hb_spatial_high_end(high, hb_clock_now_ns());
		*harm_ns = hb_spatial_high_harm_ns(high);
		*kind = hb_spatial_high_kind(high);
		hb_page_requests_end(begin_ns);
		serving_gpu = HB_PAGE_GPUS;
	}
	leave_state();
	return begin_ns;
}

/* The record on the board stays the parent's. */
void hb_shim_spatial_high_leave_in_child(void)
{
	for (unsigned gpu = 0; gpu < HB_PAGE_GPUS; gpu++)
		has_begun[gpu] = false;
	serving_gpu = served_gpu = HB_PAGE_GPUS;
	leave_state();
}
