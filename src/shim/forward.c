/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What happens to a call of an HB_FORWARD row on its way to the driver. Called
 * by the forwarding thunks of stubs.S on every launch, copy and memset. On the
 * common path (gate open, nothing captured or held): no lock, no allocation, no
 * system call, no call into the driver; two atomic additions. Everything else is in
 * functions of their own, out of line: what hb_shim_alert asks for (takeover.h), and
 * slow calls.
 */
#include "base/clock.h"
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

struct peer_box { /* the end of CUDA_MEMCPY3D_PEER, which is all that is read of it */
	char ends[176];
	size_t width_bytes, height, depth;
};

OUT_OF_LINE static uint64_t size_by_rule(int rule, const uint64_t *args)
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

/* Some stream of the process is recording: is this call's? Work without a stream of its own cannot be. */
OUT_OF_LINE static bool is_captured(unsigned fn, const struct hb_hook *hook, const uint64_t *args)
{
	CUstream stream = NULL;
	if (hook->stream >= 0)
		stream = (CUstream)hb_argument(args, hook->stream);
	else if (hook->stream == HB_STREAM_IN_CONFIG && hb_argument(args, 0))
		stream = ((const CUlaunchConfig *)hb_argument(args, 0))->hStream;
	if (!stream && hook->stream != HB_NO_STREAM && strstr(hb_fn_name(fn), "_pts"))
		stream = CU_STREAM_PER_THREAD;
	return stream && stream != CU_STREAM_LEGACY && hb_stream_captures(stream);
}

/* What do_slow_duties() began on this thread, for after_slow_call(). */
struct begun {
	uint16_t duty;
	int64_t doubt_since_ns;
	uint64_t launches;
};
static __thread struct begun begun __attribute__((tls_model("initial-exec")));

static uint64_t launches_so_far(const struct hb_place *place)
{
	return atomic_load_explicit(&hb_tenant_gate(place)->submitted, memory_order_relaxed);
}

static void after_slow_call(CUresult result)
{
	struct begun was = begun;
	if (was.duty & HB_DUTY_WIDE)
		hb_takeover_end_wide();
	if (was.duty & HB_DUTY_DOUBT)
		hb_takeover_end_doubt(was.doubt_since_ns);
	if ((was.duty & HB_DUTY_ENDS) && result == CUDA_SUCCESS && was.launches == launches_so_far(hb_place()))
		hb_shim_foresight_idle();
	else if (was.duty & HB_DUTY_KEEP)
		hb_shim_foresight_wait_ends();
}

static void wait_for_work(unsigned fn, const struct hb_hook *hook, const uint64_t *args)
{
	if (hook->stream == HB_NO_STREAM) {
		hb_shim_foresight_wait(NULL, (CUevent)hb_argument(args, 0));
		return;
	}
	CUstream stream = (CUstream)hb_argument(args, hook->stream);
	if (!stream)
		stream = fn == HB_FN_cuStreamSynchronize_ptsz ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY;
	hb_shim_foresight_wait(stream, NULL);
}

/* Returns what is left to do after the call. */
OUT_OF_LINE static void (*do_slow_duties(unsigned fn, const struct hb_hook *hook, const uint64_t *args,
					 const struct hb_place *place))(CUresult)
{
	if (hook->duty & HB_DUTY_SIGN)
		hb_shim_foresight_first_call(HB_SOURCE_CALLS + fn);
	if (hook->duty & HB_DUTY_TEND)
		hb_tenant_tend();
	if (hook->duty & HB_DUTY_MOVE)
		hb_tenant_gpu_forget();
	if (hook->duty & HB_DUTY_MASK)
		return atomic_load_explicit(&hb_shim_alert, memory_order_relaxed) & HB_ALERT_SPATIAL
			       ? hb_shim_spatial_graph()
			       : NULL;
	if ((hook->duty & (HB_DUTY_READ | HB_DUTY_ENDS)) &&
	    (atomic_load_explicit(&hb_shim_alert, memory_order_relaxed) & HB_ALERT_SPATIAL) && hb_tenant_is_high())
		hb_shim_spatial_wait();
	uint16_t after = hook->duty & (HB_DUTY_WIDE | HB_DUTY_DOUBT);
	/* The end of a request, but only where one runs. */
	if ((hook->duty & HB_DUTY_ENDS) &&
	    !(atomic_load_explicit(&hb_shim_alert, memory_order_relaxed) & HB_ALERT_FIRST))
		after |= hook->duty & (HB_DUTY_ENDS | HB_DUTY_KEEP);
	if (!after)
		return NULL;
	begun.duty = after;
	begun.launches = launches_so_far(place);
	if (after & HB_DUTY_WIDE)
		hb_takeover_begin_wide();
	if (after & HB_DUTY_DOUBT)
		begun.doubt_since_ns = hb_takeover_begin_doubt();
	if (after & HB_DUTY_KEEP)
		wait_for_work(fn, hook, args);
	return after_slow_call;
}

static void after_launch(CUresult result)
{
	hb_takeover_note_launch(hb_clock_now_ns());
}

static void after_wide_launch(CUresult result)
{
	hb_takeover_release();
}

/* An SM has 228 KiB of shared memory; a block that takes nearly all of it finds no room beside a hold, which needs one. */
#define WHOLE_SM_BYTES (224 << 10)

static bool needs_whole_sm(unsigned fn, const struct hb_hook *hook, const uint64_t *args)
{
	const CUlaunchConfig *config = (const CUlaunchConfig *)hb_argument(args, 0);
	if (hook->counter == HB_COUNT_kernels && hook->stream == HB_STREAM_IN_CONFIG)
		return config && config->sharedMemBytes > WHOLE_SM_BYTES;
	bool plain = fn == HB_FN_cuLaunchKernel || fn == HB_FN_cuLaunchKernel_ptsz;
	return plain && (uint32_t)hb_argument(args, 7) > WHOLE_SM_BYTES;
}

/*
 * The first launch after idle; the spatial engine; or something is held: that lingers from now on, also behind a
 * graph, which may have to wait for a copy. Where the process waits for its work, the end of that lets it go (shim_foresight.c).
 */
OUT_OF_LINE static void (*heed_alert(unsigned fn, const struct hb_hook *hook, const uint64_t *args,
				     uint32_t alert))(CUresult)
{
	/* First, for the plan ends with the launch, and a hold without a launch is let go where the plan has ended. */
	if (alert & HB_ALERT_HELD)
		hb_takeover_note_launch(hb_clock_now_ns());
	if (alert & HB_ALERT_FIRST)
		hb_shim_foresight_launch();
	if (alert & HB_ALERT_SPATIAL) {
		if (!hb_tenant_is_high())
			return hb_shim_spatial_low(fn, args);
		hb_shim_spatial_launch(fn, args);
	}
	if (!(alert & HB_ALERT_HELD))
		return NULL;
	return needs_whole_sm(fn, hook, args) ? after_wide_launch : after_launch;
}

static void pass_gate(const struct hb_place *place)
{
	struct hb_gate *gate = hb_tenant_gate(place);
	enum hb_gate_answer answer = hb_gate_try(gate);
	if (__builtin_expect(answer != HB_GATE_GO, 0))
		hb_gate_block(place, gate, answer);
}

/* In pieces, or with another priority; pieces have that, too. */
OUT_OF_LINE static void *detour(unsigned fn, const uint64_t *args, uint32_t alert, void *target)
{
	if (alert & HB_ALERT_SPLIT || hb_shim_spatial_wants_split())
		return hb_split_way(fn, target);
	return hb_priority_way(fn, args, target);
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
		way.target = hb_priority_way(fn, args, way.target);
		return way;
	}
	if (hook->size != HB_SIZE_NONE) {
		uint64_t bytes = hook->size >= 0 ? hb_argument(args, hook->size) : size_by_rule(hook->size, args);
		atomic_fetch_add_explicit(&place->process->counters[HB_COUNT_copied], bytes, memory_order_relaxed);
	}
	if (hook->duty & HB_DUTY_WAIT) {
		pass_gate(place);
		uint32_t alert = atomic_load_explicit(&hb_shim_alert, memory_order_relaxed);
		if (__builtin_expect((alert & ~(uint32_t)HB_ALERT_TRACE) != 0, 0))
			way.after = heed_alert(fn, hook, args, alert);
		if (__builtin_expect(alert & HB_ALERT_TRACE, 0))
			hb_launch_trace_note(fn, args); /* after all waiting */
		if (__builtin_expect(alert & (HB_ALERT_SPLIT | HB_ALERT_SPATIAL), 0))
			way.target = detour(fn, args, alert, way.target);
	} else if (hook->duty == HB_DUTY_SIGN) {
		hb_shim_foresight_first_call(HB_SOURCE_CALLS + fn);
	} else if (hook->duty) {
		way.after = do_slow_duties(fn, hook, args, place);
	}
	return way;
}
