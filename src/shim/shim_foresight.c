/* SPDX-License-Identifier: Apache-2.0 */
/* See shim_foresight.h. */
#include "shim/shim_foresight.h"

#include "base/clock.h"
#include "decide/defaults.h"
#include "decide/foresight_share.h"
#include "shim/page_requests.h"
#include "shim/shim.h"
#include "shim/shim_spatial.h"
#include "shim/shim_tenant.h"
#include "signs/signs.h"

#include <dlfcn.h>
#include <string.h>
#include <time.h>

#define NAP_NS (20 * HB_NS_PER_US)
#define TRIES 200 /* about 1 us; whoever holds the lock is done sooner unless it lost its CPU */
#define WORK_SHOWS_NS (12 * HB_NS_PER_S / 10) /* so long the daemon counts us among those at work */
#define ALLOW_EVERY_NS (10 * HB_NS_PER_MS)

atomic_bool hb_shim_foresight_wanted;

/* Held for a few hundred ns at a time; guards what follows. */
static atomic_bool taken;
static struct hb_foresight foresight;
static struct hb_foresight_budget budget;
static bool begun;
static int64_t allow_again_ns;
static struct hb_foresight_share share;
static int64_t request_since_ns; /* the inferred request that runs; 0 = none */
static uint32_t request_flags;
static int64_t worked_ns; /* the last end of work; 0 = never worked */

static atomic_bool tells_requests; /* the application itself does: none are inferred */
static atomic_bool thread_runs;
static atomic_bool sign_seen;   /* the thread is of use */
static atomic_bool idle_missed; /* hb_shim_foresight_idle() found the lock taken */

struct told_request {
	int64_t begin_ns, deadline_ns;
	int64_t harm_ns; /* what LP cost its parts, each of which ends with a wait */
	bool measured;
	uint32_t flags;
};
static __thread struct told_request told __attribute__((tls_model("initial-exec")));

static bool try_enter(void)
{
	for (int i = 0; i < TRIES; i++)
		if (!atomic_load_explicit(&taken, memory_order_relaxed) &&
		    !atomic_exchange_explicit(&taken, true, memory_order_acquire))
			return true;
	return false;
}

/* In calls that are slow anyway. Whoever holds the lock may be kept off this CPU by us, so we sleep. */
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

/* LP must be there to gain anything, and a hold must not cost another HP tenant, whose work we do not see. */
static bool is_allowed_on(struct hb_gpu_page *gpu, bool we_work)
{
	uint32_t at_work = atomic_load_explicit(&gpu->high_at_work, memory_order_relaxed);
	return atomic_load_explicit(&gpu->tenants_low, memory_order_relaxed) > 0 && at_work <= we_work;
}

static bool is_allowed(int64_t now_ns)
{
	const struct hb_place *place = hb_place();
	bool we_work = foresight.busy || (worked_ns && now_ns - worked_ns < WORK_SHOWS_NS);
	for (uint32_t i = 0; place->page && i < place->page->n_gpus && i < HB_PAGE_GPUS; i++)
		if (place->gpus[i] && is_allowed_on(place->gpus[i], we_work))
			return true;
	return false;
}

static void begin(void)
{
	struct hb_foresight_costs costs;
	hb_foresight_costs_init(&costs);
	hb_foresight_init(&foresight, &costs, &budget, true);
	begun = true;
}

/* Grows with what a process sees and does that may cost LP; 0 = it is gone. */
static uint64_t activity_of(const struct hb_page_process *process)
{
	static const enum hb_page_counter parts[] = {HB_COUNT_signs, HB_COUNT_signs_dropped, HB_COUNT_holds};
	uint64_t activity = 0;
	if (atomic_load_explicit(&process->state, memory_order_relaxed) != HB_PAGE_ACTIVE)
		return 0;
	for (size_t i = 0; i < sizeof(parts) / sizeof(*parts); i++)
		activity += atomic_load_explicit(&process->counters[parts[i]], memory_order_relaxed);
	return activity;
}

static void look_at_others(int64_t now_ns)
{
	const struct hb_place *place = hb_place();
	uint64_t activity[HB_PAGE_PROCESSES];
	uint32_t n = 0;
	_Static_assert(HB_PAGE_PROCESSES <= HB_FORESIGHT_SHARERS, "all are looked at");
	for (; place->page && n < HB_PAGE_PROCESSES; n++)
		activity[n] = activity_of(&place->page->processes[n]);
	hb_foresight_share_look(&share, &foresight, now_ns, activity, n,
				place->page ? (uint32_t)(place->process - place->page->processes) : 0);
}

/*
 * The budget is of the GPU, and each process keeps its own part of it. Tenants take turns (is_allowed), so time counts for the
 * one that may hold only; processes of one tenant divide it.
 */
static void share_budget(int64_t now_ns, bool allowed)
{
	if (allowed && !foresight.allowed)
		budget.since_ns = now_ns;
	if (hb_foresight_share_is_due(&share, now_ns))
		look_at_others(now_ns);
}

/* With the lock held. */
static void look_whether_allowed(int64_t now_ns)
{
	if (!begun)
		begin();
	if (now_ns < allow_again_ns)
		return;
	allow_again_ns = now_ns + ALLOW_EVERY_NS;
	bool allowed = is_allowed(now_ns);
	share_budget(now_ns, allowed);
	hb_foresight_allow(&foresight, now_ns, allowed);
}

static struct hb_shim_foresight_plan plan(void)
{
	return (struct hb_shim_foresight_plan){
		.hold_since_ns = foresight.hold_since_ns,
		.hold_until_ns = hb_foresight_hold_until_ns(&foresight),
		.next_ns = hb_foresight_next_ns(&foresight),
	};
}

/* After the lock was left: what has changed is the thread's to do, but for letting go, which is one store. */
static void follow(const struct hb_shim_foresight_plan *now, const struct hb_shim_foresight_plan *before)
{
	if (now->hold_until_ns == 0)
		hb_takeover_release();
	else if (now->hold_since_ns != before->hold_since_ns || before->hold_until_ns == 0)
		hb_takeover_thread_call(now->hold_since_ns);
	hb_takeover_thread_call(now->next_ns);
}

/* With the lock held. */
static void note_idle(int64_t now_ns, int64_t keep_ns)
{
	hb_foresight_idle_kept(&foresight, now_ns, keep_ns);
	if (request_since_ns && !atomic_load_explicit(&tells_requests, memory_order_relaxed))
		hb_page_signs_post(request_since_ns, now_ns, 0, request_flags);
	hb_page_signs_end(request_since_ns);
	request_since_ns = 0;
	worked_ns = now_ns;
	atomic_fetch_or(&hb_shim_alert, HB_ALERT_FIRST);
}

/* With the lock held: what every entry has to catch up with. */
static void look_around(int64_t now_ns)
{
	look_whether_allowed(now_ns);
	if (atomic_load_explicit(&idle_missed, memory_order_relaxed) && atomic_exchange(&idle_missed, false))
		note_idle(now_ns, 0);
}

/*
 * The CPU's own caches and clocks forget: after 1 ms without work an HTTP server takes 0.8 ms from a request's bytes to its
 * first launch, after 20 ms 1.3 ms, within a third each time. So bytes are learned apart by how long the process has been idle.
 */
static uint64_t with_idle_class(uint64_t source, int64_t now_ns)
{
	static const int64_t bounds_ns[] = {1500 * HB_NS_PER_US, 5 * HB_NS_PER_MS, 15 * HB_NS_PER_MS};
	uint64_t class = 0;
	for (size_t i = 0; i < sizeof(bounds_ns) / sizeof(*bounds_ns); i++)
		class += now_ns - worked_ns >= bounds_ns[i];
	return source + class * UINT64_C(0x1000000000001);
}

void hb_shim_foresight_sign(enum hb_sign kind, uint64_t source, uint32_t who, int64_t expected_ns)
{
	if (!atomic_load_explicit(&hb_shim_foresight_wanted, memory_order_relaxed))
		return;
	if (!atomic_load_explicit(&sign_seen, memory_order_relaxed))
		atomic_store(&sign_seen, true);
	if (!try_enter()) {
		hb_shim_count(HB_COUNT_signs_dropped, 1);
		return;
	}
	int64_t now_ns = hb_clock_now_ns();
	look_around(now_ns);
	struct hb_shim_foresight_plan before = plan();
	hb_foresight_sign(&foresight, now_ns, kind, kind == HB_SIGN_SOCKET ? with_idle_class(source, now_ns) : source,
			  who, expected_ns);
	struct hb_shim_foresight_plan after = plan();
	leave();
	hb_shim_count(HB_COUNT_signs, 1);
	/* The application's own calls are made outside the driver; bytes may be read by the driver itself. */
	if (kind == HB_SIGN_API && after.hold_until_ns && after.hold_since_ns != before.hold_since_ns)
		hb_takeover_thread_save_waking(&after);
	follow(&after, &before);
}

void hb_shim_foresight_first_call(uint64_t source)
{
	if (atomic_load_explicit(&hb_shim_alert, memory_order_relaxed) & HB_ALERT_FIRST)
		hb_shim_foresight_sign(HB_SIGN_CALL, source, 0, 0);
}

/* The hold itself is let go by the launch that comes behind, forward.c. */
void hb_shim_foresight_launch(void)
{
	if (!atomic_load_explicit(&hb_shim_foresight_wanted, memory_order_relaxed)) {
		atomic_fetch_and(&hb_shim_alert, ~(uint32_t)HB_ALERT_FIRST);
		hb_shim_spatial_begin(0);
		return;
	}
	if (!try_enter())
		return; /* the next launch is the first, then */
	if (atomic_fetch_and(&hb_shim_alert, ~(uint32_t)HB_ALERT_FIRST) & HB_ALERT_FIRST) {
		int64_t now_ns = hb_clock_now_ns();
		look_whether_allowed(now_ns);
		uint32_t held = hb_takeover_is_there() ? HB_REQUEST_HELD : 0;
		hb_foresight_busy(&foresight, now_ns);
		hb_takeover_note_use();
		request_since_ns = now_ns;
		request_flags = held;
		if (!atomic_load_explicit(&tells_requests, memory_order_relaxed))
			hb_page_signs_begin(now_ns, 0);
		if (told.begin_ns)
			told.flags |= held;
	}
	leave();
}

/* Without holds: the spatial engine, or nothing. */
static void end_in_space(void)
{
	int64_t harm_ns, begin_ns = hb_shim_spatial_end(&harm_ns);
	told.harm_ns += begin_ns && harm_ns > 0 ? harm_ns : 0;
	told.measured = begin_ns && harm_ns >= 0;
	if (!begin_ns || atomic_load_explicit(&tells_requests, memory_order_relaxed) || !try_enter())
		return;
	hb_page_signs_post_harm(begin_ns, hb_clock_now_ns(), 0, 0, harm_ns);
	leave();
}

/* ---- keeping the GPU beyond the end of work ---- */

/*
 * To arrange it takes about 8 us of the thread that is about to wait, so it is done only where the wait lasts longer. How long
 * it lasts is learned by what was launched since the end of work before: the shortest wait lately, which rises slowly.
 */
enum { WAIT_KINDS = 64 };

static int64_t shortest_wait_ns[WAIT_KINDS]; /* with the lock held */
static uint64_t kernels_before, graphs_before;

struct wait {
	int64_t since_ns; /* 0 = none is under way */
	int64_t keep_ns;  /* arranged; 0 = nothing is */
	uint32_t kind;
};
static __thread struct wait waiting __attribute__((tls_model("initial-exec")));

static uint64_t counted(enum hb_page_counter counter)
{
	return atomic_load_explicit(&hb_place()->process->counters[counter], memory_order_relaxed);
}

static uint32_t kind_of_work(void)
{
	uint64_t kernels = counted(HB_COUNT_kernels) - kernels_before,
		 graphs = counted(HB_COUNT_graphs) - graphs_before;
	return (uint32_t)((graphs < 3 ? graphs : 3) * 16 + (kernels < 15 ? kernels : 15));
}

/* With the lock held. */
static void learn_wait(int64_t now_ns)
{
	int64_t lasted_ns = now_ns - waiting.since_ns, *shortest_ns = &shortest_wait_ns[waiting.kind];
	if (waiting.since_ns)
		*shortest_ns = lasted_ns < *shortest_ns ? lasted_ns : *shortest_ns + (lasted_ns - *shortest_ns) / 8;
	kernels_before = counted(HB_COUNT_kernels);
	graphs_before = counted(HB_COUNT_graphs);
}

void hb_shim_foresight_wait(CUstream stream, CUevent event)
{
	waiting.since_ns = waiting.keep_ns = 0;
	if (!atomic_load_explicit(&hb_shim_foresight_wanted, memory_order_relaxed) || !try_enter())
		return;
	int64_t now_ns = hb_clock_now_ns(), keep_ns = 0;
	look_whether_allowed(now_ns);
	waiting.since_ns = now_ns;
	waiting.kind = kind_of_work();
	if (shortest_wait_ns[waiting.kind] >= HB_DEFAULT_KEEP_LEAST_NS)
		keep_ns = hb_foresight_keep_ns(&foresight, now_ns);
	leave();
	if (keep_ns && hb_takeover_keep(stream, event, keep_ns))
		waiting.keep_ns = keep_ns;
}

/* What was arranged and is of no use. */
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
		atomic_fetch_or(&hb_shim_alert, HB_ALERT_FIRST);
		hb_shim_foresight_wait_ends();
		end_in_space();
		return;
	}
	if (!try_enter()) {
		atomic_store(&idle_missed, true);
		hb_shim_foresight_wait_ends();
		return;
	}
	int64_t now_ns = hb_clock_now_ns();
	look_whether_allowed(now_ns);
	struct hb_shim_foresight_plan before = plan();
	learn_wait(now_ns);
	bool kept = waiting.keep_ns && hb_takeover_keep_begins();
	note_idle(now_ns, kept ? waiting.keep_ns : 0);
	waiting.since_ns = waiting.keep_ns = 0;
	struct hb_shim_foresight_plan after = plan();
	leave();
	if (kept && after.hold_until_ns)
		hb_takeover_thread_note_kept(&after);
	follow(&after, &before);
}

/* ---- requests that the application tells ---- */

void hb_shim_foresight_request_begin(int64_t deadline_ns)
{
	atomic_store_explicit(&tells_requests, true, memory_order_relaxed);
	if (told.begin_ns)
		hb_page_signs_end(told.begin_ns);
	told = (struct told_request){.begin_ns = hb_clock_now_ns(), .deadline_ns = deadline_ns};
	hb_page_signs_begin(told.begin_ns, deadline_ns);
	hb_shim_spatial_begin(deadline_ns);
}

void hb_shim_foresight_request_end(void)
{
	struct told_request request = told;
	told.begin_ns = 0;
	if (!request.begin_ns)
		return;
	hb_page_signs_end(request.begin_ns);
	enter();
	hb_page_signs_post_harm(request.begin_ns, hb_clock_now_ns(), request.deadline_ns,
				request.flags | HB_REQUEST_TOLD, request.measured ? request.harm_ns : -1);
	leave();
}

/* ---- the thread ---- */

struct hb_shim_foresight_plan hb_shim_foresight_step(int64_t now_ns)
{
	enter();
	look_around(now_ns);
	hb_foresight_step(&foresight, now_ns);
	struct hb_shim_foresight_plan after = plan();
	leave();
	return after;
}

/* Holds are for tenants with a context and slices of their own: not for LP, not inside an MPS server. */
static bool is_wanted(void)
{
	const struct hb_place *place = hb_place();
	if (!place->page || atomic_load_explicit(&place->page->priority, memory_order_relaxed) != HB_PAGE_HIGH)
		return false;
	for (uint32_t i = 0; i < place->page->n_gpus && i < HB_PAGE_GPUS; i++) {
		uint32_t engine = atomic_load_explicit(&place->page->gpus[i].engine, memory_order_relaxed);
		if (engine == HB_ENGINE_TEMPORAL || engine == HB_ENGINE_TURNS)
			return true;
	}
	return false;
}

static void bytes_came(uint64_t source, uint32_t who)
{
	hb_shim_foresight_sign(HB_SIGN_SOCKET, source, who, 0);
}

/* libhb-signs is in the global scope if it was preloaded at all. */
static void switch_signs(bool wanted)
{
	__typeof__(&hb_signs_attach) attach = (__typeof__(attach))dlsym(RTLD_DEFAULT, "hb_signs_attach");
	if (attach)
		attach(wanted ? bytes_came : NULL);
}

void hb_shim_foresight_tend(void)
{
	bool wanted = is_wanted();
	if (wanted != atomic_load_explicit(&hb_shim_foresight_wanted, memory_order_relaxed) &&
	    wanted != atomic_exchange(&hb_shim_foresight_wanted, wanted))
		switch_signs(wanted);
	if (!wanted || !atomic_load_explicit(&sign_seen, memory_order_relaxed) ||
	    atomic_load_explicit(&thread_runs, memory_order_relaxed) || atomic_exchange(&thread_runs, true))
		return;
	if (!hb_takeover_thread_start())
		hb_page_signs_fault(HB_TAKEOVER_NO_THREAD);
}

void hb_shim_foresight_leave_in_child(void)
{
	atomic_store(&hb_shim_foresight_wanted, false);
	atomic_store(&taken, false);
	begun = false;
	allow_again_ns = request_since_ns = worked_ns = 0;
	memset(&share, 0, sizeof(share));
	memset(&budget, 0, sizeof(budget));
	memset(&told, 0, sizeof(told));
	memset(&waiting, 0, sizeof(waiting));
	atomic_store(&tells_requests, false);
	atomic_store(&thread_runs, false);
	atomic_store(&sign_seen, false);
	atomic_store(&idle_missed, false);
	hb_takeover_thread_leave_in_child();
	hb_takeover_leave_in_child();
}
