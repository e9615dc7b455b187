/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernels on SMs: occupancy, placement of blocks, their ends. Part of the GPU
 * model (model_internal.h).
 *
 * Placement rule, as measured: the block scheduler serves the waiting kernel of
 * the highest stream priority first, then the one that waits longest, and gives
 * nothing to the next as long as one in front has blocks that do not fit. Emptier
 * SMs come first. Running blocks are never moved.
 */
#include "gpu/model_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Blocks of a multi-wave kernel do not end in step: its cohorts are cut in this many, a tenth of a block apart. */
#define STAGGER 4
/* Blocks shorter than this run several in a row as one cohort: nobody waits long for them. */
#define COHORT_MIN_NS 2000

static uint32_t warps(uint32_t threads)
{
	return (threads + 31) / 32;
}

static uint32_t block_registers(const struct hb_gpu_spec *spec, const struct hb_model_work *work)
{
	uint32_t unit = (uint32_t)spec->register_unit;
	uint32_t warp = (work->registers ? work->registers : 32) * 32;
	return (warp + unit - 1) / unit * unit * warps(work->threads);
}

static uint32_t min_u32(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

uint32_t hb_model_occupancy(const struct hb_gpu_spec *spec, const struct hb_model_work *work)
{
	uint32_t shared = work->shared_bytes + (uint32_t)spec->block_shared_overhead_bytes;
	uint32_t blocks = (uint32_t)spec->sm_blocks;
	blocks = min_u32(blocks, (uint32_t)spec->sm_threads / (warps(work->threads) * 32));
	blocks = min_u32(blocks, (uint32_t)spec->sm_registers / block_registers(spec, work));
	if (shared)
		blocks = min_u32(blocks, (uint32_t)spec->sm_shared_bytes / shared);
	return blocks ? blocks : 1; /* it did run: a recorded kernel fits at least once */
}

static uint64_t div_up(uint64_t a, uint64_t b)
{
	return (a + b - 1) / b;
}

/* Share of recent time that a client spent in matrix kernels, now. */
static double recent_power(const struct hb_model *model, const struct model_client *client)
{
	double age = (double)(model->now_ns - client->power_ns) / model->spec.power_window_ns;
	return age < 1 ? client->power * (1 - age) : 0;
}

static void note_power(struct hb_model *model, struct model_client *client, const struct hb_model_work *work)
{
	if (work->power_share <= 0)
		return;
	double share = (double)work->duration_ns / model->spec.power_window_ns * work->power_share;
	client->power = recent_power(model, client) + share;
	client->power_ns = model->now_ns;
}

static double clock_cost(const struct hb_model *model, double power)
{
	double above = power - model->spec.power_free_share;
	return above > 0 ? 1 + above * model->spec.power_slowdown : 1;
}

/*
 * At the power limit the clock falls for everybody. A recorded duration holds
 * what its own program did to the clock when it ran alone: beside others it is
 * slower, and faster where its own matrix kernels are held back.
 */
static double power_factor(const struct hb_model *model, const struct hb_model_work *work)
{
	double power = 0;
	for (uint32_t i = 0; i < model->n_clients; i++)
		if (model->clients[i].used)
			power += recent_power(model, &model->clients[i]);
	return clock_cost(model, power) / clock_cost(model, work->recorded_power);
}

/* Shape of a kernel on the SMs it may use: see share of sm_scaling in spec.def. */
static void shape_kernel(const struct hb_model *model, struct model_kernel *kernel)
{
	const struct hb_model_work *work = kernel->work;
	const struct hb_gpu_spec *spec = &model->spec;
	kernel->occupancy = hb_model_occupancy(spec, work);
	kernel->threads_block = min_u32(warps(work->threads) * 32, (uint32_t)spec->sm_threads);
	kernel->registers_block = min_u32(block_registers(spec, work), (uint32_t)spec->sm_registers);
	kernel->shared_block = min_u32(work->shared_bytes + (uint32_t)spec->block_shared_overhead_bytes,
				       (uint32_t)spec->sm_shared_bytes);
	uint64_t all = (uint64_t)kernel->occupancy * model->sms;
	uint64_t mine = (uint64_t)kernel->occupancy * kernel->sms;
	double duration = (double)work->duration_ns * power_factor(model, work);
	kernel->blocks_left = work->blocks;
	if (kernel->sms < model->sms && work->blocks > mine / 2) {
		duration *= 1 + spec->sm_scaling * ((double)model->sms / kernel->sms - 1);
		/* Programs size persistent grids by the SMs they are shown. */
		if (work->blocks <= all && work->blocks > mine)
			kernel->blocks_left = mine;
	}
	kernel->block_ns = (int64_t)(duration / (double)div_up(kernel->blocks_left, mine));
	kernel->solo_end_own_ns = (int64_t)duration; /* length until it starts */
	if (kernel->block_ns < 1)
		kernel->block_ns = 1;
}

static uint32_t new_kernel(struct hb_model *model)
{
	if (model->free_kernel == UINT32_MAX) {
		uint32_t capacity = model->kernel_capacity ? 2 * model->kernel_capacity : 64;
		struct model_kernel *kernels = realloc(model->kernels, capacity * sizeof *kernels);
		if (!kernels)
			return UINT32_MAX;
		model->kernels = kernels;
		for (uint32_t i = capacity; i-- > model->kernel_capacity;) {
			kernels[i] = (struct model_kernel){.next_free = model->free_kernel};
			model->free_kernel = i;
		}
		model->kernel_capacity = capacity;
	}
	uint32_t id = model->free_kernel;
	uint32_t generation = model->kernels[id].generation;
	model->free_kernel = model->kernels[id].next_free;
	model->kernels[id] = (struct model_kernel){.used = true, .generation = generation + 1, .start_ns = -1};
	return id;
}

static uint32_t new_cohort(struct hb_model *model)
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

static struct model_context *context_of(struct hb_model *model, const struct model_kernel *kernel)
{
	return &model->contexts[model->clients[model->streams[kernel->stream].client].context];
}

static int activate(struct hb_model *model, struct model_context *context, uint32_t id)
{
	if (context->n_active == context->active_capacity) {
		uint32_t capacity = context->active_capacity ? 2 * context->active_capacity : 16;
		uint32_t *active = realloc(context->active, capacity * sizeof *active);
		if (!active)
			return -ENOMEM;
		context->active = active;
		context->active_capacity = capacity;
	}
	uint32_t at = context->n_active++;
	/* Orders only grow, so the new one goes behind all of its priority. */
	while (at > 0 && model->kernels[context->active[at - 1]].priority > model->kernels[id].priority) {
		context->active[at] = context->active[at - 1];
		at--;
	}
	context->active[at] = id;
	return 0;
}

int hb_model_kernel_start(struct hb_model *model, uint32_t stream_id, const struct hb_model_work *work)
{
	struct model_stream *stream = &model->streams[stream_id];
	const struct model_client *client = &model->clients[stream->client];
	struct model_context *context = &model->contexts[client->context];
	uint32_t id = new_kernel(model);
	if (id == UINT32_MAX)
		return -ENOMEM;
	struct model_kernel *kernel = &model->kernels[id];
	kernel->work = work;
	kernel->stream = stream_id;
	kernel->priority = stream->priority;
	kernel->hold = work->kind == HB_MODEL_HOLD;
	kernel->sms = model->sms;
	if (client->sm_limit && client->sm_limit < kernel->sms)
		kernel->sms = client->sm_limit;
	if (work->sm_limit && work->sm_limit < kernel->sms)
		kernel->sms = work->sm_limit;
	shape_kernel(model, kernel);
	stream->kernel = id;
	stream->state = STREAM_RUNNING;
	int result = activate(model, context, id);
	if (result < 0)
		return result;
	hb_model_place(model, context);
	return 0;
}

static void mark_started(struct hb_model *model, struct model_context *context, struct model_kernel *kernel)
{
	if (kernel->start_ns >= 0)
		return;
	kernel->start_ns = model->now_ns;
	context->n_started++;
}

static void start_solo(struct hb_model *model, struct model_context *context, uint32_t id)
{
	struct model_kernel *kernel = &model->kernels[id];
	int64_t own = model_own_ns(model, context);
	mark_started(model, context, kernel);
	kernel->solo = true;
	kernel->solo_start_own_ns = own;
	kernel->solo_end_own_ns += own;
	hb_model_heap_push(&context->heap, kernel->solo_end_own_ns, EVENT_SOLO_END, id, kernel->generation);
}

static void prepare_sms(const struct hb_model *model, struct model_context *context)
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

static void take(struct model_sm *sm, const struct model_kernel *kernel, int32_t blocks)
{
	sm->threads -= blocks * (int32_t)kernel->threads_block;
	sm->blocks -= blocks;
	sm->registers -= blocks * (int32_t)kernel->registers_block;
	sm->shared -= blocks * (int32_t)kernel->shared_block;
}

static uint32_t fits(const struct model_sm *sm, const struct model_kernel *kernel)
{
	if (sm->threads < (int32_t)kernel->threads_block || sm->blocks < 1 ||
	    sm->registers < (int32_t)kernel->registers_block || sm->shared < (int32_t)kernel->shared_block)
		return 0;
	uint32_t n = (uint32_t)sm->threads / kernel->threads_block;
	n = min_u32(n, (uint32_t)sm->blocks);
	n = min_u32(n, (uint32_t)sm->registers / kernel->registers_block);
	return min_u32(n, (uint32_t)sm->shared / kernel->shared_block);
}

static void push_cohort(struct hb_model *model, struct model_context *context, uint32_t kernel_id, uint32_t id,
			uint64_t blocks, int64_t length_ns)
{
	struct model_cohort *cohort = &model->cohorts[id];
	struct model_kernel *kernel = &model->kernels[kernel_id];
	cohort->kernel = kernel_id;
	cohort->blocks = blocks;
	kernel->blocks_running += blocks;
	for (uint32_t i = 0; i < kernel->sms; i++)
		if (cohort->count[i])
			take(&context->sm[i], kernel, cohort->count[i]);
	if (kernel->hold)
		kernel->hold_cohort = id;
	if (kernel->hold && kernel->work->duration_ns == 0)
		return; /* ends when released */
	int64_t end = model_own_ns(model, context) + (length_ns > 0 ? length_ns : 1);
	hb_model_heap_push(&context->heap, end, EVENT_COHORT, id, cohort->generation);
}

#define GPCS_MAX 32

/* Texture processing clusters of two SMs are dealt out to the GPCs in turn. */
static uint32_t gpc_of(uint32_t sm, uint32_t gpcs)
{
	return sm / 2 % gpcs;
}

/* Room for whole clusters only: what is left over in a GPC is taken out of `room`. Returns the room that stays. */
static uint64_t trim_to_clusters(const struct hb_model *model, const struct model_kernel *kernel,
				 uint8_t room[HB_MODEL_SMS_MAX])
{
	uint32_t gpcs = (uint32_t)model->spec.gpc_count, cluster = kernel->work->cluster;
	uint64_t total = 0;
	uint32_t over[GPCS_MAX] = {0};
	for (uint32_t i = 0; i < kernel->sms; i++)
		over[gpc_of(i, gpcs)] += room[i];
	for (uint32_t gpc = 0; gpc < gpcs; gpc++) {
		total += over[gpc] - over[gpc] % cluster;
		over[gpc] %= cluster;
	}
	for (uint32_t i = 0; i < kernel->sms; i++) {
		uint32_t less = min_u32(over[gpc_of(i, gpcs)], room[i]);
		room[i] = (uint8_t)(room[i] - less);
		over[gpc_of(i, gpcs)] -= less;
	}
	return total;
}

/* One block a round on each SM of a kind (idle or not) that has room; returns how many blocks found none. */
static uint64_t spread_over(const struct hb_model *model, const struct model_context *context,
			    const struct model_kernel *kernel, bool idle, uint64_t left,
			    const uint8_t room[HB_MODEL_SMS_MAX], uint8_t count[HB_MODEL_SMS_MAX])
{
	int32_t full = (int32_t)model->spec.sm_threads;
	for (bool progress = true; progress && left;) {
		progress = false;
		for (uint32_t i = kernel->sms; i-- > 0 && left;)
			if ((context->sm[i].threads == full) == idle && count[i] < room[i]) {
				count[i]++;
				left--;
				progress = true;
			}
	}
	return left;
}

/* How many of `wanted` blocks go on each SM: idle SMs first, one block a round. Returns how many in all. */
static uint64_t choose(const struct hb_model *model, const struct model_context *context,
		       const struct model_kernel *kernel, uint64_t wanted, uint8_t count[HB_MODEL_SMS_MAX])
{
	uint8_t room[HB_MODEL_SMS_MAX];
	uint64_t total = 0;
	for (uint32_t i = 0; i < kernel->sms; i++) {
		room[i] = (uint8_t)fits(&context->sm[i], kernel);
		total += room[i];
	}
	if (kernel->work->cluster > 1)
		total = trim_to_clusters(model, kernel, room);
	if (wanted >= total) {
		memcpy(count, room, kernel->sms);
		return total;
	}
	memset(count, 0, kernel->sms);
	uint64_t left = spread_over(model, context, kernel, true, wanted, room, count);
	spread_over(model, context, kernel, false, left, room, count);
	return wanted;
}

/* A block beside others: bandwidth that is asked for twice, and company on its SM. */
static double slowdown(const struct hb_model *model, const struct model_context *context,
		       const struct model_kernel *kernel, const uint8_t count[HB_MODEL_SMS_MAX])
{
	uint32_t shared = 0, used = 0;
	for (uint32_t i = 0; i < kernel->sms; i++) {
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

/* Blocks are placed on an SM one after another: what that takes beyond the kernel alone, where they are spread out. */
static double crowding_ns(const struct hb_model *model, const struct model_kernel *kernel,
			  const uint8_t count[HB_MODEL_SMS_MAX])
{
	uint32_t most = 0;
	for (uint32_t i = 0; i < kernel->sms; i++)
		most = count[i] > most ? count[i] : most;
	uint64_t alone = div_up(kernel->work->blocks, kernel->sms);
	alone = alone < kernel->occupancy ? alone : kernel->occupancy;
	return most > alone ? (double)(most - alone) * model->spec.block_launch_ns : 0;
}

/* Starts what fits of a kernel; false = blocks are left. */
static bool place_kernel(struct hb_model *model, struct model_context *context, uint32_t id)
{
	uint8_t count[HB_MODEL_SMS_MAX];
	struct model_kernel *kernel = &model->kernels[id];
	uint64_t slots = choose(model, context, kernel, kernel->blocks_left, count);
	if (!slots)
		return false;
	mark_started(model, context, kernel);
	double factor = kernel->hold ? 1 : slowdown(model, context, kernel, count);
	uint64_t in_row = 1;
	if (slots < kernel->blocks_left && kernel->block_ns < COHORT_MIN_NS) {
		in_row = div_up(COHORT_MIN_NS, (uint64_t)kernel->block_ns);
		uint64_t most = kernel->blocks_left / slots;
		in_row = in_row < most ? in_row : most;
	}
	double length = (double)kernel->block_ns * factor * (double)in_row + crowding_ns(model, kernel, count);
	bool whole = slots == kernel->blocks_left;
	kernel->blocks_left -= slots * in_row;
	uint32_t parts = whole ? 1 : STAGGER;
	for (uint32_t part = 0; part < parts; part++) {
		uint32_t cohort_id = new_cohort(model);
		if (cohort_id == UINT32_MAX)
			return false;
		struct model_cohort *cohort = &model->cohorts[cohort_id];
		for (uint32_t i = part; i < kernel->sms; i += parts) {
			cohort->count[i] = count[i];
			cohort->slots += count[i];
		}
		if (!cohort->slots) {
			cohort->next_free = model->free_cohort;
			model->free_cohort = cohort_id;
			continue;
		}
		double shift = parts == 1 ? 0 : 0.1 * ((double)part - (STAGGER - 1) / 2.0) / (STAGGER - 1);
		push_cohort(model, context, id, cohort_id, cohort->slots * in_row, (int64_t)(length * (1 + shift)));
	}
	return kernel->blocks_left == 0;
}

/* Turns a solo kernel into cohorts, as far as it got. */
static void spread_kernel(struct hb_model *model, struct model_context *context, uint32_t id)
{
	struct model_kernel *kernel = &model->kernels[id];
	int64_t own = model_own_ns(model, context);
	int64_t length = kernel->solo_end_own_ns - kernel->solo_start_own_ns;
	int64_t left_ns = kernel->solo_end_own_ns - own;
	uint64_t all = kernel->blocks_left;
	uint64_t room = (uint64_t)kernel->occupancy * kernel->sms;
	uint64_t left = all;
	kernel->solo = false;
	kernel->generation++; /* its EVENT_SOLO_END is void */
	if (all > room) {
		left = (uint64_t)((double)all * (double)left_ns / (double)length);
		left = left < 1 ? 1 : left;
	}
	uint64_t resident = left < room ? left : room;
	int64_t spread_ns = left > room ? kernel->block_ns : left_ns;
	kernel->blocks_left = left - resident;
	uint32_t parts = all > room ? STAGGER : 1;
	for (uint32_t part = 0; part < parts; part++) {
		uint32_t cohort_id = new_cohort(model);
		if (cohort_id == UINT32_MAX)
			return;
		struct model_cohort *cohort = &model->cohorts[cohort_id];
		for (uint32_t i = part; i < kernel->sms; i += parts) {
			uint64_t n = resident / kernel->sms + (i < resident % kernel->sms);
			cohort->count[i] = (uint8_t)n;
			cohort->slots += (uint32_t)n;
		}
		if (!cohort->slots) {
			cohort->next_free = model->free_cohort;
			model->free_cohort = cohort_id;
			continue;
		}
		push_cohort(model, context, id, cohort_id, cohort->slots, spread_ns * (part + 1) / parts);
	}
}

void hb_model_spread(struct hb_model *model, struct model_context *context)
{
	for (uint32_t i = 0; i < context->n_active; i++)
		if (model->kernels[context->active[i]].solo) {
			prepare_sms(model, context);
			spread_kernel(model, context, context->active[i]);
		}
}

void hb_model_place(struct hb_model *model, struct model_context *context)
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
	hb_model_spread(model, context);
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

static void forget_kernel(struct hb_model *model, struct model_context *context, uint32_t id)
{
	struct model_kernel *kernel = &model->kernels[id];
	for (uint32_t i = 0; i < context->n_active; i++)
		if (context->active[i] == id) {
			context->n_active--;
			memmove(&context->active[i], &context->active[i + 1],
				(context->n_active - i) * sizeof *context->active);
			break;
		}
	context->n_started -= kernel->start_ns >= 0;
	if (context->n_started == 0)
		context->placed = false;
	kernel->used = false;
	kernel->generation++;
	kernel->next_free = model->free_kernel;
	model->free_kernel = id;
}

static void finish_kernel(struct hb_model *model, struct model_context *context, uint32_t id)
{
	uint32_t stream = model->kernels[id].stream;
	int64_t start = model->kernels[id].start_ns;
	note_power(model, &model->clients[model->streams[stream].client], model->kernels[id].work);
	forget_kernel(model, context, id);
	hb_model_stream_finished(model, stream, start);
}

static void drop_cohort(struct hb_model *model, struct model_context *context, uint32_t id)
{
	struct model_cohort *cohort = &model->cohorts[id];
	for (uint32_t sm = 0; sm < model->sms; sm++)
		if (cohort->count[sm])
			take(&context->sm[sm], &model->kernels[cohort->kernel], -(int32_t)cohort->count[sm]);
	cohort->generation++;
	cohort->next_free = model->free_cohort;
	model->free_cohort = id;
}

static void end_cohort(struct hb_model *model, struct model_context *context, uint32_t id)
{
	struct model_cohort *cohort = &model->cohorts[id];
	uint32_t kernel_id = cohort->kernel;
	struct model_kernel *kernel = &model->kernels[kernel_id];
	kernel->blocks_running -= cohort->blocks;
	drop_cohort(model, context, id);
	if (kernel->blocks_left == 0 && kernel->blocks_running == 0)
		finish_kernel(model, context, kernel_id);
	hb_model_place(model, context);
}

void hb_model_kernel_event(struct hb_model *model, struct model_context *context, const struct model_event *event)
{
	if (event->kind == EVENT_SOLO_END) {
		if (model->kernels[event->object].generation != event->generation)
			return;
		finish_kernel(model, context, event->object);
		hb_model_place(model, context);
		return;
	}
	if (model->cohorts[event->object].generation == event->generation)
		end_cohort(model, context, event->object);
}

/* Cohorts of a kernel that goes away: frees their SMs. */
static void drop_cohorts(struct hb_model *model, struct model_context *context, uint32_t kernel_id)
{
	for (uint32_t i = 0; i < context->heap.count; i++) {
		struct model_event *event = &context->heap.events[i];
		if (event->kind != EVENT_COHORT || model->cohorts[event->object].generation != event->generation ||
		    model->cohorts[event->object].kernel != kernel_id)
			continue;
		drop_cohort(model, context, event->object);
	}
	const struct model_kernel *kernel = &model->kernels[kernel_id];
	if (kernel->hold && kernel->start_ns >= 0 && kernel->work->duration_ns == 0)
		drop_cohort(model, context, kernel->hold_cohort);
}

/* A hold that runs ends now; one that waits for the GPU ends as soon as it has it. */
void hb_model_hold_end(struct hb_model *model, uint32_t id)
{
	struct model_kernel *kernel = &model->kernels[id];
	struct model_context *context = context_of(model, kernel);
	if (kernel->start_ns < 0)
		return;
	hb_model_heap_push(&context->heap, model_own_ns(model, context), EVENT_COHORT, kernel->hold_cohort,
			   model->cohorts[kernel->hold_cohort].generation);
}

void hb_model_kernel_drop(struct hb_model *model, uint32_t id)
{
	struct model_context *context = context_of(model, &model->kernels[id]);
	drop_cohorts(model, context, id);
	forget_kernel(model, context, id);
	hb_model_place(model, context);
}
