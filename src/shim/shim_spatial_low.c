/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The spatial engine in an LP process; see shim_spatial.h. Each launch reads HP's
 * requests from the board and asks decide/spatial_low.h. Waits are on the calling
 * thread, so the order of the program's work stays as it is. Behind some launches
 * the GPU writes a number to host memory, which shows how far it has come.
 *
 * Waits are bounded: for HP as long as HP refreshes its record, for the process's
 * own work as long as that work advances, and never longer than WAIT_MOST_NS for
 * one launch.
 *
 * Some launches are masked but not bounded, and counted: those in a second context
 * of the process on one GPU, those on more active streams than there are rows
 * (shim_spatial_rows.h), and those made while no counters can be allocated.
 */
#include "base/clock.h"
#include "decide/spatial_least.h"
#include "nvidia/launch_mask.h"
#include "shim/extension.h"
#include "shim/shim.h"
#include "shim/shim_spatial.h"
#include "shim/shim_spatial_rows.h"
#include "shim/takeover.h"

#include <string.h>
#include <time.h>

#define WAIT_MOST_NS (2 * HB_NS_PER_S)
/* Shorter waits spin, because a sleep takes at least 60 us. Longer spins would slow the CPU's sibling thread. */
#define SPIN_NS 20000
#define NAP_NS 50000

/* Assumed if the number is unknown. Without masks it only scales predictions. */
#define SMS_ASSUMED 132

static struct hb_spatial_low lows[HB_PAGE_GPUS]; /* guarded by hb_shim_spatial_lock(), as the next */
static struct hb_spatial_least leasts[HB_PAGE_GPUS];
static bool has_begun[HB_PAGE_GPUS]; /* lows[] of this GPU is initialised */
static atomic_bool skipped_launches; /* some launches went uncounted because no HP was working */

/* The decision about this thread's launch, for after the launch. Initial-exec: a thread's first use allocates nothing. */
struct decided_launch {
	struct hb_spatial_low *low;
	struct hb_shim_spatial_row *row;
	CUstream stream;
	struct hb_spatial_answer answer;
	/* Only if the launch is split: what is asked again before each part. */
	bool wants_split;
	unsigned gpu;
	struct hb_low_launch launch;
	struct hb_spatial_shape shape;
};
static __thread struct decided_launch decided __attribute__((tls_model("initial-exec")));

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

/* Whether the daemon sees HP at work. A silent daemon does not count, or LP would leave SMs unused until the next one starts. */
static bool daemon_sees_high(const struct hb_place *place, const struct hb_gpu_page *page)
{
	return atomic_load_explicit(&page->high_at_work, memory_order_relaxed) > 0 && !hb_daemon_silent(place);
}

static bool high_is_at_work(const struct hb_place *place, const struct hb_gpu_page *page,
			    const struct hb_spatial_view *view)
{
	return view->present || view->expected || daemon_sees_high(place, page);
}

/* An HP process that is idle limits only what its next request would meet (spatial_low.h). */
static bool high_may_come(const struct hb_place *place, const struct hb_gpu_page *page,
			  const struct hb_spatial_view *view)
{
	return high_is_at_work(place, page, view) || (view->tenants && !hb_daemon_silent(place));
}

/* Whether there is no HP process. Then a launch costs as much as without the engine. */
static bool is_without_high(const struct hb_place *place, unsigned gpu)
{
	return !daemon_sees_high(place, place->gpus[gpu]) && !hb_shim_spatial_sees_high(place, gpu, hb_clock_now_ns());
}

/* The daemon may read its configuration again, and masks may be found late. */
static void refresh_limits(struct hb_spatial_low *low, unsigned gpu, const struct hb_gpu_page *page)
{
	uint32_t window_ns = atomic_load_explicit(&page->window_us, memory_order_relaxed) * 1000;
	hb_shim_spatial_choose_masks(gpu, page);
	uint32_t sms = hb_shim_spatial_masked_sms(gpu);
	if (sms && sms != low->limits.sms)
		hb_spatial_limits_set_sms(&low->limits, sms);
	low->limits.masks = sms > 0 && !hb_extension_replaces_low_rule();
	if (!window_ns || window_ns == low->limits.window_ns)
		return;
	hb_spatial_limits_set_window(&low->limits, window_ns);
}

static void init_low(unsigned gpu)
{
	struct hb_spatial_limits limits;
	uint32_t sms = hb_shim_spatial_masked_sms(gpu);
	hb_spatial_limits_init(&limits, sms ? sms : SMS_ASSUMED);
	hb_spatial_low_init(&lows[gpu], &limits);
	has_begun[gpu] = true;
}

/* The setting `low_sms`: a fixed share of the SMs, and no waiting. */
static void set_fixed_mask(const struct hb_spatial_low *low, const struct hb_spatial_shape *shape, uint32_t sms,
			   struct hb_spatial_answer *answer)
{
	const struct hb_spatial_kernel *kernel = &low->kernels[answer->kernel];
	if ((kernel->flags & HB_SPATIAL_MASKABLE) && !(shape->flags & HB_SPATIAL_FREE) && sms < low->limits.sms)
		answer->sms = sms;
}

/* Decides about a launch. With the lock held. */
static void decide_launch(const struct hb_place *place, unsigned gpu, struct hb_shim_spatial_row *row, int64_t now_ns,
			  CUfunction function, const struct hb_spatial_shape *shape, struct hb_spatial_answer *answer)
{
	const struct hb_gpu_page *page = place->gpus[gpu];
	struct hb_spatial_low *low = &lows[gpu];
	static const struct hb_spatial_stream nothing;
	struct hb_spatial_shape asked = *shape;
	struct hb_spatial_view view;
	uint32_t fixed_sms = atomic_load_explicit(&page->low_sms, memory_order_relaxed);
	hb_shim_spatial_look(place, gpu, now_ns, low->limits.sms, &view);
	bool at_work = high_is_at_work(place, page, &view);
	refresh_limits(low, gpu, page);
	if (row)
		read_counter(low, row, now_ns);
	bool is_replaced = hb_extension_replaces_low_rule() && !(shape->flags & HB_SPATIAL_FREE);
	if (!high_may_come(place, page, &view) || fixed_sms || (is_replaced && view.present))
		asked.flags |= HB_SPATIAL_FREE;
	leasts[gpu].ppm = is_replaced ? 0 : atomic_load_explicit(&place->page->low_minimum_ppm, memory_order_relaxed);
	hb_spatial_least_relax(&leasts[gpu], row ? &row->state : &nothing, low->limits.sms, now_ns, &view);
	hb_spatial_ask(low, row ? &row->state : &nothing, &view, now_ns, &asked, answer);
	if (at_work && fixed_sms)
		set_fixed_mask(low, shape, fixed_sms, answer);
	if (is_replaced)
		hb_shim_extension.apply_low_rule(low, function, &view, answer);
}

static void wait_a_moment(int64_t now_ns, int64_t until_ns)
{
	if (until_ns - now_ns > SPIN_NS) {
		nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
		return;
	}
	for (int i = 0; i < 100; i++)
		pause_cpu();
}

/* Whether the daemon has given up the page. */
static bool is_page_closed(const struct hb_place *place)
{
	return !place->page || atomic_load_explicit(&place->page->state, memory_order_relaxed) != HB_PAGE_ACTIVE;
}

/* Returns when the launch may go; `decided` then holds the decision. */
static void wait_to_launch(const struct hb_place *place, unsigned gpu, const struct hb_low_launch *launch,
			   struct hb_spatial_shape *shape)
{
	int64_t now_ns = hb_clock_now_ns(), begin_ns = now_ns;
	bool waited = false;
	CUcontext context = NULL;
	HB_REAL(cuCtxGetCurrent)(&context);
	hb_shim_spatial_lock();
	if (!has_begun[gpu])
		init_low(gpu);
	struct hb_spatial_low *low = &lows[gpu];
	struct hb_shim_spatial_row *row;
	if (atomic_load_explicit(&skipped_launches, memory_order_relaxed)) {
		atomic_store_explicit(&skipped_launches, false, memory_order_relaxed);
		hb_shim_spatial_forget_intervals();
	}
	if (!hb_spatial_find(low, shape->key)) {
		hb_shim_spatial_unlock();
		hb_shim_spatial_classify(launch, shape);
		hb_shim_spatial_lock();
	}
	for (;;) {
		row = hb_shim_spatial_row_of(gpu, launch->stream, context, now_ns);
		decide_launch(place, gpu, row, now_ns, launch->function, shape, &decided.answer);
		if (decided.answer.verdict != HB_SPATIAL_WAIT)
			break;
		if (now_ns - begin_ns > WAIT_MOST_NS || is_page_closed(place))
			shape->flags |= HB_SPATIAL_FREE;
		hb_shim_spatial_unlock();
		if (!waited)
			hb_shim_count(HB_COUNT_spatial_waits, 1);
		waited = true;
		wait_a_moment(now_ns, decided.answer.until_ns);
		now_ns = hb_clock_now_ns();
		hb_shim_spatial_lock();
	}
	hb_shim_spatial_unlock();
	if (row && launch->stream == CU_STREAM_PER_THREAD)
		hb_shim_spatial_rows_note_thread();
	decided.low = low;
	decided.row = row;
	decided.stream = launch->stream;
	if (!row && launch->stream)
		hb_shim_count(HB_COUNT_spatial_unbounded, 1);
	if (waited)
		hb_shim_count(HB_COUNT_spatial_wait, (uint64_t)(now_ns - begin_ns));
}

/* ---- around the launch ---- */

static void note_launch(CUresult result)
{
	hb_mask_keep_all();
	if (result != CUDA_SUCCESS)
		return;
	int64_t now_ns = hb_clock_now_ns();
	struct hb_spatial_stream nothing = {0};
	hb_shim_spatial_lock();
	struct hb_shim_spatial_row *row = decided.row && hb_shim_spatial_row_matches(decided.row, decided.stream)
						  ? decided.row
						  : NULL;
	uint32_t value = hb_spatial_went(decided.low, row ? &row->state : &nothing, now_ns, &decided.answer);
	hb_spatial_least_note(&leasts[decided.low - lows], decided.low->limits.sms, &decided.answer);
	const hb_page_u32 *counter = row ? hb_shim_spatial_counter_of(row) : NULL;
	hb_shim_spatial_unlock();
	if (decided.row && !row) /* the row was given to another stream */
		hb_shim_count(HB_COUNT_spatial_unbounded, 1);
	if (value && counter)
		HB_REAL(cuStreamWriteValue32_v2)(decided.stream, (CUdeviceptr)(uintptr_t)counter, value, 0);
}

static void end_launch(CUresult result)
{
	decided.wants_split = false;
	note_launch(result);
}

/* Returns the current GPU if its engine is spatial; else HB_PAGE_GPUS. */
static unsigned find_spatial_gpu(const struct hb_place *place)
{
	unsigned gpu = hb_tenant_gpu();
	if (!place->page || gpu >= HB_PAGE_GPUS || !place->gpus[gpu] ||
	    atomic_load_explicit(&place->page->gpus[gpu].engine, memory_order_relaxed) != HB_ENGINE_SPATIAL)
		return HB_PAGE_GPUS;
	return gpu;
}

static void set_launch_mask(unsigned gpu)
{
	if (!decided.answer.sms)
		return;
	hb_mask_keep(gpu, decided.answer.sms);
	hb_shim_count(HB_COUNT_masked, 1);
	if (hb_mask_uses_gpcs(gpu))
		hb_shim_count(HB_COUNT_masked_gpcs, 1);
}

void (*hb_shim_spatial_low_launch(unsigned fn, const uint64_t *args))(CUresult)
{
	const struct hb_place *place = hb_place();
	unsigned gpu = find_spatial_gpu(place);
	struct hb_low_launch launch;
	struct hb_spatial_shape shape;
	decided.wants_split = false;
	if (gpu == HB_PAGE_GPUS)
		return NULL;
	if (is_without_high(place, gpu)) {
		atomic_store_explicit(&skipped_launches, true, memory_order_relaxed);
		return NULL;
	}
	hb_shim_spatial_describe(fn, args, &launch, &shape);
	wait_to_launch(place, gpu, &launch, &shape);
	if (decided.answer.verdict == HB_SPATIAL_SPLIT) {
		decided.wants_split = true;
		decided.gpu = gpu;
		decided.launch = launch;
		decided.shape = shape;
	}
	set_launch_mask(gpu);
	return end_launch;
}

/* ---- parts of a split launch ---- */

bool hb_shim_spatial_wants_split(void)
{
	return decided.wants_split;
}

/* A part is complete waves, because an incomplete wave takes as long as a complete one. */
uint32_t hb_shim_spatial_count_part_blocks(uint32_t n_left, uint32_t n_blocks)
{
	hb_shim_spatial_lock();
	uint64_t wave = decided.answer.sms ? decided.answer.sms : decided.low->limits.sms;
	wave *= decided.low->kernels[decided.answer.kernel].per_sm;
	hb_shim_spatial_unlock();
	uint64_t n = (uint64_t)n_blocks * decided.answer.part_ppm / HB_SPATIAL_PPM;
	if (decided.answer.verdict != HB_SPATIAL_SPLIT || !wave)
		return n_left;
	n = n < wave ? wave : n - n % wave;
	return n < n_left ? (uint32_t)n : n_left;
}

static void decide_again(void)
{
	wait_to_launch(hb_place(), decided.gpu, &decided.launch, &decided.shape);
	set_launch_mask(decided.gpu);
}

void hb_shim_spatial_wait_for_next_part(uint32_t n_left, uint32_t n_blocks)
{
	note_launch(CUDA_SUCCESS);
	decided.shape.left_ppm = (uint32_t)((uint64_t)n_left * HB_SPATIAL_PPM / n_blocks) + 1;
	decide_again();
}

void hb_shim_spatial_give_up_split(void)
{
	hb_mask_keep_all();
	decided.wants_split = false;
	hb_shim_spatial_lock();
	hb_spatial_whole(decided.low, decided.answer.kernel);
	hb_shim_spatial_unlock();
	decide_again();
}

static void end_graph(CUresult result)
{
	hb_mask_keep_all();
}

/* The launch descriptors of a graph are written once: with a mask if HP works now. */
void (*hb_shim_spatial_low_graph(void))(CUresult)
{
	const struct hb_place *place = hb_place();
	unsigned gpu = find_spatial_gpu(place);
	struct hb_spatial_view view;
	uint32_t all = hb_shim_spatial_masked_sms(gpu);
	if (!all || !hb_shim_spatial_may_mask_graphs())
		return NULL;
	const struct hb_gpu_page *page = place->gpus[gpu];
	hb_shim_spatial_look(place, gpu, hb_clock_now_ns(), all, &view);
	uint32_t fixed_sms = atomic_load_explicit(&page->low_sms, memory_order_relaxed);
	if (!high_may_come(place, page, &view) || view.reserve >= all)
		return NULL;
	uint32_t reserve = view.reserve;
	if (!high_is_at_work(place, page, &view)) { /* as a kernel with long blocks: HP's first kernel finds room */
		if (fixed_sms)
			return NULL;
		reserve = hb_spatial_standing_reserve(all);
	}
	hb_mask_keep(gpu, fixed_sms ? fixed_sms : (all - reserve) & ~UINT32_C(1));
	return end_graph;
}

void hb_shim_spatial_leave_in_child(void)
{
	atomic_fetch_and(&hb_shim_alert, ~(uint32_t)HB_ALERT_SPATIAL);
	hb_shim_spatial_masks_leave_in_child();
	memset(has_begun, 0, sizeof has_begun);
	hb_shim_spatial_rows_leave_in_child();
	hb_shim_spatial_high_leave_in_child();
	hb_shim_spatial_boards_leave_in_child();
}
