/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hooks of stream captures. Captured work must neither wait at the gate nor count
 * as work, and while a stream captures, most driver calls are illegal. So the shim
 * counts the captures in progress, and only while there is one it asks about a
 * call's stream, with cuStreamIsCapturing, which is always legal.
 *
 * A capture also ends with its stream, with the stream's context, or, if the
 * stream is a thread's own default stream, with the thread. So the origin of each
 * capture is recorded. With more than ORIGINS captures at a time the count may
 * stay too high; launches then ask the driver and still get the right answer.
 */
#include "base/fault_point.h"
#include "shim/drain.h"
#include "shim/extension.h"
#include "shim/hold.h"
#include "shim/shim.h"
#include "shim/takeover.h"

#include <pthread.h>

enum { ORIGINS = 64 };

atomic_int hb_captures;

/* The stream on which a capture began. */
struct capture_origin {
	CUstream stream;
	const void *thread; /* identifies the thread of a per-thread default stream; else NULL */
	CUcontext context;
	bool leaves; /* the stream is being destroyed: another stream may have its handle by now */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* never held during a driver call */
static struct capture_origin origins[ORIGINS];
static unsigned n_origins;
static unsigned n_without; /* captures without an origin, for lack of room */

/* The address of this variable identifies a thread. */
static __thread char self __attribute__((tls_model("initial-exec")));
static pthread_key_t ending;
static pthread_once_t ending_once = PTHREAD_ONCE_INIT;
static bool has_key;

bool hb_stream_captures(CUstream stream)
{
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
	return HB_REAL(cuStreamIsCapturing)(stream, &status) == CUDA_SUCCESS && status != CU_STREAM_CAPTURE_STATUS_NONE;
}

/* ---- where captures began ---- */

static const void *thread_of(CUstream stream)
{
	return stream == CU_STREAM_PER_THREAD ? &self : NULL;
}

/* With the lock held. */
static struct capture_origin *find_origin(CUstream stream, bool leaves)
{
	for (unsigned i = 0; i < n_origins; i++)
		if (origins[i].stream == stream && origins[i].thread == thread_of(stream) &&
		    origins[i].leaves == leaves)
			return &origins[i];
	return NULL;
}

static CUcontext context_of(CUstream stream)
{
	CUcontext context;
	if (HB_REAL(cuStreamGetCtx)(stream, &context) == CUDA_SUCCESS ||
	    HB_REAL(cuCtxGetCurrent)(&context) == CUDA_SUCCESS)
		return context;
	return NULL;
}

/* Returns whether the number of captures has grown. */
static bool add_origin(CUstream stream, CUcontext context)
{
	pthread_mutex_lock(&lock);
	struct capture_origin *origin = find_origin(stream,
						    false); /* left by a stream that ended unseen and had this handle */
	bool is_new = !origin;
	if (is_new && n_origins < ORIGINS)
		origin = &origins[n_origins++];
	if (origin)
		*origin = (struct capture_origin){.stream = stream, .thread = thread_of(stream), .context = context};
	else
		n_without++;
	pthread_mutex_unlock(&lock);
	return is_new;
}

/* Returns whether the capture was counted. A capture without an origin counts only if the call `succeeded`. */
static bool remove_origin(CUstream stream, bool succeeded)
{
	pthread_mutex_lock(&lock);
	struct capture_origin *origin = find_origin(stream, false);
	if (!origin)
		origin = find_origin(
			stream,
			true); /* a call to destroy its context is in progress, but the context stays, because others use it */
	bool is_counted = origin || (succeeded && n_without > 0);
	if (origin)
		*origin = origins[--n_origins];
	else if (is_counted)
		n_without--;
	pthread_mutex_unlock(&lock);
	return is_counted;
}

static void end_thread(void *unused)
{
	pthread_mutex_lock(&lock);
	for (unsigned i = n_origins; i-- > 0;)
		if (origins[i].thread == &self) {
			origins[i] = origins[--n_origins];
			atomic_fetch_sub(&hb_captures, 1);
		}
	pthread_mutex_unlock(&lock);
}

static void create_key(void)
{
	has_key = pthread_key_create(&ending, end_thread) == 0;
}

static void note_thread(CUstream stream)
{
	if (thread_of(stream) && pthread_once(&ending_once, create_key) == 0 && has_key)
		pthread_setspecific(ending, &self);
}

/* A NULL stream or context stands for all. */
static void set_leaving(CUstream stream, CUcontext context, bool leaves)
{
	pthread_mutex_lock(&lock);
	for (unsigned i = 0; i < n_origins; i++)
		if ((!stream || origins[i].stream == stream) && (!context || origins[i].context == context))
			origins[i].leaves = leaves;
	pthread_mutex_unlock(&lock);
}

static void remove_leaving(CUstream stream, CUcontext context)
{
	pthread_mutex_lock(&lock);
	for (unsigned i = n_origins; i-- > 0;)
		if (origins[i].leaves && (!stream || origins[i].stream == stream) &&
		    (!context || origins[i].context == context)) {
			origins[i] = origins[--n_origins];
			atomic_fetch_sub(&hb_captures, 1);
		}
	pthread_mutex_unlock(&lock);
}

void hb_capture_stream_leaves(CUstream stream)
{
	if (stream && atomic_load(&hb_captures) > 0)
		set_leaving(stream, NULL, true);
}

void hb_capture_stream_left(CUstream stream, bool is_gone)
{
	if (!stream || atomic_load(&hb_captures) <= 0)
		return;
	if (is_gone)
		remove_leaving(stream, NULL);
	else
		set_leaving(stream, NULL, false);
}

void hb_capture_context_leaves(CUcontext context)
{
	if (context)
		set_leaving(NULL, context, true);
}

void hb_capture_context_left(CUcontext context, bool is_gone)
{
	if (context && is_gone)
		remove_leaving(NULL, context);
	else if (context)
		set_leaving(NULL, context, false);
}

void hb_capture_leave_in_child(void)
{
	atomic_store(&hb_captures, 0);
	pthread_mutex_init(&lock, NULL);
	n_origins = n_without = 0;
}

/* ---- hooks ---- */

/* After the call: takes the count back if no new capture began. */
static CUresult end_begin(CUstream stream, CUcontext context, CUresult result)
{
	if (result == CUDA_SUCCESS)
		note_thread(stream);
	if (result != CUDA_SUCCESS || !add_origin(stream, context))
		atomic_fetch_sub(&hb_captures, 1);
	return result;
}

/* Before the call: counts the capture, so that no captured work is missed. Returns the context in which it begins. */
static CUcontext begin_capture(CUstream stream)
{
	CUcontext context = context_of(stream);
	atomic_fetch_add(&hb_captures, 1);
	HB_FAULT(shim_capture_counted);
	hb_drain_yield_to_capture();
	hb_takeover_yield_to_capture();
	if (hb_shim_extension.before_capture)
		hb_shim_extension.before_capture();
	return context;
}

/*
 * A call that fails ends an invalidated capture all the same. It ends nothing on a stream that does not capture or only joined
 * a capture, nor on the wrong thread; that capture continues and is ended later.
 */
static CUresult end_capture(CUstream stream, CUresult result)
{
	bool stays = result != CUDA_SUCCESS && hb_stream_captures(stream);
	if (!stays && remove_origin(stream, result == CUDA_SUCCESS))
		atomic_fetch_sub(&hb_captures, 1);
	return result;
}

/* No capture begins while memory moves. */
#define BEGIN_ON(asked, call) \
	HB_HELD(({ \
		CUcontext context = begin_capture(asked); \
		end_begin(asked, context, call); \
	}))
#define BEGIN_V1(name, own_stream) \
	CUresult hb_hook_##name(CUstream stream) \
	{ \
		CUstream asked = stream ? stream : (own_stream); \
		return BEGIN_ON(asked, HB_REAL(name)(stream)); \
	}
#define BEGIN_V2(name, own_stream) \
	CUresult hb_hook_##name(CUstream stream, CUstreamCaptureMode mode) \
	{ \
		CUstream asked = stream ? stream : (own_stream); \
		return BEGIN_ON(asked, HB_REAL(name)(stream, mode)); \
	}
#define BEGIN_TO_GRAPH(name, own_stream) \
	CUresult hb_hook_##name(CUstream stream, CUgraph graph, const CUgraphNode *nodes, \
				const CUgraphEdgeData *edges, size_t n_nodes, CUstreamCaptureMode mode) \
	{ \
		CUstream asked = stream ? stream : (own_stream); \
		return BEGIN_ON(asked, HB_REAL(name)(stream, graph, nodes, edges, n_nodes, mode)); \
	}
#define END(name, own_stream) \
	CUresult hb_hook_##name(CUstream stream, CUgraph *graph) \
	{ \
		return end_capture(stream ? stream : (own_stream), HB_REAL(name)(stream, graph)); \
	}

BEGIN_V1(cuStreamBeginCapture, CU_STREAM_LEGACY)
BEGIN_V1(cuStreamBeginCapture_ptsz, CU_STREAM_PER_THREAD)
BEGIN_V2(cuStreamBeginCapture_v2, CU_STREAM_LEGACY)
BEGIN_V2(cuStreamBeginCapture_v2_ptsz, CU_STREAM_PER_THREAD)
BEGIN_TO_GRAPH(cuStreamBeginCaptureToGraph, CU_STREAM_LEGACY)
BEGIN_TO_GRAPH(cuStreamBeginCaptureToGraph_ptsz, CU_STREAM_PER_THREAD)
END(cuStreamEndCapture, CU_STREAM_LEGACY)
END(cuStreamEndCapture_ptsz, CU_STREAM_PER_THREAD)
