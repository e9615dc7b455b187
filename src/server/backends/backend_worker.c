/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The worker back end: a process of the user's runs the model. Batches go to it
 * through a shared ring (worker_ring.h). It may die: the batch that it had begun
 * is lost and told so, those that it had not begun wait in their lanes for the
 * next one, which is started at once, later after longer pauses. One that takes
 * longer than the model's limit for a batch is killed. The next is started when
 * the one before has ended, which has the GPU's memory until then; where that
 * does not happen, as in a driver that hangs, the model has failed.
 *
 * Nothing here blocks: descriptors are looked at when poll() is called.
 */
#include "base/clock.h"
#include "base/json_scan.h"
#include "base/log.h"
#include "server/backends/backend.h"
#include "server/backends/worker_memory.h"
#include "server/backends/worker_outputs.h"
#include "server/backends/worker_process.h"
#include "server/models/dispatch.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define TRIES 5 /* starts in a row without a batch done, after which the model has failed */
/* Requests that come within this are one sign. */
#define EXPECT_AGAIN_NS 500000
#define PAUSE_FIRST_NS (HB_NS_PER_S / 10)
/* For one that was killed: giving back its memory takes a while. */
#define END_LIMIT_NS (10 * HB_NS_PER_S)

enum lane_state { LANE_FREE, LANE_WAITS, LANE_SUBMITTED };

struct lane {
	enum lane_state state;
	uint32_t stage; /* enum hb_worker_stage, the last that was reported */
	uint32_t slot, items;
	int64_t since_ns; /* submitted */
	struct hb_scheduler_batch batch;
};

struct worker {
	struct hb_model_config config;
	enum hb_worker_gpu gpu;
	struct hb_worker_process process;
	struct hb_worker_memory memory;
	int submitted_bell, completed_bell, epoll;
	uint32_t taken; /* entries of `completed` that were read */
	struct lane lanes[HB_WORKER_LANES];
	uint32_t tries;
	int64_t started_ns; /* the process */
	int64_t restart_ns; /* INT64_MAX = it runs; 0 at first */
	const char *killed; /* why, while it is there nevertheless; NULL = it was not */
	int64_t killed_ns;
	int64_t expected_ns; /* the last sign of a request */
	bool ready;
	int state; /* enum hb_served_model_state */
	char why[256];
	uint32_t n_events, given;
	struct hb_scheduler_provider_event events[HB_WORKER_LANES * (HB_STAGES + 1)]; /* happened, not reported yet */
};

static struct hb_worker_lane *shared_lane(const struct worker *worker, uint32_t lane)
{
	return hb_worker_memory_lane(&worker->memory, lane);
}

/* What the worker says: any bytes, without an end perhaps. Answers are UTF-8, so what is not becomes "?". */
static void read_error(const struct hb_worker_lane *shared, char *out, size_t size)
{
	size_t n = size - 1 < sizeof(shared->error) ? size - 1 : sizeof(shared->error);
	memcpy(out, shared->error, n);
	out[n] = '\0';
	for (char *at = out, *end = out + strlen(out); at < end;) {
		size_t length = hb_utf8_length(at, end);
		if (length == 0)
			*at = '?';
		at += length ? length : 1;
	}
}

/* ---- bells ---- */

static void watch(struct worker *worker, int fd)
{
	struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
	epoll_ctl(worker->epoll, EPOLL_CTL_ADD, fd, &event);
}

static int make_bells(struct worker *worker, struct hb_error *error)
{
	worker->submitted_bell = eventfd(0, EFD_CLOEXEC);
	worker->completed_bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	worker->epoll = epoll_create1(EPOLL_CLOEXEC);
	if (worker->submitted_bell < 0 || worker->completed_bell < 0 || worker->epoll < 0)
		return hb_error_set(error, -errno, "model %s: %s", worker->config.name, strerror(errno));
	watch(worker, worker->completed_bell);
	return 0;
}

/* ---- the process ---- */

static int start_process(struct worker *worker, struct hb_error *error)
{
	eventfd_t value;
	const int fds[3] = {worker->memory.fd, worker->submitted_bell, worker->completed_bell};
	/* The dead one's: rings begin anew, its bell is silent. */
	atomic_store(&worker->memory.page->submitted.head, 0);
	atomic_store(&worker->memory.page->completed.head, 0);
	atomic_store(&worker->memory.page->ready, 0);
	worker->taken = 0;
	worker->ready = false;
	worker->killed = NULL;
	while (eventfd_read(worker->completed_bell, &value) == 0)
		;
	worker->restart_ns = INT64_MAX;
	worker->started_ns = hb_clock_now_ns();
	worker->tries++;
	int result = hb_worker_process_start(&worker->config, worker->gpu, fds, &worker->process, error);
	if (result == 0)
		watch(worker, worker->process.pidfd);
	return result;
}

static void add_event(struct worker *worker, uint32_t lane, enum hb_scheduler_stage stage, bool whole)
{
	worker->events[worker->n_events++] = (struct hb_scheduler_provider_event){
		.at_ns = hb_clock_now_ns(), .slot = worker->lanes[lane].slot, .stage = stage, .whole = whole};
}

static void end_lane(struct worker *worker, uint32_t lane, bool whole)
{
	add_event(worker, lane, HB_STAGES, whole);
	worker->lanes[lane].state = LANE_FREE;
}

__attribute__((format(printf, 3, 4))) static void fail_lane(struct worker *worker, uint32_t lane, const char *format,
							    ...)
{
	const struct hb_scheduler_batch *batch = &worker->lanes[lane].batch;
	char text[200];
	va_list arguments;
	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	for (uint32_t i = 0; i < batch->n_requests; i++) {
		struct hb_inference *infer = hb_backend_request(batch->cookies[i]);
		if (!infer->answered)
			hb_inference_fail(infer, HB_ANSWER_BROKEN, "%s", text);
	}
	end_lane(worker, lane, false);
}

static void fail(struct worker *worker)
{
	worker->state = HB_MODEL_FAILED;
	worker->restart_ns = INT64_MAX;
	for (uint32_t i = 0; i < HB_WORKER_LANES; i++)
		if (worker->lanes[i].state != LANE_FREE)
			fail_lane(worker, i, "%s", worker->why);
}

static void end_process(struct worker *worker, const char *why, int64_t now_ns)
{
	hb_worker_process_kill(&worker->process);
	worker->killed = why;
	worker->killed_ns = now_ns;
	worker->ready = false;
}

/* It says itself that it cannot run the model; another start would not help. */
static void give_up(struct worker *worker, int64_t now_ns)
{
	end_process(worker, "killed, it cannot run the model", now_ns);
	read_error(shared_lane(worker, 0), worker->why, sizeof(worker->why));
	hb_log_error("model %s: %s", worker->config.name, worker->why);
	fail(worker);
}

/* What it had begun is lost; what it had not waits for the next. */
static void lose_begun(struct worker *worker, const char *how)
{
	for (uint32_t i = 0; i < HB_WORKER_LANES; i++) {
		if (worker->lanes[i].state != LANE_SUBMITTED)
			continue;
		worker->lanes[i].state = LANE_WAITS;
		worker->lanes[i].stage = HB_WORKER_NOT_BEGUN;
		if (atomic_load(&shared_lane(worker, i)->stage))
			fail_lane(worker, i, "the worker of model %s died in this batch: %s", worker->config.name, how);
	}
}

static void note_death(struct worker *worker, const char *how, int64_t now_ns)
{
	lose_begun(worker, how);
	hb_log_warning("model %s: its worker ended: %s", worker->config.name, how);
	worker->ready = false;
	worker->killed = NULL;
	worker->restart_ns = now_ns + (PAUSE_FIRST_NS << (worker->tries < 9 ? worker->tries : 9));
	if (worker->tries < TRIES)
		return;
	snprintf(worker->why, sizeof(worker->why), "its worker ended %u times: %.100s", worker->tries, how);
	fail(worker);
}

/* A batch has a limit, and so have coming up and ending. */
static void watch_limits(struct worker *worker, int64_t now_ns)
{
	const struct hb_model_config *config = &worker->config;
	bool late = false;
	if (worker->killed && worker->state != HB_MODEL_FAILED && now_ns - worker->killed_ns > END_LIMIT_NS) {
		snprintf(worker->why, sizeof(worker->why), "its worker, process %d, does not end: %s",
			 (int)worker->process.pid, worker->killed);
		hb_log_error("model %s: %s", config->name, worker->why);
		fail(worker);
	}
	if (worker->killed || !worker->process.pid)
		return;
	for (uint32_t i = 0; i < HB_WORKER_LANES; i++)
		late |= worker->lanes[i].state == LANE_SUBMITTED &&
			now_ns - worker->lanes[i].since_ns > config->limit_ns;
	if (late)
		end_process(worker, "killed, a batch took longer than the model's limit", now_ns);
	else if (!worker->ready && now_ns - worker->started_ns > config->start_limit_ns)
		end_process(worker, "killed, it was not ready within the model's start_limit", now_ns);
	if (worker->killed)
		lose_begun(worker, worker->killed);
}

static void tend_process(struct worker *worker, int64_t now_ns)
{
	struct hb_error error = {.text = ""};
	char how[96];
	if (hb_worker_process_ended(&worker->process, how, sizeof(how)) && worker->state != HB_MODEL_FAILED)
		note_death(worker, worker->killed ? worker->killed : how, now_ns);
	if (now_ns >= worker->restart_ns && start_process(worker, &error) < 0)
		note_death(worker, error.text, now_ns);
	watch_limits(worker, now_ns);
}

/* ---- batches to the worker ---- */

/*
 * A worker that has filled the counter, which only it could, needs no ring, and must not stop us. One that does so at this
 * very moment is not guarded against.
 */
static void ring_bell(const struct worker *worker)
{
	struct pollfd bell = {.fd = worker->submitted_bell, .events = POLLOUT};
	if (poll(&bell, 1, 0) == 1 && (bell.revents & POLLOUT))
		eventfd_write(worker->submitted_bell, 1);
}

static void submit_waiting(struct worker *worker, int64_t now_ns)
{
	bool any = false;
	for (uint32_t i = 0; i < HB_WORKER_LANES && worker->ready; i++) {
		struct hb_worker_ring *ring = &worker->memory.page->submitted;
		uint32_t head = atomic_load_explicit(&ring->head, memory_order_relaxed);
		if (worker->lanes[i].state != LANE_WAITS)
			continue;
		atomic_store(&shared_lane(worker, i)->stage, HB_WORKER_NOT_BEGUN);
		ring->lanes[head % HB_WORKER_RING] = i;
		atomic_store_explicit(&ring->head, head + 1, memory_order_release);
		worker->lanes[i].state = LANE_SUBMITTED;
		worker->lanes[i].since_ns = now_ns;
		any = true;
	}
	if (any)
		ring_bell(worker);
}

/* One input of all requests of the batch, one behind the other. */
static bool copy_input(const struct worker *worker, struct hb_worker_lane *lane, const struct hb_scheduler_batch *batch,
		       uint32_t input, uint64_t *offset)
{
	struct hb_worker_tensor out = {.offset = *offset};
	const char *name = worker->config.inputs[input].name;
	uint64_t room = worker->memory.out_offset - worker->memory.in_offset;
	char *data = (char *)lane + worker->memory.in_offset;
	for (uint32_t r = 0; r < batch->n_requests; r++) {
		const struct hb_inference *infer = hb_backend_request(batch->cookies[r]);
		for (uint32_t i = 0; i < infer->n_inputs; i++) {
			const struct hb_tensor *tensor = &infer->inputs[i];
			if (strcmp(tensor->name, name) != 0)
				continue;
			if (tensor->bytes > room - out.offset - out.bytes)
				return false;
			memcpy(data + out.offset + out.bytes, tensor->data, tensor->bytes);
			out.bytes += tensor->bytes;
			out.n_dims = tensor->n_dims;
			memcpy(out.dims, tensor->dims, sizeof(out.dims));
		}
	}
	if (worker->config.max_batch)
		out.dims[0] = batch->items;
	lane->inputs[input] = out;
	*offset = out.offset + hb_worker_aligned(out.bytes);
	return *offset <= room + 63;
}

static int refuse(const struct hb_scheduler_batch *batch, enum hb_answer answer, const char *why)
{
	for (uint32_t i = 0; i < batch->n_requests; i++)
		hb_inference_fail(hb_backend_request(batch->cookies[i]), answer, "%s", why);
	return -EIO;
}

static int refuse_large(const struct worker *worker, const struct hb_scheduler_batch *batch, uint32_t input)
{
	char why[256];
	snprintf(why, sizeof(why), "input \"%.64s\" does not fit: send less, or raise \"room\" in model.yaml",
		 worker->config.inputs[input].name);
	return refuse(batch, HB_ANSWER_TOO_LARGE, why);
}

static int start(void *self, int64_t now_ns, uint32_t slot, uint32_t model, const struct hb_scheduler_batch *batch)
{
	struct worker *worker = self;
	uint32_t index = 0;
	uint64_t offset = 0;
	while (index < HB_WORKER_LANES && worker->lanes[index].state != LANE_FREE)
		index++;
	if (worker->state == HB_MODEL_FAILED)
		return refuse(batch, HB_ANSWER_UNAVAILABLE, worker->why);
	if (index == HB_WORKER_LANES)
		return -EBUSY;
	struct hb_worker_lane *lane = shared_lane(worker, index);
	lane->items = batch->items;
	lane->priority = batch->priority;
	lane->status = HB_WORKER_OK;
	atomic_store(&lane->hold, batch->can_stop ? HB_WORKER_GOES_ON : HB_WORKER_NEVER_HELD);
	lane->error[0] = '\0';
	lane->dropped = 0;
	atomic_store(&lane->unwanted, 0);
	lane->deadline_ns = batch->deadline_ns;
	for (uint32_t i = 0; i < worker->config.n_inputs; i++)
		if (!copy_input(worker, lane, batch, i, &offset))
			return refuse_large(worker, batch, i);
	worker->lanes[index] = (struct lane){.state = LANE_WAITS, .slot = slot, .items = batch->items, .batch = *batch};
	submit_waiting(worker, now_ns);
	return 0;
}

/* ---- and back ---- */

static void complete(struct worker *worker, uint32_t index)
{
	struct lane *lane = &worker->lanes[index];
	const struct hb_worker_lane *shared = shared_lane(worker, index);
	const char *data = (const char *)shared + worker->memory.out_offset;
	struct hb_worker_tensor outputs[HB_TENSORS_MAX];
	uint32_t first = 0, dropped = shared->dropped;
	memcpy(outputs, shared->outputs, sizeof(outputs)); /* once: it could change under us */
	if (shared->status != HB_WORKER_OK) {
		char said[151];
		read_error(shared, said, sizeof(said));
		fail_lane(worker, index, "model %s: %s", worker->config.name, said);
		return;
	}
	for (uint32_t i = 0; i < worker->config.n_outputs; i++)
		if (!hb_worker_output_fits(&worker->config, i, lane->items, worker->memory.out_bytes, &outputs[i])) {
			fail_lane(worker, index,
				  "model %s: its worker gave output \"%s\" in another shape than model.yaml has",
				  worker->config.name, worker->config.outputs[i].name);
			return;
		}
	for (uint32_t i = 0; i < lane->batch.n_requests; i++) {
		struct hb_inference *infer = hb_backend_request(lane->batch.cookies[i]);
		if (!infer->answered)
			hb_worker_outputs_answer(&worker->config, lane->items, outputs, data, dropped, infer, first);
		first += infer->items;
	}
	worker->tries = 0;
	end_lane(worker, index, true);
}

static void take_completed(struct worker *worker)
{
	struct hb_worker_ring *ring = &worker->memory.page->completed;
	uint32_t head = atomic_load_explicit(&ring->head, memory_order_acquire);
	if (head - worker->taken > HB_WORKER_LANES)
		return; /* more than can be: whatever the worker did there, it was not to end batches */
	for (uint32_t n = 0; worker->taken != head && n < HB_WORKER_RING; n++) {
		uint32_t index = ring->lanes[worker->taken++ % HB_WORKER_RING];
		if (index < HB_WORKER_LANES && worker->lanes[index].state == LANE_SUBMITTED)
			complete(worker, index);
	}
}

/* How far batches have come: what began since the last look. */
static void take_stages(struct worker *worker)
{
	for (uint32_t i = 0; i < HB_WORKER_LANES; i++) {
		struct lane *lane = &worker->lanes[i];
		if (lane->state != LANE_SUBMITTED)
			continue;
		uint32_t stage = atomic_load_explicit(&shared_lane(worker, i)->stage, memory_order_acquire);
		for (; lane->stage < stage && lane->stage < HB_WORKER_COPIES_OUT; lane->stage++)
			if (lane->stage == HB_WORKER_COPIES_IN)
				add_event(worker, i, HB_STAGE_RUN, false);
			else if (lane->stage == HB_WORKER_RUNS)
				add_event(worker, i, HB_STAGE_OUT, false);
	}
}

static void look(struct worker *worker, int64_t now_ns)
{
	struct epoll_event events[4];
	eventfd_t value;
	int n = epoll_wait(worker->epoll, events, 4, 0);
	for (int i = 0; i < n; i++)
		if (events[i].data.fd == worker->completed_bell)
			eventfd_read(worker->completed_bell, &value);
	bool starts = worker->process.pid && !worker->ready && !worker->killed;
	uint32_t ready = starts ? atomic_load(&worker->memory.page->ready) : HB_WORKER_STARTS;
	if (ready == HB_WORKER_READY) {
		worker->ready = true;
		worker->state = HB_MODEL_READY;
	} else if (ready == HB_WORKER_CANNOT) {
		give_up(worker, now_ns);
	}
	take_stages(worker);
	take_completed(worker); /* before death is looked at: what was done counts */
	tend_process(worker, now_ns);
	submit_waiting(worker, now_ns);
}

static bool poll_worker(void *self, int64_t now_ns, struct hb_scheduler_provider_event *event)
{
	struct worker *worker = self;
	if (worker->given == worker->n_events) {
		worker->given = worker->n_events = 0;
		look(worker, now_ns);
	}
	if (worker->given == worker->n_events)
		return false;
	*event = worker->events[worker->given++];
	return true;
}

/*
 * The GPU is to be there when the batch is: a worker of high priority that is idle tells the daemon (hummingbird.hint())
 * while the request is still read, parsed and batched.
 */
static void expect(void *self, int64_t now_ns)
{
	struct worker *worker = self;
	if (worker->config.priority != HB_SCHEDULER_HIGH || !worker->ready ||
	    now_ns - worker->expected_ns < EXPECT_AGAIN_NS)
		return;
	for (uint32_t i = 0; i < HB_WORKER_LANES; i++)
		if (worker->lanes[i].state != LANE_FREE)
			return;
	worker->expected_ns = now_ns;
	atomic_fetch_add_explicit(&worker->memory.page->expected, 1, memory_order_release);
	ring_bell(worker);
}

/* One that the worker does not have yet ends here; of the others it is told, and ends them when it will. */
static void cancel(void *self, int64_t now_ns, uint32_t slot)
{
	struct worker *worker = self;
	for (uint32_t i = 0; i < HB_WORKER_LANES; i++) {
		if (worker->lanes[i].slot != slot)
			continue;
		if (worker->lanes[i].state == LANE_WAITS)
			end_lane(worker, i, false);
		else if (worker->lanes[i].state == LANE_SUBMITTED)
			atomic_store(&shared_lane(worker, i)->unwanted, 1);
	}
	ring_bell(worker); /* one that sleeps beside its batch */
}

static void hold(void *self, int64_t now_ns, uint32_t slot, bool held)
{
	const struct worker *worker = self;
	for (uint32_t i = 0; i < HB_WORKER_LANES; i++)
		if (worker->lanes[i].state != LANE_FREE && worker->lanes[i].slot == slot)
			atomic_store(&shared_lane(worker, i)->hold, held ? HB_WORKER_HELD : HB_WORKER_GOES_ON);
}

static int64_t next_ns(void *self)
{
	const struct worker *worker = self;
	int64_t next = worker->restart_ns, ready = worker->started_ns + worker->config.start_limit_ns + 1;
	if (worker->killed)
		return worker->state == HB_MODEL_FAILED ? INT64_MAX : worker->killed_ns + END_LIMIT_NS + 1;
	if (worker->process.pid && !worker->ready && ready < next)
		next = ready;
	for (uint32_t i = 0; i < HB_WORKER_LANES; i++) {
		int64_t limit = worker->lanes[i].since_ns + worker->config.limit_ns + 1;
		if (worker->lanes[i].state == LANE_SUBMITTED && limit < next)
			next = limit;
	}
	return next;
}

static int descriptor(void *self)
{
	return ((const struct worker *)self)->epoll;
}

static uint32_t models(void *self)
{
	return 1;
}

static int describe(void *self, uint32_t model, struct hb_scheduler_model *out)
{
	const struct hb_model_config *config = &((struct worker *)self)->config;
	out->slots = 1; /* a worker takes one after another */
	out->room_bytes = hb_worker_room_bytes(config);
	out->in_bytes = (double)config->transfer_bytes[0];
	out->out_bytes = (double)config->transfer_bytes[1];
	return 0; /* model.yaml has said what else is known */
}

static void close_fd(int fd)
{
	if (fd >= 0)
		close(fd);
}

static void close_worker(void *self)
{
	struct worker *worker = self;
	hb_worker_process_leave(&worker->process);
	hb_worker_memory_fini(&worker->memory);
	close_fd(worker->submitted_bell);
	close_fd(worker->completed_bell);
	close_fd(worker->epoll);
	free(worker);
}

static const struct hb_scheduler_provider_ops ops = {
	.name = "worker",
	.models = models,
	.model = describe,
	.start = start,
	.expect = expect,
	.cancel = cancel,
	.hold = hold,
	.poll = poll_worker,
	.next_ns = next_ns,
	.descriptor = descriptor,
	.close = close_worker,
};

/*
 * The process is started by the first poll(): it ends with the thread that forked it (PR_SET_PDEATHSIG), and a thread that
 * only loads a model is short-lived.
 */
static int open_worker(const struct hb_model_config *config, struct hb_backend_shared *shared, struct hb_backend *out,
		       struct hb_error *error)
{
	struct worker *worker = calloc(1, sizeof(*worker));
	if (!worker)
		return hb_error_set(error, -ENOMEM, "model %s: out of memory", config->name);
	worker->config = *config;
	worker->gpu = (enum hb_worker_gpu)shared->gpu;
	worker->state = HB_MODEL_LOADING;
	worker->memory.fd = worker->submitted_bell = worker->completed_bell = worker->epoll = worker->process.pidfd =
		-1;
	int result = hb_worker_memory_init(config, &worker->memory, error);
	if (result == 0)
		result = make_bells(worker, error);
	if (result < 0) {
		close_worker(worker);
		return result;
	}
	*out = (struct hb_backend){.ops = &ops, .self = worker, .state = &worker->state, .why = worker->why};
	return 0;
}

const struct hb_platform hb_backend_worker = {.name = "worker", .open = open_worker};
