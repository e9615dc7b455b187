/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The spatial engine in an HP process; see shim_spatial.h. A request is what
 * shim_foresight.c infers, or what the application reports. Its begin and its end
 * are one store each to this process's board; decide/spatial_high.h
 * learns from the requests.
 *
 * Each GPU of the process has its own request: it begins with the first launch
 * there, and ends when a thread has waited for that GPU. With it ends the request of
 * each GPU to which this thread launched before it last launched to the awaited GPU:
 * the stages of a pipeline in front of the last one are done, too. Of requests that
 * run on several GPUs at once, one is reported to the daemon.
 *
 * Threads only try to enter the state of a GPU: a thread that finds another one
 * inside skips its update, because a launch that is not counted does no harm. No
 * GPU's state is locked while another one's is.
 */
#include "base/clock.h"
#include "decide/spatial_high.h"
#include "shim/extension.h"
#include "shim/page_requests.h"
#include "shim/shim.h"
#include "shim/shim_spatial.h"

static struct gpu_state {
	atomic_bool entered; /* a thread is inside; guards the next four */
	struct hb_spatial_high high;
	bool has_begun;                 /* `high` is initialised */
	uint32_t read_ppm;              /* allowance last read from the page */
	uint32_t launch_no;             /* of the last launch that was counted */
	_Atomic(const void *) launcher; /* the thread of that launch, by an address of its own */
	_Atomic(int64_t) behind_ns;     /* from the begin of the reported request to this GPU's; -1 = not in it */
} states[HB_PAGE_GPUS];

static _Atomic(uint32_t) serving;     /* one bit for each GPU with a request in progress */
static _Atomic(uint32_t) reported_no; /* 1 + the GPU whose request is reported when it ends; 0 = none */
static _Atomic(int64_t) reported_begin_ns;
static _Atomic(uint32_t) launches;
static __thread char this_thread __attribute__((tls_model("initial-exec")));

static bool try_enter_state(struct gpu_state *state)
{
	return !atomic_exchange_explicit(&state->entered, true, memory_order_acquire);
}

static void leave_state(struct gpu_state *state)
{
	atomic_store_explicit(&state->entered, false, memory_order_release);
}

static bool is_serving(unsigned gpu)
{
	return gpu < HB_PAGE_GPUS && (atomic_load_explicit(&serving, memory_order_relaxed) >> gpu & 1);
}

bool hb_shim_spatial_high_serves(void)
{
	return atomic_load_explicit(&serving, memory_order_relaxed) != 0;
}

bool hb_shim_spatial_high_serves_beside(void)
{
	uint32_t which = atomic_load_explicit(&serving, memory_order_relaxed);
	return (which & (which - 1)) || (which && hb_place()->several && !is_serving(hb_tenant_gpu()));
}

/* The GPU for which this thread waits: the current one. A wait for an event needs no current device. */
static unsigned find_awaited_gpu(void)
{
	uint32_t which = atomic_load_explicit(&serving, memory_order_relaxed);
	unsigned gpu = which ? hb_tenant_gpu() : HB_PAGE_GPUS;
	if (which && !(which & (which - 1)) && (gpu >= HB_PAGE_GPUS || !hb_place()->several))
		gpu = (unsigned)__builtin_ctz(which);
	return gpu;
}

static uint32_t count_sms(void)
{
	CUdevice device;
	int sms = 0;
	if (HB_REAL(cuCtxGetDevice)(&device) != CUDA_SUCCESS ||
	    HB_REAL(cuDeviceGetAttribute)(&sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device) != CUDA_SUCCESS)
		return 0;
	return sms > 0 ? (uint32_t)sms : 0;
}

/* Uses this process's board as soon as there is one; what was learned before stays. */
static void claim_record(struct hb_spatial_high *high, unsigned gpu, uint32_t owner)
{
	struct hb_spatial_beacon *beacon = hb_shim_spatial_own_beacon(gpu);
	if (!beacon || (high->beacon == beacon && atomic_load_explicit(&beacon->owner, memory_order_relaxed)))
		return;
	high->beacon = beacon;
	hb_spatial_high_tell(high);
	atomic_store_explicit(&beacon->owner, owner, memory_order_release);
}

/* The daemon changes the allowance now and then. */
static void update_allowance(struct gpu_state *state, const struct hb_place *place, unsigned gpu)
{
	uint32_t ppm = atomic_load_explicit(&place->page->gpus[gpu].allowance_ppm, memory_order_relaxed);
	if (ppm != state->read_ppm)
		state->high.allowance_ppm = state->read_ppm = ppm;
}

/* Whether this process is HP in the spatial engine on the current GPU. */
static bool is_spatial(const struct hb_place *place, unsigned gpu)
{
	return place->page && gpu < HB_PAGE_GPUS && place->gpus[gpu] && hb_tenant_is_high() &&
	       atomic_load_explicit(&place->page->gpus[gpu].engine, memory_order_relaxed) == HB_ENGINE_SPATIAL;
}

/* With the state entered. */
static bool prepare_state(struct gpu_state *state, const struct hb_place *place, unsigned gpu)
{
	if (!state->has_begun) {
		uint32_t sms = count_sms();
		if (!sms)
			return false;
		hb_spatial_high_init(&state->high, NULL, sms);
		state->read_ppm = 0;
		state->has_begun = true;
	}
	claim_record(&state->high, gpu, atomic_load_explicit(&place->process->pid, memory_order_relaxed));
	update_allowance(state, place, gpu);
	return true;
}

/* Only one request at a time is reported: requests on several GPUs at once are one of the application's. */
static void report_begin(unsigned gpu, int64_t begin_ns, int64_t deadline_ns)
{
	uint32_t none = 0;
	if (atomic_compare_exchange_strong(&reported_no, &none, gpu + 1)) {
		for (unsigned i = 0; i < HB_PAGE_GPUS; i++)
			atomic_store_explicit(&states[i].behind_ns, is_serving(i) ? 0 : -1, memory_order_relaxed);
		atomic_store_explicit(&reported_begin_ns, begin_ns, memory_order_relaxed);
		hb_page_requests_begin(begin_ns, deadline_ns);
	}
	int64_t behind_ns = begin_ns - atomic_load_explicit(&reported_begin_ns, memory_order_relaxed);
	atomic_store_explicit(&states[gpu].behind_ns, behind_ns > 0 ? behind_ns : 0, memory_order_relaxed);
}

static void note_launcher(struct gpu_state *state)
{
	state->launch_no = atomic_fetch_add_explicit(&launches, 1, memory_order_relaxed) + 1;
	atomic_store_explicit(&state->launcher, &this_thread, memory_order_relaxed);
}

/* With the state entered. */
static void begin_request(struct gpu_state *state, const struct hb_place *place, unsigned gpu, int64_t deadline_ns)
{
	struct hb_spatial_high *high = &state->high;
	if (!prepare_state(state, place, gpu) || high->serving)
		return;
	hb_spatial_high_set_slo(high, atomic_load_explicit(&place->page->slo_ns, memory_order_relaxed));
	hb_spatial_high_begin(high, hb_clock_now_ns(), deadline_ns);
	if (hb_shim_extension.high_begin)
		hb_shim_extension.high_begin(high);
	report_begin(gpu, high->begin_ns, deadline_ns);
	note_launcher(state);
	atomic_fetch_or(&serving, UINT32_C(1) << gpu);
}

void hb_shim_spatial_high_begin(int64_t deadline_ns)
{
	const struct hb_place *place = hb_place();
	unsigned gpu = place->page ? hb_tenant_gpu() : HB_PAGE_GPUS;
	if (!is_spatial(place, gpu) || !try_enter_state(&states[gpu]))
		return;
	begin_request(&states[gpu], place, gpu, deadline_ns);
	leave_state(&states[gpu]);
}

/* The next request is assumed to use the GPUs of the last one, each as much later than the first. */
void hb_shim_spatial_high_expect(int64_t from_ns, int64_t until_ns)
{
	for (unsigned gpu = 0; gpu < HB_PAGE_GPUS; gpu++) {
		struct gpu_state *state = &states[gpu];
		int64_t behind_ns = atomic_load_explicit(&state->behind_ns, memory_order_relaxed);
		if (behind_ns < 0 || !try_enter_state(state))
			continue;
		if (state->has_begun)
			hb_spatial_high_expect(&state->high, until_ns ? from_ns + behind_ns : from_ns,
					       until_ns ? until_ns + behind_ns : until_ns);
		leave_state(state);
	}
}

/* With the state entered. */
static void count_launch(struct gpu_state *state, unsigned fn, const uint64_t *args)
{
	if (hb_shim_extension.high_launch)
		hb_shim_extension.high_launch(hb_shim_spatial_find_function(fn, args));
	hb_spatial_high_need(&state->high, hb_shim_spatial_needed_sms(fn, args));
	if (hb_spatial_high_count(&state->high))
		hb_spatial_high_pass(&state->high, hb_clock_now_ns());
}

/* On a further GPU no thread reports the first launch: the alert for it is one for the process. */
void hb_shim_spatial_high_launch(unsigned fn, const uint64_t *args)
{
	const struct hb_place *place = hb_place();
	unsigned gpu = place->several ? hb_tenant_gpu() : find_awaited_gpu();
	bool begins = place->several && !is_serving(gpu) && is_spatial(place, gpu);
	if ((!begins && !is_serving(gpu)) || !try_enter_state(&states[gpu]))
		return;
	struct gpu_state *state = &states[gpu];
	if (begins)
		begin_request(state, place, gpu, 0);
	if (place->several)
		note_launcher(state);
	if (state->high.serving)
		count_launch(state, fn, args);
	leave_state(state);
}

void hb_shim_spatial_high_wait(void)
{
	unsigned gpu = find_awaited_gpu();
	if (!is_serving(gpu) || !try_enter_state(&states[gpu]))
		return;
	hb_spatial_high_wait(&states[gpu].high, hb_clock_now_ns());
	leave_state(&states[gpu]);
}

/* With the state entered. Returns whether this request is the one to report, and its begin, harm and kind. */
static bool end_request(unsigned gpu, int64_t *begin_ns, int64_t *harm_ns, uint32_t *kind)
{
	struct hb_spatial_high *high = &states[gpu].high;
	uint32_t own = gpu + 1;
	int64_t since_ns = high->begin_ns;
	hb_spatial_high_end(high, hb_clock_now_ns());
	atomic_fetch_and(&serving, ~(UINT32_C(1) << gpu));
	if (!atomic_compare_exchange_strong(&reported_no, &own, 0))
		return false;
	*begin_ns = since_ns;
	*harm_ns = hb_spatial_high_harm_ns(high);
	*kind = hb_spatial_high_kind(high);
	hb_page_requests_end(since_ns);
	return true;
}

/* The thread has waited for all that it had launched up to this number: see the head of this file. */
static void end_before(uint32_t launch_no, unsigned awaited, int64_t *begin_ns, int64_t *harm_ns, uint32_t *kind)
{
	for (unsigned gpu = 0; gpu < HB_PAGE_GPUS; gpu++) {
		struct gpu_state *state = &states[gpu];
		if (gpu == awaited || !is_serving(gpu) ||
		    atomic_load_explicit(&state->launcher, memory_order_relaxed) != &this_thread ||
		    !try_enter_state(state))
			continue;
		if (state->high.serving && (int32_t)(launch_no - state->launch_no) > 0)
			end_request(gpu, begin_ns, harm_ns, kind);
		leave_state(state);
	}
}

int64_t hb_shim_spatial_high_end(int64_t *harm_ns, uint32_t *kind)
{
	unsigned gpu = find_awaited_gpu();
	int64_t begin_ns = 0;
	uint32_t launch_no;
	*harm_ns = -1;
	*kind = 0;
	if (!is_serving(gpu) || !try_enter_state(&states[gpu]))
		return 0;
	bool is_launcher = atomic_load_explicit(&states[gpu].launcher, memory_order_relaxed) == &this_thread;
	launch_no = states[gpu].launch_no;
	if (states[gpu].high.serving)
		end_request(gpu, &begin_ns, harm_ns, kind);
	leave_state(&states[gpu]);
	if (is_launcher && hb_shim_spatial_high_serves())
		end_before(launch_no, gpu, &begin_ns, harm_ns, kind);
	return begin_ns;
}

/* The record on the board stays the parent's. */
void hb_shim_spatial_high_leave_in_child(void)
{
	for (unsigned gpu = 0; gpu < HB_PAGE_GPUS; gpu++) {
		states[gpu].has_begun = false;
		atomic_store(&states[gpu].launcher, NULL);
		atomic_store(&states[gpu].behind_ns, -1);
		leave_state(&states[gpu]);
	}
	atomic_store(&serving, 0);
	atomic_store(&reported_no, 0);
}
