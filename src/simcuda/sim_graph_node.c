/* SPDX-License-Identifier: Apache-2.0 */
/* The calls that add a node of each kind to a graph, and those that read or change its parameters. */
#include "simcuda/sim_graph.h"

#include <stdlib.h>
#include <string.h>

static CUresult add_node(CUgraphNode *out, CUgraph graph, const CUgraphNode *needs, size_t n_needs,
			 struct sim_task *task)
{
	CUgraphNode node = sim_graph_add(graph, task, needs, n_needs);
	if (!node)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*out = node;
	return CUDA_SUCCESS;
}

static CUresult check_add(const CUgraphNode *out, CUgraph graph, const CUgraphNode *needs, size_t n_needs,
			  const void *params)
{
	CUresult result = sim_graph_check(graph);
	if (result != CUDA_SUCCESS)
		return result;
	if (!out || !params || (n_needs && !needs))
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < n_needs; i++)
		if (!needs[i] || needs[i]->graph != graph)
			return CUDA_ERROR_INVALID_VALUE;
	return CUDA_SUCCESS;
}

/* --- kernels ------------------------------------------------------------------------------- */

static CUresult kernel_task(const CUDA_KERNEL_NODE_PARAMS *params, struct sim_task **out)
{
	CUcontext context = params->ctx;
	CUresult result = context ? sim_check_context(context) : sim_current(&context);
	struct sim_task *task = result == CUDA_SUCCESS ? sim_task_new(SIM_TASK_KERNEL) : NULL;
	if (!task)
		return result != CUDA_SUCCESS ? result : CUDA_ERROR_OUT_OF_MEMORY;
	result = sim_kernel_task(context, params, NULL, 0, task);
	if (result != CUDA_SUCCESS)
		sim_task_free(task);
	else
		*out = task;
	return result;
}

CUresult sim_cuGraphAddKernelNode_v2(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
				     size_t numDependencies, const CUDA_KERNEL_NODE_PARAMS *nodeParams)
{
	struct sim_task *task;
	CUresult result = check_add(phGraphNode, hGraph, dependencies, numDependencies, nodeParams);
	if (result == CUDA_SUCCESS)
		result = kernel_task(nodeParams, &task);
	return result == CUDA_SUCCESS ? add_node(phGraphNode, hGraph, dependencies, numDependencies, task) : result;
}

/* Returns pointers to the stored parameters, which are valid as long as the node. */
static _Thread_local void *shown_params[SIM_PARAMS_MAX];

CUresult sim_cuGraphKernelNodeGetParams_v2(CUgraphNode hNode, CUDA_KERNEL_NODE_PARAMS *nodeParams)
{
	CUresult result = sim_node_check(hNode);
	if (result == CUDA_SUCCESS && (!nodeParams || hNode->type != CU_GRAPH_NODE_TYPE_KERNEL))
		result = CUDA_ERROR_INVALID_VALUE;
	if (result != CUDA_SUCCESS)
		return result;
	const struct sim_task *task = hNode->task;
	const struct sim_kernel *kernel = task->u.kernel.kernel;
	for (uint32_t i = 0; i < kernel->n_params; i++)
		shown_params[i] = task->u.kernel.args + kernel->param_offset[i];
	*nodeParams = (CUDA_KERNEL_NODE_PARAMS){
		.func = task->u.kernel.kern ? NULL : task->u.kernel.function,
		.kern = task->u.kernel.kern,
		.gridDimX = task->u.kernel.grid[0],
		.gridDimY = task->u.kernel.grid[1],
		.gridDimZ = task->u.kernel.grid[2],
		.blockDimX = task->u.kernel.block[0],
		.blockDimY = task->u.kernel.block[1],
		.blockDimZ = task->u.kernel.block[2],
		.sharedMemBytes = task->u.kernel.shared_bytes,
		.kernelParams = shown_params,
		.ctx = task->u.kernel.function->module->context,
	};
	return CUDA_SUCCESS;
}

CUresult sim_cuGraphKernelNodeSetParams_v2(CUgraphNode hNode, const CUDA_KERNEL_NODE_PARAMS *nodeParams)
{
	struct sim_task *task;
	CUresult result = sim_node_check(hNode);
	if (result == CUDA_SUCCESS && (!nodeParams || hNode->type != CU_GRAPH_NODE_TYPE_KERNEL))
		result = CUDA_ERROR_INVALID_VALUE;
	if (result == CUDA_SUCCESS)
		result = kernel_task(nodeParams, &task);
	if (result != CUDA_SUCCESS)
		return result;
	sim_task_free(hNode->task);
	hNode->task = task;
	return CUDA_SUCCESS;
}

CUresult sim_cuGraphKernelNodeGetAttribute(CUgraphNode hNode, CUkernelNodeAttrID attr, CUkernelNodeAttrValue *value_out)
{
	CUresult result = sim_node_check(hNode);
	if (result == CUDA_SUCCESS && (!value_out || hNode->type != CU_GRAPH_NODE_TYPE_KERNEL))
		result = CUDA_ERROR_INVALID_VALUE;
	if (result != CUDA_SUCCESS)
		return result;
	memset(value_out, 0, sizeof *value_out);
	if (attr == CU_LAUNCH_ATTRIBUTE_COOPERATIVE)
		value_out->cooperative = hNode->task->u.kernel.cooperative;
	else if (attr == CU_LAUNCH_ATTRIBUTE_PRIORITY)
		value_out->priority = hNode->task->u.kernel.priority;
	else if (attr == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION)
		value_out->clusterDim.x = hNode->task->work.cluster;
	return CUDA_SUCCESS;
}

CUresult sim_cuGraphKernelNodeSetAttribute(CUgraphNode hNode, CUkernelNodeAttrID attr,
					   const CUkernelNodeAttrValue *value)
{
	CUresult result = sim_node_check(hNode);
	if (result == CUDA_SUCCESS && (!value || hNode->type != CU_GRAPH_NODE_TYPE_KERNEL))
		result = CUDA_ERROR_INVALID_VALUE;
	if (result != CUDA_SUCCESS)
		return result;
	if (attr == CU_LAUNCH_ATTRIBUTE_COOPERATIVE)
		hNode->task->u.kernel.cooperative = value->cooperative;
	else if (attr == CU_LAUNCH_ATTRIBUTE_PRIORITY)
		hNode->task->u.kernel.priority = value->priority;
	else if (attr == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION)
		hNode->task->work.cluster = value->clusterDim.x * value->clusterDim.y * value->clusterDim.z;
	return CUDA_SUCCESS;
}

/* --- copies and sets -------------------------------------------------------------------------- */

CUresult sim_cuGraphAddMemcpyNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
				  size_t numDependencies, const CUDA_MEMCPY3D *copyParams, CUcontext ctx)
{
	struct sim_task *task;
	CUresult result = check_add(phGraphNode, hGraph, dependencies, numDependencies, copyParams);
	if (result == CUDA_SUCCESS)
		result = sim_copy_task(copyParams, &task);
	return result == CUDA_SUCCESS ? add_node(phGraphNode, hGraph, dependencies, numDependencies, task) : result;
}

CUresult sim_cuGraphMemcpyNodeGetParams(CUgraphNode hNode, CUDA_MEMCPY3D *nodeParams)
{
	CUresult result = sim_node_check(hNode);
	if (result == CUDA_SUCCESS && (!nodeParams || hNode->type != CU_GRAPH_NODE_TYPE_MEMCPY))
		result = CUDA_ERROR_INVALID_VALUE;
	if (result == CUDA_SUCCESS)
		*nodeParams = hNode->task->u.copy.given;
	return result;
}

CUresult sim_cuGraphAddMemsetNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
				  size_t numDependencies, const CUDA_MEMSET_NODE_PARAMS *memsetParams, CUcontext ctx)
{
	struct sim_task *task;
	CUresult result = check_add(phGraphNode, hGraph, dependencies, numDependencies, memsetParams);
	if (result == CUDA_SUCCESS)
		result = sim_set_task(memsetParams->dst, memsetParams->pitch, memsetParams->value,
				      memsetParams->elementSize, memsetParams->width, memsetParams->height, &task);
	return result == CUDA_SUCCESS ? add_node(phGraphNode, hGraph, dependencies, numDependencies, task) : result;
}

CUresult sim_cuGraphMemsetNodeGetParams(CUgraphNode hNode, CUDA_MEMSET_NODE_PARAMS *nodeParams)
{
	CUresult result = sim_node_check(hNode);
	if (result == CUDA_SUCCESS && (!nodeParams || hNode->type != CU_GRAPH_NODE_TYPE_MEMSET))
		result = CUDA_ERROR_INVALID_VALUE;
	if (result != CUDA_SUCCESS)
		return result;
	const struct sim_task *task = hNode->task;
	*nodeParams = (CUDA_MEMSET_NODE_PARAMS){
		.dst = (CUdeviceptr)(uintptr_t)task->u.set.to.base,
		.pitch = task->u.set.to.pitch,
		.value = task->u.set.value,
		.elementSize = task->u.set.element,
		.width = task->u.set.width,
		.height = task->u.set.height,
	};
	return CUDA_SUCCESS;
}

/* --- the rest ------------------------------------------------------------------------------------ */

CUresult sim_cuGraphAddHostNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
				size_t numDependencies, const CUDA_HOST_NODE_PARAMS *nodeParams)
{
	CUresult result = check_add(phGraphNode, hGraph, dependencies, numDependencies, nodeParams);
	if (result == CUDA_SUCCESS && !nodeParams->fn)
		result = CUDA_ERROR_INVALID_VALUE;
	struct sim_task *task = result == CUDA_SUCCESS ? sim_task_new(SIM_TASK_HOST) : NULL;
	if (!task)
		return result != CUDA_SUCCESS ? result : CUDA_ERROR_OUT_OF_MEMORY;
	task->u.host.fn = nodeParams->fn;
	task->u.host.argument = nodeParams->userData;
	return add_node(phGraphNode, hGraph, dependencies, numDependencies, task);
}

CUresult sim_cuGraphHostNodeGetParams(CUgraphNode hNode, CUDA_HOST_NODE_PARAMS *nodeParams)
{
	CUresult result = sim_node_check(hNode);
	if (result == CUDA_SUCCESS && (!nodeParams || hNode->type != CU_GRAPH_NODE_TYPE_HOST))
		result = CUDA_ERROR_INVALID_VALUE;
	if (result == CUDA_SUCCESS)
		*nodeParams = (CUDA_HOST_NODE_PARAMS){hNode->task->u.host.fn, hNode->task->u.host.argument};
	return result;
}

static CUresult add_plain(CUgraphNode *out, CUgraph graph, const CUgraphNode *needs, size_t n_needs,
			  enum sim_task_kind kind)
{
	CUresult result = check_add(out, graph, needs, n_needs, graph);
	struct sim_task *task = result == CUDA_SUCCESS ? sim_task_new(kind) : NULL;
	if (!task)
		return result != CUDA_SUCCESS ? result : CUDA_ERROR_OUT_OF_MEMORY;
	return add_node(out, graph, needs, n_needs, task);
}

CUresult sim_cuGraphAddEmptyNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
				 size_t numDependencies)
{
	return add_plain(phGraphNode, hGraph, dependencies, numDependencies, SIM_TASK_EMPTY);
}

CUresult sim_cuGraphAddEventRecordNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
				       size_t numDependencies, CUevent event)
{
	CUresult result = check_add(phGraphNode, hGraph, dependencies, numDependencies, event);
	struct sim_task *task = result == CUDA_SUCCESS ? sim_task_new(SIM_TASK_EVENT) : NULL;
	if (!task)
		return result != CUDA_SUCCESS ? result : CUDA_ERROR_OUT_OF_MEMORY;
	atomic_fetch_add(&event->users, 1);
	task->u.event.event = event;
	return add_node(phGraphNode, hGraph, dependencies, numDependencies, task);
}

/* A wait node waits for an event that was recorded before the launch: the complete launch waits for it. */
CUresult sim_cuGraphAddEventWaitNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
				     size_t numDependencies, CUevent event)
{
	CUresult result = check_add(phGraphNode, hGraph, dependencies, numDependencies, event);
	return result == CUDA_SUCCESS ? sim_unsupported("cuGraphAddEventWaitNode") : result;
}

CUresult sim_cuGraphAddChildGraphNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
				      size_t numDependencies, CUgraph childGraph)
{
	CUgraph copy;
	CUresult result = check_add(phGraphNode, hGraph, dependencies, numDependencies, childGraph);
	if (result == CUDA_SUCCESS)
		result = sim_cuGraphClone(&copy, childGraph);
	if (result != CUDA_SUCCESS)
		return result;
	struct sim_task *task = sim_task_new(SIM_TASK_CHILD);
	if (!task) {
		sim_graph_free(copy);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	copy->parent = hGraph;
	task->u.child.graph = copy;
	return add_node(phGraphNode, hGraph, dependencies, numDependencies, task);
}

CUresult sim_cuGraphChildGraphNodeGetGraph(CUgraphNode hNode, CUgraph *phGraph)
{
	CUresult result = sim_node_check(hNode);
	if (result == CUDA_SUCCESS && (!phGraph || hNode->type != CU_GRAPH_NODE_TYPE_GRAPH))
		result = CUDA_ERROR_INVALID_VALUE;
	if (result == CUDA_SUCCESS)
		*phGraph = hNode->task->u.child.graph;
	return result;
}

/* The memory exists from now on; it is freed with the graph and everything made from the graph. */
CUresult sim_cuGraphAddMemAllocNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
				    size_t numDependencies, CUDA_MEM_ALLOC_NODE_PARAMS *nodeParams)
{
	CUcontext context;
	CUdeviceptr address;
	CUresult result = check_add(phGraphNode, hGraph, dependencies, numDependencies, nodeParams);
	if (result == CUDA_SUCCESS)
		result = sim_current(&context);
	if (result == CUDA_SUCCESS)
		result = sim_memory_new(context, SIM_MEMORY_DEVICE, nodeParams->bytesize, NULL, &address);
	if (result != CUDA_SUCCESS)
		return result;
	struct sim_task *task = sim_task_new(SIM_TASK_ALLOC);
	if (!task) {
		sim_memory_delete(address);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	sim_graph_memory_add(hGraph, address);
	task->u.memory.address = nodeParams->dptr = address;
	task->u.memory.bytes = nodeParams->bytesize;
	return add_node(phGraphNode, hGraph, dependencies, numDependencies, task);
}

CUresult sim_cuGraphMemAllocNodeGetParams(CUgraphNode hNode, CUDA_MEM_ALLOC_NODE_PARAMS *params_out)
{
	CUresult result = sim_node_check(hNode);
	if (result == CUDA_SUCCESS && (!params_out || hNode->type != CU_GRAPH_NODE_TYPE_MEM_ALLOC))
		result = CUDA_ERROR_INVALID_VALUE;
	if (result != CUDA_SUCCESS)
		return result;
	memset(params_out, 0, sizeof *params_out);
	params_out->poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
	params_out->poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
	params_out->dptr = hNode->task->u.memory.address;
	params_out->bytesize = hNode->task->u.memory.bytes;
	return CUDA_SUCCESS;
}

CUresult sim_cuGraphAddMemFreeNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
				   size_t numDependencies, CUdeviceptr dptr)
{
	CUresult result = add_plain(phGraphNode, hGraph, dependencies, numDependencies, SIM_TASK_FREE);
	if (result == CUDA_SUCCESS)
		(*phGraphNode)->task->u.memory.address = dptr;
	return result;
}

CUresult sim_cuGraphMemFreeNodeGetParams(CUgraphNode hNode, CUdeviceptr *dptr_out)
{
	CUresult result = sim_node_check(hNode);
	if (result == CUDA_SUCCESS && (!dptr_out || hNode->type != CU_GRAPH_NODE_TYPE_MEM_FREE))
		result = CUDA_ERROR_INVALID_VALUE;
	if (result == CUDA_SUCCESS)
		*dptr_out = hNode->task->u.memory.address;
	return result;
}

/* Graph memory is freed with the graph, so there is nothing to trim. */
CUresult sim_cuDeviceGraphMemTrim(CUdevice device)
{
	CUresult result = sim_ready();
	return result == CUDA_SUCCESS && !sim_device_valid(device) ? CUDA_ERROR_INVALID_DEVICE : result;
}

CUresult sim_cuDeviceGetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attr, void *value)
{
	CUresult result = sim_cuDeviceGraphMemTrim(device);
	if (result == CUDA_SUCCESS && !value)
		result = CUDA_ERROR_INVALID_VALUE;
	if (result == CUDA_SUCCESS)
		*(uint64_t *)value = 0;
	return result;
}

CUresult sim_cuDeviceSetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attr, void *value)
{
	CUresult result = sim_cuDeviceGraphMemTrim(device);
	return result == CUDA_SUCCESS && !value ? CUDA_ERROR_INVALID_VALUE : result;
}
