/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See drain.h. With the gate closed, an event recorded once in each context's
 * legacy stream covers every blocking stream, those of the per-thread kind
 * included, which no other thread can ask about; non-blocking streams are asked
 * one by one. With the gate open only streams are asked, because the event
 * would make them wait for each other.
 *
 * A thread that was told GO may not have reached the driver yet. So work is
 * reported done only when no launch came between two looks, which lie
 * LOOK_BUSY_NS apart. A launch that takes longer than that on its way (the
 * thread is off its CPU, the driver loads the kernel first) is reported too
 * early. Such a straggler is looked for behind the closed gate and counted in
 * flight again; what the daemon does about it: device.c. One in another
 * thread's per-thread stream is found only if it is there at STRAGGLER_MARK.
 */
#include "shim/drain.h"

#include "base/clock.h"
#include "base/fault_point.h"
#include "nvidia/nvidia_rm.h"
#include "shim/launch_trace.h"
#include "shim/shim.h"
#include "shim/shim_spatial.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define LOOK_BUSY_NS (2 * HB_NS_PER_MS) /* a turn is 50 ms */
#define LOOK_IDLE_NS (20 * HB_NS_PER_MS)
#define LOOK_UNUSED_NS (100 * HB_NS_PER_MS) /* until the engine is one that needs it */

/* Looks for a straggler, LOOK_IDLE_NS apart: each of the first ones, then now and then. */
#define STRAGGLER_LOOKS 100
#define STRAGGLER_RARELY 50
/* This one with the event, which makes the context runnable for a moment: once. */
#define STRAGGLER_MARK 10

struct watched {
	CUcontext context;
	CUstream stream; /* NULL: this row is the context itself */
	CUdevice device;
	CUevent mark; /* context rows: recorded in the legacy stream while `marked` */
	bool marked;
	bool leaves;        /* its context is being given up: it may be gone at any moment, and may not be asked */
	uint64_t marked_at; /* launches so far: the mark says nothing of later ones */
};

/* Guards everything below; held during a look, never over a call that blocks. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct watched *rows;
static size_t n_rows, room;
static bool stopped; /* the process is ending: the driver may be gone */

static atomic_bool started;

static void add(const struct watched *row)
{
	pthread_mutex_lock(&lock);
	bool known = false;
	for (size_t i = 0; i < n_rows && !known; i++)
		known = rows[i].context == row->context && rows[i].stream == row->stream && !rows[i].leaves;
	if (!known && n_rows == room) {
		struct watched *more = realloc(rows, (2 * room + 16) * sizeof(*rows));
		if (more) {
			rows = more;
			room = 2 * room + 16;
		}
	}
	if (!known && n_rows < room)
		rows[n_rows++] = *row;
	pthread_mutex_unlock(&lock);
}

void hb_drain_add_context(CUcontext context, CUdevice device)
{
	add(&(struct watched){.context = context, .device = device});
}

static void set_leaving(CUcontext context, bool leaves)
{
	pthread_mutex_lock(&lock);
	for (size_t i = 0; i < n_rows; i++)
		if (rows[i].context == context)
			rows[i].leaves = leaves;
	pthread_mutex_unlock(&lock);
}

void hb_drain_context_leaves(CUcontext context)
{
	set_leaving(context, true);
}

void hb_drain_context_stays(CUcontext context)
{
	set_leaving(context, false);
}

void hb_drain_context_gone(CUcontext context)
{
	pthread_mutex_lock(&lock);
	for (size_t i = n_rows; i-- > 0;)
		if (rows[i].context == context && rows[i].leaves) /* not another one that has got its address since */
			rows[i] = rows[--n_rows];
	pthread_mutex_unlock(&lock);
}

void hb_drain_add_stream(CUstream stream)
{
	struct watched row = {.stream = stream};
	if (HB_REAL(cuCtxGetCurrent)(&row.context) == CUDA_SUCCESS &&
	    HB_REAL(cuCtxGetDevice)(&row.device) == CUDA_SUCCESS)
		add(&row);
}

void hb_drain_forget_stream(CUstream stream)
{
	pthread_mutex_lock(&lock);
	for (size_t i = n_rows; stream && i-- > 0;)
		if (rows[i].stream == stream)
			rows[i] = rows[--n_rows];
	pthread_mutex_unlock(&lock);
}

void hb_drain_yield_to_capture(void)
{
	pthread_mutex_lock(&lock);
	pthread_mutex_unlock(&lock);
}

/* ---- one look, with the lock held and no capture ---- */

/* What a look is about. */
struct look {
	unsigned gpu;
	bool closed;        /* nothing is launched meanwhile */
	uint64_t submitted; /* launches so far */
	bool if_blind;      /* the answer where nobody may look */
};

static bool is_context_busy(struct watched *row, const struct look *look)
{
	if (!look->closed || row->marked_at != look->submitted)
		row->marked = false;
	if (!look->closed)
		return HB_REAL(cuStreamQuery)(CU_STREAM_LEGACY) == CUDA_ERROR_NOT_READY;
	if (!row->mark && HB_REAL(cuEventCreate)(&row->mark, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS)
		return false;
	if (!row->marked && HB_REAL(cuEventRecord)(row->mark, CU_STREAM_LEGACY) != CUDA_SUCCESS)
		return false;
	row->marked = true;
	row->marked_at = look->submitted;
	return HB_REAL(cuEventQuery)(row->mark) == CUDA_ERROR_NOT_READY;
}

/* An answer that is neither yes nor no (a context in an error state) counts as idle: nobody may be kept waiting by it. */
static bool is_row_busy(struct watched *row, const struct look *look)
{
	if (row->leaves)
		return look->if_blind;
	if (HB_REAL(cuCtxSetCurrent)(row->context) != CUDA_SUCCESS)
		return false;
	return row->stream ? HB_REAL(cuStreamQuery)(row->stream) == CUDA_ERROR_NOT_READY : is_context_busy(row, look);
}

static bool is_gpu_busy(const struct hb_place *place, const struct look *look)
{
	bool busy = false;
	pthread_mutex_lock(&lock);
	HB_FAULT(shim_drain_looking);
	bool blind = stopped || atomic_load(&hb_captures) > 0;
	if (blind)
		busy = look->if_blind;
	for (size_t i = 0; i < n_rows && !busy && !blind; i++)
		busy = rows[i].device < HB_PAGE_GPUS && place->gpu_of_device[rows[i].device] == look->gpu &&
		       is_row_busy(&rows[i], look);
	HB_REAL(cuCtxSetCurrent)(NULL); /* contexts must be free to go */
	pthread_mutex_unlock(&lock);
	return busy;
}

/* ---- the thread ---- */

struct seen {
	uint64_t submitted;  /* at the last look */
	unsigned idle_looks; /* since the gate is closed and nothing is in flight */
	bool ended;          /* the gate is open and at the last look nothing was left; not told yet */
	bool straggles;      /* what is in flight was found behind the closed gate */
	bool straggler_told;
};

/* The thread is the only one that reports, so what it computes stays true while it computes. */
static void report(struct hb_gate *gate, int64_t in_flight)
{
	if (in_flight > 0 && hb_gate_completed(gate, (uint64_t)in_flight))
		hb_gate_wake(gate); /* who found as many in flight as the depth allows */
	else if (in_flight < 0)     /* a count that was about to be taken back got reported as done: put it right */
		hb_gate_bypass(gate, (uint64_t)-in_flight);
}

static bool is_low(const struct hb_place *place)
{
	return atomic_load_explicit(&place->page->priority, memory_order_relaxed) == HB_PAGE_LOW;
}

/* Turns are of low priority; what high priority does is told by its requests. */
static void ring_for_low(const struct hb_place *place, unsigned gpu)
{
	if (is_low(place))
		hb_gpu_ring(place, gpu, HB_NEWS_ENDED);
}

/* Nothing is in flight, as far as was counted. True: there is something behind the closed gate. */
static bool look_for_straggler(const struct hb_place *place, struct hb_gate *gate, struct look look, struct seen *seen)
{
	if (!look.closed) {
		seen->idle_looks = 0;
		return false;
	}
	unsigned n = ++seen->idle_looks;
	if (n > STRAGGLER_LOOKS && n % STRAGGLER_RARELY)
		return false;
	look.closed = n == STRAGGLER_MARK;
	look.if_blind = false;
	if (!is_gpu_busy(place, &look))
		return false;
	hb_gate_bypass(gate, 1);
	seen->straggles = true;
	seen->straggler_told = false;
	return true;
}

/* Still at work: no mark of our own that was slow. */
static void tell_straggler(const struct hb_place *place, unsigned gpu, struct seen *seen)
{
	if (seen->straggles && !seen->straggler_told)
		ring_for_low(place, gpu);
	seen->straggler_told = true;
}

/*
 * Its work was reported done. Who waits for the drain of a closed gate is to know at once. A program with its gate open
 * may just be between two launches: the daemon is called when it still is at the next look. That a straggler is done
 * can wait for the daemon's own look.
 */
static bool ring_unless_between(const struct hb_place *place, unsigned gpu, bool closed, struct seen *seen)
{
	if (closed && !seen->straggles)
		ring_for_low(place, gpu);
	seen->straggles = false;
	seen->ended = !closed;
	return seen->ended;
}

/* True: something is or may be in flight. */
static bool look_at_gpu(const struct hb_place *place, unsigned gpu, struct seen *seen)
{
	struct hb_gate *gate = (struct hb_gate *)place->process->gates[gpu];
	uint64_t submitted = atomic_load(&gate->submitted);
	int64_t in_flight = (int64_t)(submitted - atomic_load(&gate->completed));
	bool closed = hb_gate_state(gate) == HB_GATE_CLOSED;
	struct look look = {.gpu = gpu, .closed = closed, .submitted = submitted, .if_blind = true};
	bool quiet = submitted == seen->submitted;
	seen->submitted = submitted;
	bool still_idle = seen->ended && in_flight == 0;
	seen->ended = false;
	if (still_idle)
		ring_for_low(place, gpu);
	if (in_flight == 0)
		return look_for_straggler(place, gate, look, seen);
	if (!closed)
		seen->straggles = false;
	if (!seen->straggles) /* else the mark would be made again behind the same closed gate, and found again */
		seen->idle_looks = 0;
	if (!quiet)
		return true;
	if (is_gpu_busy(place, &look)) {
		tell_straggler(place, gpu, seen);
		return true;
	}
	if (atomic_load(&gate->submitted) != submitted)
		return true;
	report(gate, in_flight);
	HB_FAULT(shim_drain_reported);
	return ring_unless_between(place, gpu, closed, seen);
}

static unsigned count_gpus(const struct hb_place *place)
{
	unsigned n = place->page ? place->page->n_gpus : 0;
	return n < HB_PAGE_GPUS ? n : HB_PAGE_GPUS;
}

static uint32_t engine_of(const struct hb_place *place, unsigned gpu)
{
	return atomic_load_explicit(&place->page->gpus[gpu].engine, memory_order_relaxed);
}

/* Somebody waits for the answer. */
static bool is_waited_for(const struct hb_place *place, unsigned gpu)
{
	uint32_t engine = engine_of(place, gpu);
	return engine == HB_ENGINE_TURNS || (engine == HB_ENGINE_SPATIAL && is_low(place));
}

/*
 * In the temporal engine only to tell whether HP's requests had the GPU to themselves: seldom, and never in HP. In the
 * spatial engine HP is looked at seldom, too: this thread's CPU may be the other half of that which serves requests.
 */
static bool is_watched(const struct hb_place *place, unsigned gpu)
{
	uint32_t engine = engine_of(place, gpu);
	return is_waited_for(place, gpu) || engine == HB_ENGINE_SPATIAL ||
	       (engine == HB_ENGINE_TEMPORAL && is_low(place));
}

/* One round over the GPUs; how long to sleep after it. */
static long look_at_all(const struct hb_place *place, struct seen seen[HB_PAGE_GPUS])
{
	bool busy = false, watched = false;
	for (unsigned gpu = 0; gpu < count_gpus(place); gpu++) {
		if (!is_watched(place, gpu))
			continue;
		watched = true;
		busy |= look_at_gpu(place, gpu, &seen[gpu]) && is_waited_for(place, gpu);
	}
	hb_shim_spatial_update_alert(place);
	hb_launch_trace_refresh(place);
	if (!watched)
		return LOOK_UNUSED_NS;
	hb_rm_watch_apply(); /* the process's own threads may be in a call that waits for what a slice holds up */
	return busy ? LOOK_BUSY_NS : LOOK_IDLE_NS;
}

static void *watch(void *unused)
{
	struct seen seen[HB_PAGE_GPUS];
	for (unsigned gpu = 0; gpu < HB_PAGE_GPUS; gpu++)
		seen[gpu] = (struct seen){.submitted = UINT64_MAX};
	for (;;)
		nanosleep(&(struct timespec){.tv_nsec = look_at_all(hb_place(), seen)}, NULL);
	return NULL;
}

/* Runs before the driver's own exit handlers, which were registered earlier. */
static void stop_at_exit(void)
{
	pthread_mutex_lock(&lock);
	stopped = true;
	pthread_mutex_unlock(&lock);
}

static bool start(void)
{
	static atomic_flag ends_well = ATOMIC_FLAG_INIT; /* the handler is inherited by a forked child */
	pthread_t thread;
	sigset_t all, before;
	if (!atomic_flag_test_and_set(&ends_well) && atexit(stop_at_exit) != 0) {
		atomic_flag_clear(&ends_well);
		return false;
	}
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before); /* signals are the application's */
	bool running = pthread_create(&thread, NULL, watch, NULL) == 0;
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (running)
		pthread_detach(thread);
	return running;
}

/*
 * Of low priority always: when the engine changes to one that needs the thread, this process may be in the middle of
 * something without CUDA, and the others would wait for ever to hear that its work is done.
 */
static bool is_needed(const struct hb_place *place)
{
	bool needed = place->page && is_low(place);
	for (unsigned gpu = 0; !needed && gpu < count_gpus(place); gpu++)
		needed = is_watched(place, gpu);
	return needed;
}

void hb_drain_start_if_needed(const struct hb_place *place)
{
	if (!atomic_load_explicit(&started, memory_order_relaxed) && is_needed(place) &&
	    !atomic_exchange(&started, true) && !start())
		atomic_store(&started, false); /* where a thread cannot be had now, the next slow call tries again */
}

void hb_drain_leave_in_child(void)
{
	pthread_mutex_init(&lock, NULL);
	rows = NULL; /* not freed, as in memory_table.c */
	n_rows = room = 0;
	atomic_store(&started, false);
}
