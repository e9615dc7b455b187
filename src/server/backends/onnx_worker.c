/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hb-onnx-worker FILE [LIBRARY]: a worker (worker_ring.h) that runs an ONNX model
 * in ONNX Runtime. Like every worker it is a process of its own: under `hb run` it
 * has the model's priority on the GPU, and a crash costs one batch. Started by
 * backend_onnx.c in the model's folder; users do not start it.
 */
#include "base/log.h"
#include "server/backends/cuda_context.h"
#include "server/backends/onnx_runtime.h"
#include "server/backends/worker_ring.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define PAGE_BYTES 4096

struct onnx_session {
	struct hb_worker_page *page;
	int submitted_doorbell, completed_doorbell;
	uint32_t taken;
	struct hb_onnx *onnx;
	char names[2][HB_TENSORS_MAX][HB_TENSOR_NAME_MAX];
	struct hb_onnx_tensor inputs[HB_TENSORS_MAX], outputs[HB_TENSORS_MAX];
	uint32_t n_inputs, n_outputs;
	pthread_mutex_t lock;
	struct hb_worker_lane *running; /* lane of the running batch; protected by `lock` */
};

static struct hb_worker_lane *find_lane(const struct onnx_session *session, uint32_t lane)
{
	return (struct hb_worker_lane *)((char *)session->page + PAGE_BYTES + lane * session->page->lane_bytes);
}

/* Reads lines of "TYPE name" from an environment variable. Returns their number, or -EINVAL. */
static int read_tensors(const char *variable, char names[][HB_TENSOR_NAME_MAX], struct hb_onnx_tensor *out)
{
	const char *at = getenv(variable);
	char type[16];
	int n = 0;
	for (; at && *at && n < HB_TENSORS_MAX; n++) {
		size_t length = strcspn(at, "\n");
		const char *space = strchr(at, ' ');
		if (!space || (size_t)(space - at) >= sizeof(type) ||
		    length - (size_t)(space - at) > HB_TENSOR_NAME_MAX)
			return -EINVAL;
		snprintf(type, sizeof(type), "%.*s", (int)(space - at), at);
		snprintf(names[n], HB_TENSOR_NAME_MAX, "%.*s", (int)(at + length - space - 1), space + 1);
		out[n] = (struct hb_onnx_tensor){.name = names[n], .dtype = hb_dtype_parse(type)};
		if (out[n].dtype == HB_DTYPES)
			return -EINVAL;
		at += length + (at[length] == '\n');
	}
	return n ? n : -EINVAL;
}

/* Reads a line of dimensions for each tensor. Returns 0 or -EINVAL. */
static int read_shapes(const char **at, struct hb_onnx_tensor *tensors, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		for (; **at && **at != '\n'; *at += strspn(*at, " ")) {
			char *end;
			if (tensors[i].n_dims == HB_TENSOR_DIMS_MAX)
				return -EINVAL;
			tensors[i].dims[tensors[i].n_dims++] = strtoll(*at, &end, 10);
			if (end == *at)
				return -EINVAL;
			*at = end;
		}
		if (*(*at)++ != '\n')
			return -EINVAL;
	}
	return 0;
}

/* Maps the server's memory. -EINVAL: the process was not started by hb serve, or by another version of it. */
static int attach_memory(struct onnx_session *session)
{
	struct stat status;
	int memory;
	const char *fds = getenv("HB_WORKER_FDS"), *shapes = getenv("HB_WORKER_SHAPES");
	int n_inputs = read_tensors("HB_WORKER_INPUTS", session->names[0], session->inputs);
	int n_outputs = read_tensors("HB_WORKER_OUTPUTS", session->names[1], session->outputs);
	if (!fds || !shapes || n_inputs < 0 || n_outputs < 0 ||
	    read_shapes(&shapes, session->inputs, (uint32_t)n_inputs) < 0 ||
	    read_shapes(&shapes, session->outputs, (uint32_t)n_outputs) < 0 ||
	    sscanf(fds, "%d,%d,%d", &memory, &session->submitted_doorbell, &session->completed_doorbell) !=
		    3 || /* NOLINT(cert-err34-c) */
	    fstat(memory, &status) < 0)
		return -EINVAL;
	void *page = mmap(NULL, (size_t)status.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
	if (page == MAP_FAILED)
		return -EINVAL;
	session->page = page;
	session->n_inputs = (uint32_t)n_inputs;
	session->n_outputs = (uint32_t)n_outputs;
	return session->page->magic == HB_WORKER_MAGIC && session->page->version == HB_WORKER_VERSION ? 0 : -EINVAL;
}

static void set_error(struct hb_worker_lane *lane, const char *text)
{
	snprintf(lane->error, sizeof(lane->error), "%.*s", (int)sizeof(lane->error) - 1, text);
}

static void ring_server(const struct onnx_session *session)
{
	while (eventfd_write(session->completed_doorbell, 1) != 0 && errno == EINTR)
		;
}

static int run_lane(struct onnx_session *session, struct hb_worker_lane *lane, struct hb_error *error)
{
	uint64_t at = 0;
	char *in = (char *)lane + session->page->in_offset, *out = (char *)lane + session->page->out_offset;
	for (uint32_t i = 0; i < session->n_inputs; i++) {
		const struct hb_worker_tensor *given = &lane->inputs[i];
		session->inputs[i].data = in + given->offset;
		session->inputs[i].bytes = given->bytes;
		session->inputs[i].n_dims = given->n_dims;
		memcpy(session->inputs[i].dims, given->dims, sizeof(given->dims));
	}
	int result = hb_onnx_run(session->onnx, session->inputs, session->n_inputs, session->outputs,
				 session->n_outputs, error);
	for (uint32_t i = 0; i < session->n_outputs && result == 0; i++) {
		const struct hb_onnx_tensor *tensor = &session->outputs[i];
		if (at > session->page->out_bytes || tensor->bytes > session->page->out_bytes - at)
			return hb_error_set(error, -E2BIG,
					    "output %s: %llu bytes are more than `room` in model.yaml allows",
					    tensor->name, (unsigned long long)tensor->bytes);
		if (tensor->bytes)
			memcpy(out + at, tensor->data, tensor->bytes);
		lane->outputs[i] = (struct hb_worker_tensor){
			.offset = at, .bytes = tensor->bytes, .n_dims = tensor->n_dims};
		memcpy(lane->outputs[i].dims, tensor->dims, sizeof(tensor->dims));
		at += (tensor->bytes + 63) & ~UINT64_C(63);
	}
	return result;
}

/* ---- batches whose clients have gone ---- */

static void set_running(struct onnx_session *session, struct hb_worker_lane *lane)
{
	pthread_mutex_lock(&session->lock);
	session->running = lane;
	hb_onnx_stop(session->onnx, false);
	pthread_mutex_unlock(&session->lock);
}

/*
 * Thread: stops the running batch when the server marks it as unwanted and rings. Every ring wakes this thread because the
 * epoll is edge-triggered; the eventfd's counter is left for serve_batches().
 */
static void *watch_for_unwanted(void *argument)
{
	struct onnx_session *session = argument;
	struct epoll_event event = {.events = EPOLLIN | EPOLLET};
	int epoll = epoll_create1(EPOLL_CLOEXEC);
	if (epoll < 0 || epoll_ctl(epoll, EPOLL_CTL_ADD, session->submitted_doorbell, &event) < 0)
		return NULL; /* unwanted batches then run to their end */
	for (;;) {
		if (epoll_wait(epoll, &event, 1, -1) < 0 && errno != EINTR)
			return NULL;
		pthread_mutex_lock(&session->lock);
		if (session->running && atomic_load(&session->running->unwanted))
			hb_onnx_stop(session->onnx, true);
		pthread_mutex_unlock(&session->lock);
	}
}

/* ---- serving ---- */

/* Runs a batch. Returns 0, or the error of the GPU after which no batch can succeed in this process. */
static int run_batch(struct onnx_session *session, uint32_t number)
{
	int broken = 0;
	struct hb_worker_lane *lane = find_lane(session, number);
	struct hb_worker_ring *completed = &session->page->completed;
	struct hb_error error = {.text = ""};
	atomic_store(&lane->stage, HB_WORKER_COPY_IN);
	set_running(session, lane);
	if (atomic_load(&lane->unwanted))
		hb_error_set(&error, -ECANCELED, "all clients of the batch have gone");
	if (error.text[0] || run_lane(session, lane, &error) < 0) {
		set_error(lane, error.text);
		lane->status = HB_WORKER_ERROR;
		broken = hb_cuda_context_error();
	}
	set_running(session, NULL);
	uint32_t head = atomic_load_explicit(&completed->head, memory_order_relaxed);
	completed->lanes[head % HB_WORKER_RING] = number;
	atomic_store_explicit(&completed->head, head + 1, memory_order_release);
	ring_server(session);
	return broken;
}

/* Returns the exit status. */
static int serve_batches(struct onnx_session *session)
{
	struct hb_worker_ring *submitted = &session->page->submitted;
	eventfd_t value;
	for (;;) {
		while (atomic_load_explicit(&submitted->head, memory_order_acquire) == session->taken)
			if (eventfd_read(session->submitted_doorbell, &value) != 0 && errno != EINTR)
				return 0;
		int broken = run_batch(session, submitted->lanes[session->taken++ % HB_WORKER_RING]);
		if (broken) {
			hb_log_error("the CUDA context is broken (CUDA error %d)", broken);
			return HB_WORKER_EXIT_BROKEN;
		}
	}
}

/* Reports to the server why the model can never run, so that it does not start another worker. */
static int report_unable(struct onnx_session *session, const char *why)
{
	hb_log_error("%s", why);
	set_error(find_lane(session, 0), why);
	atomic_store(&session->page->ready, HB_WORKER_UNABLE);
	ring_server(session);
	return 1;
}

int main(int argc, char **argv)
{
	static struct onnx_session session = {.lock = PTHREAD_MUTEX_INITIALIZER};
	pthread_t watcher;
	struct hb_error error = {.text = ""};
	hb_log_name_set("hb-onnx-worker");
	if (argc < 2 || attach_memory(&session) < 0) {
		hb_log_error("must be started by hb serve (platform: onnxruntime)");
		return 2;
	}
	int result = hb_onnx_open(argc > 2 ? argv[2] : "", argv[1], &session.onnx, &error);
	if (result == 0)
		result = hb_onnx_check(session.onnx, session.inputs, session.n_inputs, session.outputs,
				       session.n_outputs, &error);
	if (result < 0)
		return report_unable(&session, error.text);
	if (pthread_create(&watcher, NULL, watch_for_unwanted, &session) == 0)
		pthread_detach(watcher);
	atomic_store(&session.page->ready, HB_WORKER_READY);
	ring_server(&session);
	_exit(serve_batches(&session)); /* nothing is freed: the watcher thread still uses it */
}
