/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Carries out the duties of a call (duties.h) on its way to the driver. The
 * forwarding thunks of stubs.S call hb_shim_forward() on every launch, copy and
 * memset.
 *
 * On the common path (gate open, no capture, no alert) it takes no lock, allocates
 * nothing, makes no system call and no driver call; it costs two atomic additions.
 * Slow calls and everything that an alert requires are in functions of their own,
 * out of line.
 */
#include "base/clock.h"
#include "shim/drain.h"
#include "shim/hold.h"
#include "shim/launch_trace.h"
#include "shim/priority.h"
#include "shim/shim.h"
#include "shim/shim_foresight.h"
#include "shim/shim_spatial.h"
#include "shim/shim_tenant.h"
#include "shim/split.h"
#include "shim/takeover.h"

#include <string.h>

#define OUT_OF_LINE __attribute__((noinline, cold))

/* CUDA_MEMCPY3D_PEER; only its last three fields are read. */
struct peer_box {
	char unused[176];
	size_t width_bytes, height, depth;
};

OUT_OF_LINE static uint64_t count_bytes_by_rule(int rule, const uint64_t *args)
{
	const void *first = (const void *)hb_argument(args, 0);
	uint64_t bytes = 0;
	if (rule == HB_SIZE_LIST) {
		const size_t *sizes = (const size_t *)hb_argument(args, 2);
		uint64_t n = sizes ? hb_argument(args, 3) : 0;
		for (uint64_t i = 0; i < n; i++)
			bytes += sizes[i];
	} else if (!first) {
		bytes = 0;
	} else if (rule == HB_SIZE_RECT) {
		const CUDA_MEMCPY2D *rect = first;
		bytes = (uint64_t)rect->WidthInBytes * rect->Height;
	} else if (rule == HB_SIZE_BOX) {
		const CUDA_MEMCPY3D *box = first;
		bytes = (uint64_t)box->WidthInBytes * box->Height * box->Depth;
	} else if (rule == HB_SIZE_BOX_PEER) {
		const struct peer_box *box = first;
		bytes = (uint64_t)box->width_bytes * box->height * box->depth;
	}
	return bytes;
}

/* The stream of a call; NULL: the legacy stream, or the call has no stream argument. */
OUT_OF_LINE static CUstream stream_of(unsigned fn, const struct hb_hook *hook, const uint64_t *args)
{
	CUstream stream = NULL;
	if (hook->stream >= 0)
		stream = (CUstream)hb_argument(args, hook->stream);
	else if (hook->stream == HB_STREAM_IN_CONFIG && hb_argument(args, 0))
		stream = ((const CUlaunchConfig *)hb_argument(args, 0))->hStream;
	if (!stream && hook->stream != HB_NO_STREAM && strstr(hb_fn_name(fn), "_pts"))
		stream = CU_STREAM_PER_THREAD;
	return stream;
}

/* Whether this call is captured. Called while some stream captures; work without a stream argument cannot be captured. */
OUT_OF_LINE static bool is_captured(unsigned fn, const struct hb_hook *hook, const uint64_t *args)
{
	CUstream stream = stream_of(fn, hook, args);
	return stream && stream != CU_STREAM_LEGACY && hb_stream_captures(stream);
}

/* begin_slow_call() leaves this for end_slow_call() on the same thread. Initial-exec: the first use allocates nothing. */
struct slow_call {
	uint16_t duty;          /* the duties to end */
	int64_t doubt_since_ns; /* returned by hb_takeover_begin_doubt() */
	uint64_t launches;      /* of the process, before the call */
};
static __thread struct slow_call slow_call __attribute__((tls_model("initial-exec")));

static uint64_t count_launches(const struct hb_place *place)
{
	return atomic_load_explicit(&hb_tenant_gate(place)->submitted, memory_order_relaxed);
}

static void wait_at_gate(const struct hb_place *place)
{
	struct hb_gate *gate = hb_tenant_gate(place);
	if (__builtin_expect(hb_gate_try(gate) != HB_GATE_GO, 0))
		hb_gate_block(place, gate);
}

static void end_slow_call(CUresult result)
{
	const struct slow_call call = slow_call;
	if (__builtin_expect(result != CUDA_SUCCESS, 0))
		hb_tenant_note_error(result);
	if (call.duty & HB_DUTY_WIDE)
		hb_takeover_end_wide();
	if (call.duty & HB_DUTY_DOUBT)
		hb_takeover_end_doubt(call.doubt_since_ns);
	if ((call.duty & HB_DUTY_IDLE) && result == CUDA_SUCCESS && call.launches == count_launches(hb_place()))
		hb_shim_foresight_idle();
	else if (call.duty & HB_DUTY_KEEP)
		hb_shim_foresight_wait_ends();
	else if (call.duty & HB_DUTY_READ)
		hb_shim_foresight_read_ends();
	/* The daemon has closed the gate until the work of all processes of this program has ended (daemon/supervision.c). */
	if (__builtin_expect(result == CUDA_ERROR_MPS_CLIENT_TERMINATED, 0))
		wait_at_gate(hb_place());
}

/* The call waits for a stream or an event, or it may: foresight may keep the GPU after the work. */
static void begin_wait(unsigned fn, const struct hb_hook *hook, const uint64_t *args)
{
	bool reads = hook->duty & HB_DUTY_READ;
	if (hook->stream == HB_NO_STREAM) {
		hb_shim_foresight_wait(NULL, (CUevent)hb_argument(args, 0), reads);
		return;
	}
	CUstream stream = (CUstream)hb_argument(args, hook->stream);
	if (!stream)
		stream = strstr(hb_fn_name(fn), "_ptsz") ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY;
	hb_shim_foresight_wait(stream, NULL, reads);
}

/* Carries out the duties before a slow call. Returns the function to call after it, or NULL. */
OUT_OF_LINE static void (*begin_slow_call(unsigned fn, const struct hb_hook *hook, const uint64_t *args,
					  const struct hb_place *place))(CUresult)
{
	if (hook->duty & HB_DUTY_SIGN)
		hb_shim_foresight_first_call(HB_SOURCE_CALLS + fn);
	if (hook->duty & HB_DUTY_REFRESH)
		hb_tenant_refresh();
	if (hook->duty & HB_DUTY_CONTEXT)
		hb_tenant_gpu_forget();
	if (hook->counter == HB_COUNT_contexts)
		hb_drain_note_unknown_context();
	if (hook->duty & HB_DUTY_GRAPH)
		return hb_alert_read() & HB_ALERT_SPATIAL ? hb_shim_spatial_low_graph() : NULL;
	if ((hook->duty & (HB_DUTY_READ | HB_DUTY_IDLE)) && (hb_alert_read() & HB_ALERT_SPATIAL) && hb_tenant_is_high())
		hb_shim_spatial_high_wait();
	/* The duties that end_slow_call() ends. Without a request in progress none can end. */
	uint16_t after = hook->duty & (HB_DUTY_WIDE | HB_DUTY_DOUBT);
	if ((hook->duty & HB_DUTY_IDLE) && (!(hb_alert_read() & HB_ALERT_FIRST) || hb_shim_spatial_high_serves()))
		after |= hook->duty & (HB_DUTY_IDLE | HB_DUTY_KEEP);
	if ((hook->duty & HB_DUTY_READ) && hook->stream != HB_NO_STREAM && !(hb_alert_read() & HB_ALERT_FIRST))
		after |= HB_DUTY_READ;
	if (!after)
		return NULL;
	slow_call.duty = after;
	slow_call.launches = count_launches(place);
	if (after & HB_DUTY_WIDE)
		hb_takeover_begin_wide();
	if (after & HB_DUTY_DOUBT)
		slow_call.doubt_since_ns = hb_takeover_begin_doubt();
	if (after & (HB_DUTY_KEEP | HB_DUTY_READ))
		begin_wait(fn, hook, args);
	return end_slow_call;
}

static void end_launch(CUresult result)
{
	hb_takeover_note_launch(hb_clock_now_ns());
}

static void end_whole_sm_launch(CUresult result)
{
	hb_takeover_release();
}

/* An SM has 228 KiB of shared memory. A block with more than this finds no room beside a takeover kernel. */
#define WHOLE_SM_BYTES (224 << 10)

static bool needs_whole_sm(unsigned fn, const struct hb_hook *hook, const uint64_t *args)
{
	const CUlaunchConfig *config = (const CUlaunchConfig *)hb_argument(args, 0);
	if (hook->counter == HB_COUNT_kernels && hook->stream == HB_STREAM_IN_CONFIG)
		return config && config->sharedMemBytes > WHOLE_SM_BYTES;
	bool plain = fn == HB_FN_cuLaunchKernel || fn == HB_FN_cuLaunchKernel_ptsz;
	return plain && (uint32_t)hb_argument(args, 7) > WHOLE_SM_BYTES;
}

/* During a takeover: the call may have to wait for the stream of the takeover kernels. */
OUT_OF_LINE static void meet_takeover(unsigned fn, const struct hb_hook *hook, const uint64_t *args)
{
	bool without = hook->stream == HB_NO_STREAM;
	if (!hb_takeover_is_on_legacy())
		return;
	if (without && (hook->counter == HB_COUNT_none || hook->counter == HB_COUNT_synchronizes))
		return; /* it waits for no stream, for all of them (WIDE), or for an event */
	hb_takeover_meet(stream_of(fn, hook, args));
}

/*
 * Does what the alerts require before a launch. Returns the function to call after
 * it, or NULL. Takeover kernels stay during the launch and for a moment after it,
 * because the launch may have to wait for a copy; if the process waits for its
 * work, the end of that wait releases them (shim_foresight.c).
 */
OUT_OF_LINE static void (*handle_alert(unsigned fn, const struct hb_hook *hook, const uint64_t *args,
				       uint32_t alert))(CUresult)
{
	/* This comes first: the next step ends the plan, after which the thread releases takeovers without a launch. */
	if (alert & HB_ALERT_TAKEOVER) {
		hb_takeover_note_launch(hb_clock_now_ns());
		meet_takeover(fn, hook, args);
	}
	if (alert & HB_ALERT_FIRST) {
		hb_takeover_note_stream(stream_of(fn, hook, args), hb_clock_now_ns());
		hb_shim_foresight_launch();
	}
	if (alert & HB_ALERT_SPATIAL) {
		if (!hb_tenant_is_high())
			return hb_shim_spatial_low_launch(fn, args);
		hb_shim_spatial_high_launch(fn, args);
	}
	if (!(alert & HB_ALERT_TAKEOVER))
		return NULL;
	return needs_whole_sm(fn, hook, args) ? end_whole_sm_launch : end_launch;
}

/* Returns the function that splits the launch or corrects its priority (splitting does both), or `target`. */
OUT_OF_LINE static void *find_detour(unsigned fn, const uint64_t *args, uint32_t alert, void *target)
{
	if (alert & HB_ALERT_SPLIT || hb_shim_spatial_wants_split())
		return hb_split_way(fn, target);
	return hb_priority_way(fn, args, target);
}

/* Counters of the calls that are held back while memory moves: they give work to a GPU. */
#define HELD(counter) (UINT64_C(1) << HB_COUNT_##counter)
static const uint64_t held_counters = HELD(kernels) | HELD(graphs) | HELD(copies_to_device) | HELD(copies_to_host) |
				      HELD(copies_on_device) | HELD(copies_other) | HELD(memsets) |
				      HELD(stream_values) | HELD(host_functions);

/* end_held_call() calls this function, which belongs to the call that this thread is in. */
static __thread void (*held_after)(CUresult) __attribute__((tls_model("initial-exec")));

static void end_held_call(CUresult result)
{
	hb_hold_exit();
	if (held_after)
		held_after(result);
}

static CUresult return_illegal_state(void)
{
	return CUDA_ERROR_ILLEGAL_STATE;
}

/* With HB_ALERT_ELASTIC, as the last step: waits while memory moves, and marks this thread as inside the call. */
OUT_OF_LINE static struct hb_way hold_call(const struct hb_hook *hook, struct hb_way way)
{
	if (hook->counter == HB_COUNT_none || !(held_counters >> hook->counter & 1))
		return way;
	enum hb_hold_entry entry = hb_hold_enter();
	if (entry == HB_HOLD_BROKEN)
		way.target = (void *)return_illegal_state;
	if (entry != HB_HOLD_INSIDE)
		return way;
	held_after = way.after;
	way.after = end_held_call;
	return way;
}

struct hb_way hb_shim_forward(unsigned fn, const uint64_t *args)
{
	const struct hb_hook *hook = &hb_hooks[fn];
	const struct hb_place *place = hb_place();
	struct hb_way way = {.target = atomic_load_explicit(&hb_shim_real[fn], memory_order_acquire)};
	unsigned counter = hook->counter;
	bool captured = __builtin_expect(atomic_load_explicit(&hb_captures, memory_order_relaxed) > 0, 0) &&
			is_captured(fn, hook, args);
	if (captured)
		counter = HB_COUNT_captured;
	if (counter != HB_COUNT_none)
		atomic_fetch_add_explicit(&place->process->counters[counter], 1, memory_order_relaxed);
	if (captured) {
		hb_shim_spatial_note_captured(fn, args);
		way.target = hb_priority_way(fn, args, way.target);
		return way;
	}
	if (hook->size != HB_SIZE_NONE) {
		uint64_t bytes = hook->size >= 0 ? hb_argument(args, hook->size)
						 : count_bytes_by_rule(hook->size, args);
		atomic_fetch_add_explicit(&place->process->counters[HB_COUNT_copied], bytes, memory_order_relaxed);
	}
	if (hook->duty & HB_DUTY_GATE) {
		wait_at_gate(place);
		uint32_t alert = hb_alert_read();
		if (__builtin_expect((alert & ~(uint32_t)(HB_ALERT_TRACE | HB_ALERT_ELASTIC)) != 0, 0))
			way.after = handle_alert(fn, hook, args, alert);
		if (__builtin_expect(alert & HB_ALERT_TRACE, 0))
			hb_launch_trace_note(
				fn, args); /* after all waits, so that it records when the launch really goes */
		if (__builtin_expect(alert & (HB_ALERT_SPLIT | HB_ALERT_SPATIAL), 0))
			way.target = find_detour(fn, args, alert, way.target);
		return __builtin_expect(alert & HB_ALERT_ELASTIC, 0) ? hold_call(hook, way) : way;
	}
	uint32_t alert = hb_alert_read();
	if (__builtin_expect(alert & HB_ALERT_TAKEOVER, 0))
		meet_takeover(fn, hook, args);
	if (hook->duty == HB_DUTY_SIGN)
		hb_shim_foresight_first_call(HB_SOURCE_CALLS + fn);
	else if (hook->duty)
		way.after = begin_slow_call(fn, hook, args, place);
	return __builtin_expect(alert & HB_ALERT_ELASTIC, 0) ? hold_call(hook, way) : way;
}
