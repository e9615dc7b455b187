/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Places blocks on SMs, in cohorts of blocks that start together and end together. Part of the GPU model (model_internal.h).
 *
 * Placement rule, as measured: the block scheduler serves the waiting kernel of
 * the highest stream priority first, then the one that waits longest, and gives
 * nothing to lower priorities as long as one in front has blocks that do not fit.
 * Idle SMs come first. Running blocks are never moved.
 */
#include "gpumodel/model_internal.h"

#include <stdlib.h>
#include <string.h>

/* Blocks of different lengths (block_spread) do not end together: a wave of them becomes this many cohorts. */
#define STAGGER 4
#define WAVE_PHASES 32
/* Blocks shorter than this run several in a row as one cohort; other kernels do not wait long for them. */
#define COHORT_MIN_NS 2000

static uint32_t new_cohort(struct hb_gpu_model *model)
{
	if (model->free_cohort == UINT32_MAX) {
		uint32_t capacity = model->cohort_capacity ? 2 * model->cohort_capacity : 64;
		struct model_cohort *cohorts = realloc(model->cohorts, capacity * sizeof *cohorts);
		if (!cohorts)
			return UINT32_MAX;
		model->cohorts = cohorts;
		for (uint32_t i = capacity; i-- > model->cohort_capacity;) {
			cohorts[i].generation = 0;
			cohorts[i].next_free = model->free_cohort;
			model->free_cohort = i;
		}
		model->cohort_capacity = capacity;
	}
	uint32_t id = model->free_cohort;
	struct model_cohort *cohort = &model->cohorts[id];
	model->free_cohort = cohort->next_free;
	cohort->generation++;
	cohort->slots = 0;
	cohort->blocks = 0;
	memset(cohort->count, 0, sizeof cohort->count);
	return id;
}

static void mark_started(struct hb_gpu_model *model, struct model_context *context, struct model_kernel *kernel)
{
	if (kernel->start_ns >= 0)
		return;
	kernel->start_ns = model->now_ns;
	context->n_started++;
}

static void start_solo(struct hb_gpu_model *model, struct model_context *context, uint32_t id)
{
	struct model_kernel *kernel = &model->kernels[id];
	int64_t own = model_own_ns(model, context);
	mark_started(model, context, kernel);
	kernel->solo = true;
	kernel->solo_start_own_ns = own;
	kernel->solo_end_own_ns += own;
	hb_gpu_model_heap_push(&context->heap, kernel->solo_end_own_ns, EVENT_SOLO_END, id, kernel->generation);
}

static void prepare_sms(const struct hb_gpu_model *model, struct model_context *context)
{
	if (context->placed)
		return;
	context->placed = true;
	for (uint32_t i = 0; i < model->sms; i++)
		context->sm[i] = (struct model_sm){
			.threads = (int32_t)model->spec.sm_threads,
			.blocks = (int32_t)model->spec.sm_blocks,
			.registers = (int32_t)model->spec.sm_registers,
			.shared = (int32_t)model->spec.sm_shared_bytes,
		};
}

static bool may_use(const struct model_kernel *kernel, uint32_t sm)
{
	return kernel->rank[sm] < kernel->sms;
}

static void take_room(struct model_sm *sm, const struct model_kernel *kernel, int32_t blocks)
{
	sm->threads -= blocks * (int32_t)kernel->threads_block;
	sm->blocks -= blocks;
	sm->registers -= blocks * (int32_t)kernel->registers_block;
	sm->shared -= blocks * (int32_t)kernel->shared_block;
}

static uint32_t count_fitting(const struct model_sm *sm, const struct model_kernel *kernel)
{
	if (sm->threads < (int32_t)kernel->threads_block || sm->blocks < 1 ||
	    sm->registers < (int32_t)kernel->registers_block || sm->shared < (int32_t)kernel->shared_block)
		return 0;
	uint32_t n = (uint32_t)sm->threads / kernel->threads_block;
	n = model_min_u32(n, (uint32_t)sm->blocks);
	n = model_min_u32(n, (uint32_t)sm->registers / kernel->registers_block);
	return model_min_u32(n, (uint32_t)sm->shared / kernel->shared_block);
}

/*
 * Rounds the end of a wave's blocks to one of a few dozen phases, so that blocks
 * which end at about the same time stay one cohort. Without this rounding waves
 * would fall apart into single blocks.
 */
static int64_t round_wave_end_ns(const struct model_kernel *kernel, int64_t end_ns)
{
	int64_t step = 1;
	while (step * 2 * WAVE_PHASES <= kernel->block_ns)
		step *= 2;
	return (end_ns + step / 2) / step * step;
}

static void push_cohort(struct hb_gpu_model *model, struct model_context *context, uint32_t kernel_id, uint32_t id,
			uint64_t blocks, int64_t length_ns, bool in_wave)
{
	struct model_cohort *cohort = &model->cohorts[id];
	struct model_kernel *kernel = &model->kernels[kernel_id];
	cohort->kernel = kernel_id;
	cohort->blocks = blocks;
	kernel->blocks_running += blocks;
	for (uint32_t i = 0; i < model->sms; i++)
		if (cohort->count[i])
			take_room(&context->sm[i], kernel, cohort->count[i]);
	if (kernel->hold)
		kernel->hold_cohort = id;
	if (kernel->hold && kernel->work->duration_ns == 0)
		return; /* ends when released */
	int64_t end = model_own_ns(model, context) + (length_ns > 0 ? length_ns : 1);
	if (in_wave)
		end = round_wave_end_ns(kernel, end);
	hb_gpu_model_heap_push(&context->heap, end, EVENT_COHORT, id, cohort->generation);
}

/*
 * Ranks the SMs for kernels that may not use all of them. The limit of a client spreads them over the GPCs. A mask leaves
 * out complete GPCs where possible, so that clusters of other kernels find room there.
 */
void hb_gpu_model_rank_sms(struct hb_gpu_model *model)
{
	uint8_t gpcs[HB_GPU_MODEL_SMS_MAX];
	for (uint32_t i = 0; i < model->sms; i++) {
		model->rank_spread[i] = (uint8_t)i;
		gpcs[i] = (uint8_t)model_gpc_of(i, (uint32_t)model->spec.gpc_count);
	}
	for (uint32_t beyond = 0; beyond < HB_GPC_ROOM_SMS; beyond++)
		hb_gpc_mask_order(gpcs, model->sms, HB_GPC_ROOM_SMS, beyond, model->rank_gpc[beyond]);
}

/* Takes out of `room` what is no room for a complete cluster in its GPC. Returns the room that remains. */
static uint64_t trim_to_clusters(const struct hb_gpu_model *model, const struct model_kernel *kernel,
				 uint8_t room[HB_GPU_MODEL_SMS_MAX])
{
	uint32_t gpcs = (uint32_t)model->spec.gpc_count, cluster = kernel->cluster;
	uint64_t total = 0;
	uint32_t over[HB_GPU_MODEL_GPCS_MAX] = {0};
	for (uint32_t i = 0; i < model->sms; i++)
		over[model_gpc_of(i, gpcs)] += room[i];
	for (uint32_t gpc = 0; gpc < gpcs; gpc++) {
		total += over[gpc] - over[gpc] % cluster;
		over[gpc] %= cluster;
	}
	for (uint32_t i = 0; i < model->sms; i++) {
		uint32_t less = model_min_u32(over[model_gpc_of(i, gpcs)], room[i]);
		room[i] = (uint8_t)(room[i] - less);
		over[model_gpc_of(i, gpcs)] -= less;
	}
	return total;
}

/* Puts one block a round on each SM that has room and is idle or not; returns how many blocks found no room. */
static uint64_t spread_over(const struct hb_gpu_model *model, const struct model_context *context,
			    const struct model_kernel *kernel, bool idle, uint64_t left,
			    const uint8_t room[HB_GPU_MODEL_SMS_MAX], uint8_t count[HB_GPU_MODEL_SMS_MAX])
{
	int32_t full = (int32_t)model->spec.sm_threads;
	for (bool progress = true; progress && left;) {
		progress = false;
		for (uint32_t i = model->sms; i-- > 0 && left;)
			if ((context->sm[i].threads == full) == idle && count[i] < room[i]) {
				count[i]++;
				left--;
				progress = true;
			}
	}
	return left;
}

/* Chooses how many of `wanted` blocks are placed on each SM: idle SMs first, one block a round. Returns their number. */
static uint64_t choose_sms(const struct hb_gpu_model *model, const struct model_context *context,
			   const struct model_kernel *kernel, uint64_t wanted, uint8_t count[HB_GPU_MODEL_SMS_MAX])
{
	uint8_t room[HB_GPU_MODEL_SMS_MAX];
	uint64_t total = 0;
	for (uint32_t i = 0; i < model->sms; i++) {
		room[i] = may_use(kernel, i) ? (uint8_t)count_fitting(&context->sm[i], kernel) : 0;
		total += room[i];
	}
	if (kernel->cluster > 1)
		total = trim_to_clusters(model, kernel, room);
	if (wanted >= total) {
		memcpy(count, room, model->sms);
		return total;
	}
	memset(count, 0, model->sms);
	uint64_t left = spread_over(model, context, kernel, true, wanted, room, count);
	spread_over(model, context, kernel, false, left, room, count);
	return wanted;
}

/* Returns how many times longer a block runs beside other kernels, which use memory bandwidth or its SM. */
static double find_slowdown(const struct hb_gpu_model *model, const struct model_context *context,
			    const struct model_kernel *kernel, const uint8_t count[HB_GPU_MODEL_SMS_MAX])
{
	uint32_t shared = 0, used = 0;
	for (uint32_t i = 0; i < model->sms; i++) {
		if (!count[i])
			continue;
		used++;
		shared += context->sm[i].threads < (int32_t)model->spec.sm_threads;
	}
	double factor = 1;
	if (used)
		factor += (model->spec.share_slowdown - 1) * shared / used;
	double demand = 0;
	for (uint32_t i = 0; i < context->n_active; i++) {
		const struct model_kernel *other = &model->kernels[context->active[i]];
		if (other->start_ns >= 0 || other == kernel)
			demand += other->work->memory_share;
	}
	if (demand > 1)
		factor += kernel->work->memory_share * (demand - 1);
	return factor;
}

/*
 * Returns how much longer placing takes than for the kernel alone. An SM gets its blocks one after another, so placing
 * takes longer when some SM gets more blocks than it would if the kernel were alone.
 */
static double compute_placing_ns(const struct hb_gpu_model *model, const struct model_kernel *kernel,
				 const uint8_t count[HB_GPU_MODEL_SMS_MAX])
{
	uint32_t most = 0;
	for (uint32_t i = 0; i < model->sms; i++)
		most = count[i] > most ? count[i] : most;
	uint64_t alone = model_div_up(kernel->work->blocks, kernel->sms);
	alone = alone < kernel->occupancy ? alone : kernel->occupancy;
	return most > alone ? (double)(most - alone) * model->spec.block_launch_ns : 0;
}

/* Returns the time until a hold's limit, which counts from its launch even if the hold waited behind another one. */
static double compute_hold_left_ns(const struct hb_gpu_model *model, const struct model_kernel *kernel)
{
	int64_t end_ns = model->streams[kernel->stream].head->ready_ns + kernel->work->duration_ns;
	return end_ns > model->now_ns ? (double)(end_ns - model->now_ns) : 1;
}

/* Starts the blocks of a kernel that fit; false = blocks are left. */
static bool place_kernel(struct hb_gpu_model *model, struct model_context *context, uint32_t id)
{
	uint8_t count[HB_GPU_MODEL_SMS_MAX];
	struct model_kernel *kernel = &model->kernels[id];
	uint64_t slots = choose_sms(model, context, kernel, kernel->blocks_left, count);
	if (!slots)
		return false;
	mark_started(model, context, kernel);
	double factor = kernel->hold ? 1 : find_slowdown(model, context, kernel, count);
	uint64_t in_row = 1;
	if (slots < kernel->blocks_left && kernel->block_ns < COHORT_MIN_NS) {
		in_row = model_div_up(COHORT_MIN_NS, (uint64_t)kernel->block_ns);
		uint64_t most = kernel->blocks_left / slots;
		in_row = in_row < most ? in_row : most;
	}
	double length = (double)kernel->block_ns * factor * (double)in_row + compute_placing_ns(model, kernel, count);
	if (kernel->hold)
		length = compute_hold_left_ns(model, kernel);
	bool whole = slots == kernel->blocks_left, first = slots == kernel->work->blocks;
	kernel->blocks_left -= slots * in_row;
	double spread = kernel->work->block_spread;
	/* A part that is placed again stays one part, so that waves do not fall apart into single blocks. */
	bool wave = slots * STAGGER > (uint64_t)kernel->occupancy * kernel->sms;
	uint32_t parts = whole || spread <= 0 || !wave ? 1 : STAGGER;
	for (uint32_t part = 0; part < parts; part++) {
		uint32_t cohort_id = new_cohort(model);
		if (cohort_id == UINT32_MAX)
			return false;
		struct model_cohort *cohort = &model->cohorts[cohort_id];
		for (uint32_t i = part; i < model->sms; i += parts) {
			cohort->count[i] = count[i];
			cohort->slots += count[i];
		}
		if (!cohort->slots) {
			cohort->next_free = model->free_cohort;
			model->free_cohort = cohort_id;
			continue;
		}
		double shift = parts == 1 ? 0 : spread * ((double)part - (STAGGER - 1) / 2.0) / (STAGGER - 1);
		push_cohort(model, context, id, cohort_id, cohort->slots * in_row, (int64_t)(length * (1 + shift)),
			    spread > 0 && !first);
	}
	return kernel->blocks_left == 0;
}

/*
 * Returns the time until a part of the running wave ends: the end of the wave, shifted by how
 * far the waves before it have separated its parts (at most by one block).
 */
static int64_t compute_part_left_ns(const struct model_kernel *kernel, int64_t wave_left_ns, uint64_t waves_before,
				    uint32_t part, uint32_t parts)
{
	double block = (double)kernel->block_ns;
	double apart = kernel->work->block_spread * (double)(waves_before + 1);
	apart = apart < 1 ? apart : 1;
	double end = (double)wave_left_ns + apart * block * ((part + 0.5) / parts - 0.5);
	if (end <= 0)
		end += block;
	return (int64_t)(end > block ? end - block : end);
}

/* Turns a solo kernel into cohorts, at the point which it has reached. */
static void spread_kernel(struct hb_gpu_model *model, struct model_context *context, uint32_t id)
{
	struct model_kernel *kernel = &model->kernels[id];
	int64_t own = model_own_ns(model, context);
	int64_t left_ns = kernel->solo_end_own_ns - own;
	uint64_t all = kernel->blocks_left;
	uint64_t room = (uint64_t)kernel->occupancy * kernel->sms;
	uint64_t waves = model_div_up(all, room);
	uint64_t waves_after = left_ns > 0 ? (uint64_t)((left_ns - 1) / kernel->block_ns) : 0;
	if (waves_after > waves - 1)
		waves_after = waves - 1;
	int64_t wave_left_ns = left_ns - (int64_t)waves_after * kernel->block_ns;
	uint64_t waves_before = waves - 1 - waves_after;
	kernel->solo = false;
	kernel->generation++; /* makes the kernel's EVENT_SOLO_END void */
	uint64_t resident = all - waves_before * room;
	resident = resident < room ? resident : room;
	kernel->blocks_left = all - waves_before * room - resident;
	uint32_t parts = waves > 1 && kernel->work->block_spread > 0 ? STAGGER : 1;
	for (uint32_t part = 0; part < parts; part++) {
		uint32_t cohort_id = new_cohort(model);
		if (cohort_id == UINT32_MAX)
			return;
		struct model_cohort *cohort = &model->cohorts[cohort_id];
		for (uint32_t i = 0; i < model->sms; i++) {
			uint32_t rank = kernel->rank[i];
			if (rank >= kernel->sms || rank % parts != part)
				continue;
			uint64_t n = resident / kernel->sms + (rank < resident % kernel->sms);
			cohort->count[i] = (uint8_t)n;
			cohort->slots += (uint32_t)n;
		}
		if (!cohort->slots) {
			cohort->next_free = model->free_cohort;
			model->free_cohort = cohort_id;
			continue;
		}
		int64_t end = parts > 1 ? compute_part_left_ns(kernel, wave_left_ns, waves_before, part, parts)
					: wave_left_ns;
		push_cohort(model, context, id, cohort_id, cohort->slots, end,
			    waves > 1 && kernel->work->block_spread > 0);
	}
}

void hb_gpu_model_spread(struct hb_gpu_model *model, struct model_context *context)
{
	for (uint32_t i = 0; i < context->n_active; i++)
		if (model->kernels[context->active[i]].solo) {
			prepare_sms(model, context);
			spread_kernel(model, context, context->active[i]);
		}
}

void hb_gpu_model_place(struct hb_gpu_model *model, struct model_context *context)
{
	int32_t index = (int32_t)(context - model->contexts);
	if (!model_running(model, index) || context->n_active == 0)
		return;
	bool draining = model->engine == ENGINE_DRAIN;
	if (draining && context->params.preempt == HB_PREEMPT_BLOCK)
		return;
	struct model_kernel *first = &model->kernels[context->active[0]];
	if (context->n_active == 1 && !context->placed && !first->hold) {
		if (first->start_ns < 0 && !draining)
			start_solo(model, context, context->active[0]);
		return;
	}
	hb_gpu_model_spread(model, context);
	prepare_sms(model, context);
	int32_t blocked = INT32_MAX; /* priority of a kernel with blocks that do not fit */
	for (uint32_t i = 0; i < context->n_active; i++) {
		struct model_kernel *kernel = &model->kernels[context->active[i]];
		if (kernel->priority > blocked)
			break;
		if (kernel->blocks_left == 0 || (draining && kernel->start_ns < 0))
			continue;
		if (!place_kernel(model, context, context->active[i]))
			blocked = kernel->priority;
	}
}

void hb_gpu_model_drop_cohort(struct hb_gpu_model *model, struct model_context *context, uint32_t id)
{
	struct model_cohort *cohort = &model->cohorts[id];
	for (uint32_t sm = 0; sm < model->sms; sm++)
		if (cohort->count[sm])
			take_room(&context->sm[sm], &model->kernels[cohort->kernel], -(int32_t)cohort->count[sm]);
	cohort->generation++;
	cohort->next_free = model->free_cohort;
	model->free_cohort = id;
}
