/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stream capture: operations become nodes of a graph instead of work. A capture
 * spreads over streams through events. Every stream in it has a front: the nodes
 * on which its next operation depends. A forbidden call invalidates the capture.
 */
#include "simcuda/sim_graph.h"

#include <stdlib.h>
#include <string.h>

/* A stream that takes part in a capture. */
struct capture_front {
	CUstream stream;
	CUgraphNode *nodes;
	size_t n;
	struct capture_front *next;
};

struct sim_capture {
	uint64_t id;
	CUgraph graph;
	bool own_graph; /* false: the caller provided the graph */
	CUstreamCaptureMode mode;
	pthread_t thread;
	CUstream origin;
	struct capture_front *fronts;
	bool spoilt;
	struct sim_capture *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards everything above; no other lock is taken under it */
static struct sim_capture *captures;
static _Atomic uint32_t n_captures; /* while 0, no stream needs a check */
static _Thread_local CUstreamCaptureMode thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

static struct capture_front *front_of(const struct sim_capture *capture, CUstream stream)
{
	for (struct capture_front *front = capture->fronts; front; front = front->next)
		if (front->stream == stream)
			return front;
	return NULL;
}

static bool front_set(struct capture_front *front, const CUgraphNode *nodes, size_t n)
{
	CUgraphNode *copy = malloc((n + 1) * sizeof *copy);
	if (!copy)
		return false;
	if (n)
		memcpy(copy, nodes, n * sizeof *copy);
	free(front->nodes);
	front->nodes = copy;
	front->n = n;
	return true;
}

static bool front_join(struct capture_front *front, const CUgraphNode *nodes, size_t n)
{
	CUgraphNode *bigger = realloc(front->nodes, (front->n + n + 1) * sizeof *bigger);
	if (!bigger)
		return false;
	front->nodes = bigger;
	for (size_t i = 0; i < n; i++) {
		size_t k = 0;
		while (k < front->n && bigger[k] != nodes[i])
			k++;
		if (k == front->n)
			bigger[front->n++] = nodes[i];
	}
	return true;
}

static struct capture_front *front_new(struct sim_capture *capture, CUstream stream)
{
	struct capture_front *front = calloc(1, sizeof *front);
	if (!front)
		return NULL;
	front->stream = stream;
	front->next = capture->fronts;
	capture->fronts = front;
	atomic_store(&stream->capture, capture);
	if (!(stream->flags & CU_STREAM_NON_BLOCKING))
		atomic_fetch_add(&stream->context->captures, 1);
	return front;
}

static void front_free(struct capture_front *front)
{
	atomic_store(&front->stream->capture, NULL);
	if (!(front->stream->flags & CU_STREAM_NON_BLOCKING))
		atomic_fetch_sub(&front->stream->context->captures, 1);
	free(front->nodes);
	free(front);
}

static void capture_end(struct sim_capture *capture)
{
	for (struct sim_capture **at = &captures; *at; at = &(*at)->next)
		if (*at == capture) {
			*at = capture->next;
			break;
		}
	while (capture->fronts) {
		struct capture_front *front = capture->fronts;
		capture->fronts = front->next;
		front_free(front);
	}
	atomic_fetch_sub(&n_captures, 1);
	free(capture);
}

static void leave_capture(struct sim_capture *capture, CUstream stream)
{
	struct capture_front **at = &capture->fronts;
	while (*at && (*at)->stream != stream)
		at = &(*at)->next;
	struct capture_front *front = *at;
	if (front) {
		*at = front->next;
		front_free(front);
	}
	capture->spoilt = true;
}

void sim_capture_lose(CUstream stream)
{
	if (!atomic_load(&stream->capture))
		return;
	pthread_mutex_lock(&lock);
	struct sim_capture *capture = atomic_load(&stream->capture);
	if (capture && capture->origin == stream) {
		if (capture->own_graph)
			sim_graph_free(capture->graph);
		capture_end(capture);
	} else if (capture) {
		leave_capture(capture, stream);
	}
	pthread_mutex_unlock(&lock);
}

/* --- forbidden calls ------------------------------------------------------------------- */

CUresult sim_capture_forbids(CUstream stream)
{
	if (SIM_LIKELY(!atomic_load_explicit(&stream->capture, memory_order_relaxed)))
		return CUDA_SUCCESS;
	pthread_mutex_lock(&lock);
	struct sim_capture *capture = atomic_load(&stream->capture);
	if (capture)
		capture->spoilt = true;
	pthread_mutex_unlock(&lock);
	return capture ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS;
}

static bool forbids_unsafe(const struct sim_capture *capture)
{
	bool own = pthread_equal(capture->thread, pthread_self());
	if (capture->mode == CU_STREAM_CAPTURE_MODE_RELAXED || thread_mode == CU_STREAM_CAPTURE_MODE_RELAXED)
		return false;
	return own || (capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL && thread_mode == CU_STREAM_CAPTURE_MODE_GLOBAL);
}

CUresult sim_capture_forbids_unsafe(void)
{
	bool forbidden = false;
	if (SIM_LIKELY(!atomic_load_explicit(&n_captures, memory_order_relaxed)))
		return CUDA_SUCCESS;
	pthread_mutex_lock(&lock);
	for (struct sim_capture *capture = captures; capture; capture = capture->next)
		if (forbids_unsafe(capture))
			forbidden = capture->spoilt = true;
	pthread_mutex_unlock(&lock);
	return forbidden ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS;
}

CUresult sim_cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
	CUresult result = sim_ready();
	if (result == CUDA_SUCCESS && (!mode || *mode > CU_STREAM_CAPTURE_MODE_RELAXED))
		result = CUDA_ERROR_INVALID_VALUE;
	if (result != CUDA_SUCCESS)
		return result;
	CUstreamCaptureMode before = thread_mode;
	thread_mode = *mode;
	*mode = before;
	return CUDA_SUCCESS;
}

/* --- operations ------------------------------------------------------------------------------ */

static CUresult capture_task(struct sim_capture *capture, CUstream stream, struct sim_task *task)
{
	struct capture_front *front = front_of(capture, stream);
	if (capture->spoilt) {
		sim_task_free(task);
		return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	}
	if (task->kind == SIM_TASK_ALLOC)
		sim_graph_memory_add(capture->graph, task->u.memory.address);
	CUgraphNode node = sim_graph_add(capture->graph, task, front->nodes, front->n);
	return node && front_set(front, &node, 1) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* The legacy stream would have to wait for a stream that is being captured. */
static CUresult forbid_implicit(CUcontext context)
{
	pthread_mutex_lock(&lock);
	for (struct sim_capture *capture = captures; capture; capture = capture->next)
		for (struct capture_front *front = capture->fronts; front; front = front->next)
			if (front->stream->context == context && !(front->stream->flags & CU_STREAM_NON_BLOCKING))
				capture->spoilt = true;
	pthread_mutex_unlock(&lock);
	return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
}

CUresult sim_issue(CUstream stream, struct sim_task *task, uint64_t *seq)
{
	if (atomic_load_explicit(&stream->capture, memory_order_acquire)) {
		CUresult result = CUDA_SUCCESS;
		pthread_mutex_lock(&lock);
		struct sim_capture *capture = atomic_load(&stream->capture);
		if (capture)
			result = capture_task(capture, stream, task);
		pthread_mutex_unlock(&lock);
		if (capture)
			return result;
	}
	if (stream->legacy && atomic_load_explicit(&stream->context->captures, memory_order_relaxed)) {
		sim_task_free(task);
		return forbid_implicit(stream->context);
	}
	return sim_submit(stream, &task->work, task, seq);
}

bool sim_capture_record(CUstream stream, CUevent event, unsigned flags, CUresult *result)
{
	if (!atomic_load(&stream->capture) || (flags & CU_EVENT_RECORD_EXTERNAL))
		return false;
	pthread_mutex_lock(&lock);
	struct sim_capture *capture = atomic_load(&stream->capture);
	if (capture && capture->spoilt) {
		*result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	} else if (capture) {
		struct capture_front *front = front_of(capture, stream);
		CUgraphNode *nodes = malloc((front->n + 1) * sizeof *nodes);
		*result = nodes ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
		if (nodes) {
			if (front->n)
				memcpy(nodes, front->nodes, front->n * sizeof *nodes);
			free(event->captured_nodes);
			event->captured_nodes = nodes;
			event->n_captured = front->n;
			event->captured_id = capture->id;
		}
	}
	pthread_mutex_unlock(&lock);
	return capture != NULL;
}

static CUresult wait_captured(CUstream stream, CUevent event, struct sim_capture *of_event)
{
	struct sim_capture *of_stream = atomic_load(&stream->capture);
	if (!of_event)
		return CUDA_ERROR_CAPTURED_EVENT;
	if (of_stream && of_stream != of_event) {
		of_stream->spoilt = of_event->spoilt = true;
		return CUDA_ERROR_STREAM_CAPTURE_MERGE;
	}
	if (of_event->spoilt)
		return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	if (stream->legacy) {
		of_event->spoilt = true;
		return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
	}
	struct capture_front *front = of_stream ? front_of(of_stream, stream) : front_new(of_event, stream);
	return front && front_join(front, event->captured_nodes, event->n_captured) ? CUDA_SUCCESS
										    : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult wait_external(struct sim_capture *capture, CUstream stream)
{
	struct sim_task *task = sim_task_new(SIM_TASK_EVENT_WAIT);
	return task ? capture_task(capture, stream, task) : CUDA_ERROR_OUT_OF_MEMORY;
}

bool sim_capture_wait(CUstream stream, CUevent event, unsigned flags, CUresult *result)
{
	bool dealt = true;
	if (!event->captured_id && !atomic_load(&stream->capture))
		return false;
	pthread_mutex_lock(&lock);
	struct sim_capture *of_stream = atomic_load(&stream->capture), *of_event = captures;
	while (of_event && of_event->id != event->captured_id)
		of_event = of_event->next;
	if (event->captured_id) {
		*result = wait_captured(stream, event, of_event);
	} else if (!of_stream) {
		dealt = false;
	} else if (flags & CU_EVENT_WAIT_EXTERNAL) {
		*result = wait_external(of_stream, stream);
	} else if (atomic_load(&event->wanted)) {
		of_stream->spoilt = true;
		*result = CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
	}
	pthread_mutex_unlock(&lock);
	return dealt;
}

/* --- begin and end ------------------------------------------------------------------------------ */

static CUresult begin_capture(CUstream handle, CUgraph graph, const CUgraphNode *needs, size_t n_needs,
			      CUstreamCaptureMode mode)
{
	CUstream stream;
	CUresult result = sim_stream_resolve(handle, &stream);
	if (result != CUDA_SUCCESS)
		return result;
	if (mode > CU_STREAM_CAPTURE_MODE_RELAXED)
		return CUDA_ERROR_INVALID_VALUE;
	if (stream->legacy)
		return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	struct sim_capture *capture = calloc(1, sizeof *capture);
	if (!capture)
		return CUDA_ERROR_OUT_OF_MEMORY;
	capture->own_graph = !graph;
	capture->graph = graph ? graph : sim_graph_new();
	capture->id = atomic_fetch_add(&sim.unique, 1) + 1;
	capture->mode = mode;
	capture->thread = pthread_self();
	capture->origin = stream;
	pthread_mutex_lock(&lock);
	struct capture_front *front = capture->graph && !atomic_load(&stream->capture) ? front_new(capture, stream)
										       : NULL;
	if (front) {
		front_join(front, needs, n_needs);
		capture->next = captures;
		captures = capture;
		atomic_fetch_add(&n_captures, 1);
	}
	pthread_mutex_unlock(&lock);
	if (front)
		return CUDA_SUCCESS;
	if (capture->own_graph)
		sim_graph_free(capture->graph);
	free(capture);
	return CUDA_ERROR_ILLEGAL_STATE;
}

CUresult sim_cuStreamBeginCapture_v2(CUstream hStream, CUstreamCaptureMode mode)
{
	return begin_capture(hStream, NULL, NULL, 0, mode);
}

CUresult sim_cuStreamBeginCaptureToGraph(CUstream hStream, CUgraph hGraph, const CUgraphNode *dependencies,
					 const CUgraphEdgeData *dependencyData, size_t numDependencies,
					 CUstreamCaptureMode mode)
{
	CUresult result = sim_graph_check(hGraph);
	if (result == CUDA_SUCCESS && numDependencies && !dependencies)
		result = CUDA_ERROR_INVALID_VALUE;
	return result == CUDA_SUCCESS ? begin_capture(hStream, hGraph, dependencies, numDependencies, mode) : result;
}

static void mark_needed(CUgraphNode node)
{
	if (node->open)
		return;
	node->open = 1;
	for (size_t i = 0; i < node->n_needs; i++)
		mark_needed(node->needs[i]);
}

/* Every stream that joined the capture must have been joined back: its front is behind the origin's. */
static bool all_joined(struct sim_capture *capture)
{
	struct capture_front *origin = front_of(capture, capture->origin);
	for (size_t i = 0; i < capture->graph->n; i++)
		capture->graph->nodes[i]->open = 0;
	for (size_t i = 0; i < origin->n; i++)
		mark_needed(origin->nodes[i]);
	for (struct capture_front *front = capture->fronts; front; front = front->next)
		for (size_t i = 0; i < front->n; i++)
			if (!front->nodes[i]->open)
				return false;
	return true;
}

CUresult sim_cuStreamEndCapture(CUstream hStream, CUgraph *phGraph)
{
	CUstream stream;
	CUresult result = sim_stream_resolve(hStream, &stream);
	if (result != CUDA_SUCCESS || !phGraph)
		return result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_VALUE;
	*phGraph = NULL;
	pthread_mutex_lock(&lock);
	struct sim_capture *capture = atomic_load(&stream->capture);
	if (!capture) {
		pthread_mutex_unlock(&lock);
		return CUDA_ERROR_ILLEGAL_STATE;
	}
	if (capture->origin != stream)
		result = CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
	else if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED && !pthread_equal(capture->thread, pthread_self()))
		result = CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
	else if (capture->spoilt)
		result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	else if (!all_joined(capture))
		result = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
	if (result == CUDA_SUCCESS)
		*phGraph = capture->graph;
	else if (result == CUDA_ERROR_STREAM_CAPTURE_UNMATCHED || result == CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD)
		capture->spoilt = true;
	if (result != CUDA_ERROR_STREAM_CAPTURE_UNMATCHED && result != CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD) {
		if (result != CUDA_SUCCESS && capture->own_graph)
			sim_graph_free(capture->graph);
		capture_end(capture);
	}
	pthread_mutex_unlock(&lock);
	return result;
}

CUresult sim_cuStreamIsCapturing(CUstream hStream, CUstreamCaptureStatus *captureStatus)
{
	return sim_cuStreamGetCaptureInfo_v3(hStream, captureStatus, NULL, NULL, NULL, NULL, NULL);
}

CUresult sim_cuStreamGetCaptureInfo_v3(CUstream hStream, CUstreamCaptureStatus *captureStatus_out, uint64_t *id_out,
				       CUgraph *graph_out, const CUgraphNode **dependencies_out,
				       const CUgraphEdgeData **edgeData_out, size_t *numDependencies_out)
{
	CUstream stream;
	CUresult result = sim_stream_resolve(hStream, &stream);
	if (result != CUDA_SUCCESS || !captureStatus_out)
		return result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_VALUE;
	if (stream->legacy && atomic_load(&stream->context->captures))
		return forbid_implicit(stream->context);
	pthread_mutex_lock(&lock);
	struct sim_capture *capture = atomic_load(&stream->capture);
	*captureStatus_out = !capture          ? CU_STREAM_CAPTURE_STATUS_NONE
			     : capture->spoilt ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
					       : CU_STREAM_CAPTURE_STATUS_ACTIVE;
	if (capture && !capture->spoilt) {
		const struct capture_front *front = front_of(capture, stream);
		if (id_out)
			*id_out = capture->id;
		if (graph_out)
			*graph_out = capture->graph;
		if (dependencies_out)
			*dependencies_out = front->nodes;
		if (edgeData_out)
			*edgeData_out = NULL;
		if (numDependencies_out)
			*numDependencies_out = front->n;
	}
	pthread_mutex_unlock(&lock);
	return CUDA_SUCCESS;
}

CUresult sim_cuStreamGetCaptureInfo_v2(CUstream hStream, CUstreamCaptureStatus *captureStatus_out, uint64_t *id_out,
				       CUgraph *graph_out, const CUgraphNode **dependencies_out,
				       size_t *numDependencies_out)
{
	return sim_cuStreamGetCaptureInfo_v3(hStream, captureStatus_out, id_out, graph_out, dependencies_out, NULL,
					     numDependencies_out);
}

CUresult sim_cuStreamUpdateCaptureDependencies(CUstream hStream, CUgraphNode *dependencies, size_t numDependencies,
					       unsigned int flags)
{
	CUstream stream;
	CUresult result = sim_stream_resolve(hStream, &stream);
	if (result == CUDA_SUCCESS && (flags > 1 || (numDependencies && !dependencies)))
		result = CUDA_ERROR_INVALID_VALUE;
	if (result != CUDA_SUCCESS)
		return result;
	pthread_mutex_lock(&lock);
	struct sim_capture *capture = atomic_load(&stream->capture);
	if (!capture)
		result = CUDA_ERROR_ILLEGAL_STATE;
	else if (capture->spoilt)
		result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	else if (!(flags ? front_set : front_join)(front_of(capture, stream), dependencies, numDependencies))
		result = CUDA_ERROR_OUT_OF_MEMORY;
	pthread_mutex_unlock(&lock);
	return result;
}

CUresult sim_cuStreamUpdateCaptureDependencies_v2(CUstream hStream, CUgraphNode *dependencies,
						  const CUgraphEdgeData *dependencyData, size_t numDependencies,
						  unsigned int flags)
{
	return sim_cuStreamUpdateCaptureDependencies(hStream, dependencies, numDependencies, flags);
}
