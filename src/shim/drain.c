/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds out when the work of this process on the GPU is done (drain.h).
 *
 * With the gate closed, an event recorded once in each context's legacy stream
 * covers every blocking stream, including other threads' per-thread streams, which
 * this thread cannot query. Non-blocking streams are queried one by one. With the
 * gate open only streams are queried, because the event would make streams wait
 * for each other.
 *
 * A thread that passed the gate may not have reached the driver yet. So work is
 * reported done only if no launch came between two polls, which are POLL_BUSY_NS
 * apart. A launch that takes longer on its way (its thread lost the CPU, or the
 * driver loads the kernel first) is reported too early. The thread searches for
 * such a straggler behind the closed gate and counts it as in flight again; the
 * daemon's reaction is in device.c. A straggler in another thread's per-thread
 * stream is found only if it is there at poll STRAGGLER_MARK.
 */
#include "shim/drain.h"

#include "base/clock.h"
#include "base/fault_point.h"
#include "base/thread.h"
#include "nvidia/nvidia_rm.h"
#include "shim/launch_trace.h"
#include "shim/shim.h"
#include "shim/shim_spatial.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Time between polls. */
#define POLL_BUSY_NS (2 * HB_NS_PER_MS) /* work is in flight and another process waits; a turn is 50 ms */
#define POLL_IDLE_NS (20 * HB_NS_PER_MS)
#define POLL_UNUSED_NS (100 * HB_NS_PER_MS) /* no GPU has an engine that needs the answer */

/* Polls for a straggler, POLL_IDLE_NS apart: the first STRAGGLER_POLLS, then one of STRAGGLER_SELDOM. */
#define STRAGGLER_POLLS 100
#define STRAGGLER_SELDOM 50
/* Only this poll records the event, because that makes the context runnable for a moment. */
#define STRAGGLER_MARK 10

/* A context, a stream of it, or the work of a stream that was destroyed. */
struct drain_row {
	CUcontext context;
	CUstream stream; /* NULL: this row is the context itself, or `last` is set */
	CUevent last;    /* the end of the work that a destroyed stream left */
	CUdevice device;
	CUevent mark; /* context rows: recorded in the legacy stream while `marked` */
	bool marked;
	CUevent end; /* context rows: for hb_drain_query_all(); recorded while `ending` */
	bool ending;
	bool leaves;        /* the context may be destroyed at any moment and must not be queried */
	uint64_t marked_at; /* launches when the mark was recorded: it does not cover later ones */
};

/* Guards the next four; held during a poll, never during a call that blocks. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct drain_row *rows;
static size_t n_rows, room;
static bool stopped; /* the process is exiting: the driver may be gone */

static atomic_bool started;

static void add_row(const struct drain_row *row)
{
	pthread_mutex_lock(&lock);
	bool known = false;
	for (size_t i = 0; i < n_rows && !known; i++)
		known = rows[i].context == row->context && rows[i].stream == row->stream && !rows[i].leaves &&
			!rows[i].last;
	if (!known && n_rows == room) {
		struct drain_row *more = realloc(rows, (2 * room + 16) * sizeof(*rows));
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
	add_row(&(struct drain_row){.context = context, .device = device});
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
		if (rows[i].context == context &&
		    rows[i].leaves) /* without `leaves` it is a newer context at the same address */
			rows[i] = rows[--n_rows];
	pthread_mutex_unlock(&lock);
}

void hb_drain_add_stream(CUstream stream)
{
	struct drain_row row = {.stream = stream};
	if (HB_REAL(cuCtxGetCurrent)(&row.context) == CUDA_SUCCESS &&
	    HB_REAL(cuCtxGetDevice)(&row.device) == CUDA_SUCCESS)
		add_row(&row);
}

/* Records the end of the work in this stream. NULL: all of it has ended, or that cannot be done. */
static CUevent record_end(CUstream stream)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	CUcontext context, popped;
	CUevent last = NULL;
	if (hb_stream_captures(stream) || HB_REAL(cuStreamGetCtx)(stream, &context) != CUDA_SUCCESS ||
	    HB_REAL(cuCtxPushCurrent_v2)(context) != CUDA_SUCCESS)
		return NULL;
	HB_REAL(cuThreadExchangeStreamCaptureMode)(&mode);
	if (HB_REAL(cuStreamQuery)(stream) == CUDA_ERROR_NOT_READY &&
	    HB_REAL(cuEventCreate)(&last, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS &&
	    HB_REAL(cuEventRecord)(last, stream) != CUDA_SUCCESS) {
		HB_REAL(cuEventDestroy_v2)(last);
		last = NULL;
	}
	HB_REAL(cuThreadExchangeStreamCaptureMode)(&mode);
	HB_REAL(cuCtxPopCurrent_v2)(&popped);
	return last;
}

static bool knows_stream(CUstream stream)
{
	bool known = false;
	pthread_mutex_lock(&lock);
	for (size_t i = 0; i < n_rows && !known && !stopped; i++)
		known = rows[i].stream == stream;
	pthread_mutex_unlock(&lock);
	return known;
}

/* The driver destroys a stream at once and ends its work later. The legacy stream does not wait for a non-blocking one. */
void hb_drain_forget_stream(CUstream stream)
{
	if (!stream || !knows_stream(stream))
		return;
	CUevent last = atomic_load(&started) ? record_end(stream) : NULL;
	pthread_mutex_lock(&lock);
	for (size_t i = n_rows; i-- > 0;) {
		if (rows[i].stream != stream)
			continue;
		rows[i].stream = NULL;
		rows[i].last = last;
		if (!last)
			rows[i] = rows[--n_rows];
		last = NULL;
	}
	pthread_mutex_unlock(&lock);
}

void hb_drain_yield_to_capture(void)
{
	pthread_mutex_lock(&lock);
	pthread_mutex_unlock(&lock);
}

/* ---- one poll, with the lock held and no capture ---- */

struct drain_poll {
	unsigned gpu;
	bool closed;        /* the gate is closed: nothing is launched meanwhile */
	uint64_t submitted; /* launches so far */
	bool if_blind;      /* the answer if the GPU must not be queried now */
};

/* Whether the answer is that work is unfinished. The thread may learn of a lost context before the application does. */
static bool is_unfinished(CUresult answer)
{
	if (answer != CUDA_SUCCESS && answer != CUDA_ERROR_NOT_READY)
		hb_tenant_note_error(answer);
	return answer == CUDA_ERROR_NOT_READY;
}

/* Removes what destroyed streams left and has ended by now. With the lock held. */
static void remove_ended(void)
{
	for (size_t i = n_rows; i-- > 0;)
		if (rows[i].last && !rows[i].leaves && HB_REAL(cuCtxSetCurrent)(rows[i].context) == CUDA_SUCCESS &&
		    !is_unfinished(HB_REAL(cuEventQuery)(rows[i].last))) {
			HB_REAL(cuEventDestroy_v2)(rows[i].last);
			rows[i] = rows[--n_rows];
		}
}

static bool is_context_busy(struct drain_row *row, const struct drain_poll *poll)
{
	if (!poll->closed || row->marked_at != poll->submitted)
		row->marked = false;
	if (!poll->closed)
		return is_unfinished(HB_REAL(cuStreamQuery)(CU_STREAM_LEGACY));
	if (!row->mark && HB_REAL(cuEventCreate)(&row->mark, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS)
		return false;
	if (!row->marked && HB_REAL(cuEventRecord)(row->mark, CU_STREAM_LEGACY) != CUDA_SUCCESS)
		return false;
	row->marked = true;
	row->marked_at = poll->submitted;
	return is_unfinished(HB_REAL(cuEventQuery)(row->mark));
}

/* A context in an error state answers neither yes nor no and counts as idle, or others would wait for it forever. */
static bool is_row_busy(struct drain_row *row, const struct drain_poll *poll)
{
	if (row->leaves)
		return poll->if_blind;
	if (row->last)
		return true;
	if (HB_REAL(cuCtxSetCurrent)(row->context) != CUDA_SUCCESS)
		return false;
	return row->stream ? is_unfinished(HB_REAL(cuStreamQuery)(row->stream)) : is_context_busy(row, poll);
}

static bool is_gpu_busy(const struct hb_place *place, const struct drain_poll *poll)
{
	bool busy = false;
	pthread_mutex_lock(&lock);
	HB_FAULT(shim_drain_looking);
	bool blind = stopped || atomic_load(&hb_captures) > 0;
	if (blind)
		busy = poll->if_blind;
	else
		remove_ended();
	for (size_t i = 0; i < n_rows && !busy && !blind; i++)
		busy = rows[i].device < HB_PAGE_GPUS && place->gpu_of_device[rows[i].device] == poll->gpu &&
		       is_row_busy(&rows[i], poll);
	HB_REAL(cuCtxSetCurrent)(NULL); /* a context that is current here could not be destroyed */
	pthread_mutex_unlock(&lock);
	return busy;
}

/* ---- for moves of memory ---- */

static atomic_bool has_unknown;

void hb_drain_note_unknown_context(void)
{
	atomic_store(&has_unknown, true);
}

bool hb_drain_knows_context(CUcontext context)
{
	bool known = false;
	pthread_mutex_lock(&lock);
	for (size_t i = 0; i < n_rows && !known; i++)
		known = context && rows[i].context == context && !rows[i].stream && !rows[i].last && !rows[i].leaves;
	pthread_mutex_unlock(&lock);
	return known;
}

CUcontext hb_drain_context_on(CUdevice device)
{
	CUcontext context = NULL;
	pthread_mutex_lock(&lock);
	for (size_t i = 0; i < n_rows && !context; i++)
		if (rows[i].device == device && !rows[i].stream && !rows[i].last && !rows[i].leaves)
			context = rows[i].context;
	pthread_mutex_unlock(&lock);
	return context;
}

/* As with a closed gate, one event in the legacy stream covers all blocking streams of the context. */
static CUresult query_row(struct drain_row *row, bool first)
{
	if (row->leaves || row->last)
		return CUDA_ERROR_NOT_READY;
	CUresult result = HB_REAL(cuCtxSetCurrent)(row->context);
	if (result != CUDA_SUCCESS)
		return result;
	if (row->stream)
		return HB_REAL(cuStreamQuery)(row->stream);
	if (!row->end)
		result = HB_REAL(cuEventCreate)(&row->end, CU_EVENT_DISABLE_TIMING);
	if (result == CUDA_SUCCESS && (first || !row->ending))
		result = HB_REAL(cuEventRecord)(row->end, CU_STREAM_LEGACY);
	row->ending = result == CUDA_SUCCESS;
	return row->ending ? HB_REAL(cuEventQuery)(row->end) : result;
}

CUresult hb_drain_query_all(bool first)
{
	pthread_mutex_lock(&lock);
	CUresult result = stopped ? CUDA_ERROR_DEINITIALIZED : CUDA_SUCCESS;
	if (atomic_load(&has_unknown))
		result = CUDA_ERROR_NOT_SUPPORTED;
	if (!stopped)
		remove_ended();
	for (size_t i = 0; i < n_rows && !stopped && (result == CUDA_SUCCESS || result == CUDA_ERROR_NOT_READY); i++) {
		CUresult answer = query_row(&rows[i], first);
		if (answer != CUDA_SUCCESS)
			result = answer;
	}
	if (!stopped)
		HB_REAL(cuCtxSetCurrent)(NULL);
	pthread_mutex_unlock(&lock);
	return result;
}

/* ---- the thread ---- */

/* The thread keeps this for each GPU from one poll to the next. */
struct drain_memory {
	uint64_t submitted;  /* launches at the last poll */
	unsigned idle_polls; /* polls since the gate is closed and nothing is in flight */
	bool ended;          /* the gate is open and the last poll found nothing; not reported yet */
	bool straggles;      /* the work in flight was found behind the closed gate */
	bool straggler_reported;
};

/* Reports that work is done. Only this thread reports, so its count cannot change meanwhile. */
static void report_completed(struct hb_gate *gate, int64_t in_flight)
{
	if (in_flight > 0 && hb_gate_completed(gate, (uint64_t)in_flight))
		hb_gate_wake(gate); /* for threads that found as much in flight as the depth allows */
	else if (in_flight < 0)     /* a launch that took its count back was reported as done: correct the count */
		hb_gate_bypass(gate, (uint64_t)-in_flight);
}

static bool is_low(const struct hb_place *place)
{
	return atomic_load_explicit(&place->page->priority, memory_order_relaxed) == HB_PAGE_LOW;
}

/* Rings for LP only: turns are taken by LP, and HP reports its requests. */
static void ring_if_low(const struct hb_place *place, unsigned gpu)
{
	if (is_low(place))
		hb_gpu_ring(place, gpu, HB_NEWS_ENDED);
}

/* Called while nothing counts as in flight. Returns whether there is work behind the closed gate. */
static bool find_straggler(const struct hb_place *place, struct hb_gate *gate, struct drain_poll poll,
			   struct drain_memory *memory)
{
	if (!poll.closed) {
		memory->idle_polls = 0;
		return false;
	}
	unsigned n = ++memory->idle_polls;
	if (n > STRAGGLER_POLLS && n % STRAGGLER_SELDOM)
		return false;
	poll.closed = n == STRAGGLER_MARK;
	poll.if_blind = false;
	if (!is_gpu_busy(place, &poll))
		return false;
	hb_gate_bypass(gate, 1);
	memory->straggles = true;
	memory->straggler_reported = false;
	return true;
}

/* The straggler is still running at a second poll, so it is not just our own event. */
static void report_straggler(const struct hb_place *place, unsigned gpu, struct drain_memory *memory)
{
	if (memory->straggles && !memory->straggler_reported)
		ring_if_low(place, gpu);
	memory->straggler_reported = true;
}

/*
 * Called after work was reported done. Behind a closed gate the daemon is notified at once. With an open gate the program may
 * just be between two launches, so the daemon is notified only if the next poll finds nothing either (returns true). The end
 * of a straggler can wait for the daemon's own poll.
 */
static bool ring_unless_between(const struct hb_place *place, unsigned gpu, bool closed, struct drain_memory *memory)
{
	if (closed && !memory->straggles)
		ring_if_low(place, gpu);
	memory->straggles = false;
	memory->ended = !closed;
	return memory->ended;
}

/* Returns whether something is or may be in flight. */
static bool poll_gpu(const struct hb_place *place, unsigned gpu, struct drain_memory *memory)
{
	struct hb_gate *gate = (struct hb_gate *)place->process->gates[gpu];
	uint64_t submitted = atomic_load(&gate->submitted);
	int64_t in_flight = (int64_t)(submitted - atomic_load(&gate->completed));
	bool closed = hb_gate_state(gate) == HB_GATE_CLOSED;
	struct drain_poll poll = {.gpu = gpu, .closed = closed, .submitted = submitted, .if_blind = true};
	bool quiet = submitted == memory->submitted;
	memory->submitted = submitted;
	bool still_idle = memory->ended && in_flight == 0;
	memory->ended = false;
	if (still_idle)
		ring_if_low(place, gpu);
	if (in_flight == 0)
		return find_straggler(place, gate, poll, memory);
	if (!closed)
		memory->straggles = false;
	if (!memory->straggles) /* else the event would be recorded again behind the same closed gate, and be found again */
		memory->idle_polls = 0;
	if (!quiet)
		return true;
	if (is_gpu_busy(place, &poll)) {
		report_straggler(place, gpu, memory);
		return true;
	}
	if (atomic_load(&gate->submitted) != submitted)
		return true;
	report_completed(gate, in_flight);
	HB_FAULT(shim_drain_reported);
	return ring_unless_between(place, gpu, closed, memory);
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

/*
 * Whether the daemon wants news of the GPU. The GPU page may be mapped again at this moment, at the same address; either
 * mapping will do. The thread sanitizer takes the mapping for a write.
 */
__attribute__((no_sanitize("thread"))) static bool is_listened_to(const struct hb_place *place, unsigned gpu)
{
	return place->gpus[gpu] && atomic_load_explicit(&place->gpus[gpu]->listening, memory_order_relaxed);
}

/* Whether another process waits for the answer. */
static bool is_waited_for(const struct hb_place *place, unsigned gpu)
{
	uint32_t engine = engine_of(place, gpu);
	return engine == HB_ENGINE_TURNS ||
	       (is_low(place) && (engine == HB_ENGINE_SPATIAL || is_listened_to(place, gpu)));
}

/*
 * In the temporal engine LP is polled seldom, only to show whether HP's requests had the GPU to themselves. In the spatial
 * engine HP is polled seldom, too, because this thread's CPU may be the sibling of the CPU that serves requests.
 */
static bool is_polled(const struct hb_place *place, unsigned gpu)
{
	uint32_t engine = engine_of(place, gpu);
	return is_waited_for(place, gpu) || engine == HB_ENGINE_SPATIAL ||
	       (engine == HB_ENGINE_TEMPORAL && is_low(place));
}

/* Polls all GPUs once. Returns how long to sleep afterwards. */
static long poll_all(const struct hb_place *place, struct drain_memory memories[HB_PAGE_GPUS])
{
	bool busy = false, polled = false;
	for (unsigned gpu = 0; gpu < count_gpus(place); gpu++) {
		if (!is_polled(place, gpu))
			continue;
		polled = true;
		busy |= poll_gpu(place, gpu, &memories[gpu]) && is_waited_for(place, gpu);
	}
	hb_shim_spatial_update_alert(place);
	hb_shim_spatial_update_boards(place);
	hb_launch_trace_refresh(place);
	if (!polled)
		return POLL_UNUSED_NS;
	hb_rm_watch_apply(); /* the process's own threads may be in a call that waits for work with the old time slice */
	return busy ? POLL_BUSY_NS : POLL_IDLE_NS;
}

static void *run_drain_thread(void *unused)
{
	struct drain_memory memories[HB_PAGE_GPUS];
	for (unsigned gpu = 0; gpu < HB_PAGE_GPUS; gpu++)
		memories[gpu] = (struct drain_memory){.submitted = UINT64_MAX};
	for (;;)
		nanosleep(&(struct timespec){.tv_nsec = poll_all(hb_place(), memories)}, NULL);
	return NULL;
}

/* Runs before the driver's own exit handlers, which were registered earlier. */
static void stop_at_exit(void)
{
	pthread_mutex_lock(&lock);
	stopped = true;
	pthread_mutex_unlock(&lock);
}

static bool start_drain_thread(void)
{
	static atomic_flag has_exit_handler = ATOMIC_FLAG_INIT; /* a forked child inherits the handler */
	if (!atomic_flag_test_and_set(&has_exit_handler) && atexit(stop_at_exit) != 0) {
		atomic_flag_clear(&has_exit_handler);
		return false;
	}
	return hb_thread_start(NULL, 0, run_drain_thread, NULL) == 0;
}

/*
 * An LP process always runs the thread. When the engine changes to one that needs it, the process may not be making CUDA calls,
 * and the others would wait forever for the report that its work is done.
 */
static bool is_needed(const struct hb_place *place)
{
	bool needed = place->page && is_low(place);
	for (unsigned gpu = 0; !needed && gpu < count_gpus(place); gpu++)
		needed = is_polled(place, gpu);
	return needed;
}

void hb_drain_start_if_needed(const struct hb_place *place)
{
	if (!atomic_load_explicit(&started, memory_order_relaxed) && is_needed(place) &&
	    !atomic_exchange(&started, true) && !start_drain_thread())
		atomic_store(&started, false); /* the next slow call tries again */
}

void hb_drain_leave_in_child(void)
{
	pthread_mutex_init(&lock, NULL);
	rows = NULL; /* not freed: another thread may have held the allocator's lock at the fork */
	n_rows = room = 0;
	atomic_store(&has_unknown, false);
	atomic_store(&started, false);
}
