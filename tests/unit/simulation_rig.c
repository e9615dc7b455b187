/* SPDX-License-Identifier: Apache-2.0 */
/* Tiny trace and runs of it; see simulation_rig.h. */
#include "simulation_rig.h"

#include <string.h>

#define SERVICE_OPS 20
#define TRAIN_OPS 12

static struct hb_op service_ops[SERVICE_OPS], train_ops[TRAIN_OPS];
static struct hb_iteration service_iteration = {0, SERVICE_OPS}, train_iteration = {0, TRAIN_OPS};
static struct hb_workload workloads[] = {
	{.name = "service",
	 .ops = service_ops,
	 .iterations = &service_iteration,
	 .n_ops = SERVICE_OPS,
	 .n_iterations = 1},
	{.name = "train", .ops = train_ops, .iterations = &train_iteration, .n_ops = TRAIN_OPS, .n_iterations = 1},
};
static char relu[] = "relu", gemm[] = "gemm";
static char *names[] = {relu, gemm};
static const struct hb_trace_set set = {.workloads = workloads, .n_workloads = 2, .names = names, .n_names = 2};

static void fill(struct hb_op *ops, uint32_t n, int64_t distance_ns, int64_t duration_ns, uint64_t blocks)
{
	for (uint32_t i = 0; i < n; i++)
		ops[i] = (struct hb_op){
			.start_ns = i * distance_ns,
			.duration_ns = duration_ns,
			.host_ns = 20 * US + i * distance_ns,
			.blocks = blocks,
			.name = i % 2,
			.grid = {(uint32_t)blocks, 1, 1},
			.block = {256, 1, 1},
			.threads = 256,
			.registers = 32,
			.kind = HB_OP_KERNEL,
			.cluster = 1,
		};
}

const struct hb_trace_set *engine_traces(void)
{
	if (!service_ops[0].duration_ns) {
		fill(service_ops, SERVICE_OPS, 15 * US, 10 * US, 264);
		fill(train_ops, TRAIN_OPS, 20 * US, 300 * US, 21120);
	}
	return &set;
}

struct hb_sim_options engine_options(const char *sharing)
{
	return (struct hb_sim_options){
		.traces = engine_traces(), .gpu = GPUS "/h200.yaml", .sharing = sharing, .seconds = 1, .seed = 1};
}

static void add(struct hb_sim_tenant *tenant, const char *label, const char *arrivals, int64_t slo_ns)
{
	char name[64];
	size_t length = strcspn(label, ":");
	memcpy(name, label, length);
	name[length] = '\0';
	*tenant = (struct hb_sim_tenant){
		.workload = hb_trace_find(&set, name), .graph = label[length], .arrivals = arrivals, .slo_ns = slo_ns};
	strcpy(tenant->label, label);
	assert_non_null(tenant->workload);
}

void engine_high(struct hb_sim_options *options, const char *label, const char *arrivals, int64_t slo_ns)
{
	add(&options->high[options->n_high++], label, arrivals, slo_ns);
}

void engine_low(struct hb_sim_options *options, const char *label)
{
	add(&options->low[options->n_low++], label, NULL, 0);
}

struct hb_sim_result engine_run(const struct hb_sim_options *options)
{
	struct hb_sim_result result;
	struct hb_error error = {""};
	if (hb_sim_run(options, &result, &error))
		fail_msg("%s: %s", options->sharing, error.text);
	return result;
}

struct hb_sim_result engine_pair(const char *sharing)
{
	struct hb_sim_options options = engine_options(sharing);
	engine_high(&options, "service:graph", "100/s", -1);
	engine_low(&options, "train");
	return engine_run(&options);
}
