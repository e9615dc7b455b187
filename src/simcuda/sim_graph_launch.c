/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Executable graphs. Instantiation sorts the nodes and cuts them into segments:
 * sequences of GPU work that are uploaded once to the broker and launched with one
 * submission each, and host functions between them. Branches of a graph run one
 * after another, because the model executes a graph as a sequence.
 */
#include "simcuda/sim_graph.h"

#include "simcuda/sim_futex.h"

#include <stdlib.h>
#include <string.h>

struct sim_segment {
	CUgraphExec exec;
	size_t first, n; /* tasks */
	bool host;       /* one host function; else GPU work */
	uint32_t upload; /* the broker's number of the upload */
	bool uploaded;   /* the segment has work for the GPU */
	bool effects;
};

struct CUgraphExec_st {
	uint32_t magic;
	uint64_t flags;
	_Atomic uint32_t users;   /* references: the handle and each segment in flight */
	_Atomic uint32_t running; /* segments in flight; futex */
	struct sim_task **tasks;
	CUgraphNode *origins; /* the node of each task */
	size_t n_tasks, room;
	struct sim_segment *segments;
	size_t n_segments;
	struct sim_graph_memory *memory;
};

static pthread_mutex_t id_lock = PTHREAD_MUTEX_INITIALIZER;
static uint32_t next_id, *free_ids;
static size_t n_free_ids, free_ids_room;

static uint32_t take_id(void)
{
	pthread_mutex_lock(&id_lock);
	uint32_t id = n_free_ids ? free_ids[--n_free_ids] : next_id++;
	pthread_mutex_unlock(&id_lock);
	return id;
}

static void give_id(uint32_t id)
{
	pthread_mutex_lock(&id_lock);
	if (n_free_ids == free_ids_room) {
		size_t room = free_ids_room ? free_ids_room * 2 : 64;
		uint32_t *bigger = realloc(free_ids, room * sizeof *bigger);
		if (bigger) {
			free_ids = bigger;
			free_ids_room = room;
		}
	}
	if (n_free_ids < free_ids_room)
		free_ids[n_free_ids++] = id;
	pthread_mutex_unlock(&id_lock);
}

/* --- instantiation ----------------------------------------------------------------------------------- */

static bool add_task(CUgraphExec exec, CUgraphNode node)
{
	if (exec->n_tasks == exec->room) {
		size_t room = exec->room ? exec->room * 2 : 32;
		struct sim_task **tasks = realloc(exec->tasks, room * sizeof *tasks);
		exec->tasks = tasks ? tasks : exec->tasks;
		CUgraphNode *origins = tasks ? realloc(exec->origins, room * sizeof *origins) : NULL;
		exec->origins = origins ? origins : exec->origins;
		if (!origins)
			return false;
		exec->room = room;
	}
	struct sim_task *copy = sim_task_copy(node->task);
	if (!copy)
		return false;
	exec->origins[exec->n_tasks] = node;
	exec->tasks[exec->n_tasks++] = copy;
	return true;
}

static CUresult flatten_graph(CUgraphExec exec, CUgraph graph)
{
	CUgraphNode *sorted = malloc((graph->n + 1) * sizeof *sorted);
	CUresult result = sorted ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
	if (sorted && !sim_graph_sort(graph, sorted))
		result = CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < graph->n && result == CUDA_SUCCESS; i++) {
		if (sorted[i]->type == CU_GRAPH_NODE_TYPE_GRAPH)
			result = flatten_graph(exec, sorted[i]->task->u.child.graph);
		else
			result = add_task(exec, sorted[i]) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
	}
	free(sorted);
	return result;
}

static bool gpu_work(const struct sim_task *task)
{
	return task->kind == SIM_TASK_KERNEL || task->kind == SIM_TASK_SET ||
	       (task->kind == SIM_TASK_COPY && task->u.copy.on_gpu);
}

/* A graph owns its memory, so a free node has no effect; see sim_graph_memory. */
static bool has_effect(const struct sim_task *task)
{
	return task->kind == SIM_TASK_EVENT || (task->kind != SIM_TASK_FREE && sim_task_has_effect(task));
}

static bool cut_segments(CUgraphExec exec)
{
	exec->segments = calloc(exec->n_tasks + 1, sizeof *exec->segments);
	for (size_t i = 0; exec->segments && i < exec->n_tasks; i++) {
		bool host = exec->tasks[i]->kind == SIM_TASK_HOST;
		struct sim_segment *segment = exec->n_segments ? &exec->segments[exec->n_segments - 1] : NULL;
		if (!segment || host || segment->host) {
			segment = &exec->segments[exec->n_segments++];
			*segment = (struct sim_segment){.exec = exec, .first = i, .host = host};
		}
		segment->n++;
		segment->effects |= has_effect(exec->tasks[i]);
	}
	return exec->segments != NULL;
}

static void upload_segments(CUgraphExec exec)
{
	for (size_t i = 0; i < exec->n_segments; i++) {
		struct sim_segment *segment = &exec->segments[i];
		for (size_t k = 0; k < segment->n; k++) {
			const struct sim_task *task = exec->tasks[segment->first + k];
			if (!gpu_work(task))
				continue;
			if (!segment->uploaded)
				segment->upload = take_id();
			segment->uploaded = true;
			sim_upload_piece(segment->upload, &task->work);
		}
	}
}

static void unload_segments(CUgraphExec exec)
{
	for (size_t i = 0; i < exec->n_segments; i++)
		if (exec->segments[i].uploaded) {
			sim_upload_free(exec->segments[i].upload);
			give_id(exec->segments[i].upload);
			exec->segments[i].uploaded = false;
		}
}

static void exec_clear(CUgraphExec exec)
{
	unload_segments(exec);
	for (size_t i = 0; i < exec->n_tasks; i++)
		sim_task_free(exec->tasks[i]);
	free(exec->tasks);
	free(exec->origins);
	free(exec->segments);
	if (exec->memory)
		sim_graph_memory_unuse(exec->memory);
}

/* A launch descriptor, and its mask, is written when its kernel enters the graph. */
static void write_descriptor(struct sim_task *task)
{
	if (task->kind == SIM_TASK_KERNEL)
		sim_mask_launch(&task->work, task->u.kernel.mask);
}

static CUresult exec_fill(CUgraphExec exec, CUgraph graph)
{
	exec->memory = graph->memory;
	atomic_fetch_add(&exec->memory->users, 1);
	CUresult result = flatten_graph(exec, graph);
	if (result == CUDA_SUCCESS && !cut_segments(exec))
		result = CUDA_ERROR_OUT_OF_MEMORY;
	for (size_t i = 0; result == CUDA_SUCCESS && i < exec->n_tasks; i++)
		write_descriptor(exec->tasks[i]);
	if (result == CUDA_SUCCESS)
		upload_segments(exec);
	return result;
}

static CUresult instantiate_graph(CUgraphExec *out, CUgraph graph, uint64_t flags)
{
	CUresult result = sim_graph_check(graph);
	if (result == CUDA_SUCCESS && !out)
		result = CUDA_ERROR_INVALID_VALUE;
	if (result == CUDA_SUCCESS && (flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH))
		result = sim_unsupported("graph launch from the device");
	CUgraphExec exec = result == CUDA_SUCCESS ? calloc(1, sizeof *exec) : NULL;
	if (!exec)
		return result != CUDA_SUCCESS ? result : CUDA_ERROR_OUT_OF_MEMORY;
	exec->magic = SIM_MAGIC_EXEC;
	exec->flags = flags;
	atomic_store(&exec->users, 1);
	result = exec_fill(exec, graph);
	if (result != CUDA_SUCCESS) {
		exec_clear(exec);
		free(exec);
		return result;
	}
	*out = exec;
	return CUDA_SUCCESS;
}

CUresult sim_cuGraphInstantiateWithFlags(CUgraphExec *phGraphExec, CUgraph hGraph, unsigned long long flags)
{
	return instantiate_graph(phGraphExec, hGraph, flags);
}

CUresult sim_cuGraphInstantiateWithParams(CUgraphExec *phGraphExec, CUgraph hGraph,
					  CUDA_GRAPH_INSTANTIATE_PARAMS *instantiateParams)
{
	if (!instantiateParams)
		return sim_ready() == CUDA_SUCCESS ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_NOT_INITIALIZED;
	CUresult result = instantiate_graph(phGraphExec, hGraph, instantiateParams->flags);
	instantiateParams->hErrNode_out = NULL;
	instantiateParams->result_out = result == CUDA_SUCCESS ? CUDA_GRAPH_INSTANTIATE_SUCCESS
							       : CUDA_GRAPH_INSTANTIATE_ERROR;
	return result;
}

/* --- running ------------------------------------------------------------------------------------ */

static CUresult check_exec(CUgraphExec exec)
{
	CUresult result = sim_ready();
	if (result != CUDA_SUCCESS)
		return result;
	return exec && exec->magic == SIM_MAGIC_EXEC ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static void exec_unuse(CUgraphExec exec)
{
	if (atomic_fetch_sub(&exec->users, 1) != 1)
		return;
	exec_clear(exec);
	free(exec);
}

static void run_event(struct sim_task *task, int64_t end_ns)
{
	CUevent event = task->u.event.event;
	atomic_store(&event->at_ns, end_ns);
	atomic_store(&event->done, atomic_load(&event->wanted));
}

void sim_segment_run(struct sim_segment *segment, int64_t end_ns)
{
	CUgraphExec exec = segment->exec;
	for (size_t i = 0; segment->effects && i < segment->n; i++) {
		struct sim_task *task = exec->tasks[segment->first + i];
		if (task->kind == SIM_TASK_EVENT)
			run_event(task, end_ns);
		else if (has_effect(task))
			sim_task_run(task, end_ns);
	}
}

/* A segment's task is freed when it completes, also after its context was lost: the launch has ended then. */
void sim_segment_done(struct sim_segment *segment)
{
	CUgraphExec exec = segment->exec;
	if (atomic_fetch_sub(&exec->running, 1) == 1)
		sim_futex_wake(&exec->running, INT_MAX);
	exec_unuse(exec);
}

static CUresult launch_segment(struct sim_segment *segment, CUstream stream)
{
	struct sim_task *task = sim_task_new(SIM_TASK_GRAPH);
	if (!task)
		return CUDA_ERROR_OUT_OF_MEMORY;
	task->u.graph.segment = segment;
	task->u.graph.host = segment->host;
	task->u.graph.effects = segment->effects;
	for (size_t i = 0; i < segment->n; i++) {
		const struct sim_task *part = segment->exec->tasks[segment->first + i];
		if (part->kind == SIM_TASK_EVENT)
			atomic_fetch_add(&part->u.event.event->wanted, 1);
	}
	atomic_fetch_add(&segment->exec->users, 1);
	atomic_fetch_add(&segment->exec->running, 1);
	if (segment->uploaded)
		return sim_submit_graph(stream, segment->upload, task);
	return sim_submit(stream, NULL, task, NULL);
}

/* In a capture a launched graph would become a child graph, which the flattened tasks cannot represent. */
CUresult sim_cuGraphLaunch(CUgraphExec hGraphExec, CUstream hStream)
{
	CUstream stream;
	CUresult result = sim_stream_resolve(hStream, &stream);
	if (result == CUDA_SUCCESS)
		result = check_exec(hGraphExec);
	if (result == CUDA_SUCCESS)
		result = sim_capture_forbids(stream);
	for (size_t i = 0; result == CUDA_SUCCESS && i < hGraphExec->n_segments; i++)
		result = launch_segment(&hGraphExec->segments[i], stream);
	return result;
}

CUresult sim_cuGraphUpload(CUgraphExec hGraphExec, CUstream hStream)
{
	CUstream stream;
	CUresult result = sim_stream_resolve(hStream, &stream);
	return result == CUDA_SUCCESS ? check_exec(hGraphExec) : result;
}

CUresult sim_cuGraphExecDestroy(CUgraphExec hGraphExec)
{
	CUresult result = check_exec(hGraphExec);
	if (result != CUDA_SUCCESS)
		return result;
	hGraphExec->magic = SIM_MAGIC_DEAD;
	exec_unuse(hGraphExec);
	return CUDA_SUCCESS;
}

CUresult sim_cuGraphExecGetFlags(CUgraphExec hGraphExec, uint64_t *flags)
{
	CUresult result = check_exec(hGraphExec);
	if (result == CUDA_SUCCESS && !flags)
		result = CUDA_ERROR_INVALID_VALUE;
	if (result == CUDA_SUCCESS)
		*flags = hGraphExec->flags;
	return result;
}

/* --- changing ------------------------------------------------------------------------------------- */

/* Earlier launches run unchanged: this waits for them. */
static void wait_idle(CUgraphExec exec)
{
	uint32_t running;
	while ((running = atomic_load(&exec->running)) && !atomic_load(&sim.lost)) {
		sim_drain();
		if (atomic_load(&exec->running))
			sim_futex_wait(&exec->running, running, 1000000);
	}
}

static void reupload_segments(CUgraphExec exec)
{
	unload_segments(exec);
	upload_segments(exec);
}

CUresult sim_cuGraphExecKernelNodeSetParams_v2(CUgraphExec hGraphExec, CUgraphNode hNode,
					       const CUDA_KERNEL_NODE_PARAMS *nodeParams)
{
	CUcontext context;
	CUresult result = check_exec(hGraphExec);
	if (result == CUDA_SUCCESS && (!nodeParams || !hNode))
		result = CUDA_ERROR_INVALID_VALUE;
	if (result == CUDA_SUCCESS)
		result = sim_current(&context);
	if (result != CUDA_SUCCESS)
		return result;
	size_t i = 0;
	while (i < hGraphExec->n_tasks && hGraphExec->origins[i] != hNode)
		i++;
	if (i == hGraphExec->n_tasks || hGraphExec->tasks[i]->kind != SIM_TASK_KERNEL)
		return CUDA_ERROR_INVALID_VALUE;
	struct sim_task *task = sim_task_new(SIM_TASK_KERNEL);
	result = task ? sim_kernel_task(context, nodeParams, NULL, 0, task) : CUDA_ERROR_OUT_OF_MEMORY;
	if (result != CUDA_SUCCESS) {
		sim_task_free(task);
		return result;
	}
	wait_idle(hGraphExec);
	sim_task_free(hGraphExec->tasks[i]);
	hGraphExec->tasks[i] = task;
	write_descriptor(task);
	reupload_segments(hGraphExec);
	return CUDA_SUCCESS;
}

static bool same_shape(const struct CUgraphExec_st *exec, const struct CUgraphExec_st *other, size_t *difference)
{
	for (*difference = 0; *difference < exec->n_tasks && *difference < other->n_tasks; ++*difference)
		if (exec->tasks[*difference]->kind != other->tasks[*difference]->kind)
			return false;
	return exec->n_tasks == other->n_tasks;
}

CUresult sim_cuGraphExecUpdate_v2(CUgraphExec hGraphExec, CUgraph hGraph, CUgraphExecUpdateResultInfo *resultInfo)
{
	CUgraphExec fresh;
	size_t difference;
	CUresult result = check_exec(hGraphExec);
	if (result == CUDA_SUCCESS && !resultInfo)
		result = CUDA_ERROR_INVALID_VALUE;
	if (result == CUDA_SUCCESS)
		result = instantiate_graph(&fresh, hGraph, hGraphExec->flags);
	if (result != CUDA_SUCCESS)
		return result;
	memset(resultInfo, 0, sizeof *resultInfo);
	if (!same_shape(hGraphExec, fresh, &difference)) {
		resultInfo->result = difference < hGraphExec->n_tasks && difference < fresh->n_tasks
					     ? CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED
					     : CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
		exec_unuse(fresh);
		return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
	}
	wait_idle(hGraphExec);
	/* The shapes agree, so the segments do, too: only the tasks and their memory are exchanged. */
	struct sim_task **tasks = hGraphExec->tasks;
	CUgraphNode *origins = hGraphExec->origins;
	struct sim_graph_memory *memory = hGraphExec->memory;
	hGraphExec->tasks = fresh->tasks;
	hGraphExec->origins = fresh->origins;
	hGraphExec->memory = fresh->memory;
	fresh->tasks = tasks;
	fresh->origins = origins;
	fresh->memory = memory;
	for (size_t i = 0; i < hGraphExec->n_segments; i++)
		hGraphExec->segments[i].effects = fresh->segments[i].effects;
	exec_unuse(fresh);
	reupload_segments(hGraphExec);
	return CUDA_SUCCESS;
}
