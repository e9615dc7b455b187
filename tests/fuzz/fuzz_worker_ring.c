/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzz target: the server's side of a worker's shared memory. This program takes
 * the place of the worker: the real one only sleeps. The input is a list of steps
 * of 11 bytes: what to do, where, and a value. Whatever is written there, batches
 * end at most once, and outputs of answered requests are inside their memory.
 */
#include "base/clock.h"
#include "fuzz.h"
#include "server/backends/backend.h"
#include "server/backends/worker_memory.h"

#include <sys/mman.h>

#define STEP_BYTES 11
#define STEPS_MAX 200
#define SLOTS 8

struct fuzz_step {
	uint8_t kind;
	uint16_t where;
	uint64_t value;
};

static const struct hb_model_config model = {
	.name = "m",
	.folder = "/tmp",
	.platform = HB_PLATFORM_worker,
	.command = "exec sleep 100000",
	.max_batch = 4,
	.limit_ns = INT64_C(3600000000000),
	.start_limit_ns = INT64_C(3600000000000),
	.room_bytes = 4096,
	.stop_share = 0.5,
	.n_inputs = 1,
	.n_outputs = 2,
	.inputs = {{.name = "x", .dtype = HB_DTYPE_FP32, .n_dims = 1, .dims = {2}}},
	.outputs = {{.name = "y", .dtype = HB_DTYPE_FP32, .n_dims = 1, .dims = {2}},
		    {.name = "s", .dtype = HB_DTYPE_BYTES, .n_dims = 1, .dims = {-1}}},
};

static struct hb_backend backend;
static struct hb_backend_shared shared = {.speed = 1};
static struct hb_worker_memory memory; /* as a worker maps it */
static struct hb_inference *requests[SLOTS];

/* Finds the memory that the back end has just made, among the mappings of this process. */
static void find_memory(void)
{
	char line[512];
	unsigned long begin = 0, end = 0;
	FILE *maps = fopen("/proc/self/maps", "r");
	FUZZ_REQUIRE(maps != NULL);
	while (fgets(line, sizeof line, maps))
		if (strstr(line, "memfd:hb-worker") && sscanf(line, "%lx-%lx", &begin, &end) == 2)
			break;
	fclose(maps);
	memory.page = (struct hb_worker_page *)begin; /* NOLINT(performance-no-int-to-ptr) */
	FUZZ_REQUIRE(begin && memory.page->magic == HB_WORKER_MAGIC);
	memory.bytes = end - begin;
	memory.lane_bytes = memory.page->lane_bytes;
	memory.out_offset = memory.page->out_offset;
	memory.out_bytes = memory.page->out_bytes;
}

static void open_backend(void)
{
	struct hb_error error = {""};
	FUZZ_REQUIRE(hb_backend_worker.open(&model, &shared, &backend, &error) == 0);
	find_memory();
}

static void free_requests(void)
{
	for (uint32_t slot = 0; slot < SLOTS; slot++) {
		if (requests[slot])
			hb_inference_free(requests[slot]);
		requests[slot] = NULL;
	}
}

static void start_batch(uint32_t slot, uint32_t items)
{
	static const float values[8] = {1, 2, 3, 4, 5, 6, 7, 8};
	struct hb_scheduler_batch batch = {.used = true, .items = items, .n_requests = 1, .deadline_ns = INT64_MAX};
	if (requests[slot])
		return;
	struct hb_inference *infer = hb_inference_new();
	FUZZ_REQUIRE(infer != NULL);
	infer->items = items;
	infer->n_inputs = 1;
	infer->inputs[0] = (struct hb_tensor){.name = "x",
					      .dtype = HB_DTYPE_FP32,
					      .n_dims = 2,
					      .dims = {items, 2},
					      .data = values,
					      .bytes = 8 * (uint64_t)items};
	batch.cookies[0] = (uintptr_t)infer;
	batch.can_pause = items & 1;
	if (backend.ops->start(backend.self, hb_clock_now_ns(), slot, 0, &batch) == 0)
		requests[slot] = infer;
	else
		hb_inference_free(infer);
}

/* Reads every byte of every output, so that a sanitizer finds one that does not exist. */
static void check_outputs(const struct hb_inference *infer)
{
	volatile unsigned sum = 0;
	if (infer->answer != HB_ANSWER_OK)
		FUZZ_REQUIRE(infer->reason[0] != '\0');
	for (uint32_t i = 0; infer->answer == HB_ANSWER_OK && i < infer->n_outputs; i++) {
		FUZZ_REQUIRE(infer->outputs[i].dims[0] == (int64_t)infer->items);
		for (uint64_t k = 0; k < infer->outputs[i].bytes; k++)
			sum = sum + ((const unsigned char *)infer->outputs[i].data)[k];
	}
}

static void poll_backend(void)
{
	struct hb_scheduler_provider_event event;
	for (int n = 0; backend.ops->poll(backend.self, hb_clock_now_ns(), &event); n++) {
		FUZZ_REQUIRE(n < 100 && event.slot < SLOTS && requests[event.slot]);
		if (event.stage != HB_STAGES)
			continue;
		check_outputs(requests[event.slot]);
		hb_inference_free(requests[event.slot]);
		requests[event.slot] = NULL;
	}
}

static void write_word(void *at, size_t size, size_t offset, uint64_t value)
{
	offset %= size - sizeof value + 1;
	memcpy((char *)at + offset, &value, sizeof value);
}

/* Writes outputs as a correct worker does, except that `value` may be any length of the strings. */
static void write_outputs(struct hb_worker_lane *lane, uint64_t value)
{
	char *data = (char *)lane + memory.out_offset;
	lane->status = HB_WORKER_OK;
	lane->outputs[0] = (struct hb_worker_tensor){
		.bytes = 8 * (uint64_t)lane->items, .n_dims = 2, .dims = {lane->items, 2}};
	lane->outputs[1] = (struct hb_worker_tensor){
		.offset = 64, .bytes = value % memory.out_bytes, .n_dims = 2, .dims = {lane->items, 1}};
	memcpy(data + 64, &value, sizeof value);
}

static void append_completed(uint32_t lane)
{
	struct hb_worker_ring *ring = &memory.page->completed;
	ring->lanes[ring->head % HB_WORKER_RING] = lane;
	ring->head++;
}

static void do_step(const struct fuzz_step *step)
{
	uint32_t index = step->where >> 8 & 3, slot = step->where % SLOTS;
	struct hb_worker_lane *lane = hb_worker_memory_lane(&memory, index);
	switch (step->kind % 12) {
	case 0:
		write_word(memory.page, sizeof *memory.page, step->where, step->value);
		break;
	case 1:
		write_word(lane, 512, step->where, step->value);
		break;
	case 2:
		write_word(lane->outputs, 2 * sizeof *lane->outputs, step->where, step->value);
		break;
	case 3:
		write_word((char *)lane + memory.out_offset, memory.out_bytes, step->where, step->value);
		break;
	case 4:
		start_batch(slot, 1 + step->value % 4);
		break;
	case 5:
		write_outputs(lane, step->value);
		break;
	case 6:
		append_completed((uint32_t)step->value);
		break;
	case 7:
		if (requests[slot])
			backend.ops->cancel(backend.self, hb_clock_now_ns(), slot);
		break;
	case 8:
		if (requests[slot])
			backend.ops->pause(backend.self, hb_clock_now_ns(), slot, step->value & 1);
		break;
	case 9:
		backend.ops->expect(backend.self, hb_clock_now_ns());
		break;
	default:
		poll_backend();
		break;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	open_backend();
	poll_backend(); /* starts the process */
	memory.page->ready = HB_WORKER_READY;
	for (size_t i = 0; (i + 1) * STEP_BYTES <= size && i < STEPS_MAX; i++) {
		struct fuzz_step step = {.kind = data[i * STEP_BYTES]};
		memcpy(&step.where, data + i * STEP_BYTES + 1, sizeof step.where);
		memcpy(&step.value, data + i * STEP_BYTES + 3, sizeof step.value);
		do_step(&step);
	}
	poll_backend();
	backend.ops->close(backend.self);
	free_requests();
	return 0;
}
