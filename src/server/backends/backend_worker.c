/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The worker back end: a process of the user runs the model. Batches reach the
 * worker through shared memory (worker_ring.h).
 *
 * When a worker dies, the batch that it had begun fails. Batches that it had not begun stay in their lanes for the next
 * worker. The next worker is started after a pause that doubles with every failure in a row, and not before the old process
 * has ended, because that still owns GPU memory. After some failures in a row the model is not ready until a worker is. A
 * worker is killed when a batch takes longer than the model's limit. If a killed process does not end (its driver hangs), the
 * model fails.
 *
 * No function here blocks: descriptors are checked when poll() is called.
 */
#include "base/clock.h"
#include "base/log.h"
#include "server/backends/backend.h"
#include "server/backends/model_worker.h"
#include "server/models/dispatch.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* Shortest time between two notifications of a worker that a request is arriving. */
#define EXPECT_AGAIN_NS 500000
/* Longest time in which a killed process must end; the kernel releases the memory of the process first. */
#define END_LIMIT_NS (10 * HB_NS_PER_S)

static struct hb_worker_lane *find_shared_lane(const struct model_worker *worker, uint32_t lane)
{
	return hb_worker_memory_lane(&worker->memory, lane);
}

/* ---- doorbells ---- */

static void watch_descriptor(struct model_worker *worker, int fd)
{
	struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
	epoll_ctl(worker->epoll, EPOLL_CTL_ADD, fd, &event);
}

static int make_doorbells(struct model_worker *worker, struct hb_error *error)
{
	worker->submitted_doorbell = eventfd(0, EFD_CLOEXEC);
	worker->completed_doorbell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	worker->epoll = epoll_create1(EPOLL_CLOEXEC);
	if (worker->submitted_doorbell < 0 || worker->completed_doorbell < 0 || worker->epoll < 0)
		return hb_error_set(error, -errno, "model %s: %s", worker->config.name, strerror(errno));
	watch_descriptor(worker, worker->completed_doorbell);
	return 0;
}

/* ---- the process ---- */

static int start_process(struct model_worker *worker, struct hb_error *error)
{
	eventfd_t value;
	const int fds[3] = {worker->memory.fd, worker->submitted_doorbell, worker->completed_doorbell};
	/* Clear the rings and the doorbell, which still have entries for the previous worker. */
	atomic_store(&worker->memory.page->submitted.head, 0);
	atomic_store(&worker->memory.page->completed.head, 0);
	atomic_store(&worker->memory.page->ready, 0);
	worker->taken = 0;
	worker->ready = false;
	worker->killed = NULL;
	while (eventfd_read(worker->completed_doorbell, &value) == 0)
		;
	worker->restart_ns = INT64_MAX;
	hb_restart_pause_note_start(&worker->pause, hb_clock_now_ns());
	int result = hb_worker_process_start(&worker->config, &worker->place, fds, &worker->process, error);
	if (result == 0)
		watch_descriptor(worker, worker->process.pidfd);
	return result;
}

static void add_event(struct model_worker *worker, uint32_t lane, enum hb_scheduler_stage stage, bool complete)
{
	worker->events[worker->n_events++] = (struct hb_scheduler_provider_event){.at_ns = hb_clock_now_ns(),
										  .slot = worker->lanes[lane].slot,
										  .stage = stage,
										  .complete = complete,
										  .loss = worker->lanes[lane].loss};
}

/* Ends a batch; one whose inputs are being copied ends when that is complete, because the copy reads its requests. */
static void end_lane(struct model_worker *worker, uint32_t lane, bool complete)
{
	if (worker->lanes[lane].state == LANE_COPIES_IN) {
		worker->lanes[lane].unwanted = true;
		return;
	}
	add_event(worker, lane, HB_STAGES, complete);
	worker->lanes[lane].state = LANE_FREE;
}

__attribute__((format(printf, 4, 5))) static void fail_lane(struct model_worker *worker, uint32_t lane,
							    enum hb_answer answer, const char *format, ...)
{
	const struct hb_scheduler_batch *batch = &worker->lanes[lane].batch;
	char text[200];
	va_list arguments;
	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	for (uint32_t i = 0; i < batch->n_requests; i++) {
		struct hb_inference *infer = hb_backend_inference(batch->cookies[i]);
		if (!infer->answered)
			hb_inference_fail(infer, answer, "%s", text);
	}
	end_lane(worker, lane, false);
}

/* Fails all batches without results; the model has a state that is not ready, and why_failed says why. */
static void fail_lanes(struct model_worker *worker)
{
	for (uint32_t i = 0; i < HB_WORKER_LANES; i++)
		if (worker->lanes[i].state != LANE_FREE && worker->lanes[i].state != LANE_COPIES_OUT) {
			worker->lanes[i].loss = HB_BATCH_LOST_WAITING;
			fail_lane(worker, i, HB_ANSWER_UNAVAILABLE, "%s", worker->why_failed);
		}
}

static void fail_model(struct model_worker *worker)
{
	worker->state = HB_SERVED_MODEL_FAILED;
	worker->restart_ns = INT64_MAX;
	fail_lanes(worker);
}

static void kill_process(struct model_worker *worker, const char *why, int64_t now_ns)
{
	hb_worker_process_kill(&worker->process);
	worker->killed = why;
	worker->killed_ns = now_ns;
	worker->ready = false;
}

/*
 * Kills the worker and fails the model, because the worker reported that it can never run the model: another start
 * would not help.
 */
static void give_model_up(struct model_worker *worker, int64_t now_ns)
{
	kill_process(worker, "killed, it cannot run the model", now_ns);
	hb_worker_lane_read_error(find_shared_lane(worker, 0), worker->why_failed, sizeof(worker->why_failed));
	hb_log_error("model %s: %s", worker->config.name, worker->why_failed);
	fail_model(worker);
}

/* Fails the batches that the dead worker had begun. The others wait for the next worker. */
static void fail_begun_batches(struct model_worker *worker, const char *how)
{
	for (uint32_t i = 0; i < HB_WORKER_LANES; i++) {
		if (worker->lanes[i].state != LANE_SUBMITTED)
			continue;
		worker->lanes[i].state = LANE_WAITS;
		worker->lanes[i].stage = HB_WORKER_NOT_BEGUN;
		if (atomic_load(&find_shared_lane(worker, i)->stage)) {
			worker->lanes[i].loss = HB_BATCH_LOST_RUNNING;
			fail_lane(worker, i, HB_ANSWER_BROKEN, "the worker of model %s died in this batch: %s",
				  worker->config.name, how);
		}
	}
}

static void note_death(struct model_worker *worker, const char *how, int64_t now_ns)
{
	int64_t pause_ns = hb_restart_pause_note_end(&worker->pause, now_ns);
	fail_begun_batches(worker, how);
	hb_log_warning("model %s: its worker ended: %s", worker->config.name, how);
	worker->ready = false;
	worker->killed = NULL;
	worker->restart_ns = now_ns + pause_ns;
	if (!hb_restart_pause_is_long(&worker->pause)) {
		snprintf(worker->why_failed, sizeof(worker->why_failed), "its worker ended: %.100s", how);
		if (worker->config.replicas > 1)
			fail_lanes(worker); /* other replicas get them */
		return;
	}
	worker->state = HB_SERVED_MODEL_RESTARTING;
	snprintf(worker->why_failed, sizeof(worker->why_failed),
		 "its worker ended %u times: %.100s; it is started again after a pause of %.1f s",
		 worker->pause.failures, how, (double)pause_ns / 1e9);
	fail_lanes(worker);
}

/* Enforces the time limits of a batch, of the start, and of the end of a killed process. */
static void enforce_limits(struct model_worker *worker, int64_t now_ns)
{
	const struct hb_model_config *config = &worker->config;
	bool late = false;
	if (worker->killed && worker->state != HB_SERVED_MODEL_FAILED && now_ns - worker->killed_ns > END_LIMIT_NS) {
		snprintf(worker->why_failed, sizeof(worker->why_failed), "its worker, process %d, does not end: %s",
			 (int)worker->process.pid, worker->killed);
		hb_log_error("model %s: %s", config->name, worker->why_failed);
		fail_model(worker);
	}
	if (worker->killed || !worker->process.pid)
		return;
	for (uint32_t i = 0; i < HB_WORKER_LANES; i++)
		late |= worker->lanes[i].state == LANE_SUBMITTED &&
			now_ns - worker->lanes[i].submitted_ns > config->limit_ns;
	if (late)
		kill_process(worker, "killed, a batch took longer than the model's limit", now_ns);
	else if (!worker->ready && now_ns - worker->pause.started_ns > config->start_limit_ns)
		kill_process(worker, "killed, it was not ready within the model's start_limit", now_ns);
	if (worker->killed)
		fail_begun_batches(worker, worker->killed);
}

static void update_process(struct model_worker *worker, int64_t now_ns)
{
	struct hb_error error = {.text = ""};
	char how[96];
	if (hb_worker_process_ended(&worker->process, how, sizeof(how)) && worker->state != HB_SERVED_MODEL_FAILED)
		note_death(worker, worker->killed ? worker->killed : how, now_ns);
	if (now_ns >= worker->restart_ns && start_process(worker, &error) < 0)
		note_death(worker, error.text, now_ns);
	enforce_limits(worker, now_ns);
}

/* ---- batches to the worker ---- */

/*
 * Rings the worker's doorbell without blocking. An eventfd write blocks when the counter is full, which only the worker
 * itself can cause. Accepted race: the worker may fill the counter between poll() and the write.
 */
static void ring_worker(const struct model_worker *worker)
{
	struct pollfd doorbell = {.fd = worker->submitted_doorbell, .events = POLLOUT};
	if (poll(&doorbell, 1, 0) == 1 && (doorbell.revents & POLLOUT))
		eventfd_write(worker->submitted_doorbell, 1);
}

static void submit_waiting(struct model_worker *worker, int64_t now_ns)
{
	bool any = false;
	for (uint32_t i = 0; i < HB_WORKER_LANES && worker->ready; i++) {
		struct hb_worker_ring *ring = &worker->memory.page->submitted;
		uint32_t head = atomic_load_explicit(&ring->head, memory_order_relaxed);
		if (worker->lanes[i].state != LANE_WAITS)
			continue;
		atomic_store(&find_shared_lane(worker, i)->stage, HB_WORKER_NOT_BEGUN);
		ring->lanes[head % HB_WORKER_RING] = i;
		atomic_store_explicit(&ring->head, head + 1, memory_order_release);
		worker->lanes[i].state = LANE_SUBMITTED;
		worker->lanes[i].submitted_ns = now_ns;
		any = true;
	}
	if (any)
		ring_worker(worker);
}

static void finish_copy(struct model_worker *worker, uint32_t index)
{
	struct worker_lane *lane = &worker->lanes[index];
	if (lane->state == LANE_COPIES_IN) {
		lane->state = LANE_WAITS;
		if (lane->unwanted)
			end_lane(worker, index, false);
		return;
	}
	hb_lane_copy_note_failures(&worker->copies[index]);
	worker->pause.completed = true;
	end_lane(worker, index, true);
}

static void finish_copies(struct model_worker *worker)
{
	for (uint32_t i = 0; i < HB_WORKER_LANES; i++)
		if ((worker->lanes[i].state == LANE_COPIES_IN || worker->lanes[i].state == LANE_COPIES_OUT) &&
		    atomic_load(&worker->copies[i].done))
			finish_copy(worker, i);
}

static int refuse_batch(const struct hb_scheduler_batch *batch, enum hb_answer answer, const char *why)
{
	for (uint32_t i = 0; i < batch->n_requests; i++)
		hb_inference_fail(hb_backend_inference(batch->cookies[i]), answer, "%s", why);
	return -EIO;
}

static int refuse_large(const struct model_worker *worker, const struct hb_scheduler_batch *batch, uint32_t input)
{
	char why[256];
	snprintf(why, sizeof(why), "input \"%.64s\" does not fit: send less, or raise \"room\" in model.yaml",
		 worker->config.inputs[input].name);
	return refuse_batch(batch, HB_ANSWER_TOO_LARGE, why);
}

static int start_batch(void *self, int64_t now_ns, uint32_t slot, uint32_t model,
		       const struct hb_scheduler_batch *batch)
{
	struct model_worker *worker = self;
	uint32_t index = 0;
	while (index < HB_WORKER_LANES && worker->lanes[index].state != LANE_FREE)
		index++;
	if (worker->state == HB_SERVED_MODEL_FAILED || worker->state == HB_SERVED_MODEL_RESTARTING)
		return refuse_batch(batch, HB_ANSWER_UNAVAILABLE, worker->why_failed);
	if (index == HB_WORKER_LANES)
		return -EBUSY;
	struct hb_worker_lane *lane = find_shared_lane(worker, index);
	struct hb_lane_copy *copy = &worker->copies[index];
	uint32_t input = hb_lane_copy_place_inputs(copy, batch);
	if (input < worker->config.n_inputs)
		return refuse_large(worker, batch, input);
	lane->items = batch->items;
	lane->priority = batch->priority;
	lane->status = HB_WORKER_OK;
	atomic_store(&lane->pause, batch->can_pause ? HB_WORKER_NOT_PAUSED : HB_WORKER_NEVER_PAUSED);
	lane->error[0] = '\0';
	lane->dropped = 0;
	atomic_store(&lane->unwanted, 0);
	lane->deadline_ns = batch->deadline_ns;
	worker->lanes[index] = (struct worker_lane){.state = LANE_COPIES_IN, .slot = slot, .batch = *batch};
	hb_lane_copy_begin(copy, &worker->lanes[index].batch, worker->copier);
	if (atomic_load(&copy->done))
		finish_copy(worker, index);
	submit_waiting(worker, now_ns);
	return 0;
}

/* ---- results from the worker ---- */

static void complete_lane(struct model_worker *worker, uint32_t index)
{
	struct worker_lane *lane = &worker->lanes[index];
	const struct hb_worker_lane *shared = find_shared_lane(worker, index);
	struct hb_lane_copy *copy = &worker->copies[index];
	if (shared->status != HB_WORKER_OK) {
		char said[151];
		hb_worker_lane_read_error(shared, said, sizeof(said));
		fail_lane(worker, index, HB_ANSWER_BROKEN, "model %s: %s", worker->config.name, said);
		return;
	}
	uint32_t output = hb_lane_copy_place_outputs(copy, lane->batch.items);
	if (output < worker->config.n_outputs) {
		fail_lane(worker, index, HB_ANSWER_BROKEN,
			  "model %s: its worker gave output \"%s\" in another shape than model.yaml has",
			  worker->config.name, worker->config.outputs[output].name);
		return;
	}
	lane->state = LANE_COPIES_OUT;
	hb_lane_copy_begin(copy, &lane->batch, worker->copier);
	if (atomic_load(&copy->done))
		finish_copy(worker, index);
}

static void take_completed(struct model_worker *worker)
{
	struct hb_worker_ring *ring = &worker->memory.page->completed;
	uint32_t head = atomic_load_explicit(&ring->head, memory_order_acquire);
	if (head - worker->taken > HB_WORKER_LANES)
		return; /* impossible count: the worker corrupted the ring */
	for (uint32_t n = 0; worker->taken != head && n < HB_WORKER_RING; n++) {
		uint32_t index = ring->lanes[worker->taken++ % HB_WORKER_RING];
		if (index < HB_WORKER_LANES && worker->lanes[index].state == LANE_SUBMITTED)
			complete_lane(worker, index);
	}
}

/* Reports the stages that batches have entered since the last call. */
static void report_stages(struct model_worker *worker)
{
	for (uint32_t i = 0; i < HB_WORKER_LANES; i++) {
		struct worker_lane *lane = &worker->lanes[i];
		if (lane->state != LANE_SUBMITTED)
			continue;
		uint32_t stage = atomic_load_explicit(&find_shared_lane(worker, i)->stage, memory_order_acquire);
		for (; lane->stage < stage && lane->stage < HB_WORKER_COPY_OUT; lane->stage++)
			if (lane->stage == HB_WORKER_COPY_IN)
				add_event(worker, i, HB_STAGE_RUN, false);
			else if (lane->stage == HB_WORKER_RUN)
				add_event(worker, i, HB_STAGE_OUT, false);
	}
}

static void update_worker(struct model_worker *worker, int64_t now_ns)
{
	struct epoll_event events[4];
	eventfd_t value;
	int n = epoll_wait(worker->epoll, events, 4, 0);
	for (int i = 0; i < n; i++)
		if (events[i].data.fd == worker->completed_doorbell)
			eventfd_read(worker->completed_doorbell, &value);
	bool starting = worker->process.pid && !worker->ready && !worker->killed;
	uint32_t ready = starting ? atomic_load(&worker->memory.page->ready) : HB_WORKER_STARTING;
	if (ready == HB_WORKER_READY) {
		worker->ready = true;
		worker->state = HB_SERVED_MODEL_READY;
	} else if (ready == HB_WORKER_UNABLE) {
		give_model_up(worker, now_ns);
	}
	report_stages(worker);
	take_completed(worker); /* must precede update_process(): batches that were completed before a death count */
	update_process(worker, now_ns);
	finish_copies(worker); /* must follow update_process(), which may clear the doorbell */
	submit_waiting(worker, now_ns);
}

static bool poll_worker(void *self, int64_t now_ns, struct hb_scheduler_provider_event *event)
{
	struct model_worker *worker = self;
	if (worker->given == worker->n_events) {
		worker->given = worker->n_events = 0;
		update_worker(worker, now_ns);
	}
	if (worker->given == worker->n_events)
		return false;
	*event = worker->events[worker->given++];
	return true;
}

/*
 * Notifies an idle high-priority worker that a request is arriving. The worker calls hummingbird.hint(), so that the GPU is
 * taken over while the request is still being read, parsed and batched.
 */
static void expect_request(void *self, int64_t now_ns)
{
	struct model_worker *worker = self;
	if (worker->config.priority != HB_SCHEDULER_HIGH || !worker->ready ||
	    now_ns - worker->expected_ns < EXPECT_AGAIN_NS)
		return;
	for (uint32_t i = 0; i < HB_WORKER_LANES; i++)
		if (worker->lanes[i].state != LANE_FREE)
			return;
	worker->expected_ns = now_ns;
	atomic_fetch_add_explicit(&worker->memory.page->expected, 1, memory_order_release);
	ring_worker(worker);
}

/*
 * Cancels a batch. If it was not submitted yet, it ends at once. Otherwise the worker is notified and may end the batch
 * early.
 */
static void cancel_batch(void *self, int64_t now_ns, uint32_t slot)
{
	struct model_worker *worker = self;
	for (uint32_t i = 0; i < HB_WORKER_LANES; i++) {
		if (worker->lanes[i].slot != slot)
			continue;
		if (worker->lanes[i].state == LANE_COPIES_IN || worker->lanes[i].state == LANE_WAITS)
			end_lane(worker, i, false);
		else if (worker->lanes[i].state == LANE_SUBMITTED)
			atomic_store(&find_shared_lane(worker, i)->unwanted, 1);
	}
	ring_worker(worker); /* the worker may sleep while its batch runs */
}

static void pause_batch(void *self, int64_t now_ns, uint32_t slot, bool paused)
{
	const struct model_worker *worker = self;
	for (uint32_t i = 0; i < HB_WORKER_LANES; i++)
		if (worker->lanes[i].state != LANE_FREE && worker->lanes[i].slot == slot)
			atomic_store(&find_shared_lane(worker, i)->pause,
				     paused ? HB_WORKER_PAUSED : HB_WORKER_NOT_PAUSED);
}

static int64_t next_poll_ns(void *self)
{
	const struct model_worker *worker = self;
	int64_t next = worker->restart_ns, ready = worker->pause.started_ns + worker->config.start_limit_ns + 1;
	if (worker->killed)
		return worker->state == HB_SERVED_MODEL_FAILED ? INT64_MAX : worker->killed_ns + END_LIMIT_NS + 1;
	if (worker->process.pid && !worker->ready && ready < next)
		next = ready;
	for (uint32_t i = 0; i < HB_WORKER_LANES; i++) {
		int64_t limit = worker->lanes[i].submitted_ns + worker->config.limit_ns + 1;
		if (worker->lanes[i].state == LANE_SUBMITTED && limit < next)
			next = limit;
	}
	return next;
}

static int poll_descriptor(void *self)
{
	return ((const struct model_worker *)self)->epoll;
}

static uint32_t count_models(void *self)
{
	return 1;
}

static int describe_model(void *self, uint32_t model, struct hb_scheduler_model *out)
{
	const struct hb_model_config *config = &((struct model_worker *)self)->config;
	out->slots = 1; /* a worker runs one batch at a time */
	out->room_bytes = hb_worker_room_bytes(config);
	out->in_bytes = (double)config->transfer_bytes[0];
	out->out_bytes = (double)config->transfer_bytes[1];
	return 0; /* the other values come from model.yaml */
}

static void close_fd(int fd)
{
	if (fd >= 0)
		close(fd);
}

static void close_worker(void *self)
{
	struct model_worker *worker = self;
	hb_job_thread_free(worker->copier);
	hb_worker_process_abandon(&worker->process);
	hb_worker_memory_fini(&worker->memory);
	close_fd(worker->submitted_doorbell);
	close_fd(worker->completed_doorbell);
	close_fd(worker->epoll);
	free(worker);
}

static const struct hb_scheduler_provider_ops ops = {
	.name = "worker",
	.models = count_models,
	.model = describe_model,
	.start = start_batch,
	.expect = expect_request,
	.cancel = cancel_batch,
	.pause = pause_batch,
	.poll = poll_worker,
	.next_ns = next_poll_ns,
	.descriptor = poll_descriptor,
	.close = close_worker,
};

static int prepare_copies(struct model_worker *worker, struct hb_error *error)
{
	for (uint32_t i = 0; i < HB_WORKER_LANES; i++)
		hb_lane_copy_init(&worker->copies[i], &worker->config, &worker->memory, i, worker->completed_doorbell);
	if (worker->memory.lane_bytes > HB_LANE_COPY_AT_ONCE_BYTES && !(worker->copier = hb_job_thread_new()))
		return hb_error_set(error, -EAGAIN, "model %s: no memory or no thread is left", worker->config.name);
	return 0;
}

/*
 * Prepares a worker; the first poll() starts its process. A process ends with the thread that forked it
 * (PR_SET_PDEATHSIG), and the thread that loads a model may end soon.
 */
static int open_worker(const struct hb_model_config *config, struct hb_backend_shared *shared, struct hb_backend *out,
		       struct hb_error *error)
{
	struct model_worker *worker = calloc(1, sizeof(*worker));
	if (!worker)
		return hb_error_set(error, -ENOMEM, "model %s: out of memory", config->name);
	worker->config = *config;
	worker->place = (struct hb_worker_place){.gpu = (enum hb_worker_gpu)shared->gpu,
						 .device = shared->n_gpus > 1 ? (int)shared->index : -1,
						 .sm_percent = shared->sm_percent};
	worker->state = HB_SERVED_MODEL_LOADING;
	worker->memory.fd = worker->submitted_doorbell = worker->completed_doorbell = worker->epoll =
		worker->process.pidfd = -1;
	int result = hb_worker_memory_init(config, &worker->memory, error);
	if (result == 0)
		result = make_doorbells(worker, error);
	if (result == 0)
		result = prepare_copies(worker, error);
	if (result < 0) {
		close_worker(worker);
		return result;
	}
	*out = (struct hb_backend){.ops = &ops,
				   .self = worker,
				   .state = &worker->state,
				   .why_failed = worker->why_failed,
				   .runs = &worker->ready,
				   .restarts = &worker->pause.restarts};
	return 0;
}

const struct hb_platform hb_backend_worker = {.name = "worker", .open = open_worker};
