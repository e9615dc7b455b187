/* SPDX-License-Identifier: Apache-2.0 */
/* The structure of graphs: nodes, dependencies, clones, order. This file executes nothing. */
#include "simcuda/sim_graph.h"

#include <stdlib.h>
#include <string.h>

static void *grow_array(void *table, size_t n, size_t *room, size_t size)
{
	if (n < *room)
		return table;
	size_t bigger = *room ? *room * 2 : 8;
	void *moved = realloc(table, bigger * size);
	if (moved)
		*room = bigger;
	return moved;
}

CUresult sim_graph_check(CUgraph graph)
{
	CUresult result = sim_ready();
	if (result != CUDA_SUCCESS)
		return result;
	return graph && graph->magic == SIM_MAGIC_GRAPH ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult sim_node_check(CUgraphNode node)
{
	CUresult result = sim_ready();
	if (result != CUDA_SUCCESS)
		return result;
	return node && node->graph && node->graph->magic == SIM_MAGIC_GRAPH ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUgraph sim_graph_new(void)
{
	CUgraph graph = calloc(1, sizeof *graph);
	struct sim_graph_memory *memory = calloc(1, sizeof *memory);
	if (!graph || !memory) {
		free(graph);
		free(memory);
		return NULL;
	}
	graph->magic = SIM_MAGIC_GRAPH;
	atomic_store(&memory->users, 1);
	graph->memory = memory;
	return graph;
}

void sim_graph_memory_add(CUgraph graph, CUdeviceptr address)
{
	struct sim_graph_memory *memory = graph->memory;
	CUdeviceptr *bigger = grow_array(memory->addresses, memory->n, &memory->room, sizeof *bigger);
	if (!bigger)
		return; /* the memory then lives until the end of its context */
	memory->addresses = bigger;
	memory->addresses[memory->n++] = address;
}

void sim_graph_memory_unuse(struct sim_graph_memory *memory)
{
	if (atomic_fetch_sub(&memory->users, 1) != 1)
		return;
	for (size_t i = 0; i < memory->n; i++)
		sim_memory_delete(memory->addresses[i]);
	free(memory->addresses);
	free(memory);
}

static void node_free(CUgraphNode node)
{
	if (node->task && node->task->kind == SIM_TASK_CHILD)
		sim_graph_free(node->task->u.child.graph);
	sim_task_free(node->task);
	node->graph = NULL;
	free(node->needs);
	free(node);
}

void sim_graph_free(CUgraph graph)
{
	if (!graph)
		return;
	for (size_t i = 0; i < graph->n; i++)
		node_free(graph->nodes[i]);
	sim_graph_memory_unuse(graph->memory);
	graph->magic = SIM_MAGIC_DEAD;
	free(graph->nodes);
	free(graph);
}

static CUgraphNodeType type_of(enum sim_task_kind kind)
{
	switch (kind) {
	case SIM_TASK_KERNEL:
		return CU_GRAPH_NODE_TYPE_KERNEL;
	case SIM_TASK_COPY:
		return CU_GRAPH_NODE_TYPE_MEMCPY;
	case SIM_TASK_SET:
		return CU_GRAPH_NODE_TYPE_MEMSET;
	case SIM_TASK_HOST:
		return CU_GRAPH_NODE_TYPE_HOST;
	case SIM_TASK_CHILD:
		return CU_GRAPH_NODE_TYPE_GRAPH;
	case SIM_TASK_EVENT:
		return CU_GRAPH_NODE_TYPE_EVENT_RECORD;
	case SIM_TASK_EVENT_WAIT:
		return CU_GRAPH_NODE_TYPE_WAIT_EVENT;
	case SIM_TASK_ALLOC:
		return CU_GRAPH_NODE_TYPE_MEM_ALLOC;
	case SIM_TASK_FREE:
		return CU_GRAPH_NODE_TYPE_MEM_FREE;
	default:
		return CU_GRAPH_NODE_TYPE_EMPTY;
	}
}

bool sim_graph_depend(CUgraphNode node, CUgraphNode need)
{
	for (size_t i = 0; i < node->n_needs; i++)
		if (node->needs[i] == need)
			return true;
	CUgraphNode *bigger = grow_array(node->needs, node->n_needs, &node->room, sizeof *bigger);
	if (!bigger)
		return false;
	node->needs = bigger;
	node->needs[node->n_needs++] = need;
	return true;
}

CUgraphNode sim_graph_add(CUgraph graph, struct sim_task *task, const CUgraphNode *needs, size_t n_needs)
{
	CUgraphNode node = calloc(1, sizeof *node);
	CUgraphNode *bigger = node ? grow_array(graph->nodes, graph->n, &graph->room, sizeof *bigger) : NULL;
	if (!bigger) {
		free(node);
		sim_task_free(task);
		return NULL;
	}
	graph->nodes = bigger;
	node->graph = graph;
	node->type = type_of(task->kind);
	node->task = task;
	for (size_t i = 0; i < n_needs; i++)
		if (!sim_graph_depend(node, needs[i])) {
			node_free(node);
			return NULL;
		}
	graph->nodes[graph->n++] = node;
	return node;
}

bool sim_graph_sort(CUgraph graph, CUgraphNode *sorted)
{
	size_t done = 0, before;
	for (size_t i = 0; i < graph->n; i++)
		graph->nodes[i]->order = SIZE_MAX;
	/* Nodes are added after their dependencies, so one pass usually suffices; edges added later may need more. */
	do {
		before = done;
		for (size_t i = 0; i < graph->n; i++) {
			CUgraphNode node = graph->nodes[i];
			bool ready = node->order == SIZE_MAX;
			for (size_t k = 0; ready && k < node->n_needs; k++)
				ready = node->needs[k]->order != SIZE_MAX;
			if (ready) {
				node->order = done;
				sorted[done++] = node;
			}
		}
	} while (done > before && done < graph->n);
	return done == graph->n;
}

/* --- the calls: graphs ------------------------------------------------------------------ */

CUresult sim_cuGraphCreate(CUgraph *phGraph, unsigned int flags)
{
	CUresult result = sim_ready();
	if (result == CUDA_SUCCESS && (!phGraph || flags))
		result = CUDA_ERROR_INVALID_VALUE;
	if (result != CUDA_SUCCESS)
		return result;
	*phGraph = sim_graph_new();
	return *phGraph ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult sim_cuGraphDestroy(CUgraph hGraph)
{
	CUresult result = sim_graph_check(hGraph);
	if (result == CUDA_SUCCESS && hGraph->parent)
		result = CUDA_ERROR_INVALID_VALUE;
	if (result == CUDA_SUCCESS)
		sim_graph_free(hGraph);
	return result;
}

static CUgraph copy_graph(CUgraph original);

static CUgraphNode copy_node(CUgraph copy, CUgraphNode node)
{
	struct sim_task *task = sim_task_copy(node->task);
	if (task && task->kind == SIM_TASK_CHILD) {
		task->u.child.graph = copy_graph(node->task->u.child.graph);
		if (task->u.child.graph)
			task->u.child.graph->parent = copy;
	}
	CUgraphNode made = task ? sim_graph_add(copy, task, NULL, 0) : NULL;
	if (made)
		made->copied_from = node;
	return made;
}

static CUgraph copy_graph(CUgraph original)
{
	CUgraph copy = sim_graph_new();
	if (!copy)
		return NULL;
	sim_graph_memory_unuse(copy->memory);
	copy->memory = original->memory;
	atomic_fetch_add(&copy->memory->users, 1);
	for (size_t i = 0; i < original->n; i++) {
		original->nodes[i]->order = i;
		if (!copy_node(copy, original->nodes[i])) {
			sim_graph_free(copy);
			return NULL;
		}
	}
	for (size_t i = 0; i < original->n; i++)
		for (size_t k = 0; k < original->nodes[i]->n_needs; k++)
			sim_graph_depend(copy->nodes[i], copy->nodes[original->nodes[i]->needs[k]->order]);
	return copy;
}

CUresult sim_cuGraphClone(CUgraph *phGraphClone, CUgraph originalGraph)
{
	CUresult result = sim_graph_check(originalGraph);
	if (result != CUDA_SUCCESS || !phGraphClone)
		return result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_VALUE;
	*phGraphClone = copy_graph(originalGraph);
	return *phGraphClone ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* Returns lists of handles: NULL asks for their number; a shorter array is filled, a longer one is padded with NULL. */
static CUresult list_out(const CUgraphNode *from, size_t n, CUgraphNode *to, size_t *room)
{
	if (!room)
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; to && i < *room; i++)
		to[i] = i < n ? from[i] : NULL;
	if (!to || *room > n)
		*room = n;
	return CUDA_SUCCESS;
}

CUresult sim_cuGraphGetNodes(CUgraph hGraph, CUgraphNode *nodes, size_t *numNodes)
{
	CUresult result = sim_graph_check(hGraph);
	return result == CUDA_SUCCESS ? list_out(hGraph->nodes, hGraph->n, nodes, numNodes) : result;
}

CUresult sim_cuGraphGetRootNodes(CUgraph hGraph, CUgraphNode *rootNodes, size_t *numRootNodes)
{
	CUresult result = sim_graph_check(hGraph);
	if (result != CUDA_SUCCESS)
		return result;
	CUgraphNode *roots = malloc((hGraph->n + 1) * sizeof *roots);
	size_t n = 0;
	for (size_t i = 0; roots && i < hGraph->n; i++)
		if (!hGraph->nodes[i]->n_needs)
			roots[n++] = hGraph->nodes[i];
	result = roots ? list_out(roots, n, rootNodes, numRootNodes) : CUDA_ERROR_OUT_OF_MEMORY;
	free(roots);
	return result;
}

CUresult sim_cuGraphGetEdges(CUgraph hGraph, CUgraphNode *from, CUgraphNode *to, size_t *numEdges)
{
	size_t n = 0;
	CUresult result = sim_graph_check(hGraph);
	if (result != CUDA_SUCCESS || !numEdges)
		return result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < hGraph->n; i++)
		for (size_t k = 0; k < hGraph->nodes[i]->n_needs; k++, n++)
			if (from && to && n < *numEdges) {
				from[n] = hGraph->nodes[i]->needs[k];
				to[n] = hGraph->nodes[i];
			}
	if (!from || !to || *numEdges > n)
		*numEdges = n;
	return CUDA_SUCCESS;
}

CUresult sim_cuGraphGetEdges_v2(CUgraph hGraph, CUgraphNode *from, CUgraphNode *to, CUgraphEdgeData *edgeData,
				size_t *numEdges)
{
	CUresult result = sim_cuGraphGetEdges(hGraph, from, to, numEdges);
	if (result == CUDA_SUCCESS && edgeData && from)
		memset(edgeData, 0, *numEdges * sizeof *edgeData);
	return result;
}

CUresult sim_cuGraphNodeGetType(CUgraphNode hNode, CUgraphNodeType *type)
{
	CUresult result = sim_node_check(hNode);
	if (result == CUDA_SUCCESS && !type)
		result = CUDA_ERROR_INVALID_VALUE;
	if (result == CUDA_SUCCESS)
		*type = hNode->type;
	return result;
}

CUresult sim_cuGraphNodeGetDependencies(CUgraphNode hNode, CUgraphNode *dependencies, size_t *numDependencies)
{
	CUresult result = sim_node_check(hNode);
	return result == CUDA_SUCCESS ? list_out(hNode->needs, hNode->n_needs, dependencies, numDependencies) : result;
}

CUresult sim_cuGraphNodeGetDependencies_v2(CUgraphNode hNode, CUgraphNode *dependencies, CUgraphEdgeData *edgeData,
					   size_t *numDependencies)
{
	CUresult result = sim_cuGraphNodeGetDependencies(hNode, dependencies, numDependencies);
	if (result == CUDA_SUCCESS && edgeData && dependencies)
		memset(edgeData, 0, *numDependencies * sizeof *edgeData);
	return result;
}

CUresult sim_cuGraphNodeGetDependentNodes(CUgraphNode hNode, CUgraphNode *dependentNodes, size_t *numDependentNodes)
{
	CUresult result = sim_node_check(hNode);
	if (result != CUDA_SUCCESS)
		return result;
	CUgraph graph = hNode->graph;
	CUgraphNode *found = malloc((graph->n + 1) * sizeof *found);
	size_t n = 0;
	for (size_t i = 0; found && i < graph->n; i++)
		for (size_t k = 0; k < graph->nodes[i]->n_needs; k++)
			if (graph->nodes[i]->needs[k] == hNode)
				found[n++] = graph->nodes[i];
	result = found ? list_out(found, n, dependentNodes, numDependentNodes) : CUDA_ERROR_OUT_OF_MEMORY;
	free(found);
	return result;
}

CUresult sim_cuGraphAddDependencies(CUgraph hGraph, const CUgraphNode *from, const CUgraphNode *to,
				    size_t numDependencies)
{
	CUresult result = sim_graph_check(hGraph);
	if (result == CUDA_SUCCESS && numDependencies && (!from || !to))
		result = CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < numDependencies && result == CUDA_SUCCESS; i++) {
		if (!from[i] || !to[i] || from[i] == to[i] || from[i]->graph != hGraph || to[i]->graph != hGraph)
			result = CUDA_ERROR_INVALID_VALUE;
		else if (!sim_graph_depend(to[i], from[i]))
			result = CUDA_ERROR_OUT_OF_MEMORY;
	}
	return result;
}

CUresult sim_cuGraphAddDependencies_v2(CUgraph hGraph, const CUgraphNode *from, const CUgraphNode *to,
				       const CUgraphEdgeData *edgeData, size_t numDependencies)
{
	return sim_cuGraphAddDependencies(hGraph, from, to, numDependencies);
}

static void remove_dependency(CUgraphNode node, CUgraphNode need)
{
	for (size_t i = 0; i < node->n_needs; i++)
		if (node->needs[i] == need)
			node->needs[i--] = node->needs[--node->n_needs];
}

CUresult sim_cuGraphRemoveDependencies(CUgraph hGraph, const CUgraphNode *from, const CUgraphNode *to,
				       size_t numDependencies)
{
	CUresult result = sim_graph_check(hGraph);
	if (result == CUDA_SUCCESS && numDependencies && (!from || !to))
		result = CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < numDependencies && result == CUDA_SUCCESS; i++)
		remove_dependency(to[i], from[i]);
	return result;
}

CUresult sim_cuGraphDestroyNode(CUgraphNode hNode)
{
	CUresult result = sim_node_check(hNode);
	if (result != CUDA_SUCCESS)
		return result;
	CUgraph graph = hNode->graph;
	for (size_t i = 0; i < graph->n; i++)
		remove_dependency(graph->nodes[i], hNode);
	for (size_t i = 0; i < graph->n; i++)
		if (graph->nodes[i] == hNode) {
			memmove(&graph->nodes[i], &graph->nodes[i + 1], (graph->n - i - 1) * sizeof(CUgraphNode));
			graph->n--;
			break;
		}
	node_free(hNode);
	return CUDA_SUCCESS;
}
