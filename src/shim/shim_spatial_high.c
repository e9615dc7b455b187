/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The spatial engine in a process of high priority; see shim_spatial.h. A request is
 * what shim_foresight.c takes for one, or what the application tells. Its begin and
 * end are one store each on the GPU's page; the rest is what spatial_high.c
 * learns. Threads that find the record taken leave it alone: a launch that is
 * not counted does no harm.
 */
#include "base/clock.h"
#include "decide/spatial_high.h"
#include "shim/extension.h"
#include "shim/page_requests.h"
#include "shim/shim.h"
#include "shim/shim_spatial.h"

_Static_assert(sizeof(struct hb_spatial_board) == HB_PAGE_BOARD_BYTES, "the board fits its place on the page");

static atomic_bool taken;
/* Guarded by `taken`. */
static struct hb_spatial_high highs[HB_PAGE_GPUS];
static bool known[HB_PAGE_GPUS];
static unsigned serving_gpu = HB_PAGE_GPUS; /* whose request is being told */

static bool try_enter(void)
{
	return !atomic_exchange_explicit(&taken, true, memory_order_acquire);
}

static void leave(void)
{
	atomic_store_explicit(&taken, false, memory_order_release);
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

/* A new daemon brings a new page, on which the beacon has to be taken again; what was learned stays. */
static void claim(struct hb_spatial_high *high, struct hb_gpu_page *page, uint32_t owner)
{
	if (high->beacon && atomic_load_explicit(&high->beacon->owner, memory_order_relaxed) == owner)
		return;
	high->beacon = hb_spatial_claim((struct hb_spatial_board *)page->board, owner);
	if (!high->beacon)
		return;
	hb_spatial_high_tell(high);
}

/* The record of the current GPU, if this process is of high priority there in the spatial engine. */
static struct hb_spatial_high *own_record(unsigned *gpu)
{
	const struct hb_place *place = hb_place();
	*gpu = hb_tenant_gpu();
	if (!place->page || *gpu >= HB_PAGE_GPUS || !place->gpus[*gpu] || !hb_tenant_is_high() ||
	    atomic_load_explicit(&place->page->gpus[*gpu].engine, memory_order_relaxed) != HB_ENGINE_SPATIAL)
		return NULL;
	struct hb_spatial_high *high = &highs[*gpu];
	if (!known[*gpu]) {
		uint32_t sms = count_sms();
		if (!sms)
			return NULL;
		hb_spatial_high_init(high, NULL, sms);
		known[*gpu] = true;
	}
	claim(high, place->gpus[*gpu], atomic_load_explicit(&place->process->pid, memory_order_relaxed));
	return high;
}

void hb_shim_spatial_begin(int64_t deadline_ns)
{
	unsigned gpu;
	if (!(hb_place()->page) || !try_enter())
		return;
	struct hb_spatial_high *high = own_record(&gpu);
	if (high && !high->serving) {
		hb_spatial_high_set_slo(high, atomic_load_explicit(&hb_place()->page->slo_ns, memory_order_relaxed));
		hb_spatial_high_begin(high, hb_clock_now_ns(), deadline_ns);
		if (hb_shim_extension.high_begin)
			hb_shim_extension.high_begin(high);
		hb_page_requests_begin(high->begin_ns, deadline_ns);
		serving_gpu = gpu;
	}
	leave();
}

void hb_shim_spatial_launch(unsigned fn, const uint64_t *args)
{
	if (!try_enter())
		return;
	if (serving_gpu < HB_PAGE_GPUS && hb_shim_extension.high_launch)
		hb_shim_extension.high_launch(hb_shim_spatial_function(fn, args));
	if (serving_gpu < HB_PAGE_GPUS && hb_spatial_high_count(&highs[serving_gpu]))
		hb_spatial_high_pass(&highs[serving_gpu], hb_clock_now_ns());
	leave();
}

void hb_shim_spatial_wait(void)
{
	if (!try_enter())
		return;
	if (serving_gpu < HB_PAGE_GPUS)
		hb_spatial_high_wait(&highs[serving_gpu], hb_clock_now_ns());
	leave();
}

int64_t hb_shim_spatial_end(int64_t *harm_ns)
{
	int64_t begin_ns = 0;
	*harm_ns = -1;
	if (!hb_place()->page || !try_enter())
		return 0;
	if (serving_gpu < HB_PAGE_GPUS) {
		struct hb_spatial_high *high = &highs[serving_gpu];
		begin_ns = high->begin_ns;
		hb_spatial_high_end(high, hb_clock_now_ns());
		*harm_ns = hb_spatial_high_harm_ns(high);
		hb_page_requests_end(begin_ns);
		serving_gpu = HB_PAGE_GPUS;
	}
	leave();
	return begin_ns;
}

/* In a forked child: the beacon is the parent's. */
void hb_shim_spatial_high_leave_in_child(void)
{
	for (unsigned gpu = 0; gpu < HB_PAGE_GPUS; gpu++)
		known[gpu] = false;
	serving_gpu = HB_PAGE_GPUS;
	leave();
}
