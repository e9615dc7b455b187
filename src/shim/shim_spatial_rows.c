/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows of streams (shim_spatial_rows.h) and the memory of their counters, which is
 * allocated in a call that is slow anyway and freed with its context. No driver
 * call is made with the lock held.
 */
#include "shim/shim_spatial_rows.h"
#include "base/clock.h"
#include "nvidia/launch_mask.h"
#include "shim/shim.h"
#include "shim/shim_spatial.h"
#include "shim/takeover.h"

#include <pthread.h>
#include <string.h>

/* Time until a failed trial of masks, or a failed allocation of counters, is repeated; doubled each time. */
#define RETRY_NS HB_NS_PER_S
#define RETRY_MOST_NS (64 * HB_NS_PER_S)

/*
 * A stream without a launch for this long counts as idle, although its last launches have no counter write behind them. They
 * are predicted to take a sixteenth of the window, which is at most 62 ms.
 */
#define IDLE_NS (HB_NS_PER_S / 4)

enum { ROWS = 32, COUNTER_WORDS = 16 /* one cache line */ };

/* Spins for a moment, then sleeps: a SCHED_FIFO thread that only spins could keep the holder of the lock from the CPU. */
static pthread_mutex_t lock = PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP;
static pthread_mutex_t preparing = PTHREAD_MUTEX_INITIALIZER;

/* The streams of one GPU. */
static struct bank {
	struct hb_shim_spatial_row rows[ROWS]; /* guarded by `lock` */
	unsigned n_rows;                       /* guarded by `lock` */
	/* Host memory that the GPU writes, allocated in the context `owner`. NULL: none yet. */
	_Atomic(hb_page_u32 *) counters;
	_Atomic(CUcontext) owner;
	_Atomic(int64_t) prepare_again_ns;
	int64_t retry_ns;    /* guarded by `preparing`, as the next two; 0 = RETRY_NS */
	hb_page_u32 *parked; /* the counters of `parked_for`, a context that may be about to end */
	CUcontext parked_for;
} banks[HB_PAGE_GPUS];
#define END_OF_BANKS (banks + HB_PAGE_GPUS)

/* The address of this variable identifies a thread. */
static __thread struct {
	bool is_noted; /* end_thread() will run at the end of the thread */
} self __attribute__((tls_model("initial-exec")));
static pthread_key_t ending;
static bool has_key; /* `ending` exists; set before the counters are allocated */

void hb_shim_spatial_lock(void)
{
	pthread_mutex_lock(&lock);
}

void hb_shim_spatial_unlock(void)
{
	pthread_mutex_unlock(&lock);
}

/* ---- rows ---- */

/* Whether the row can be given to another stream: its last counter write has arrived and nothing is in flight. */
static bool can_be_reused(const struct bank *bank, const struct hb_shim_spatial_row *row, const hb_page_u32 *values,
			  int64_t now_ns)
{
	if (atomic_load_explicit(&values[(row - bank->rows) * COUNTER_WORDS], memory_order_acquire) !=
	    row->state.marked)
		return false;
	return row->gone || !row->state.next_ns || now_ns - row->looked_ns > IDLE_NS;
}

/* Returns a new row, or one that can be reused: one whose stream is gone, else the one launched on longest ago. */
static struct hb_shim_spatial_row *take_row(struct bank *bank, const hb_page_u32 *values, int64_t now_ns)
{
	struct hb_shim_spatial_row *best = NULL;
	if (bank->n_rows < ROWS)
		return &bank->rows[bank->n_rows++];
	for (struct hb_shim_spatial_row *row = bank->rows; row < bank->rows + ROWS && !(best && best->gone); row++)
		if (can_be_reused(bank, row, values, now_ns) &&
		    (!best || row->gone || row->looked_ns < best->looked_ns))
			best = row;
	if (best) {
		uint32_t marked = best->state.marked;
		*best = (struct hb_shim_spatial_row){.state = {.marked = marked, .done = marked}};
	}
	return best;
}

static const void *thread_of(CUstream stream)
{
	return stream == CU_STREAM_PER_THREAD ? &self : NULL;
}

bool hb_shim_spatial_row_matches(const struct hb_shim_spatial_row *row, CUstream stream)
{
	return row->stream == stream && row->thread == thread_of(stream) && !row->gone;
}

struct hb_shim_spatial_row *hb_shim_spatial_row_of(unsigned gpu, CUstream stream, CUcontext context, int64_t now_ns)
{
	struct bank *bank = &banks[gpu];
	const hb_page_u32 *values = atomic_load_explicit(&bank->counters, memory_order_acquire);
	/* In another context the memory could be freed, with its own context, before the GPU has written to it. */
	if (!stream || !values || context != atomic_load_explicit(&bank->owner, memory_order_relaxed))
		return NULL;
	for (unsigned i = 0; i < bank->n_rows; i++)
		if (hb_shim_spatial_row_matches(&bank->rows[i], stream))
			return &bank->rows[i];
	struct hb_shim_spatial_row *row = take_row(bank, values, now_ns);
	if (row) {
		row->stream = stream;
		row->thread = thread_of(stream);
	}
	return row;
}

void hb_shim_spatial_forget_stream(CUstream stream)
{
	for (struct bank *bank = banks; stream && bank < END_OF_BANKS; bank++) {
		if (!atomic_load_explicit(&bank->counters, memory_order_relaxed))
			continue;
		hb_shim_spatial_lock();
		for (unsigned i = 0; i < bank->n_rows; i++)
			bank->rows[i].gone |= bank->rows[i].stream == stream && !bank->rows[i].thread;
		hb_shim_spatial_unlock();
	}
}

static void end_thread(void *unused)
{
	hb_shim_spatial_lock();
	for (struct bank *bank = banks; bank < END_OF_BANKS; bank++)
		for (unsigned i = 0; i < bank->n_rows; i++)
			bank->rows[i].gone |= bank->rows[i].thread == &self;
	hb_shim_spatial_unlock();
	self.is_noted = false; /* destructors that run later may still launch */
}

void hb_shim_spatial_rows_note_thread(void)
{
	if (!self.is_noted && has_key)
		self.is_noted = pthread_setspecific(ending, &self) == 0;
}

hb_page_u32 *hb_shim_spatial_counter_of(const struct hb_shim_spatial_row *row)
{
	for (struct bank *bank = banks; bank < END_OF_BANKS; bank++) {
		if (row < bank->rows || row >= bank->rows + ROWS)
			continue;
		hb_page_u32 *values = atomic_load_explicit(&bank->counters, memory_order_acquire);
		return values ? &values[(row - bank->rows) * COUNTER_WORDS] : NULL;
	}
	return NULL;
}

void hb_shim_spatial_forget_intervals(void)
{
	for (struct bank *bank = banks; bank < END_OF_BANKS; bank++)
		for (unsigned i = 0; i < bank->n_rows; i++)
			bank->rows[i].state.next.part = true;
}

/* ---- preparation ---- */

/* With `preparing` held. */
static void make_counters(struct bank *bank, CUcontext context)
{
	void *memory;
	if (HB_REAL(cuMemHostAlloc)(&memory, ROWS * COUNTER_WORDS * sizeof(uint32_t),
				    CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP) != CUDA_SUCCESS)
		return;
	memset(memory, 0, ROWS * COUNTER_WORDS * sizeof(uint32_t));
	if (!has_key)
		has_key = pthread_key_create(&ending, end_thread) == 0;
	hb_shim_spatial_lock();
	memset(bank->rows, 0, sizeof bank->rows);
	bank->n_rows = 0;
	hb_shim_spatial_unlock();
	atomic_store(&bank->owner, context);
	atomic_store_explicit(&bank->counters, memory, memory_order_release);
}

static bool is_beside_high(const struct hb_place *place, unsigned gpu)
{
	return atomic_load_explicit(&place->page->gpus[gpu].engine, memory_order_relaxed) == HB_ENGINE_SPATIAL &&
	       place->gpus[gpu] && atomic_load_explicit(&place->gpus[gpu]->tenants_high, memory_order_relaxed);
}

static bool needs_low_side(const struct hb_place *place)
{
	if (!place->page || hb_tenant_is_high())
		return false;
	for (uint32_t i = 0; i < place->page->n_gpus && i < HB_PAGE_GPUS; i++)
		if (is_beside_high(place, i))
			return true;
	return false;
}

static bool is_prepared(unsigned gpu)
{
	return hb_shim_spatial_masks_are_judged(gpu) && atomic_load(&banks[gpu].counters);
}

/* With `preparing` held. What fails is tried again, less and less often. */
static void prepare_low_side(unsigned gpu, CUcontext context)
{
	struct bank *bank = &banks[gpu];
	int64_t retry_ns = bank->retry_ns ? bank->retry_ns : RETRY_NS;
	if (!hb_shim_spatial_masks_are_judged(gpu))
		hb_shim_spatial_find_masks(gpu);
	if (!atomic_load(&bank->counters))
		make_counters(bank, context);
	atomic_store(&bank->prepare_again_ns, hb_clock_now_ns() + retry_ns);
	bank->retry_ns = !is_prepared(gpu) && retry_ns < RETRY_MOST_NS ? 2 * retry_ns : retry_ns;
}

void hb_shim_spatial_refresh(void)
{
	const struct hb_place *place = hb_place();
	CUcontext context = NULL;
	hb_shim_spatial_update_alert(place);
	hb_shim_spatial_update_boards(place);
	if (!needs_low_side(place) || atomic_load(&hb_captures) > 0)
		return;
	unsigned gpu = hb_tenant_gpu();
	if (gpu >= HB_PAGE_GPUS || is_prepared(gpu) || !is_beside_high(place, gpu) ||
	    hb_clock_now_ns() < atomic_load(&banks[gpu].prepare_again_ns) ||
	    HB_REAL(cuCtxGetCurrent)(&context) != CUDA_SUCCESS || !context || pthread_mutex_trylock(&preparing) != 0)
		return;
	/* Another thread may begin a capture meanwhile, which calls in other modes would invalidate. */
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	HB_REAL(cuThreadExchangeStreamCaptureMode)(&mode);
	prepare_low_side(gpu, context);
	HB_REAL(cuThreadExchangeStreamCaptureMode)(&mode);
	pthread_mutex_unlock(&preparing);
}

void hb_shim_spatial_update_alert(const struct hb_place *place)
{
	bool wanted = needs_low_side(place);
	if (place->page && hb_tenant_is_high())
		for (uint32_t i = 0; i < place->page->n_gpus && i < HB_PAGE_GPUS; i++)
			wanted |= atomic_load_explicit(&place->page->gpus[i].engine, memory_order_relaxed) ==
				  HB_ENGINE_SPATIAL;
	uint32_t alert = atomic_load_explicit(&hb_shim_alert, memory_order_relaxed);
	if (wanted && !(alert & HB_ALERT_SPATIAL))
		atomic_fetch_or(&hb_shim_alert, HB_ALERT_SPATIAL);
	if (!wanted && (alert & HB_ALERT_SPATIAL))
		atomic_fetch_and(&hb_shim_alert, ~(uint32_t)HB_ALERT_SPATIAL);
}

/* The counters are freed with the context. A launch that has already read their address is in that context, too. */
void hb_shim_spatial_context_leaves(CUcontext context)
{
	pthread_mutex_lock(&preparing);
	for (struct bank *bank = banks; context && bank < END_OF_BANKS; bank++) {
		if (atomic_load(&bank->owner) != context)
			continue;
		bank->parked = atomic_exchange(&bank->counters, NULL);
		bank->parked_for = context;
		atomic_store(&bank->owner, NULL);
	}
	hb_mask_forget_context(context);
	pthread_mutex_unlock(&preparing);
}

static void unpark_counters(CUcontext context, bool stays)
{
	pthread_mutex_lock(&preparing);
	for (struct bank *bank = banks; bank < END_OF_BANKS; bank++) {
		if (!bank->parked || bank->parked_for != context)
			continue;
		if (stays && !atomic_load(&bank->counters)) {
			atomic_store(&bank->owner, context);
			atomic_store_explicit(&bank->counters, bank->parked, memory_order_release);
		}
		bank->parked = NULL;
	}
	pthread_mutex_unlock(&preparing);
}

void hb_shim_spatial_context_stays(CUcontext context)
{
	unpark_counters(context, true);
}

void hb_shim_spatial_context_gone(CUcontext context)
{
	unpark_counters(context, false);
}

void hb_shim_spatial_rows_leave_in_child(void)
{
	memset(banks, 0, sizeof banks);
	pthread_mutex_init(&preparing, NULL);
	lock = (pthread_mutex_t)PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP;
}
