/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The spatial engine in a process of low priority; see window.h. Each launch
 * looks at HP's requests on the page of the GPU and asks core/slack_low.h; it
 * waits on the calling thread, so the order of the program stays as it is. How
 * far the GPU has come is told by a number that the GPU writes to host memory
 * behind a launch now and then.
 *
 * Bounded waits: for HP as long as its beacon shows life, for its own work as
 * long as that goes on, and never longer than WAIT_MOST_NS for one launch.
 * Launches in a second context of the process, on more streams at a time than
 * there are rows, or while counters cannot be made, are masked but not bounded,
 * and counted.
 */
#include "base/clock.h"
#include "core/slack_low.h"
#include "gpu/launch_mask.h"
#include "shim/hold.h"
#include "shim/shim.h"
#include "shim/window.h"
#include "shim/window_orion.h"

#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <time.h>

#define WAIT_MOST_NS (2 * HB_NS_PER_S)
/* Shorter waits turn on the spot: sleeping takes some 60 us at least. Longer ones would slow the sibling of this CPU. */
#define SPIN_NS 20000
#define NAP_NS 50000
/* Until the trial of masks, or of making counters, is repeated; twice as long each time. */
#define AGAIN_NS HB_NS_PER_S
#define AGAIN_MOST_NS (64 * HB_NS_PER_S)

/* Without masks the number only scales guesses. */
#define SMS_UNKNOWN 132
#define MARKS_A_WINDOW 16
/* Where everything is masked, the host may run ahead so many windows; while HP allows nothing, this part of one. */
#define STEADY 4
#define TIGHT 8

enum { ROWS = 32, COUNTER_WORDS = 16 /* one cache line */ };

struct row {
	CUstream stream;
	const void *thread; /* of a per-thread default stream; else NULL */
	bool gone;          /* the stream was destroyed; its last work may still be running */
	int64_t looked_ns;  /* when the counter was last read */
	struct hb_slack_stream state;
};

/* Guards all below but `counters`, which only grows from NULL; a few hundred ns at a time, never over a driver call. */
static atomic_bool taken;
static struct hb_slack_low lows[HB_PAGE_GPUS];
static bool begun[HB_PAGE_GPUS];
static struct row rows[ROWS];
static unsigned n_rows;
static atomic_bool went_by; /* launches, while there was no HP at work */

/* Host memory that the GPU writes; belongs to `owner`. NULL: none yet. */
static _Atomic(hb_page_u32 *) counters;
static _Atomic(CUcontext) owner;
static _Atomic(int64_t) prepare_again_ns;
static pthread_mutex_t preparing = PTHREAD_MUTEX_INITIALIZER;
static int64_t pause_ns = AGAIN_NS; /* guarded by it, as the next */
static hb_page_u32 *parked;         /* the counters of `parked_for`, which may be about to end */
static CUcontext parked_for;

/* What this thread's launch was told, for after it. Initial-exec, so that a thread's first use allocates nothing. */
struct pending {
	struct hb_slack_low *low;
	struct row *row;
	CUstream stream;
	struct hb_slack_answer answer;
	/* Only of one that goes in pieces: what was asked for. */
	bool wants_pieces;
	unsigned gpu;
	struct hb_window_launch launch;
	struct hb_slack_shape shape;
};
static __thread struct pending mine __attribute__((tls_model("initial-exec")));

static void enter(void)
{
	while (atomic_exchange_explicit(&taken, true, memory_order_acquire))
		sched_yield();
}

static void leave(void)
{
	atomic_store_explicit(&taken, false, memory_order_release);
}

static void pause_cpu(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#else
	__asm__ volatile("yield");
#endif
}

/* ---- rows ---- */

/* The row of a stream that is gone is free when its last mark was written: no late one is taken for another stream's. */
static struct row *free_row(const hb_page_u32 *values)
{
	if (n_rows < ROWS)
		return &rows[n_rows++];
	for (unsigned i = 0; i < ROWS; i++) {
		uint32_t marked = rows[i].state.marked;
		if (!rows[i].gone || atomic_load_explicit(&values[i * COUNTER_WORDS], memory_order_acquire) != marked)
			continue;
		rows[i] = (struct row){.state = {.marked = marked, .done = marked}};
		return &rows[i];
	}
	return NULL;
}

/* With the lock held; NULL: this stream's work is not bounded. */
static struct row *row_of(CUstream stream, CUcontext context)
{
	const void *thread = stream == CU_STREAM_PER_THREAD ? &mine : NULL;
	const hb_page_u32 *values = atomic_load_explicit(&counters, memory_order_acquire);
	/* Elsewhere the memory could go, with its own context, before the GPU has written to it. */
	if (!stream || !values || context != atomic_load_explicit(&owner, memory_order_relaxed))
		return NULL;
	for (unsigned i = 0; i < n_rows; i++)
		if (rows[i].stream == stream && rows[i].thread == thread && !rows[i].gone)
			return &rows[i];
	struct row *row = free_row(values);
	if (row) {
		row->stream = stream;
		row->thread = thread;
	}
	return row;
}

void hb_window_forget_stream(CUstream stream)
{
	if (!stream || !atomic_load_explicit(&counters, memory_order_relaxed))
		return;
	enter();
	for (unsigned i = 0; i < n_rows; i++)
		rows[i].gone |= rows[i].stream == stream && !rows[i].thread;
	leave();
}

static void read_counter(struct hb_slack_low *low, struct row *row, int64_t now_ns)
{
	hb_page_u32 *values = atomic_load_explicit(&counters, memory_order_acquire);
	if (values)
		hb_slack_done(low, &row->state,
			      atomic_load_explicit(&values[(row - rows) * COUNTER_WORDS], memory_order_acquire),
			      row->looked_ns, now_ns);
	row->looked_ns = now_ns;
}

/* ---- deciding ---- */

/* As the daemon last said: of one that is silent nothing is believed, or LP would leave SMs to nobody until the next one. */
static bool daemon_sees_high(const struct hb_place *place, const struct hb_gpu_page *page)
{
	return atomic_load_explicit(&page->high_at_work, memory_order_relaxed) > 0 && !hb_daemon_silent(place);
}

static bool high_is_at_work(const struct hb_place *place, const struct hb_gpu_page *page,
			    const struct hb_slack_view *view)
{
	return view->present || view->expected || daemon_sees_high(place, page);
}

/* All that is done for HP would be in vain: then a launch costs what it costs without the engine. */
static bool is_alone(const struct hb_place *place, const struct hb_gpu_page *page)
{
	return !daemon_sees_high(place, page) &&
	       !hb_slack_present((const struct hb_slack_board *)page->slack, hb_clock_now_ns());
}

/* Launches went by uncounted: how long the next ones take to their marks says nothing of their kernels. */
static void forget_intervals(void)
{
	for (unsigned i = 0; i < n_rows; i++)
		rows[i].state.next.part = true;
}

/* The configuration may be read again, and masks may be found late. */
static void refresh_limits(struct hb_slack_low *low, unsigned gpu, const struct hb_gpu_page *page)
{
	uint32_t window_ns = atomic_load_explicit(&page->window_us, memory_order_relaxed) * 1000;
	hb_window_choose_masks(gpu, page);
	low->limits.masks = hb_window_masked_sms(gpu) > 0 && !hb_orion_is_asked_for(page);
	if (!window_ns || window_ns == low->limits.window_ns)
		return;
	low->limits.window_ns = low->limits.beside_ns = low->limits.ahead_ns = window_ns;
	low->limits.steady_ns = window_ns * STEADY;
	low->limits.tight_ns = window_ns / TIGHT;
	low->limits.mark_ns = window_ns / MARKS_A_WINDOW;
}

static void begin_low(unsigned gpu)
{
	struct hb_slack_limits limits;
	uint32_t sms = hb_window_masked_sms(gpu);
	hb_slack_limits_init(&limits, sms ? sms : SMS_UNKNOWN);
	hb_slack_low_init(&lows[gpu], &limits);
	begun[gpu] = true;
}

/* The setting that leaves nothing to slack: a fixed share of the SMs, and no waiting. */
static void fix_mask(const struct hb_slack_low *low, const struct hb_slack_shape *shape, uint32_t sms,
		     struct hb_slack_answer *answer)
{
	const struct hb_slack_kernel *kernel = &low->kernels[answer->kernel];
	if ((kernel->flags & HB_SLACK_MASKABLE) && !(shape->flags & HB_SLACK_FREE) && sms < low->limits.sms)
		answer->sms = sms;
}

/* With the lock held. */
static void ask(const struct hb_place *place, unsigned gpu, struct row *row, int64_t now_ns, CUfunction function,
		const struct hb_slack_shape *shape, struct hb_slack_answer *answer)
{
	struct hb_gpu_page *page = place->gpus[gpu];
	struct hb_slack_low *low = &lows[gpu];
	static const struct hb_slack_stream nothing;
	struct hb_slack_shape loose = *shape;
	struct hb_slack_view view;
	uint32_t fixed_sms = atomic_load_explicit(&page->low_sms, memory_order_relaxed);
	hb_slack_look((const struct hb_slack_board *)page->slack, now_ns, &view);
	bool at_work = high_is_at_work(place, page, &view);
	refresh_limits(low, gpu, page);
	if (row)
		read_counter(low, row, now_ns);
	bool orion = hb_orion_is_asked_for(page) && !(shape->flags & HB_SLACK_FREE);
	if (!at_work || fixed_sms || (orion && view.present))
		loose.flags |= HB_SLACK_FREE;
	hb_slack_ask(low, row ? &row->state : &nothing, &view, now_ns, &loose, answer);
	if (at_work && fixed_sms)
		fix_mask(low, shape, fixed_sms, answer);
	if (orion)
		hb_orion_ask(gpu, page, low, function, &view, answer);
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
static void wait_for_leave(const struct hb_place *place, unsigned gpu, const struct hb_window_launch *launch,
			   struct hb_slack_shape *shape)
{
	int64_t now_ns = hb_clock_now_ns(), begin_ns = now_ns;
	bool waited = false;
	CUcontext context = NULL;
	HB_REAL(cuCtxGetCurrent)(&context);
	enter();
	if (!begun[gpu])
		begin_low(gpu);
	struct hb_slack_low *low = &lows[gpu];
	struct row *row = row_of(launch->stream, context);
	if (atomic_load_explicit(&went_by, memory_order_relaxed)) {
		atomic_store_explicit(&went_by, false, memory_order_relaxed);
		forget_intervals();
	}
	if (!hb_slack_find(low, shape->key)) {
		leave();
		hb_window_classify(launch, shape);
		enter();
	}
	for (;;) {
		ask(place, gpu, row, now_ns, launch->function, shape, &mine.answer);
		if (mine.answer.verdict != HB_SLACK_WAIT)
			break;
		if (now_ns - begin_ns > WAIT_MOST_NS || is_abandoned(place))
			shape->flags |= HB_SLACK_FREE;
		leave();
		if (!waited)
			hb_shim_count(HB_COUNT_window_waits, 1);
		waited = true;
		nap(now_ns, mine.answer.until_ns);
		now_ns = hb_clock_now_ns();
		enter();
	}
	leave();
	mine.low = low;
	mine.row = row;
	mine.stream = launch->stream;
	if (!row && launch->stream)
		hb_shim_count(HB_COUNT_window_unbounded, 1);
	if (waited)
		hb_shim_count(HB_COUNT_window_wait, (uint64_t)(now_ns - begin_ns));
}

/* ---- around the launch ---- */

static void note_launch(CUresult result)
{
	uint32_t value = 0;
	hb_mask_set(0);
	if (result != CUDA_SUCCESS)
		return;
	int64_t now_ns = hb_clock_now_ns();
	struct hb_slack_stream nothing = {0};
	enter();
	hb_page_u32 *values = atomic_load_explicit(&counters, memory_order_acquire);
	value = hb_slack_went(mine.low, mine.row ? &mine.row->state : &nothing, now_ns, &mine.answer);
	leave();
	if (!value || !mine.row || !values)
		return;
	CUdeviceptr address = (CUdeviceptr)(uintptr_t)&values[(mine.row - rows) * COUNTER_WORDS];
	HB_REAL(cuStreamWriteValue32_v2)(mine.stream, address, value, 0);
}

static void after_launch(CUresult result)
{
	mine.wants_pieces = false;
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

void (*hb_window_low(unsigned fn, const uint64_t *args))(CUresult)
{
	const struct hb_place *place = hb_place();
	unsigned gpu = own_gpu(place);
	struct hb_window_launch launch;
	struct hb_slack_shape shape;
	mine.wants_pieces = false;
	if (gpu == HB_PAGE_GPUS)
		return NULL;
	if (is_alone(place, place->gpus[gpu])) {
		atomic_store_explicit(&went_by, true, memory_order_relaxed);
		return NULL;
	}
	hb_window_describe(fn, args, &launch, &shape);
	wait_for_leave(place, gpu, &launch, &shape);
	if (mine.answer.verdict == HB_SLACK_SLICE) {
		mine.wants_pieces = true;
		mine.gpu = gpu;
		mine.launch = launch;
		mine.shape = shape;
	}
	set_mask();
	return after_launch;
}

/* ---- pieces ---- */

bool hb_window_wants_pieces(void)
{
	return mine.wants_pieces;
}

/* Whole waves: a part of one takes as long as all of it. */
uint32_t hb_window_piece(uint32_t n_left, uint32_t n_blocks)
{
	enter();
	uint64_t wave = mine.answer.sms ? mine.answer.sms : mine.low->limits.sms;
	wave *= mine.low->kernels[mine.answer.kernel].per_sm;
	leave();
	uint64_t n = (uint64_t)n_blocks * mine.answer.part_ppm / HB_SLACK_PPM;
	if (mine.answer.verdict != HB_SLACK_SLICE || !wave)
		return n_left;
	n = n < wave ? wave : n - n % wave;
	return n < n_left ? (uint32_t)n : n_left;
}

static void ask_again(void)
{
	wait_for_leave(hb_place(), mine.gpu, &mine.launch, &mine.shape);
	set_mask();
}

void hb_window_next_piece(uint32_t n_left, uint32_t n_blocks)
{
	note_launch(CUDA_SUCCESS);
	mine.shape.left_ppm = (uint32_t)((uint64_t)n_left * HB_SLACK_PPM / n_blocks) + 1;
	ask_again();
}

void hb_window_leave_whole(void)
{
	hb_mask_set(0);
	mine.wants_pieces = false;
	enter();
	hb_slack_whole(mine.low, mine.answer.kernel);
	leave();
	ask_again();
}

static void after_graph(CUresult result)
{
	hb_mask_set(0);
}

/* Descriptors of a graph are written once: with a mask if there is HP now. */
void (*hb_window_graph(void))(CUresult)
{
	const struct hb_place *place = hb_place();
	unsigned gpu = own_gpu(place);
	struct hb_slack_view view;
	uint32_t all = hb_window_masked_sms(gpu);
	if (!all)
		return NULL;
	struct hb_gpu_page *page = place->gpus[gpu];
	hb_slack_look((const struct hb_slack_board *)page->slack, hb_clock_now_ns(), &view);
	uint32_t fixed_sms = atomic_load_explicit(&page->low_sms, memory_order_relaxed);
	if (!high_is_at_work(place, page, &view) || view.reserve >= all)
		return NULL;
	hb_mask_set(fixed_sms ? fixed_sms : (all - view.reserve) & ~UINT32_C(1));
	return after_graph;
}

/* ---- being there ---- */

/* With `preparing` held. */
static void make_counters(CUcontext context)
{
	void *memory;
	if (HB_REAL(cuMemHostAlloc)(&memory, ROWS * COUNTER_WORDS * sizeof(uint32_t),
				    CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP) != CUDA_SUCCESS)
		return;
	memset(memory, 0, ROWS * COUNTER_WORDS * sizeof(uint32_t));
	enter();
	memset(rows, 0, sizeof rows);
	n_rows = 0;
	leave();
	atomic_store(&owner, context);
	atomic_store_explicit(&counters, memory, memory_order_release);
}

static bool is_low_in_space(const struct hb_place *place)
{
	if (!place->page || hb_tenant_is_high())
		return false;
	for (uint32_t i = 0; i < place->page->n_gpus && i < HB_PAGE_GPUS; i++)
		if (atomic_load_explicit(&place->page->gpus[i].engine, memory_order_relaxed) == HB_ENGINE_SPATIAL &&
		    place->gpus[i] && atomic_load_explicit(&place->gpus[i]->tenants_high, memory_order_relaxed))
			return true;
	return false;
}

static bool is_prepared(void)
{
	return hb_window_masks_are_judged() && atomic_load(&counters);
}

/* With `preparing` held. What fails is tried again, more and more rarely. */
static void prepare(CUcontext context)
{
	if (!hb_window_masks_are_judged())
		hb_window_find_masks();
	if (!atomic_load(&counters))
		make_counters(context);
	atomic_store(&prepare_again_ns, hb_clock_now_ns() + pause_ns);
	if (!is_prepared() && pause_ns < AGAIN_MOST_NS)
		pause_ns *= 2;
}

void hb_window_tend(void)
{
	const struct hb_place *place = hb_place();
	CUcontext context = NULL;
	hb_window_watch(place);
	if (!is_low_in_space(place) || is_prepared() || atomic_load(&hb_captures) > 0 ||
	    hb_clock_now_ns() < atomic_load(&prepare_again_ns) || HB_REAL(cuCtxGetCurrent)(&context) != CUDA_SUCCESS ||
	    !context || pthread_mutex_trylock(&preparing) != 0)
		return;
	prepare(context);
	pthread_mutex_unlock(&preparing);
}

void hb_window_watch(const struct hb_place *place)
{
	bool wanted = is_low_in_space(place);
	if (place->page && hb_tenant_is_high())
		for (uint32_t i = 0; i < place->page->n_gpus && i < HB_PAGE_GPUS; i++)
			wanted |= atomic_load_explicit(&place->page->gpus[i].engine, memory_order_relaxed) ==
				  HB_ENGINE_SPATIAL;
	uint32_t alert = atomic_load_explicit(&hb_shim_alert, memory_order_relaxed);
	if (wanted && !(alert & HB_ALERT_WINDOW))
		atomic_fetch_or(&hb_shim_alert, HB_ALERT_WINDOW);
	if (!wanted && (alert & HB_ALERT_WINDOW))
		atomic_fetch_and(&hb_shim_alert, ~(uint32_t)HB_ALERT_WINDOW);
}

/* The memory goes with the context; a launch that has looked at it already belongs to it, too. */
void hb_window_context_leaves(CUcontext context)
{
	pthread_mutex_lock(&preparing);
	if (context && atomic_load(&owner) == context) {
		parked = atomic_exchange(&counters, NULL);
		parked_for = context;
		atomic_store(&owner, NULL);
	}
	pthread_mutex_unlock(&preparing);
}

static void unpark(CUcontext context, bool stays)
{
	pthread_mutex_lock(&preparing);
	if (parked && parked_for == context) {
		if (stays && !atomic_load(&counters)) {
			atomic_store(&owner, context);
			atomic_store_explicit(&counters, parked, memory_order_release);
		}
		parked = NULL;
	}
	pthread_mutex_unlock(&preparing);
}

void hb_window_context_stays(CUcontext context)
{
	unpark(context, true);
}

void hb_window_context_gone(CUcontext context)
{
	unpark(context, false);
}

void hb_window_leave_in_child(void)
{
	atomic_store(&counters, NULL);
	atomic_store(&owner, NULL);
	atomic_fetch_and(&hb_shim_alert, ~(uint32_t)HB_ALERT_WINDOW);
	hb_window_masks_leave_in_child();
	atomic_store(&prepare_again_ns, 0);
	pause_ns = AGAIN_NS;
	parked = NULL;
	pthread_mutex_init(&preparing, NULL);
	memset(begun, 0, sizeof begun);
	memset(rows, 0, sizeof rows);
	n_rows = 0;
	leave();
	hb_window_high_leave_in_child();
}
