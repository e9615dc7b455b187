/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See shim_spatial_rows.h; and the counters' memory, which is made in a call that is
 * slow anyway and goes with its context. No call into the driver is made with
 * the lock held.
 */
#include "shim/shim_spatial_rows.h"
#include "base/clock.h"
#include "shim/shim.h"
#include "shim/shim_spatial.h"
#include "shim/takeover.h"

#include <pthread.h>
#include <string.h>

/* Until the trial of masks, or of making counters, is repeated; twice as long each time. */
#define AGAIN_NS HB_NS_PER_S
#define AGAIN_MOST_NS (64 * HB_NS_PER_S)

/*
 * From now on a stream counts as idle, though not all that it launched was marked: that is predicted to take a sixteenth of
 * the window, and that is 62 ms at the most.
 */
#define IDLE_NS (HB_NS_PER_S / 4)

enum { ROWS = 32, COUNTER_WORDS = 16 /* one cache line */ };

/* Turns for a moment, then sleeps: a thread of SCHED_FIFO that only turned would keep the CPU from whoever is to leave. */
static pthread_mutex_t lock = PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP;
static struct hb_shim_spatial_row rows[ROWS]; /* guarded by it, as the next */
static unsigned n_rows;

/* Host memory that the GPU writes; belongs to `owner`. NULL: none yet. */
static _Atomic(hb_page_u32 *) counters;
static _Atomic(CUcontext) owner;
static _Atomic(int64_t) prepare_again_ns;
static pthread_mutex_t preparing = PTHREAD_MUTEX_INITIALIZER;
static int64_t pause_ns = AGAIN_NS; /* guarded by it, as the next */
static hb_page_u32 *parked;         /* the counters of `parked_for`, which may be about to end */
static CUcontext parked_for;

/* Its address tells threads apart. */
static __thread struct {
	bool is_noted; /* its end will be told */
} self __attribute__((tls_model("initial-exec")));
static pthread_key_t ending;
static bool has_key; /* before there are counters */

void hb_shim_spatial_enter(void)
{
	pthread_mutex_lock(&lock);
}

void hb_shim_spatial_leave(void)
{
	pthread_mutex_unlock(&lock);
}

/* ---- rows ---- */

/* Its last mark was written: no late one is taken for another stream's. And no more than that is in flight. */
static bool is_done(const struct hb_shim_spatial_row *row, const hb_page_u32 *values, int64_t now_ns)
{
	if (atomic_load_explicit(&values[(row - rows) * COUNTER_WORDS], memory_order_acquire) != row->state.marked)
		return false;
	return row->gone || !row->state.next_ns || now_ns - row->looked_ns > IDLE_NS;
}

/* Of those whose work is done, one whose stream is gone, else the one that was used longest ago. */
static struct hb_shim_spatial_row *free_row(const hb_page_u32 *values, int64_t now_ns)
{
	struct hb_shim_spatial_row *best = NULL;
	if (n_rows < ROWS)
		return &rows[n_rows++];
	for (struct hb_shim_spatial_row *row = rows; row < rows + ROWS && !(best && best->gone); row++)
		if (is_done(row, values, now_ns) && (!best || row->gone || row->looked_ns < best->looked_ns))
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

bool hb_shim_spatial_row_is_of(const struct hb_shim_spatial_row *row, CUstream stream)
{
	return row->stream == stream && row->thread == thread_of(stream) && !row->gone;
}

struct hb_shim_spatial_row *hb_shim_spatial_row_of(CUstream stream, CUcontext context, int64_t now_ns)
{
	const hb_page_u32 *values = atomic_load_explicit(&counters, memory_order_acquire);
	/* Elsewhere the memory could go, with its own context, before the GPU has written to it. */
	if (!stream || !values || context != atomic_load_explicit(&owner, memory_order_relaxed))
		return NULL;
	for (unsigned i = 0; i < n_rows; i++)
		if (hb_shim_spatial_row_is_of(&rows[i], stream))
			return &rows[i];
	struct hb_shim_spatial_row *row = free_row(values, now_ns);
	if (row) {
		row->stream = stream;
		row->thread = thread_of(stream);
	}
	return row;
}

void hb_shim_spatial_forget_stream(CUstream stream)
{
	if (!stream || !atomic_load_explicit(&counters, memory_order_relaxed))
		return;
	hb_shim_spatial_enter();
	for (unsigned i = 0; i < n_rows; i++)
		rows[i].gone |= rows[i].stream == stream && !rows[i].thread;
	hb_shim_spatial_leave();
}

static void thread_ends(void *unused)
{
	hb_shim_spatial_enter();
	for (unsigned i = 0; i < n_rows; i++)
		rows[i].gone |= rows[i].thread == &self;
	hb_shim_spatial_leave();
	self.is_noted = false; /* other destructors may still launch */
}

void hb_shim_spatial_rows_note_thread(void)
{
	if (!self.is_noted && has_key)
		self.is_noted = pthread_setspecific(ending, &self) == 0;
}

hb_page_u32 *hb_shim_spatial_counter_of(const struct hb_shim_spatial_row *row)
{
	hb_page_u32 *values = atomic_load_explicit(&counters, memory_order_acquire);
	return values ? &values[(row - rows) * COUNTER_WORDS] : NULL;
}

void hb_shim_spatial_forget_intervals(void)
{
	for (unsigned i = 0; i < n_rows; i++)
		rows[i].state.next.part = true;
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
	if (!has_key)
		has_key = pthread_key_create(&ending, thread_ends) == 0;
	hb_shim_spatial_enter();
	memset(rows, 0, sizeof rows);
	n_rows = 0;
	hb_shim_spatial_leave();
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
	return hb_shim_spatial_masks_are_judged() && atomic_load(&counters);
}

/* With `preparing` held. What fails is tried again, more and more rarely. */
static void prepare(CUcontext context)
{
	if (!hb_shim_spatial_masks_are_judged())
		hb_shim_spatial_find_masks();
	if (!atomic_load(&counters))
		make_counters(context);
	atomic_store(&prepare_again_ns, hb_clock_now_ns() + pause_ns);
	if (!is_prepared() && pause_ns < AGAIN_MOST_NS)
		pause_ns *= 2;
}

void hb_shim_spatial_tend(void)
{
	const struct hb_place *place = hb_place();
	CUcontext context = NULL;
	hb_shim_spatial_watch(place);
	if (!is_low_in_space(place) || is_prepared() || atomic_load(&hb_captures) > 0 ||
	    hb_clock_now_ns() < atomic_load(&prepare_again_ns) || HB_REAL(cuCtxGetCurrent)(&context) != CUDA_SUCCESS ||
	    !context || pthread_mutex_trylock(&preparing) != 0)
		return;
	prepare(context);
	pthread_mutex_unlock(&preparing);
}

void hb_shim_spatial_watch(const struct hb_place *place)
{
	bool wanted = is_low_in_space(place);
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

/* The memory goes with the context; a launch that has looked at it already belongs to it, too. */
void hb_shim_spatial_context_leaves(CUcontext context)
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

void hb_shim_spatial_context_stays(CUcontext context)
{
	unpark(context, true);
}

void hb_shim_spatial_context_gone(CUcontext context)
{
	unpark(context, false);
}

void hb_shim_spatial_rows_leave_in_child(void)
{
	atomic_store(&counters, NULL);
	atomic_store(&owner, NULL);
	atomic_store(&prepare_again_ns, 0);
	pause_ns = AGAIN_NS;
	parked = NULL;
	pthread_mutex_init(&preparing, NULL);
	memset(rows, 0, sizeof rows);
	n_rows = 0;
	lock = (pthread_mutex_t)PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP;
}
