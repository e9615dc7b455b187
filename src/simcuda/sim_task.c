/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Effects of completed operations: run a kernel's host function, move bytes, set
 * bytes, finish an event. The draining thread calls this under sim.drain, so it
 * must neither wait nor call the driver.
 */
#include "simcuda/sim_driver.h"

#include <stdlib.h>
#include <string.h>

struct sim_task *sim_task_new(enum sim_task_kind kind)
{
	struct sim_task *task = calloc(1, sizeof *task);
	if (task)
		task->kind = kind;
	return task;
}

struct sim_task *sim_task_copy(const struct sim_task *task)
{
	struct sim_task *copy = malloc(sizeof *copy);
	if (!copy)
		return NULL;
	*copy = *task;
	if (task->kind == SIM_TASK_KERNEL && task->u.kernel.args) {
		copy->u.kernel.args = malloc(task->u.kernel.kernel->params_size);
		if (!copy->u.kernel.args) {
			free(copy);
			return NULL;
		}
		memcpy(copy->u.kernel.args, task->u.kernel.args, task->u.kernel.kernel->params_size);
	}
	if (task->kind == SIM_TASK_EVENT)
		atomic_fetch_add(&task->u.event.event->users, 1);
	return copy;
}

void sim_task_free(struct sim_task *task)
{
	if (!task)
		return;
	if (task->kind == SIM_TASK_KERNEL)
		free(task->u.kernel.args);
	else if (task->kind == SIM_TASK_COPY)
		free(task->u.copy.staging);
	else if (task->kind == SIM_TASK_EVENT)
		sim_event_unuse(task->u.event.event);
	else if (task->kind == SIM_TASK_GRAPH)
		sim_segment_done(task->u.graph.segment);
	free(task);
}

bool sim_task_has_effect(const struct sim_task *task)
{
	switch (task->kind) {
	case SIM_TASK_EMPTY:
	case SIM_TASK_EVENT: /* the completion carries the event's time */
	case SIM_TASK_EVENT_WAIT:
	case SIM_TASK_ALLOC:
		return false;
	case SIM_TASK_KERNEL:
		return task->u.kernel.kernel->host != NULL;
	case SIM_TASK_GRAPH:
		return task->u.graph.effects;
	default:
		return true;
	}
}

static void run_kernel(const struct sim_task *task)
{
	const struct sim_kernel *kernel = task->u.kernel.kernel;
	void *args[SIM_PARAMS_MAX];
	if (!kernel->host)
		return;
	for (uint32_t i = 0; i < kernel->n_params; i++)
		args[i] = task->u.kernel.args + kernel->param_offset[i];
	struct hb_sim_launch launch = {
		.kernel = kernel->name,
		.grid = {task->u.kernel.grid[0], task->u.kernel.grid[1], task->u.kernel.grid[2]},
		.block = {task->u.kernel.block[0], task->u.kernel.block[1], task->u.kernel.block[2]},
		.shared_bytes = task->u.kernel.shared_bytes,
		.sms = task->work.sm_limit ? task->work.sm_limit : (unsigned)sim.info.spec.sm_count,
		.priority = task->u.kernel.priority,
		.n_args = kernel->n_params,
		.args = args,
		.cluster = task->work.cluster,
		.mask = task->u.kernel.mask,
	};
	kernel->host(&launch);
}

#ifdef __SANITIZE_THREAD__
/*
 * The thread sanitizer skips the contents of copies: their order is the program's business, and the sanitizer's own memory for
 * them is four times their size.
 */
void AnnotateIgnoreReadsBegin(const char *file, int line);
void AnnotateIgnoreReadsEnd(const char *file, int line);
void AnnotateIgnoreWritesBegin(const char *file, int line);
void AnnotateIgnoreWritesEnd(const char *file, int line);
static void ignore_accesses(bool ignore)
{
	(ignore ? AnnotateIgnoreReadsBegin : AnnotateIgnoreReadsEnd)(__FILE__, __LINE__);
	(ignore ? AnnotateIgnoreWritesBegin : AnnotateIgnoreWritesEnd)(__FILE__, __LINE__);
}
#else
static void ignore_accesses(bool ignore)
{
}
#endif

static void run_copy(const struct sim_task *task)
{
	const struct sim_box *from = &task->u.copy.from, *to = &task->u.copy.to;
	ignore_accesses(true);
	for (size_t z = 0; z < task->u.copy.depth; z++)
		for (size_t y = 0; y < task->u.copy.height; y++)
			memmove(to->base + z * to->slice + y * to->pitch,
				from->base + z * from->slice + y * from->pitch, task->u.copy.width);
	ignore_accesses(false);
}

static void run_set(const struct sim_task *task)
{
	for (size_t y = 0; y < task->u.set.height; y++) {
		char *row = task->u.set.to.base + y * task->u.set.to.pitch;
		if (task->u.set.element == 1) {
			memset(row, (int)task->u.set.value, task->u.set.width);
			continue;
		}
		for (size_t x = 0; x < task->u.set.width; x++)
			memcpy(row + x * task->u.set.element, &task->u.set.value, task->u.set.element);
	}
}

static void run_event(const struct sim_task *task, int64_t end_ns)
{
	CUevent event = task->u.event.event;
	atomic_store_explicit(&event->at_ns, end_ns, memory_order_relaxed);
	atomic_store_explicit(&event->done, task->u.event.generation, memory_order_release);
}

static void write_value(const struct sim_task *task)
{
	if (task->u.value.wide)
		__atomic_store_n((uint64_t *)(uintptr_t)task->u.value.address, task->u.value.value, __ATOMIC_RELEASE);
	else
		__atomic_store_n((uint32_t *)(uintptr_t)task->u.value.address, (uint32_t)task->u.value.value,
				 __ATOMIC_RELEASE);
}

void sim_task_run(struct sim_task *task, int64_t end_ns)
{
	switch (task->kind) {
	case SIM_TASK_KERNEL:
		run_kernel(task);
		break;
	case SIM_TASK_COPY:
		run_copy(task);
		break;
	case SIM_TASK_SET:
		run_set(task);
		break;
	case SIM_TASK_EVENT:
		run_event(task, end_ns);
		break;
	case SIM_TASK_WRITE_VALUE:
		write_value(task);
		break;
	case SIM_TASK_HOST:
		task->u.host.fn(task->u.host.argument);
		break;
	case SIM_TASK_CALLBACK:
		task->u.callback.fn(task->u.callback.stream, CUDA_SUCCESS, task->u.callback.argument);
		break;
	case SIM_TASK_FREE:
		sim_memory_delete(task->u.memory.address);
		break;
	case SIM_TASK_GRAPH:
		sim_segment_run(task->u.graph.segment, end_ns);
		break;
	default:
		break;
	}
}
