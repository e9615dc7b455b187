/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Asks the driver for the processes on the GPUs; see gpu_processes.h. The driver
 * may take long, so each question runs on a thread of its own, one at a time,
 * which touches nothing of the daemon but struct hb_gpu_processes. (libuv's
 * thread pool is no alternative: libuv ends the program if it cannot create the
 * pool.) If no thread can be made, the driver is not asked.
 */
#include "daemon/gpu_processes.h"

#include "base/clock.h"
#include "daemon/daemon.h"
#include "daemon/engine_advice.h"
#include "daemon/gpu_events.h"
#include "daemon/gpu_memory.h"
#include "daemon/gpu_slices.h"
#include "daemon/mps_server.h"
#include "gpu/provider.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define POLL_EVERY_NS (5 * HB_NS_PER_S)
/* An answer that is not older than this serves an LP tenant that needs memory. */
#define RECENT_NS (100 * HB_NS_PER_MS)

struct hb_gpu_processes {
	struct hb_daemon *daemon;
	const struct hb_provider *provider;
	void (*answered)(struct hb_daemon *daemon);
	uv_thread_t thread;
	uv_async_t ended; /* sent by the thread when the driver has answered */
	bool is_polling, is_closing;
	bool again;          /* a poll was requested during the present one, which may be too early for it */
	int64_t asked_ns;    /* time of the question under way */
	int64_t answered_ns; /* time of the last answer; 0 = none yet */
	/* Owned by the thread while is_polling: the GPUs to ask about, and the answers. */
	uint32_t n;
	unsigned char uuids[HB_GPUS_MAX][HB_UUID_BYTES];
	struct hb_gpu_use answers[HB_GPUS_MAX];
};

static void free_closed(uv_handle_t *handle)
{
	free(handle->data);
}

void hb_gpu_processes_free(struct hb_gpu_processes *processes)
{
	if (processes && processes->is_polling)
		processes->is_closing = true; /* freed when the thread has ended */
	else if (processes)
		uv_close((uv_handle_t *)&processes->ended, free_closed);
}

/* Runs on the thread. */
static void ask_driver(void *argument)
{
	struct hb_gpu_processes *processes = argument;
	for (uint32_t i = 0; i < processes->n; i++)
		processes->provider->gpu_use(processes->uuids[i], &processes->answers[i]);
	uv_async_send(&processes->ended);
}

static bool start_thread(struct hb_gpu_processes *processes);

static void take_answers(uv_async_t *ended)
{
	struct hb_gpu_processes *processes = ended->data;
	uv_thread_join(&processes->thread);
	processes->is_polling = false;
	processes->daemon->driver_threads--;
	if (processes->is_closing) {
		hb_gpu_processes_free(processes);
		return;
	}
	processes->answered_ns = hb_clock_now_ns();
	for (uint32_t i = 0; i < processes->n; i++) {
		struct hb_gpu *gpu = hb_gpu_find(processes->daemon, processes->uuids[i]);
		if (gpu)
			hb_gpu_note_answer(gpu, processes->answers[i].is_lost, processes->asked_ns);
		if (gpu && !gpu->use)
			gpu->use = malloc(sizeof *gpu->use);
		if (!gpu || !gpu->use)
			continue;
		*gpu->use = processes->answers[i];
		hb_gpu_note_not_managed(gpu);
		hb_gpu_memory_end_sample(gpu, processes->answered_ns);
		hb_engine_advice_update(gpu, processes->answered_ns);
	}
	if (!processes->again || !start_thread(processes))
		processes->answered(processes->daemon);
}

static bool start_thread(struct hb_gpu_processes *processes)
{
	struct hb_daemon *daemon = processes->daemon;
	processes->again = false;
	processes->n = daemon->n_gpus;
	processes->asked_ns = hb_clock_now_ns();
	for (uint32_t i = 0; i < processes->n; i++) {
		memcpy(processes->uuids[i], daemon->gpus[i]->uuid, HB_UUID_BYTES);
		hb_gpu_memory_begin_sample(daemon->gpus[i], processes->asked_ns);
	}
	processes->is_polling = uv_thread_create(&processes->thread, ask_driver, processes) == 0;
	daemon->driver_threads += processes->is_polling;
	return processes->is_polling;
}

int hb_gpu_processes_new(struct hb_daemon *daemon, void (*answered)(struct hb_daemon *daemon),
			 struct hb_gpu_processes **processes)
{
	struct hb_gpu_processes *made = calloc(1, sizeof *made);
	if (!made)
		return -ENOMEM;
	int result = uv_async_init(&daemon->loop, &made->ended, take_answers);
	if (result < 0) {
		free(made);
		return result;
	}
	made->daemon = daemon;
	made->answered = answered;
	made->provider = hb_provider_of(daemon->options.simulated);
	made->ended.data = made;
	*processes = made;
	return 0;
}

bool hb_gpu_processes_poll(struct hb_gpu_processes *processes)
{
	if (!processes)
		return false;
	processes->again |= processes->is_polling;
	return processes->is_polling || (processes->daemon->n_gpus && start_thread(processes));
}

bool hb_gpu_processes_poll_recent(struct hb_gpu_processes *processes, int64_t now_ns)
{
	if (processes->is_polling)
		return true;
	return now_ns - processes->answered_ns > RECENT_NS && hb_gpu_processes_poll(processes);
}

void hb_gpu_processes_tick(struct hb_gpu_processes *processes, int64_t now_ns)
{
	if (processes->daemon->n_tenancies && now_ns - processes->answered_ns > POLL_EVERY_NS)
		hb_gpu_processes_poll(processes);
}

/* --- reading the answers ------------------------------------------------------------------- */

uint64_t hb_gpu_process_bytes(const struct hb_gpu *gpu, pid_t pid)
{
	for (uint32_t i = 0; gpu->use && i < gpu->use->n_users; i++)
		if (gpu->use->users[i].pid == pid)
			return gpu->use->users[i].bytes;
	return HB_GPU_BYTES_UNKNOWN;
}

bool hb_gpu_process_is_covered(const struct hb_daemon *daemon, pid_t pid)
{
	if (pid == hb_mps_server_pid(daemon->mps))
		return true;
	for (uint32_t i = 0; i < HB_TENANCIES_MAX; i++)
		if (daemon->tenancies[i] && hb_tenancy_has_process(daemon->tenancies[i], pid))
			return true;
	return false;
}

bool hb_gpu_process_is_outside(const struct hb_daemon *daemon, pid_t pid, char name[32])
{
	return !hb_gpu_process_is_covered(daemon, pid) && hb_gpu_process_name(pid, name);
}

bool hb_gpu_process_is_low(const struct hb_daemon *daemon, pid_t pid)
{
	for (uint32_t i = 0; i < HB_TENANCIES_MAX; i++) {
		const struct hb_tenancy *tenancy = daemon->tenancies[i];
		if (tenancy && hb_tenancy_is_low(tenancy) && hb_tenancy_has_process(tenancy, pid))
			return true;
	}
	return false;
}

bool hb_gpu_process_name(pid_t pid, char name[32])
{
	char path[32], line[32] = "";
	name[0] = '\0';
	snprintf(path, sizeof path, "/proc/%d/comm", (int)pid);
	FILE *file = fopen(path, "re");
	if (!file)
		return kill(pid, 0) == 0 || errno == EPERM; /* /proc may hide the name */
	if (!fgets(line, sizeof line, file))
		line[0] = '\0';
	fclose(file);
	size_t n = 0;
	for (; line[n] && line[n] != '\n'; n++)
		name[n] = line[n] >= 0x20 && line[n] < 0x7f ? line[n] : '?';
	name[n] = '\0';
	return true;
}
