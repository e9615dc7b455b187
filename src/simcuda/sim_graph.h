/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Graphs inside the simulated driver: shared by capture, building and launching.
 * Only one thread at a time may change a graph, as CUDA requires.
 */
#ifndef HB_SIMCUDA_SIM_GRAPH_H
#define HB_SIMCUDA_SIM_GRAPH_H

#include "simcuda/sim_driver.h"

/* Memory of allocation nodes. It lives as long as the graph and everything made from the graph. */
struct sim_graph_memory {
	_Atomic uint32_t users;
	size_t n, room;
	CUdeviceptr *addresses;
};

struct CUgraphNode_st {
	CUgraph graph;
	CUgraphNodeType type;
	struct sim_task *task;
	CUgraphNode *needs; /* dependencies */
	size_t n_needs, room;
	CUgraphNode copied_from; /* in a clone */
	size_t order;            /* scratch of the topological sort */
	size_t open;
};

struct CUgraph_st {
	uint32_t magic;
	CUgraphNode *nodes;
	size_t n, room;
	CUgraph parent; /* a child graph belongs to its node */
	struct sim_graph_memory *memory;
};

CUgraph sim_graph_new(void);
void sim_graph_free(CUgraph graph);
/* Takes ownership of the task. Returns NULL when out of memory (the task is freed). */
CUgraphNode sim_graph_add(CUgraph graph, struct sim_task *task, const CUgraphNode *needs, size_t n_needs);
bool sim_graph_depend(CUgraphNode node, CUgraphNode need);
CUresult sim_graph_check(CUgraph graph);
CUresult sim_node_check(CUgraphNode node);
/* Sorts the nodes so that each follows its dependencies. Returns false for a cycle. `sorted` has room for graph->n nodes. */
bool sim_graph_sort(CUgraph graph, CUgraphNode *sorted);
void sim_graph_memory_add(CUgraph graph, CUdeviceptr address);
void sim_graph_memory_unuse(struct sim_graph_memory *memory);

#endif
