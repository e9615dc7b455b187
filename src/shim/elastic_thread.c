/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The thread of an elastic process: carries out the daemon's orders to move memory,
 * and prepares memory of the host for moves. docs/decisions/0025-elastic-memory.md
 * has the steps of a move and their bounds. The thread makes driver calls in
 * relaxed capture mode only, none that could end a capture, and has no context
 * between orders.
 */
#include "base/clock.h"
#include "base/log.h"
#include "base/thread.h"
#include "shim/drain.h"
#include "shim/elastic.h"
#include "shim/hold.h"
#include "shim/shim.h"

#include <dirent.h>
#include <inttypes.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define QUIET_MOST_NS (3 * HB_NS_PER_S) /* calls are held back until the work in flight has ended, at most this long */
#define HOME_MOST_NS (3 * HB_NS_PER_S)  /* for memory that is to be shared */
#define SLICE_BYTES \
	((size_t)256 << 20) /* a large order is carried out in slices: what has moved when it expires stays */
#define LEAST_BYTES ((size_t)256 << 20) /* moves to the host: waiting for quiet costs as much for less */
#define PROBE_BYTES HB_GRANULE_BYTES_MAX
#define PROBE_LEAST_BYTES ((size_t)128 << 20) /* to a peer; at 50 GB/s four probes take a few ms */
#define UNDO_MOST_NS (2 * HB_NS_PER_S)
#define LOOK_NS (100 * HB_NS_PER_US) /* between two looks at work in flight */
#define UNDO_AGAIN_NS (10 * HB_NS_PER_MS)
/* After a move. Page-locking delays other programs' driver calls, such as the allocation for which memory moved. */
#define SPARES_AFTER_NS HB_NS_PER_S
#define IDLE_NS (100 * HB_NS_PER_MS) /* the longest sleep; sizes on the page may be older by this */

static atomic_bool started;
static atomic_bool changed;

/* Held while the thread acts; guards the next. */
static pthread_mutex_t acting = PTHREAD_MUTEX_INITIALIZER;
static bool stopped;            /* the process is exiting: the driver may be gone */
static int64_t spares_after_ns; /* until then no host memory is prepared */

/* The host; its granules are on the node that is nearest to their device, whatever the number here. */
static const CUmemLocation host = {CU_MEM_LOCATION_TYPE_HOST_NUMA, 0};

void hb_elastic_note_change(void)
{
	if (atomic_load_explicit(&hb_elastic_any, memory_order_relaxed))
		atomic_store_explicit(&changed, true, memory_order_relaxed);
}

static bool is_capturing(void)
{
	return atomic_load(&hb_captures) > 0;
}

static void nap(int64_t ns)
{
	nanosleep(&(struct timespec){.tv_nsec = ns}, NULL);
}

/* ---- devices that are no GPU ---- */

static bool names_device(const char *path)
{
	static const char *const begins[] = {"/dev/infiniband/", "/dev/gdrdrv", "/dev/nvidia-fs"};
	for (size_t i = 0; i < sizeof(begins) / sizeof(begins[0]); i++)
		if (strncmp(path, begins[i], strlen(begins[i])) == 0)
			return true;
	return false;
}

/* The answer is yes if it cannot be found out. */
bool hb_elastic_is_known_to_devices(void)
{
	DIR *folder = opendir("/proc/self/fd");
	const struct dirent *entry;
	bool known = !folder;
	while (folder && !known && (entry = readdir(folder))) {
		char path[64];
		ssize_t n = readlinkat(dirfd(folder), entry->d_name, path, sizeof(path) - 1);
		path[n > 0 ? n : 0] = '\0';
		known = names_device(path);
	}
	if (folder)
		closedir(folder);
	return known;
}

/* ---- one move ---- */

/* The steps of a move, whose times the log shows (HB_LOG=info). */
enum move_step { STEP_PREPARE, STEP_QUIET, STEP_COPY, STEP_EXCHANGE, STEP_END, MOVE_STEPS };

/* The state of moving one part of an order. */
struct elastic_move {
	struct hb_page_elastic *record; /* NULL: the program itself wants an allocation home */
	CUdeviceptr only;               /* then, its address */
	const CUmemLocation *from, *to; /* otherwise */
	const struct hb_elastic_order *order;
	struct hb_granules *granules;
	struct hb_granule_move *move, *next; /* the slice that is exchanged next, and the one that then follows */
	int device;
	CUstream stream;
	bool broken;
	int64_t step_ns[MOVE_STEPS], clock_ns; /* times; when the present step began */
};

/* Counts the time since the last call for this step. */
static void end_step(struct elastic_move *m, enum move_step step)
{
	int64_t now_ns = hb_clock_now_ns();
	m->step_ns[step] += now_ns - m->clock_ns;
	m->clock_ns = now_ns;
}

static void log_steps(const struct elastic_move *m, size_t bytes)
{
	const int64_t *ns = m->step_ns;
	const char *where = m->only || (m->to->type == CU_MEM_LOCATION_TYPE_DEVICE && m->to->id == m->device) ? "home"
			    : m->to->type == CU_MEM_LOCATION_TYPE_DEVICE ? "to a peer"
									 : "to the host";
	hb_log_info("elastic memory: moved %zu MiB %s; preparing took %" PRId64
		    " us, waiting for work in flight %" PRId64 ", for copies %" PRId64 ", exchanging %" PRId64
		    ", giving back %" PRId64,
		    bytes >> 20, where, ns[STEP_PREPARE] / HB_NS_PER_US, ns[STEP_QUIET] / HB_NS_PER_US,
		    ns[STEP_COPY] / HB_NS_PER_US, ns[STEP_EXCHANGE] / HB_NS_PER_US, ns[STEP_END] / HB_NS_PER_US);
}

static bool is_late(const struct elastic_move *m)
{
	return hb_clock_now_ns() >= m->order->expires_ns || (m->record && !hb_elastic_is_awaited(m->record, m->order));
}

/* With calls held back. Waits until all work that the process has given to its GPUs is done. */
static bool wait_until_quiet(int64_t until_ns)
{
	CUresult result = hb_drain_query_all(true);
	while (result == CUDA_ERROR_NOT_READY && hb_clock_now_ns() < until_ns) {
		nap(LOOK_NS);
		result = hb_drain_query_all(false);
	}
	return result == CUDA_SUCCESS;
}

static bool open_stream(struct elastic_move *m)
{
	CUcontext context = hb_drain_context_on(m->device);
	return context && HB_REAL(cuCtxSetCurrent)(context) == CUDA_SUCCESS &&
	       HB_REAL(cuStreamCreate)(&m->stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS;
}

static enum hb_move_result await_copy(struct elastic_move *m)
{
	CUresult result;
	while ((result = hb_granule_move_poll(m->move)) == CUDA_ERROR_NOT_READY && !is_late(m))
		nap(LOOK_NS);
	if (result == CUDA_SUCCESS && !is_late(m))
		return HB_MOVE_MOVED;
	return result == CUDA_SUCCESS || result == CUDA_ERROR_NOT_READY ? HB_MOVE_LATE : HB_MOVE_FAILED;
}

static enum hb_move_result start_copy(struct elastic_move *m, struct hb_granule_move *move)
{
	return hb_granule_move_copy(move, m->stream) == CUDA_SUCCESS ? HB_MOVE_MOVED : HB_MOVE_FAILED;
}

static enum hb_move_result copy_granules(struct elastic_move *m)
{
	enum hb_move_result reason = start_copy(m, m->move);
	return reason == HB_MOVE_MOVED ? await_copy(m) : reason;
}

/* The driver has mapped this memory there before, so that it should do so again. */
static void repair(struct elastic_move *m)
{
	int64_t until_ns = hb_clock_now_ns() + UNDO_MOST_NS;
	while (hb_granule_move_is_broken(m->move) && hb_clock_now_ns() < until_ns) {
		nap(UNDO_AGAIN_NS);
		(void)hb_granule_move_undo(m->move);
	}
	m->broken = hb_granule_move_is_broken(m->move);
	if (m->broken)
		hb_log_error(
			"elastic memory: the driver refused to map memory again that was to move; further CUDA calls fail. Start the program again, with elastic memory off if this is repeated");
}

/* With calls held back and no work in flight. */
static enum hb_move_result exchange_granules(struct elastic_move *m, size_t *bytes)
{
	*bytes = hb_granule_move_bytes(m->move);
	if (hb_granule_move_exchange(m->move) == CUDA_SUCCESS)
		return HB_MOVE_MOVED;
	*bytes = 0;
	repair(m);
	return m->broken ? HB_MOVE_BROKEN : HB_MOVE_FAILED;
}

/* Prepares the move of a slice of `wanted` bytes. */
static enum hb_move_result begin_slice(const struct elastic_move *m, size_t wanted, struct hb_granule_move **move)
{
	size_t bytes = wanted < SLICE_BYTES ? wanted : SLICE_BYTES;
	*move = NULL;
	if (is_late(m))
		return HB_MOVE_LATE;
	CUresult result = m->only ? hb_granule_move_begin_home(m->granules, m->only, bytes, move)
				  : hb_granule_move_begin(m->granules, m->from, m->to, bytes, move);
	if (result == CUDA_SUCCESS)
		return HB_MOVE_MOVED;
	*move = NULL;
	return result == CUDA_ERROR_NOT_FOUND ? HB_MOVE_NOTHING : HB_MOVE_NO_ROOM;
}

/* Whether a move that began then took little of the time of its order, so that more can move before the answer. */
static bool was_quick(const struct elastic_move *m, int64_t begin_ns)
{
	int64_t now_ns = hb_clock_now_ns();
	return (now_ns - begin_ns) * 8 < m->order->expires_ns - now_ns;
}

/* What is to move in one order: as much as wanted, and up to `most` if that is quick. */
struct order_size {
	size_t wanted, most;
	int64_t begin_ns;
};

/* While the present slice is copied: prepares the one that follows it, if there is more to move. */
static enum hb_move_result begin_next_slice(struct elastic_move *m, const struct order_size *size, size_t moved)
{
	size_t then = moved + hb_granule_move_bytes(m->move);
	if (then >= size->most || (then >= size->wanted && !was_quick(m, size->begin_ns)))
		return HB_MOVE_MOVED;
	return begin_slice(m, (then < size->wanted ? size->wanted : size->most) - then, &m->next);
}

/*
 * With the first slice prepared, calls held back and no work in flight. A slice is prepared, exchanged and given back while another
 * is copied, because mapping takes as long as copying. The caller ends the moves that are left after a failure.
 */
static enum hb_move_result move_slices(struct elastic_move *m, const struct order_size *size, size_t *moved)
{
	enum hb_move_result reason = open_stream(m) ? start_copy(m, m->move) : HB_MOVE_FAILED;
	while (reason == HB_MOVE_MOVED && m->move) {
		size_t bytes = 0;
		enum hb_move_result following = begin_next_slice(m, size, *moved);
		end_step(m, STEP_PREPARE);
		reason = await_copy(m);
		if (reason == HB_MOVE_MOVED && m->next)
			following = start_copy(m, m->next);
		end_step(m, STEP_COPY);
		if (reason == HB_MOVE_MOVED)
			reason = exchange_granules(m, &bytes);
		end_step(m, STEP_EXCHANGE);
		*moved += bytes;
		if (reason != HB_MOVE_MOVED)
			break;
		hb_granule_move_end(m->move);
		end_step(m, STEP_END);
		m->move = m->next;
		m->next = NULL;
		reason = following;
	}
	return reason;
}

static void wait_and_close_stream(struct elastic_move *m)
{
	if (!m->stream)
		return;
	if (m->move)
		hb_granule_move_wait(m->move);
	if (m->next)
		hb_granule_move_wait(m->next);
	(void)HB_REAL(cuStreamDestroy_v2)(m->stream);
}

/* With the first slice prepared. Ends all moves. */
static enum hb_move_result carry_out(struct elastic_move *m, struct order_size *size, size_t *moved)
{
	int64_t until_ns = hb_clock_now_ns() + QUIET_MOST_NS;
	enum hb_move_result reason;
	if (until_ns > m->order->expires_ns)
		until_ns = m->order->expires_ns;
	bool held = hb_hold_begin(until_ns);
	if (held && is_capturing())
		reason = HB_MOVE_CAPTURE;
	else if (!held || !wait_until_quiet(until_ns))
		reason = is_late(m) ? HB_MOVE_LATE : HB_MOVE_BUSY;
	else {
		end_step(m, STEP_QUIET);
		size->begin_ns = m->clock_ns;
		reason = move_slices(m, size, moved);
	}
	wait_and_close_stream(m); /* while calls are held, no context can be destroyed */
	if (reason == HB_MOVE_MOVED && m->order->pause)
		hb_elastic_park(m->device);
	if (held)
		hb_elastic_end_hold(m->broken);
	if (m->move)
		hb_granule_move_end(m->move);
	if (m->next)
		hb_granule_move_end(m->next);
	HB_REAL(cuCtxSetCurrent)(NULL);
	return reason;
}

/* Adds what has moved to *moved. Moves up to `most` if that is quick; what is missing from `wanted` is a failure. */
static enum hb_move_result move_memory(struct elastic_move *m, size_t wanted, size_t most, size_t *moved)
{
	struct order_size size = {.wanted = wanted, .most = most};
	size_t bytes = 0;
	if (is_capturing())
		return HB_MOVE_CAPTURE;
	m->stream = NULL;
	m->next = NULL;
	memset(m->step_ns, 0, sizeof(m->step_ns));
	m->clock_ns = hb_clock_now_ns();
	enum hb_move_result reason = begin_slice(m, wanted, &m->move);
	end_step(m, STEP_PREPARE);
	if (reason == HB_MOVE_MOVED)
		reason = carry_out(m, &size, &bytes);
	log_steps(m, bytes);
	*moved += bytes;
	return bytes >= wanted && reason != HB_MOVE_BROKEN ? HB_MOVE_MOVED : reason;
}

/* More than the order asks for moves to the host only as far as memory is prepared there. */
static enum hb_move_result move_part(struct elastic_move *m, const CUmemLocation *from, const CUmemLocation *to,
				     size_t wanted, size_t *moved)
{
	struct hb_granules_bytes counts;
	size_t most = wanted;
	hb_granules_count(m->granules, &counts);
	if (to == &host && most < LEAST_BYTES && most < counts.spare)
		most = counts.spare < LEAST_BYTES ? counts.spare : LEAST_BYTES;
	m->from = from;
	m->to = to;
	return move_memory(m, wanted, most, moved);
}

/* ---- memory that is to be shared ---- */

static CUresult result_of(enum hb_move_result reason)
{
	switch (reason) {
	case HB_MOVE_MOVED:
	case HB_MOVE_NOTHING:
		return CUDA_SUCCESS;
	case HB_MOVE_NO_ROOM:
		return CUDA_ERROR_OUT_OF_MEMORY;
	case HB_MOVE_CAPTURE:
		return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	case HB_MOVE_BROKEN:
		return CUDA_ERROR_ILLEGAL_STATE;
	default:
		return CUDA_ERROR_NOT_READY;
	}
}

CUresult hb_elastic_bring_home(const struct hb_elastic_found *found)
{
	struct hb_granules *granules = hb_elastic_granules(found->device);
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	CUcontext context = NULL;
	size_t moved = 0;
	enum hb_move_result reason = HB_MOVE_FAILED;
	if (hb_granules_is_home(granules, found->range.base))
		return CUDA_SUCCESS;
	HB_REAL(cuCtxGetCurrent)(&context);
	HB_REAL(cuThreadExchangeStreamCaptureMode)(&mode);
	pthread_mutex_lock(&acting);
	const struct hb_elastic_order order = {.expires_ns = hb_clock_now_ns() + HOME_MOST_NS};
	struct elastic_move m = {
		.order = &order, .only = found->range.base, .granules = granules, .device = found->device};
	if (!stopped)
		reason = move_memory(&m, SIZE_MAX, SIZE_MAX, &moved);
	pthread_mutex_unlock(&acting);
	HB_REAL(cuThreadExchangeStreamCaptureMode)(&mode);
	HB_REAL(cuCtxSetCurrent)(context);
	hb_elastic_note_change();
	return result_of(reason);
}

/* ---- orders ---- */

/* How long copying PROBE_BYTES to the place takes, at best of two times; INT64_MAX: it cannot be done. Nothing moves. */
static int64_t probe(struct elastic_move *m, const CUmemLocation *from, const CUmemLocation *to)
{
	int64_t best_ns = INT64_MAX;
	for (int i = 0; i < 2 && !is_late(m); i++) {
		m->stream = NULL;
		if (hb_granule_move_begin(m->granules, from, to, PROBE_BYTES, &m->move) != CUDA_SUCCESS)
			return INT64_MAX;
		bool open = open_stream(m);
		int64_t begin_ns = hb_clock_now_ns();
		bool done = open && copy_granules(m) == HB_MOVE_MOVED;
		int64_t took_ns = hb_clock_now_ns() - begin_ns;
		hb_granule_move_end(m->move);
		if (m->stream)
			(void)HB_REAL(cuStreamDestroy_v2)(m->stream);
		HB_REAL(cuCtxSetCurrent)(NULL);
		if (done && took_ns < best_ns)
			best_ns = took_ns;
	}
	return best_ns;
}

/* Whether the host takes memory faster than the peer now. A short copy says so; for less memory it is not worth it. */
static bool is_congested(struct elastic_move *m, const CUmemLocation *here, const CUmemLocation *peer)
{
	struct hb_granules_bytes counts;
	hb_granules_count(m->granules, &counts);
	if (m->order->peer_bytes < PROBE_LEAST_BYTES || counts.spare < m->order->peer_bytes || is_capturing())
		return false;
	return probe(m, here, peer) > probe(m, here, &host);
}

/* What cannot go to the peer goes to the host, for which memory is prepared. */
static enum hb_move_result move_away(struct elastic_move *m, const CUmemLocation *here, const CUmemLocation *peer,
				     size_t *moved)
{
	const struct hb_elastic_order *order = m->order;
	size_t all = order->peer_bytes + order->host_bytes;
	enum hb_move_result reason = HB_MOVE_MOVED;
	if (order->peer_bytes && order->peer >= 0 && !is_congested(m, here, peer))
		reason = move_part(m, here, peer, order->peer_bytes, moved);
	if (reason == HB_MOVE_BROKEN || *moved >= all)
		return reason;
	if (reason != HB_MOVE_MOVED && reason != HB_MOVE_NO_ROOM && reason != HB_MOVE_FAILED)
		return reason;
	return move_part(m, here, &host, all - *moved, moved);
}

static enum hb_move_result execute_order(struct elastic_move *m, size_t *moved)
{
	const struct hb_elastic_order *order = m->order;
	const CUmemLocation here = {CU_MEM_LOCATION_TYPE_DEVICE, m->device};
	const CUmemLocation peer = {CU_MEM_LOCATION_TYPE_DEVICE, order->peer};
	if (hb_elastic_is_known_to_devices())
		return HB_MOVE_NOTHING;
	if (order->leave)
		return order->peer < 0 ? HB_MOVE_NO_ROOM : move_part(m, &peer, &host, order->peer_bytes, moved);
	if (!order->home)
		return move_away(m, &here, &peer, moved);
	enum hb_move_result second, reason = HB_MOVE_MOVED;
	if (order->peer_bytes)
		reason = order->peer < 0 ? HB_MOVE_NO_ROOM : move_part(m, &peer, &here, order->peer_bytes, moved);
	if (!order->host_bytes || reason == HB_MOVE_BROKEN)
		return reason;
	second = move_part(m, &host, &here, order->host_bytes, moved);
	return reason == HB_MOVE_MOVED || second == HB_MOVE_BROKEN ? second : reason;
}

static void serve_order(const struct hb_place *place, int device, struct hb_page_elastic *record)
{
	struct hb_elastic_order order;
	size_t moved = 0;
	if (!hb_elastic_read_order(record, &order))
		return;
	struct elastic_move m = {
		.record = record, .order = &order, .granules = hb_elastic_granules(device), .device = device};
	enum hb_move_result reason = execute_order(&m, &moved);
	if (order.home)
		hb_elastic_note_home(device);
	else
		spares_after_ns = hb_clock_now_ns() + SPARES_AFTER_NS;
	hb_elastic_answer(place, device, record, &order, reason, moved);
}

/* ---- the thread ---- */

/* One step towards the spare memory that the daemon permits. Returns whether there is more to do. */
static bool keep_spares(struct hb_granules *granules)
{
	bool more = false;
	if (is_capturing() || hb_clock_now_ns() < spares_after_ns ||
	    hb_granules_keep_spares(granules, &more) != CUDA_SUCCESS)
		return false;
	if (more)
		hb_elastic_note_change();
	return more;
}

/*
 * Memory on the host that is not on the account gets onto it when there is room; the daemon then orders it home. What has come
 * home without that, because it is shared now, gets onto it in any case.
 */
static void settle_over(const struct hb_place *place, int device, struct hb_granules *granules)
{
	struct hb_granules_bytes counts;
	struct hb_claim claim = {.gpu = place->gpu_of_device[device]};
	hb_granules_count(granules, &counts);
	if (!counts.over)
		return;
	size_t home = counts.over > counts.host ? counts.over - counts.host : 0;
	size_t part = hb_memory_claim_part(&claim, claim.gpu, counts.over - home, HB_GRANULE_UNIT);
	size_t counted = hb_granules_count_over(granules, part + home);
	if (counted != claim.bytes)
		hb_memory_adjust(&claim, counted);
	if (counted)
		hb_elastic_note_change();
}

/* Returns whether it should be called again at once. */
static bool serve_devices(const struct hb_place *place)
{
	bool more = false;
	bool publish = atomic_exchange_explicit(&changed, false, memory_order_relaxed);
	for (int device = 0; device < HB_PAGE_GPUS; device++) {
		struct hb_granules *granules = hb_elastic_granules(device);
		struct hb_page_elastic *record = granules ? hb_elastic_record(place, device) : NULL;
		if (!record)
			continue;
		hb_granules_limit_host(granules, atomic_load_explicit(&record->host_limit_bytes, memory_order_relaxed));
		if (!is_capturing() && hb_granule_moves_finish(granules))
			hb_elastic_note_change();
		serve_order(place, device, record);
		settle_over(place, device, granules);
		more |= keep_spares(granules);
		if (publish)
			hb_elastic_publish(place, device);
	}
	return more;
}

/* The word is shared with the daemon, so not FUTEX_PRIVATE. */
static void sleep_until_order(hb_page_u32 *word, uint32_t seen)
{
	const struct timespec most = {.tv_nsec = IDLE_NS};
	if (word)
		syscall(SYS_futex, word, FUTEX_WAIT, seen, &most, NULL, 0);
	else
		nanosleep(&most, NULL);
}

static void *run_thread(void *unused)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	prctl(PR_SET_NAME, "hb-elastic");
	HB_REAL(cuThreadExchangeStreamCaptureMode)(&mode);
	for (;;) {
		const struct hb_place *place = hb_place();
		hb_page_u32 *word = place->page ? &place->page->order_bell : NULL;
		uint32_t seen = word ? atomic_load(word) : 0;
		pthread_mutex_lock(&acting);
		bool more = place->page && !stopped && serve_devices(place);
		if (!stopped)
			hb_elastic_serve_parked(place);
		pthread_mutex_unlock(&acting);
		if (!more)
			sleep_until_order(word, seen);
	}
	return NULL;
}

/* Runs before the driver's own exit handlers, which were registered earlier. Waits for the end of a move. */
static void stop_at_exit(void)
{
	pthread_mutex_lock(&acting);
	stopped = true;
	hb_elastic_unpark(hb_place());
	pthread_mutex_unlock(&acting);
}

bool hb_elastic_start_thread(void)
{
	static atomic_flag has_exit_handler = ATOMIC_FLAG_INIT; /* a forked child inherits the handler */
	if (atomic_exchange(&started, true))
		return true;
	bool running = (atomic_flag_test_and_set(&has_exit_handler) || atexit(stop_at_exit) == 0) &&
		       hb_thread_start(NULL, 0, run_thread, NULL) == 0;
	atomic_store(&started, running);
	return running;
}

void hb_elastic_thread_leave_in_child(void)
{
	pthread_mutex_init(&acting, NULL);
	stopped = false;
	hb_elastic_park_leave_in_child();
	atomic_store(&started, false);
	atomic_store(&changed, false);
}
