/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The spatial engine in a process of low priority; see shim_spatial.h. Each launch
 * looks at HP's requests on the page of the GPU and asks decide/spatial_low.h; it
 * waits on the calling thread, so the order of the program stays as it is. How
 * far the GPU has come is told by a number that the GPU writes to host memory
 * behind a launch now and then.
 *
 * Bounded waits: for HP as long as its beacon shows life, for its own work as
 * long as that goes on, and never longer than WAIT_MOST_NS for one launch.
 * Launches in a second context of the process, on more streams at work at a time
 * than there are rows (shim_spatial_rows.h), or while counters cannot be made, are
 * masked but not bounded, and counted.
 */
#include "base/clock.h"
#include "nvidia/launch_mask.h"
#include "shim/extension.h"
#include "shim/shim.h"
#include "shim/shim_spatial.h"
#include "shim/shim_spatial_rows.h"
#include "shim/takeover.h"

#include <string.h>
#include <time.h>

#define WAIT_MOST_NS (2 * HB_NS_PER_S)
/* Shorter waits turn on the spot: sleeping takes some 60 us at least. Longer ones would slow the sibling of this CPU. */
#define SPIN_NS 20000
#define NAP_NS 50000

/* Without masks the number only scales guesses. */
#define SMS_UNKNOWN 132

static struct hb_spatial_low lows[HB_PAGE_GPUS]; /* guarded by hb_shim_spatial_enter(), as the next */
static bool begun[HB_PAGE_GPUS];
static atomic_bool went_by; /* launches, while there was no HP at work */

/* What this thread's launch was told, for after it. Initial-exec, so that a thread's first use allocates nothing. */
struct pending {
	struct hb_spatial_low *low;
	struct hb_shim_spatial_row *row;
	CUstream stream;
	struct hb_spatial_answer answer;
	/* Only of one that goes in pieces: what was asked for. */
	bool wants_split;
	unsigned gpu;
	struct hb_shim_spatial_launch launch;
	struct hb_spatial_shape shape;
};
static __thread struct pending mine __attribute__((tls_model("initial-exec")));

static void pause_cpu(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#else
	__asm__ volatile("yield");
#endif
}

static void read_counter(struct hb_spatial_low *low, struct hb_shim_spatial_row *row, int64_t now_ns)
{
	const hb_page_u32 *counter = hb_shim_spatial_counter_of(row);
	if (counter)
		hb_spatial_done(low, &row->state, atomic_load_explicit(counter, memory_order_acquire), row->looked_ns,
				now_ns);
	row->looked_ns = now_ns;
}

/* ---- deciding ---- */

/* As the daemon last said: of one that is silent nothing is believed, or LP would leave SMs to nobody until the next one. */
static bool daemon_sees_high(const struct hb_place *place, const struct hb_gpu_page *page)
{
	return atomic_load_explicit(&page->high_at_work, memory_order_relaxed) > 0 && !hb_daemon_silent(place);
}

static bool high_is_at_work(const struct hb_place *place, const struct hb_gpu_page *page,
			    const struct hb_spatial_view *view)
{
	return view->present || view->expected || daemon_sees_high(place, page);
}

/* All that is done for HP would be in vain: then a launch costs what it costs without the engine. */
static bool is_alone(const struct hb_place *place, const struct hb_gpu_page *page)
{
	return !daemon_sees_high(place, page) &&
	       !hb_spatial_present((const struct hb_spatial_board *)page->board, hb_clock_now_ns());
}

/* The configuration may be read again, and masks may be found late. */
static void refresh_limits(struct hb_spatial_low *low, unsigned gpu, const struct hb_gpu_page *page)
{
	uint32_t window_ns = atomic_load_explicit(&page->window_us, memory_order_relaxed) * 1000;
	hb_shim_spatial_choose_masks(gpu, page);
	low->limits.masks = hb_shim_spatial_masked_sms(gpu) > 0 && !hb_extension_replaces_low_rule();
	if (!window_ns || window_ns == low->limits.window_ns)
		return;
	hb_spatial_limits_set_window(&low->limits, window_ns);
}

static void begin_low(unsigned gpu)
{
	struct hb_spatial_limits limits;
	uint32_t sms = hb_shim_spatial_masked_sms(gpu);
	hb_spatial_limits_init(&limits, sms ? sms : SMS_UNKNOWN);
	hb_spatial_low_init(&lows[gpu], &limits);
	begun[gpu] = true;
}

/* The setting that leaves nothing to slack: a fixed share of the SMs, and no waiting. */
static void fix_mask(const struct hb_spatial_low *low, const struct hb_spatial_shape *shape, uint32_t sms,
		     struct hb_spatial_answer *answer)
{
	const struct hb_spatial_kernel *kernel = &low->kernels[answer->kernel];
	if ((kernel->flags & HB_SPATIAL_MASKABLE) && !(shape->flags & HB_SPATIAL_FREE) && sms < low->limits.sms)
		answer->sms = sms;
}

/* With the lock held. */
static void ask(const struct hb_place *place, unsigned gpu, struct hb_shim_spatial_row *row, int64_t now_ns,
		CUfunction function, const struct hb_spatial_shape *shape, struct hb_spatial_answer *answer)
{
	struct hb_gpu_page *page = place->gpus[gpu];
	struct hb_spatial_low *low = &lows[gpu];
	static const struct hb_spatial_stream nothing;
	struct hb_spatial_shape loose = *shape;
	struct hb_spatial_view view;
	uint32_t fixed_sms = atomic_load_explicit(&page->low_sms, memory_order_relaxed);
	hb_spatial_look((const struct hb_spatial_board *)page->board, now_ns, &view);
	bool at_work = high_is_at_work(place, page, &view);
	refresh_limits(low, gpu, page);
	if (row)
		read_counter(low, row, now_ns);
	bool is_replaced = hb_extension_replaces_low_rule() && !(shape->flags & HB_SPATIAL_FREE);
	if (!at_work || fixed_sms || (is_replaced && view.present))
		loose.flags |= HB_SPATIAL_FREE;
	hb_spatial_ask(low, row ? &row->state : &nothing, &view, now_ns, &loose, answer);
	if (at_work && fixed_sms)
		fix_mask(low, shape, fixed_sms, answer);
	if (is_replaced)
		hb_shim_extension.apply_low_rule(low, function, &view, answer);
}

static void nap(int64_t now_ns, int64_t until_ns)
{
	if (until_ns - now_ns > SPIN_NS) {
		nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
		return;
	}
	for (int i = 0; i < 100; i++)
		pause_cpu();
}

static bool is_abandoned(const struct hb_place *place)
{
	return !place->page || atomic_load_explicit(&place->page->state, memory_order_relaxed) != HB_PAGE_ACTIVE;
}

/* Returns when the launch may go; `mine` tells what it was told. */
static void wait_for_leave(const struct hb_place *place, unsigned gpu, const struct hb_shim_spatial_launch *launch,
			   struct hb_spatial_shape *shape)
{
	int64_t now_ns = hb_clock_now_ns(), begin_ns = now_ns;
	bool waited = false;
	CUcontext context = NULL;
	HB_REAL(cuCtxGetCurrent)(&context);
	hb_shim_spatial_enter();
	if (!begun[gpu])
		begin_low(gpu);
	struct hb_spatial_low *low = &lows[gpu];
	struct hb_shim_spatial_row *row;
	if (atomic_load_explicit(&went_by, memory_order_relaxed)) {
		atomic_store_explicit(&went_by, false, memory_order_relaxed);
		hb_shim_spatial_forget_intervals();
	}
	if (!hb_spatial_find(low, shape->key)) {
		hb_shim_spatial_leave();
		hb_shim_spatial_classify(launch, shape);
		hb_shim_spatial_enter();
	}
	for (;;) {
		row = hb_shim_spatial_row_of(launch->stream, context, now_ns);
		ask(place, gpu, row, now_ns, launch->function, shape, &mine.answer);
		if (mine.answer.verdict != HB_SPATIAL_WAIT)
			break;
		if (now_ns - begin_ns > WAIT_MOST_NS || is_abandoned(place))
			shape->flags |= HB_SPATIAL_FREE;
		hb_shim_spatial_leave();
		if (!waited)
			hb_shim_count(HB_COUNT_spatial_waits, 1);
		waited = true;
		nap(now_ns, mine.answer.until_ns);
		now_ns = hb_clock_now_ns();
		hb_shim_spatial_enter();
	}
	hb_shim_spatial_leave();
	if (row && launch->stream == CU_STREAM_PER_THREAD)
		hb_shim_spatial_rows_note_thread();
	mine.low = low;
	mine.row = row;
	mine.stream = launch->stream;
	if (!row && launch->stream)
		hb_shim_count(HB_COUNT_spatial_unbounded, 1);
	if (waited)
		hb_shim_count(HB_COUNT_spatial_wait, (uint64_t)(now_ns - begin_ns));
}

/* ---- around the launch ---- */

static void note_launch(CUresult result)
{
	hb_mask_set(0);
	if (result != CUDA_SUCCESS)
		return;
	int64_t now_ns = hb_clock_now_ns();
	struct hb_spatial_stream nothing = {0};
	hb_shim_spatial_enter();
	struct hb_shim_spatial_row *row = mine.row && hb_shim_spatial_row_is_of(mine.row, mine.stream) ? mine.row
												       : NULL;
	uint32_t value = hb_spatial_went(mine.low, row ? &row->state : &nothing, now_ns, &mine.answer);
	const hb_page_u32 *counter = row ? hb_shim_spatial_counter_of(row) : NULL;
	hb_shim_spatial_leave();
	if (mine.row && !row) /* it has become another stream's */
		hb_shim_count(HB_COUNT_spatial_unbounded, 1);
	if (value && counter)
		HB_REAL(cuStreamWriteValue32_v2)(mine.stream, (CUdeviceptr)(uintptr_t)counter, value, 0);
}

static void after_launch(CUresult result)
{
	mine.wants_split = false;
	note_launch(result);
}

static unsigned own_gpu(const struct hb_place *place)
{
	unsigned gpu = hb_tenant_gpu();
	if (!place->page || gpu >= HB_PAGE_GPUS || !place->gpus[gpu] ||
	    atomic_load_explicit(&place->page->gpus[gpu].engine, memory_order_relaxed) != HB_ENGINE_SPATIAL)
		return HB_PAGE_GPUS;
	return gpu;
}

static void set_mask(void)
{
	if (!mine.answer.sms)
		return;
	hb_mask_set(mine.answer.sms);
	hb_shim_count(HB_COUNT_masked, 1);
	if (hb_mask_uses_gpcs())
		hb_shim_count(HB_COUNT_masked_gpcs, 1);
}

void (*hb_shim_spatial_low(unsigned fn, const uint64_t *args))(CUresult)
{
	const struct hb_place *place = hb_place();
	unsigned gpu = own_gpu(place);
	struct hb_shim_spatial_launch launch;
	struct hb_spatial_shape shape;
	mine.wants_split = false;
	if (gpu == HB_PAGE_GPUS)
		return NULL;
	if (is_alone(place, place->gpus[gpu])) {
		atomic_store_explicit(&went_by, true, memory_order_relaxed);
		return NULL;
	}
	hb_shim_spatial_describe(fn, args, &launch, &shape);
	wait_for_leave(place, gpu, &launch, &shape);
	if (mine.answer.verdict == HB_SPATIAL_SLICE) {
		mine.wants_split = true;
		mine.gpu = gpu;
		mine.launch = launch;
		mine.shape = shape;
	}
	set_mask();
	return after_launch;
}

/* ---- pieces ---- */

bool hb_shim_spatial_wants_split(void)
{
	return mine.wants_split;
}

/* Whole waves: a part of one takes as long as all of it. */
uint32_t hb_shim_spatial_count_part_blocks(uint32_t n_left, uint32_t n_blocks)
{
	hb_shim_spatial_enter();
	uint64_t wave = mine.answer.sms ? mine.answer.sms : mine.low->limits.sms;
	wave *= mine.low->kernels[mine.answer.kernel].per_sm;
	hb_shim_spatial_leave();
	uint64_t n = (uint64_t)n_blocks * mine.answer.part_ppm / HB_SPATIAL_PPM;
	if (mine.answer.verdict != HB_SPATIAL_SLICE || !wave)
		return n_left;
	n = n < wave ? wave : n - n % wave;
	return n < n_left ? (uint32_t)n : n_left;
}

static void ask_again(void)
{
	wait_for_leave(hb_place(), mine.gpu, &mine.launch, &mine.shape);
	set_mask();
}

void hb_shim_spatial_wait_for_next_part(uint32_t n_left, uint32_t n_blocks)
{
	note_launch(CUDA_SUCCESS);
	mine.shape.left_ppm = (uint32_t)((uint64_t)n_left * HB_SPATIAL_PPM / n_blocks) + 1;
	ask_again();
}

void hb_shim_spatial_give_up_split(void)
{
	hb_mask_set(0);
	mine.wants_split = false;
	hb_shim_spatial_enter();
	hb_spatial_whole(mine.low, mine.answer.kernel);
	hb_shim_spatial_leave();
	ask_again();
}

static void after_graph(CUresult result)
{
	hb_mask_set(0);
}

/* Descriptors of a graph are written once: with a mask if there is HP now. */
void (*hb_shim_spatial_graph(void))(CUresult)
{
	const struct hb_place *place = hb_place();
	unsigned gpu = own_gpu(place);
	struct hb_spatial_view view;
	uint32_t all = hb_shim_spatial_masked_sms(gpu);
	if (!all)
		return NULL;
	struct hb_gpu_page *page = place->gpus[gpu];
	hb_spatial_look((const struct hb_spatial_board *)page->board, hb_clock_now_ns(), &view);
	uint32_t fixed_sms = atomic_load_explicit(&page->low_sms, memory_order_relaxed);
	if (!high_is_at_work(place, page, &view) || view.reserve >= all)
		return NULL;
	hb_mask_set(fixed_sms ? fixed_sms : (all - view.reserve) & ~UINT32_C(1));
	return after_graph;
}

void hb_shim_spatial_leave_in_child(void)
{
	atomic_fetch_and(&hb_shim_alert, ~(uint32_t)HB_ALERT_SPATIAL);
	hb_shim_spatial_masks_leave_in_child();
	memset(begun, 0, sizeof begun);
	hb_shim_spatial_rows_leave_in_child();
	hb_shim_spatial_high_leave_in_child();
}
