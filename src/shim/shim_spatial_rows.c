/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows of streams (shim_spatial_rows.h) and the memory of their counters, which is
 * allocated in a call that is slow anyway and freed with its context. No driver
 * call is made with the lock held.
 */
#include "shim/shim_spatial_rows.h"
#include "base/clock.h"
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
static struct hb_shim_spatial_row rows[ROWS]; /* guarded by `lock` */
static unsigned n_rows;                       /* guarded by `lock` */

/* Host memory that the GPU writes, allocated in the context `owner`. NULL: none yet. */
static _Atomic(hb_page_u32 *) counters;
static _Atomic(CUcontext) owner;
static _Atomic(int64_t) prepare_again_ns;
static pthread_mutex_t preparing = PTHREAD_MUTEX_INITIALIZER;
static int64_t retry_ns = RETRY_NS; /* guarded by `preparing`, as the next two */
static hb_page_u32 *parked;         /* the counters of `parked_for`, a context that may be about to end */
static CUcontext parked_for;

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
static bool can_be_reused(const struct hb_shim_spatial_row *row, const hb_page_u32 *values, int64_t now_ns)
{
	if (atomic_load_explicit(&values[(row - rows) * COUNTER_WORDS], memory_order_acquire) != row->state.marked)
		return false;
	return row->gone || !row->state.next_ns || now_ns - row->looked_ns > IDLE_NS;
}

/* Returns a new row, or one that can be reused: one whose stream is gone, else the one launched on longest ago. */
static struct hb_shim_spatial_row *take_row(const hb_page_u32 *values, int64_t now_ns)
{
	struct hb_shim_spatial_row *best = NULL;
	if (n_rows < ROWS)
		return &rows[n_rows++];
	for (struct hb_shim_spatial_row *row = rows; row < rows + ROWS && !(best && best->gone); row++)
		if (can_be_reused(row, values, now_ns) && (!best || row->gone || row->looked_ns < best->looked_ns))
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

struct hb_shim_spatial_row *hb_shim_spatial_row_of(CUstream stream, CUcontext context, int64_t now_ns)
{
	const hb_page_u32 *values = atomic_load_explicit(&counters, memory_order_acquire);
	/* In another context the memory could be freed, with its own context, before the GPU has written to it. */
	if (!stream || !values || context != atomic_load_explicit(&owner, memory_order_relaxed))
		return NULL;
	for (unsigned i = 0; i < n_rows; i++)
		if (hb_shim_spatial_row_matches(&rows[i], stream))
			return &rows[i];
	struct hb_shim_spatial_row *row = take_row(values, now_ns);
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
	hb_shim_spatial_lock();
	for (unsigned i = 0; i < n_rows; i++)
		rows[i].gone |= rows[i].stream == stream && !rows[i].thread;
	hb_shim_spatial_unlock();
}

static void end_thread(void *unused)
{
	hb_shim_spatial_lock();
	for (unsigned i = 0; i < n_rows; i++)
		rows[i].gone |= rows[i].thread == &self;
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
	hb_page_u32 *values = atomic_load_explicit(&counters, memory_order_acquire);
	return values ? &values[(row - rows) * COUNTER_WORDS] : NULL;
}

void hb_shim_spatial_forget_intervals(void)
{
	for (unsigned i = 0; i < n_rows; i++)
		rows[i].state.next.part = true;
}

/* ---- preparation ---- */

/* With `preparing` held. */
static void make_counters(CUcontext context)
{
	void *memory;
	if (HB_REAL(cuMemHostAlloc)(&memory, ROWS * COUNTER_WORDS * sizeof(uint32_t),
				    CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP) != CUDA_SUCCESS)
		return;
	memset(memory, 0, ROWS * COUNTER_WORDS * sizeof(uint32_t));
	if (!has_key)
		has_key = pthread_key_create(&ending, end_thread) == 0;
	hb_shim_spatial_lock();
	memset(rows, 0, sizeof rows);
	n_rows = 0;
	hb_shim_spatial_unlock();
	atomic_store(&owner, context);
	atomic_store_explicit(&counters, memory, memory_order_release);
}

static bool needs_low_side(const struct hb_place *place)
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

/* With `preparing` held. What fails is tried again, less and less often. */
static void prepare_low_side(CUcontext context)
{
	if (!hb_shim_spatial_masks_are_judged())
		hb_shim_spatial_find_masks();
	if (!atomic_load(&counters))
		make_counters(context);
	atomic_store(&prepare_again_ns, hb_clock_now_ns() + retry_ns);
	if (!is_prepared() && retry_ns < RETRY_MOST_NS)
		retry_ns *= 2;
}

void hb_shim_spatial_refresh(void)
{
	const struct hb_place *place = hb_place();
	CUcontext context = NULL;
	hb_shim_spatial_update_alert(place);
	hb_shim_spatial_update_boards(place);
	if (!needs_low_side(place) || is_prepared() || atomic_load(&hb_captures) > 0 ||
	    hb_clock_now_ns() < atomic_load(&prepare_again_ns) || HB_REAL(cuCtxGetCurrent)(&context) != CUDA_SUCCESS ||
	    !context || pthread_mutex_trylock(&preparing) != 0)
		return;
	prepare_low_side(context);
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
	if (context && atomic_load(&owner) == context) {
		parked = atomic_exchange(&counters, NULL);
		parked_for = context;
		atomic_store(&owner, NULL);
	}
	pthread_mutex_unlock(&preparing);
}

static void unpark_counters(CUcontext context, bool stays)
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
	unpark_counters(context, true);
}

void hb_shim_spatial_context_gone(CUcontext context)
{
	unpark_counters(context, false);
}

void hb_shim_spatial_rows_leave_in_child(void)
{
	atomic_store(&counters, NULL);
	atomic_store(&owner, NULL);
	atomic_store(&prepare_again_ns, 0);
	retry_ns = RETRY_NS;
	parked = NULL;
	pthread_mutex_init(&preparing, NULL);
	memset(rows, 0, sizeof rows);
	n_rows = 0;
	lock = (pthread_mutex_t)PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP;
}
