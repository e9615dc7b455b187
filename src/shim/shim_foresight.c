/* SPDX-License-Identifier: Apache-2.0 */
/* See shim_foresight.h. */
#include "shim/shim_foresight.h"

#include "base/clock.h"
#include "shim/page_requests.h"
#include "shim/shim.h"
#include "shim/shim_spatial.h"
#include "shim/shim_tenant.h"
#include "signs/signs.h"

#include <dlfcn.h>
#include <string.h>
#include <time.h>

#define NAP_NS (20 * HB_NS_PER_US)
#define TRIES 200 /* about 1 us; the holder of the lock leaves sooner unless it has lost its CPU */

atomic_bool hb_shim_foresight_wanted;
atomic_bool hb_shim_foresight_announces;

/* A lock that is held for a few hundred ns at a time; it guards the next four variables. */
static atomic_bool taken;
static struct hb_process_foresight process;
static bool begun;             /* `process` is initialised */
static uint32_t request_flags; /* of the inferred request that runs */

static atomic_bool reports_requests; /* the application reports its requests itself, so none are inferred */
static atomic_bool thread_runs;
static atomic_bool sign_seen;   /* without a sign the takeover thread has nothing to do */
static atomic_bool idle_missed; /* hb_shim_foresight_idle() could not get the lock */

/* The request that the calling thread has reported with hb_request_begin(). */
struct reported_request {
	int64_t begin_ns, deadline_ns;
	int64_t harm_ns; /* delay caused by LP, summed over the request's parts; each part ends with a wait */
	bool measured;
	uint32_t flags;
};
static __thread struct reported_request reported __attribute__((tls_model("initial-exec")));
static __thread struct hb_process_wait waiting __attribute__((tls_model("initial-exec")));

static bool try_enter(void)
{
	for (int i = 0; i < TRIES; i++)
		if (!atomic_load_explicit(&taken, memory_order_relaxed) &&
		    !atomic_exchange_explicit(&taken, true, memory_order_acquire))
			return true;
	return false;
}

/* Only in calls that are slow anyway. Sleeps, because the holder of the lock may need this CPU. */
static void enter(void)
{
	const struct timespec nap = {.tv_nsec = NAP_NS};
	while (!try_enter())
		nanosleep(&nap, NULL);
}

static void leave(void)
{
	atomic_store_explicit(&taken, false, memory_order_release);
}

/* Reads the GPUs on which this process has launched. What happens on others does not concern it. */
static uint32_t read_gpu_facts(struct hb_gpu_facts *facts)
{
	const struct hb_place *place = hb_place();
	uint32_t n = 0;
	for (uint32_t i = 0; place->page && i < place->page->n_gpus && i < HB_PAGE_GPUS; i++) {
		const struct hb_gpu_page *gpu = place->gpus[i];
		if (!gpu || !atomic_load_explicit(&((struct hb_gate *)place->process->gates[i])->submitted,
						  memory_order_relaxed))
			continue;
		facts[n].low_present = atomic_load_explicit(&gpu->tenants_low, memory_order_relaxed) > 0;
		facts[n++].high_at_work = atomic_load_explicit(&gpu->high_at_work, memory_order_relaxed);
	}
	return n;
}

/* A counter of everything a process sees and does that may cost LP time; 0 = the process is gone. */
static uint64_t read_activity(const struct hb_page_process *member)
{
	static const enum hb_page_counter parts[] = {HB_COUNT_signs, HB_COUNT_signs_dropped, HB_COUNT_takeovers};
	uint64_t activity = 0;
	if (atomic_load_explicit(&member->state, memory_order_relaxed) != HB_PAGE_ACTIVE)
		return 0;
	for (size_t i = 0; i < sizeof(parts) / sizeof(*parts); i++)
		activity += atomic_load_explicit(&member->counters[parts[i]], memory_order_relaxed);
	return activity;
}

static void note_activity(int64_t now_ns)
{
	const struct hb_place *place = hb_place();
	uint64_t activity[HB_PAGE_PROCESSES];
	uint32_t n = 0;
	_Static_assert(HB_PAGE_PROCESSES <= HB_FORESIGHT_SHARERS, "the activity of every process is read");
	for (; place->page && n < HB_PAGE_PROCESSES; n++)
		activity[n] = read_activity(&place->page->processes[n]);
	hb_process_foresight_note_activity(&process, now_ns, activity, n,
					   place->page ? (uint32_t)(place->process - place->page->processes) : 0);
}

/* With the lock held. */
static void refresh_facts(int64_t now_ns)
{
	struct hb_gpu_facts facts[HB_PAGE_GPUS];
	if (!begun)
		hb_process_foresight_init(&process);
	begun = true;
	if (!hb_process_foresight_wants_facts(&process, now_ns))
		return;
	uint32_t n = read_gpu_facts(facts);
	if (hb_process_foresight_wants_activity(&process, now_ns))
		note_activity(now_ns);
	hb_process_foresight_note_gpus(&process, now_ns, facts, n);
}

/*
 * After the lock was left. Letting the GPU go is one store; everything else is left to the takeover thread. A sign during the
 * work, as of a thread that reads sockets, leaves alone what was arranged for after the work.
 */
static void follow_plan(const struct hb_takeover_plan *before, const struct hb_takeover_plan *after)
{
	struct hb_takeover_change change = hb_takeover_compare(before, after);
	if (change.release)
		hb_takeover_release_now();
	hb_takeover_thread_call(change.call_for_ns);
}

/* With the lock held. */
static void note_idle(int64_t now_ns, int64_t keep_ns)
{
	int64_t since_ns = process.request_since_ns;
	hb_process_foresight_idle(&process, now_ns, keep_ns);
	if (since_ns && !atomic_load_explicit(&reports_requests, memory_order_relaxed))
		hb_page_requests_post(since_ns, now_ns, 0, request_flags);
	hb_page_requests_end(since_ns);
	atomic_fetch_or(&hb_shim_alert, HB_ALERT_FIRST);
}

/* With the lock held: handles an end of work that another thread could not report. */
static void catch_up(int64_t now_ns)
{
	refresh_facts(now_ns);
	if (atomic_load_explicit(&idle_missed, memory_order_relaxed) && atomic_exchange(&idle_missed, false))
		note_idle(now_ns, 0);
}

/* ---- the spatial engine ---- */

static bool announces(void)
{
	return atomic_load_explicit(&hb_shim_foresight_announces, memory_order_relaxed);
}

/* With the lock held. */
static void begin_announcing(void)
{
	if (!begun)
		hb_process_foresight_init_masks(&process);
	begun = true;
}

/* With the lock held; leaves it. Tells LP when the next request is expected. */
static void announce_and_leave(int64_t now_ns)
{
	struct hb_foresight_expected expected;
	if (!hb_foresight_expects(&process.foresight, now_ns, &expected))
		expected = (struct hb_foresight_expected){0};
	leave();
	hb_shim_spatial_high_expect(expected.from_ns, expected.until_ns);
}

static void announce_after_sign(enum hb_sign kind, uint64_t source, uint32_t who, int64_t expected_ns)
{
	if (!try_enter()) {
		hb_shim_count(HB_COUNT_signs_dropped, 1);
		return;
	}
	int64_t now_ns = hb_clock_now_ns();
	begin_announcing();
	hb_process_foresight_sign(&process, now_ns, kind, source, who, expected_ns);
	announce_and_leave(now_ns);
	hb_shim_count(HB_COUNT_signs, 1);
}

/* The request is on the board already: what is learned from its first launch does not delay LP's answer to it. */
static void learn_first_launch(void)
{
	if (!announces() || !try_enter())
		return;
	begin_announcing();
	hb_process_foresight_launch(&process, hb_clock_now_ns());
	leave();
}

static void announce_after_work(void)
{
	if (!announces() || !try_enter())
		return;
	int64_t now_ns = hb_clock_now_ns();
	begin_announcing();
	hb_process_foresight_idle(&process, now_ns, 0);
	announce_and_leave(now_ns);
}

/* ---- signs, launches and waits ---- */

void hb_shim_foresight_sign(enum hb_sign kind, uint64_t source, uint32_t who, int64_t expected_ns)
{
	if (announces())
		announce_after_sign(kind, source, who, expected_ns);
	if (!atomic_load_explicit(&hb_shim_foresight_wanted, memory_order_relaxed))
		return;
	if (!atomic_load_explicit(&sign_seen, memory_order_relaxed))
		atomic_store(&sign_seen, true);
	if (!try_enter()) {
		hb_shim_count(HB_COUNT_signs_dropped, 1);
		return;
	}
	int64_t now_ns = hb_clock_now_ns();
	catch_up(now_ns);
	struct hb_takeover_plan before = hb_process_foresight_plan(&process);
	hb_process_foresight_sign(&process, now_ns, kind, source, who, expected_ns);
	struct hb_takeover_plan after = hb_process_foresight_plan(&process);
	leave();
	hb_shim_count(HB_COUNT_signs, 1);
	/* A call of the client API comes from outside the driver; bytes may be read by the driver itself. */
	if (kind == HB_SIGN_API && after.until_ns && after.since_ns != before.since_ns)
		hb_takeover_thread_save_waking(&after);
	follow_plan(&before, &after);
}

void hb_shim_foresight_first_call(uint64_t source)
{
	if (atomic_load_explicit(&hb_shim_alert, memory_order_relaxed) & HB_ALERT_FIRST)
		hb_shim_foresight_sign(HB_SIGN_CALL, source, 0, 0);
}

/* The takeover ends with the launch that follows (forward.c). */
void hb_shim_foresight_launch(void)
{
	if (!atomic_load_explicit(&hb_shim_foresight_wanted, memory_order_relaxed)) {
		atomic_fetch_and(&hb_shim_alert, ~(uint32_t)HB_ALERT_FIRST);
		hb_shim_spatial_high_begin(0);
		learn_first_launch();
		return;
	}
	if (!try_enter())
		return; /* the next launch then counts as the first */
	if (atomic_fetch_and(&hb_shim_alert, ~(uint32_t)HB_ALERT_FIRST) & HB_ALERT_FIRST) {
		int64_t now_ns = hb_clock_now_ns();
		refresh_facts(now_ns);
		uint32_t held = hb_takeover_is_there() ? HB_REQUEST_TAKEOVER : 0;
		hb_process_foresight_launch(&process, now_ns);
		hb_takeover_note_use();
		request_flags = held;
		if (!atomic_load_explicit(&reports_requests, memory_order_relaxed))
			hb_page_requests_begin(now_ns, 0);
		if (reported.begin_ns)
			reported.flags |= held;
	}
	leave();
}

/* The end of work in a process without takeovers: reports the request if the spatial engine is on. */
static void end_spatial_request(void)
{
	uint32_t kind;
	int64_t harm_ns, begin_ns = hb_shim_spatial_high_end(&harm_ns, &kind);
	uint32_t flags = kind << HB_REQUEST_KIND_SHIFT;
	if (begin_ns) /* of several parts the last one's */
		reported.flags = (reported.flags & ~(HB_REQUEST_KIND_MASK << HB_REQUEST_KIND_SHIFT)) | flags;
	reported.harm_ns += begin_ns && harm_ns > 0 ? harm_ns : 0;
	reported.measured = begin_ns && harm_ns >= 0;
	if (!begin_ns || atomic_load_explicit(&reports_requests, memory_order_relaxed) || !try_enter())
		return;
	hb_page_requests_post_harm(begin_ns, hb_clock_now_ns(), 0, flags, harm_ns);
	leave();
}

static uint64_t read_counter(enum hb_page_counter counter)
{
	return atomic_load_explicit(&hb_place()->process->counters[counter], memory_order_relaxed);
}

/* A copy before this wait has arranged to keep the GPU, and nothing was launched since. */
static bool is_kept_already(const struct hb_process_wait *copy)
{
	return copy->keep_ns && copy->kernels == read_counter(HB_COUNT_kernels) &&
	       copy->graphs == read_counter(HB_COUNT_graphs);
}

/*
 * The end of this thread's work is marked on `stream`, before a copy of its results. The GPU has to be kept from that point on:
 * during the copy it would go to LP.
 */
static __thread struct {
	CUstream stream;
	uint64_t kernels, graphs; /* launches of the process before the mark; kernels are never 0 then */
} mark __attribute__((tls_model("initial-exec")));

static void mark_work(CUstream stream)
{
	mark.kernels = mark.graphs = 0;
	if (waiting.keep_later && hb_takeover_mark_work(stream)) {
		mark.stream = stream;
		mark.kernels = waiting.kernels;
		mark.graphs = waiting.graphs;
	}
}

/* Whether all work that this call waits for, copies aside, was launched before the mark. */
static bool is_marked(CUstream stream, CUevent event)
{
	return mark.kernels + mark.graphs && mark.kernels == waiting.kernels && mark.graphs == waiting.graphs &&
	       (event || mark.stream == stream);
}

void hb_shim_foresight_wait(CUstream stream, CUevent event, bool reads)
{
	if (!atomic_load_explicit(&hb_shim_foresight_wanted, memory_order_relaxed) || is_kept_already(&waiting))
		return;
	hb_shim_foresight_wait_ends();
	if (!try_enter())
		return;
	int64_t now_ns = hb_clock_now_ns();
	refresh_facts(now_ns);
	int64_t keep_ns = hb_process_foresight_wait(&process, now_ns, read_counter(HB_COUNT_kernels),
						    read_counter(HB_COUNT_graphs), reads, &waiting);
	leave();
	if (keep_ns && hb_takeover_keep(stream, event, is_marked(stream, event), keep_ns))
		waiting.keep_ns = keep_ns;
	else if (reads)
		mark_work(stream);
	if (waiting.since_ns) /* the duration of the wait is learned without the time of these calls */
		waiting.since_ns = hb_clock_now_ns();
}

void hb_shim_foresight_read_ends(void)
{
	if (!atomic_load_explicit(&hb_shim_foresight_wanted, memory_order_relaxed) || !try_enter())
		return;
	hb_process_foresight_learn_read(&process, hb_clock_now_ns(), &waiting);
	leave();
	waiting.since_ns = 0;
}

/* Cancels what was arranged, because the wait did not end as expected. */
void hb_shim_foresight_wait_ends(void)
{
	if (waiting.keep_ns) {
		hb_takeover_keep_begins();
		hb_takeover_release();
	}
	waiting.since_ns = waiting.keep_ns = 0;
}

void hb_shim_foresight_idle(void)
{
	if (!atomic_load_explicit(&hb_shim_foresight_wanted, memory_order_relaxed)) {
		if (!hb_shim_spatial_high_serves_beside())
			atomic_fetch_or(&hb_shim_alert, HB_ALERT_FIRST);
		hb_shim_foresight_wait_ends();
		end_spatial_request();
		if (hb_shim_spatial_high_serves())
			return; /* another GPU of this process still works */
		atomic_fetch_or(&hb_shim_alert, HB_ALERT_FIRST);
		announce_after_work();
		return;
	}
	if (!try_enter()) {
		atomic_store(&idle_missed, true);
		hb_shim_foresight_wait_ends();
		return;
	}
	int64_t now_ns = hb_clock_now_ns();
	refresh_facts(now_ns);
	struct hb_takeover_plan before = hb_process_foresight_plan(&process);
	hb_process_foresight_learn_wait(&process, now_ns, read_counter(HB_COUNT_kernels), read_counter(HB_COUNT_graphs),
					&waiting);
	bool kept = waiting.keep_ns && hb_takeover_keep_begins();
	note_idle(now_ns, kept ? waiting.keep_ns : 0);
	waiting.since_ns = waiting.keep_ns = 0;
	struct hb_takeover_plan after = hb_process_foresight_plan(&process);
	leave();
	if (kept && after.until_ns)
		hb_takeover_thread_note_kept(&after);
	follow_plan(&before, &after);
}

/* ---- requests that the application reports ---- */

void hb_shim_foresight_request_begin(int64_t deadline_ns)
{
	atomic_store_explicit(&reports_requests, true, memory_order_relaxed);
	if (reported.begin_ns)
		hb_page_requests_end(reported.begin_ns);
	reported = (struct reported_request){.begin_ns = hb_clock_now_ns(), .deadline_ns = deadline_ns};
	hb_page_requests_begin(reported.begin_ns, deadline_ns);
	hb_shim_spatial_high_begin(deadline_ns);
}

void hb_shim_foresight_request_end(void)
{
	struct reported_request request = reported;
	reported.begin_ns = 0;
	if (!request.begin_ns)
		return;
	hb_page_requests_end(request.begin_ns);
	enter();
	hb_page_requests_post_harm(request.begin_ns, hb_clock_now_ns(), request.deadline_ns,
				   request.flags | HB_REQUEST_REPORTED, request.measured ? request.harm_ns : -1);
	leave();
}

/* ---- the thread ---- */

struct hb_takeover_plan hb_shim_foresight_step(int64_t now_ns)
{
	enter();
	catch_up(now_ns);
	hb_process_foresight_step(&process, now_ns);
	struct hb_takeover_plan after = hb_process_foresight_plan(&process);
	leave();
	return after;
}

static bool uses_engine(const struct hb_place *place, uint32_t engine)
{
	for (uint32_t i = 0; i < place->page->n_gpus && i < HB_PAGE_GPUS; i++)
		if (atomic_load_explicit(&place->page->gpus[i].engine, memory_order_relaxed) == engine)
			return true;
	return false;
}

static bool is_high(const struct hb_place *place)
{
	return place->page && atomic_load_explicit(&place->page->priority, memory_order_relaxed) == HB_PAGE_HIGH;
}

/* Takeovers need a context and time slices of the tenant's own: not for LP, and not inside an MPS server. */
static bool is_wanted(void)
{
	const struct hb_place *place = hb_place();
	return is_high(place) && (uses_engine(place, HB_ENGINE_TEMPORAL) || uses_engine(place, HB_ENGINE_TURNS));
}

/* Only where nothing is taken over: what is learned for takeovers has other costs. */
static bool is_announcing(void)
{
	const struct hb_place *place = hb_place();
	return is_high(place) && !is_wanted() && uses_engine(place, HB_ENGINE_SPATIAL);
}

static void report_bytes(uint64_t source, uint32_t who)
{
	hb_shim_foresight_sign(HB_SIGN_SOCKET, source, who, 0);
}

/* Where libhb-signs was preloaded its symbols are in the global scope. */
static void attach_signs(bool wanted)
{
	__typeof__(&hb_signs_attach) attach = (__typeof__(attach))dlsym(RTLD_DEFAULT, "hb_signs_attach");
	if (attach)
		attach(wanted ? report_bytes : NULL);
}

/* What was learned under the costs of the other engine is forgotten. */
static void change_costs(bool announcing)
{
	enter();
	begun = false;
	atomic_store(&hb_shim_foresight_announces, announcing);
	leave();
}

void hb_shim_foresight_refresh(void)
{
	bool wanted = is_wanted(), announcing = is_announcing(), listens = wanted || announcing;
	bool listened = atomic_load_explicit(&hb_shim_foresight_wanted, memory_order_relaxed) || announces();
	if (announcing != announces())
		change_costs(announcing);
	if (wanted != atomic_load_explicit(&hb_shim_foresight_wanted, memory_order_relaxed))
		atomic_store(&hb_shim_foresight_wanted, wanted);
	if (listens != listened)
		attach_signs(listens);
	if (!wanted || !atomic_load_explicit(&sign_seen, memory_order_relaxed) ||
	    atomic_load_explicit(&thread_runs, memory_order_relaxed) || atomic_exchange(&thread_runs, true))
		return;
	if (!hb_takeover_thread_start())
		hb_takeover_set_fault(HB_TAKEOVER_NO_THREAD);
}

void hb_shim_foresight_leave_in_child(void)
{
	atomic_store(&hb_shim_foresight_wanted, false);
	atomic_store(&hb_shim_foresight_announces, false);
	atomic_store(&taken, false);
	begun = false; /* the next call initializes `process` */
	memset(&reported, 0, sizeof(reported));
	memset(&waiting, 0, sizeof(waiting));
	atomic_store(&reports_requests, false);
	atomic_store(&thread_runs, false);
	atomic_store(&sign_seen, false);
	atomic_store(&idle_missed, false);
	hb_takeover_thread_leave_in_child();
	hb_takeover_leave_in_child();
}
