/* SPDX-License-Identifier: Apache-2.0 */
/* Listens to faults of the GPUs; see gpu_events.h. */
#include "daemon/gpu_events.h"

#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "base/uuid.h"
#include "daemon/daemon.h"
#include "daemon/status_tenant.h"
#include "gpu/provider.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#define WAIT_MS 500   /* the longest that the end of the daemon waits for a driver that answers */
#define RETRY_MS 5000 /* after the driver has refused to report faults */
#define QUEUE_MAX 64  /* faults that the loop has not read yet; later ones are lost */
#define XID_LOST 79

struct hb_gpu_events {
	struct hb_daemon *daemon;
	const struct hb_provider *provider;
	uv_thread_t thread;
	uv_async_t news; /* sent by the thread: events, another reason, or its end */
	int stop_fd;     /* readable = the thread is to end */
	bool is_running, is_closing;
	struct hb_log_limit limit; /* programs can cause faults, and must not fill the log */
	uv_mutex_t mutex;          /* protects what follows */
	unsigned char uuids[HB_GPUS_MAX][HB_UUID_BYTES];
	uint32_t n_uuids;
	struct hb_gpu_event queue[QUEUE_MAX];
	uint32_t n_queued;
	char why[HB_GPU_WHY_MAX]; /* why no faults are reported; "" = they are */
	bool has_ended;
};

/* --- on the thread --------------------------------------------------------------------------- */

static bool is_stopped(const struct hb_gpu_events *events, int timeout_ms)
{
	struct pollfd end = {.fd = events->stop_fd, .events = POLLIN};
	return poll(&end, 1, timeout_ms) > 0;
}

static void report(struct hb_gpu_events *events, int result, const struct hb_gpu_event *event, const char *why)
{
	uv_mutex_lock(&events->mutex);
	bool is_news = result > 0 || strcmp(events->why, why) != 0;
	strcpy(events->why, why);
	if (result > 0 && events->n_queued < QUEUE_MAX)
		events->queue[events->n_queued++] = *event;
	uv_mutex_unlock(&events->mutex);
	if (is_news)
		uv_async_send(&events->news);
}

static void listen_to_driver(void *argument)
{
	struct hb_gpu_events *events = argument;
	unsigned char uuids[HB_GPUS_MAX][HB_UUID_BYTES];
	while (!is_stopped(events, 0)) {
		struct hb_gpu_event event;
		char why[HB_GPU_WHY_MAX] = "";
		uv_mutex_lock(&events->mutex);
		uint32_t n = events->n_uuids;
		memcpy(uuids, events->uuids, sizeof uuids);
		uv_mutex_unlock(&events->mutex);
		int result = events->provider->gpu_event((const unsigned char(*)[16])uuids, n, events->stop_fd, WAIT_MS,
							 &event, why);
		report(events, result, &event, why);
		if (result < 0)
			is_stopped(events, RETRY_MS);
	}
	uv_mutex_lock(&events->mutex);
	events->has_ended = true;
	uv_mutex_unlock(&events->mutex);
	uv_async_send(&events->news);
}

/* --- in the loop -------------------------------------------------------------------------------- */

static void free_events(uv_handle_t *handle)
{
	struct hb_gpu_events *events = handle->data;
	close(events->stop_fd);
	uv_mutex_destroy(&events->mutex);
	free(events);
}

void hb_gpu_events_free(struct hb_gpu_events *events)
{
	if (!events)
		return;
	events->is_closing = true;
	if (events->is_running)
		eventfd_write(events->stop_fd, 1); /* freed when the thread has ended */
	else
		uv_close((uv_handle_t *)&events->news, free_events);
}

static void end_thread(struct hb_gpu_events *events)
{
	uv_thread_join(&events->thread);
	events->is_running = false;
	events->daemon->driver_threads--;
	if (events->is_closing)
		uv_close((uv_handle_t *)&events->news, free_events);
}

static struct hb_tenancy *find_tenancy(const struct hb_daemon *daemon, pid_t pid)
{
	for (uint32_t i = 0; pid && i < HB_TENANCIES_MAX; i++) {
		struct hb_tenancy *tenancy = daemon->tenancies[i];
		if (tenancy && hb_tenancy_has_process(tenancy, pid))
			return tenancy;
	}
	return NULL;
}

/* The gates of a lost GPU are open, whatever its core decided; see hb_gpu_apply(). */
static void set_lost(struct hb_gpu *gpu, bool is_lost)
{
	gpu->is_lost = is_lost;
	for (uint32_t i = 0; i < gpu->tenants_end; i++)
		gpu->tenants[i].gate_changed |= gpu->tenants[i].is_present;
	hb_daemon_wake(gpu->daemon);
}

static void log_fault(struct hb_gpu_events *events, const struct hb_gpu *gpu, const struct hb_gpu_fault *fault)
{
	char uuid[HB_UUID_TEXT_SIZE], what[160], process[64] = "", tenant[128] = "";
	uint64_t unsaid;
	if (!hb_log_limit_pass(&events->limit, hb_clock_now_ns(), &unsaid))
		return;
	if (unsaid)
		hb_log_warning("%llu more faults of GPUs were reported since the last one in this log",
			       (unsigned long long)unsaid);
	if (fault->event.pid)
		snprintf(process, sizeof process, ", process %d (%s)", (int)fault->event.pid, fault->event.process);
	else if (fault->event.process[0])
		snprintf(process, sizeof process, ", %s", fault->event.process);
	if (fault->tenant)
		snprintf(tenant, sizeof tenant, ", tenant %u of user %s", fault->tenant, fault->user);
	hb_log_error("%s: %s%s%s", hb_uuid_format(gpu->uuid, uuid), hb_gpu_event_text(&fault->event, what, sizeof what),
		     process, tenant);
}

static void take_event(struct hb_gpu_events *events, const struct hb_gpu_event *event)
{
	struct hb_gpu *gpu = hb_gpu_find(events->daemon, event->uuid);
	if (!gpu)
		return;
	struct hb_gpu_fault *fault = gpu->fault ? gpu->fault : calloc(1, sizeof *fault);
	if (!fault)
		return;
	const struct hb_tenancy *tenancy = find_tenancy(events->daemon, event->pid);
	*fault = (struct hb_gpu_fault){
		.event = *event, .at_ns = hb_clock_now_ns(), .wall_s = (int64_t)time(NULL), .count = fault->count + 1};
	if (tenancy && tenancy->flags & HB_REGISTER_MPS) {
		/* The driver names one of the clients, and seldom the one that caused the fault (docs/daemon.md). */
		fault->event.pid = 0;
		strcpy(fault->event.process, "a client of the MPS server");
	} else if (tenancy) {
		fault->tenant = tenancy->number;
		snprintf(fault->user, sizeof fault->user, "%s", tenancy->peer.user);
	}
	gpu->fault = fault;
	if (event->kind == HB_GPU_EVENT_LOST || (event->kind == HB_GPU_EVENT_XID && event->xid == XID_LOST))
		set_lost(gpu, true);
	log_fault(events, gpu, fault);
}

static void take_news(uv_async_t *news)
{
	struct hb_gpu_events *events = news->data;
	struct hb_gpu_event queue[QUEUE_MAX];
	char why[HB_GPU_WHY_MAX];
	uv_mutex_lock(&events->mutex);
	uint32_t n = events->n_queued;
	memcpy(queue, events->queue, sizeof *queue * n);
	events->n_queued = 0;
	strcpy(why, events->why);
	bool has_ended = events->has_ended;
	uv_mutex_unlock(&events->mutex);
	for (uint32_t i = 0; !events->is_closing && i < n; i++)
		take_event(events, &queue[i]);
	if (!events->is_closing)
		strcpy(events->daemon->gpu_events_why, why);
	if (has_ended)
		end_thread(events);
}

int hb_gpu_events_new(struct hb_daemon *daemon, struct hb_gpu_events **events)
{
	struct hb_gpu_events *made = calloc(1, sizeof *made);
	if (!made)
		return -ENOMEM;
	made->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	int result = made->stop_fd < 0 ? -errno : uv_mutex_init(&made->mutex);
	if (result == 0) {
		result = uv_async_init(&daemon->loop, &made->news, take_news);
		if (result < 0)
			uv_mutex_destroy(&made->mutex);
	}
	if (result < 0) {
		if (made->stop_fd >= 0)
			close(made->stop_fd);
		free(made);
		return result;
	}
	made->daemon = daemon;
	made->provider = hb_provider_of(daemon->options.simulated);
	made->limit.period_ns = HB_NS_PER_S;
	made->news.data = made;
	*events = made;
	return 0;
}

void hb_gpu_events_tick(struct hb_gpu_events *events)
{
	struct hb_daemon *daemon = events->daemon;
	if (!daemon->n_gpus)
		return;
	uv_mutex_lock(&events->mutex);
	events->n_uuids = daemon->n_gpus;
	for (uint32_t i = 0; i < daemon->n_gpus; i++)
		memcpy(events->uuids[i], daemon->gpus[i]->uuid, HB_UUID_BYTES);
	uv_mutex_unlock(&events->mutex);
	if (events->is_running || uv_thread_create(&events->thread, listen_to_driver, events) != 0)
		return;
	events->is_running = true;
	daemon->driver_threads++;
}

/* --- reading the marks ----------------------------------------------------------------------------- */

const struct hb_gpu_fault *hb_gpu_last_event(const struct hb_gpu *gpu)
{
	return gpu->fault;
}

static const char *find_xid_text(uint32_t xid)
{
	switch (xid) {
#define HB_XID(number, text) \
	case number: \
		return text;
#include "nvidia/xid.def"
	default:
		return "see NVIDIA's list of Xid errors";
	}
}

const char *hb_gpu_event_text(const struct hb_gpu_event *event, char *text, size_t size)
{
	if (event->kind == HB_GPU_EVENT_XID)
		snprintf(text, size, "Xid %u (%s)", event->xid, find_xid_text(event->xid));
	else
		snprintf(text, size, "%s",
			 event->kind == HB_GPU_EVENT_ECC ? "an error of the GPU's memory could not be corrected"
							 : "the GPU is lost: it does not answer the driver");
	return text;
}

void hb_gpu_note_answer(struct hb_gpu *gpu, bool is_lost, int64_t asked_ns)
{
	char uuid[HB_UUID_TEXT_SIZE];
	bool is_old = gpu->fault && asked_ns < gpu->fault->at_ns;
	if (is_lost == gpu->is_lost || is_old)
		return;
	set_lost(gpu, is_lost);
	if (is_lost)
		hb_log_error("%s: the GPU is lost: it does not answer the driver", hb_uuid_format(gpu->uuid, uuid));
	else
		hb_log_warning("%s: the GPU answers again", hb_uuid_format(gpu->uuid, uuid));
}

int hb_gpu_check_lost(const struct hb_gpu *gpu, struct hb_error *error)
{
	char uuid[HB_UUID_TEXT_SIZE];
	return gpu->is_lost ? hb_error_set(error, -ENODEV,
					   "%s is lost: it does not answer the driver; Hummingbird does not schedule "
					   "new programs on it until it was reset (nvidia-smi --gpu-reset) or the "
					   "machine was restarted",
					   hb_uuid_format(gpu->uuid, uuid))
			    : 0;
}

static json_t *fault_json(const struct hb_gpu_fault *fault, int64_t now_ns)
{
	char what[160];
	if (!fault)
		return json_null();
	return json_pack("{s:s, s:i, s:i, s:s, s:i, s:s, s:I, s:I}", "what",
			 hb_gpu_event_text(&fault->event, what, sizeof what), "xid", (int)fault->event.xid, "pid",
			 (int)fault->event.pid, "process", fault->event.process, "tenant", (int)fault->tenant, "user",
			 fault->user, "age_ns", (json_int_t)(now_ns - fault->at_ns), "time", (json_int_t)fault->wall_s);
}

json_t *hb_gpu_health_json(const struct hb_gpu *gpu, int64_t now_ns)
{
	return json_pack("{s:b, s:I, s:o, s:s}", "lost", (int)gpu->is_lost, "faults",
			 (json_int_t)(gpu->fault ? gpu->fault->count : 0), "last", fault_json(gpu->fault, now_ns),
			 "why", gpu->daemon->gpu_events_why);
}
