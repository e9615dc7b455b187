/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Computes how many blocks of a kernel an SM holds, how long a block runs on the
 * SMs it may use, and how far matrix kernels lower the clock for all programs.
 * Part of the GPU model (model_internal.h).
 */
#include "gpumodel/model_internal.h"

static uint32_t count_warps(uint32_t threads)
{
	return (threads + 31) / 32;
}

static uint32_t block_registers(const struct hb_gpu_spec *spec, const struct hb_gpu_model_work *work)
{
	uint32_t unit = (uint32_t)spec->register_unit;
	uint32_t warp = (work->registers ? work->registers : 32) * 32;
	return (warp + unit - 1) / unit * unit * count_warps(work->threads);
}

uint32_t hb_gpu_model_occupancy(const struct hb_gpu_spec *spec, const struct hb_gpu_model_work *work)
{
	uint32_t shared = work->shared_bytes + (uint32_t)spec->block_shared_overhead_bytes;
	uint32_t blocks = (uint32_t)spec->sm_blocks;
	blocks = model_min_u32(blocks, (uint32_t)spec->sm_threads / (count_warps(work->threads) * 32));
	blocks = model_min_u32(blocks, (uint32_t)spec->sm_registers / block_registers(spec, work));
	if (shared)
		blocks = model_min_u32(blocks, (uint32_t)spec->sm_shared_bytes / shared);
	return blocks ? blocks : 1; /* a recorded kernel did run, so one block fits */
}

/* Returns the share of the last power window that a client spent in matrix kernels. */
static double compute_recent_power(const struct hb_gpu_model *model, const struct model_client *client)
{
	double age = (double)(model->now_ns - client->power_ns) / model->spec.power_window_ns;
	return age < 1 ? client->power * (1 - age) : 0;
}

void hb_gpu_model_note_power(struct hb_gpu_model *model, struct model_client *client, const struct model_kernel *kernel)
{
	const struct hb_gpu_model_work *work = kernel->work;
	if (work->power_share <= 0)
		return;
	double share = (double)work->duration_ns / model->spec.power_window_ns * work->power_share;
	share *= (double)kernel->sms / model->sms;
	client->power = compute_recent_power(model, client) + share;
	client->power_ns = model->now_ns;
}

static double compute_clock_cost(const struct hb_gpu_model *model, double power)
{
	double above = power - model->spec.power_free_share;
	return above > 0 ? 1 + above * model->spec.power_slowdown : 1;
}

/*
 * Returns how many times longer the kernel takes because of the power limit,
 * at which the clock falls for all programs. A recorded duration already
 * contains the effect of its own program alone. Beside other programs the kernel is
 * slower than recorded; it is faster while its own program's matrix kernels wait.
 */
static double compute_power_factor(const struct hb_gpu_model *model, const struct hb_gpu_model_work *work)
{
	double power = 0;
	for (uint32_t i = 0; i < model->n_clients; i++)
		if (model->clients[i].used)
			power += compute_recent_power(model, &model->clients[i]);
	return compute_clock_cost(model, power) / compute_clock_cost(model, work->recorded_power);
}

/* Returns the largest number of SMs that the kernel may use in one GPC. With spread SMs that is GPC 0. */
static uint32_t count_most_in_a_gpc(const struct hb_gpu_model *model, const struct model_kernel *kernel)
{
	uint32_t gpcs = (uint32_t)model->spec.gpc_count, round = 2 * gpcs, most = 0;
	uint32_t n[HB_GPU_MODEL_GPCS_MAX] = {0};
	if (kernel->rank == model->rank_spread)
		return kernel->sms / round * 2 + model_min_u32(kernel->sms % round, 2);
	for (uint32_t i = 0; i < model->sms; i++) {
		uint32_t gpc = model_gpc_of(i, gpcs);
		n[gpc] += kernel->rank[i] < kernel->sms;
		most = n[gpc] > most ? n[gpc] : most;
	}
	return most;
}

/* Returns how many blocks are placed together: a cluster, or 1 if the cluster is larger than an idle GPC. */
static uint32_t count_placed_together(const struct hb_gpu_model *model, const struct model_kernel *kernel)
{
	uint32_t cluster = kernel->work->cluster;
	return cluster > 1 && cluster <= count_most_in_a_gpc(model, kernel) * kernel->occupancy ? cluster : 1;
}

/*
 * Returns whether the kernel is persistent: its grid has nearly one block for each SM, and the blocks divide the work
 * as they run.
 */
static bool is_persistent(const struct hb_gpu_model *model, const struct model_kernel *kernel)
{
	return kernel->occupancy == 1 && kernel->work->blocks <= model->sms &&
	       kernel->work->blocks * 16 > (uint64_t)model->sms * 15;
}

/*
 * Returns how many times longer a kernel takes whose arithmetic takes `fewer` times longer on the SMs it may use. Its
 * memory traffic takes longer only where those are too few to use all of the bandwidth.
 */
static double compute_fewer_sms_factor(const struct hb_gpu_model *model, const struct model_kernel *kernel,
				       double fewer)
{
	double memory = model->spec.memory_sms_share * (double)model->sms / kernel->sms;
	double share = kernel->work->memory_share;
	return (1 - share) * fewer + share * (memory > 1 ? memory : 1);
}

/*
 * Computes how long a kernel and its blocks run on the SMs it may use. Programs
 * size a grid of one wave by the SMs they are shown, so the limit of an MPS
 * client shrinks it. A mask on the launch does not: the blocks beyond the first
 * wave run in a second one, except in persistent kernels, whose blocks share
 * the work out as they run (measured, docs/spatial-programs.md).
 */
void hb_gpu_model_shape_kernel(const struct hb_gpu_model *model, struct model_kernel *kernel)
{
	const struct hb_gpu_model_work *work = kernel->work;
	const struct hb_gpu_spec *spec = &model->spec;
	kernel->occupancy = hb_gpu_model_occupancy(spec, work);
	kernel->threads_block = model_min_u32(count_warps(work->threads) * 32, (uint32_t)spec->sm_threads);
	kernel->registers_block = model_min_u32(block_registers(spec, work), (uint32_t)spec->sm_registers);
	kernel->shared_block = model_min_u32(work->shared_bytes + (uint32_t)spec->block_shared_overhead_bytes,
					     (uint32_t)spec->sm_shared_bytes);
	kernel->cluster = count_placed_together(model, kernel);
	uint64_t all = (uint64_t)kernel->occupancy * model->sms;
	uint64_t mine = (uint64_t)kernel->occupancy * kernel->sms;
	double duration = (double)work->duration_ns * compute_power_factor(model, work);
	kernel->blocks_left = work->blocks;
	bool one_wave = work->blocks <= all;
	if (kernel->sms < model->sms && work->blocks > mine / 2) {
		bool two_rounds = one_wave && work->blocks > mine && kernel->sms == work->sm_limit &&
				  !is_persistent(model, kernel);
		duration *= compute_fewer_sms_factor(model, kernel, two_rounds ? 2 : (double)model->sms / kernel->sms);
		if (one_wave && work->blocks > mine && !two_rounds)
			kernel->blocks_left = mine;
	}
	uint64_t rounds = model_div_up(kernel->blocks_left, mine);
	kernel->block_ns = (int64_t)(duration / (double)rounds);
	kernel->solo_end_own_ns = (int64_t)duration; /* holds the length until the kernel starts */
	if (kernel->block_ns < 1)
		kernel->block_ns = 1;
}
