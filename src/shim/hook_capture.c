/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stream captures: what is recorded must be neither held nor counted as work,
 * and while a stream records, most calls into the driver are illegal. So the
 * shim keeps a count of captures and asks about a stream only while it is not
 * zero, with cuStreamIsCapturing, which is always legal.
 *
 * The count is a hint. It can stay too high (a stream destroyed while it
 * records); then launches ask the driver and still get the right answer.
 */
#include "base/fault_point.h"
#include "shim/drain.h"
#include "shim/shim.h"

atomic_int hb_captures;

bool hb_stream_captures(CUstream stream)
{
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
	return HB_REAL(cuStreamIsCapturing)(stream, &status) == CUDA_SUCCESS && status != CU_STREAM_CAPTURE_STATUS_NONE;
}

/* Counted before the call: no work that the new capture records may be missed. */
static CUresult begun(CUresult result)
{
	if (result != CUDA_SUCCESS)
		atomic_fetch_sub(&hb_captures, 1);
	return result;
}

static void begin(void)
{
	atomic_fetch_add(&hb_captures, 1);
	HB_FAULT(shim_capture_counted);
	hb_drain_yield_to_capture();
}

static CUresult ended(bool captured, CUresult result)
{
	if (captured)
		atomic_fetch_sub(&hb_captures, 1);
	return result;
}

#define BEGIN_V1(name) \
	CUresult hb_hook_##name(CUstream stream) \
	{ \
		begin(); \
		return begun(HB_REAL(name)(stream)); \
	}
#define BEGIN_V2(name) \
	CUresult hb_hook_##name(CUstream stream, CUstreamCaptureMode mode) \
	{ \
		begin(); \
		return begun(HB_REAL(name)(stream, mode)); \
	}
#define BEGIN_TO_GRAPH(name) \
	CUresult hb_hook_##name(CUstream stream, CUgraph graph, const CUgraphNode *nodes, \
				const CUgraphEdgeData *edges, size_t n_nodes, CUstreamCaptureMode mode) \
	{ \
		begin(); \
		return begun(HB_REAL(name)(stream, graph, nodes, edges, n_nodes, mode)); \
	}
/*
 * Ends a capture even when it fails (an invalidated one), but not on a stream that records nothing; nor by the wrong thread
 * or on a stream that only joined: then it stays, and is ended later.
 */
#define END(name, own_stream) \
	CUresult hb_hook_##name(CUstream stream, CUgraph *graph) \
	{ \
		CUstream asked = stream ? stream : (own_stream); \
		bool captured = hb_stream_captures(asked); \
		CUresult result = HB_REAL(name)(stream, graph); \
		bool stays = result != CUDA_SUCCESS && hb_stream_captures(asked); \
		return ended(captured && !stays, result); \
	}

BEGIN_V1(cuStreamBeginCapture)
BEGIN_V1(cuStreamBeginCapture_ptsz)
BEGIN_V2(cuStreamBeginCapture_v2)
BEGIN_V2(cuStreamBeginCapture_v2_ptsz)
BEGIN_TO_GRAPH(cuStreamBeginCaptureToGraph)
BEGIN_TO_GRAPH(cuStreamBeginCaptureToGraph_ptsz)
END(cuStreamEndCapture, CU_STREAM_LEGACY)
END(cuStreamEndCapture_ptsz, CU_STREAM_PER_THREAD)
