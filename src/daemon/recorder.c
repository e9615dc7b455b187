/* SPDX-License-Identifier: Apache-2.0 */
/* See recorder.h. */
#include "daemon/recorder.h"

#include "base/clock.h"
#include "core/recording.h"
#include "core/tenant.h"
#include "daemon/launch_reader.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define LINGER_NS (60 * HB_NS_PER_S)

struct hb_recorder {
	FILE *out;
	char *text;
	size_t length;
	int64_t until_ns;
	int64_t last_ns; /* time of the last line; the actions that follow have the same time */
	bool full, over; /* at HB_RECORDER_BYTES_MAX; after the time limit */
	struct hb_launch_reader *launches;
};

/* Returns the recorder if a recording runs and has room for another line. */
static struct hb_recorder *find_recorder(const struct hb_gpu *gpu, int64_t now_ns)
{
	struct hb_recorder *recorder = gpu->daemon->recorder;
	if (!recorder || recorder->full || recorder->over)
		return NULL;
	if (ftell(recorder->out) > HB_RECORDER_BYTES_MAX) {
		fprintf(recorder->out, "# full: nothing is recorded after %lld\n", (long long)now_ns);
		recorder->full = true;
		return NULL;
	}
	recorder->last_ns = now_ns;
	return recorder;
}

void hb_recorder_core(struct hb_gpu *gpu, int64_t now_ns, const struct hb_core_config *config)
{
	struct hb_recorder *recorder = find_recorder(gpu, now_ns);
	if (recorder)
		hb_recording_write_core(recorder->out, gpu->number, now_ns, config);
}

void hb_recorder_event(struct hb_gpu *gpu, int64_t now_ns, const struct hb_event *event)
{
	struct hb_recorder *recorder = find_recorder(gpu, now_ns);
	if (recorder)
		hb_recording_write_event(recorder->out, gpu->number, now_ns, event);
}

void hb_recorder_step(struct hb_gpu *gpu, int64_t now_ns)
{
	struct hb_recorder *recorder = gpu->daemon->recorder;
	if (recorder && hb_core_next_wake(gpu->core) <= now_ns && find_recorder(gpu, now_ns))
		hb_recording_write_step(recorder->out, gpu->number, now_ns);
}

void hb_recorder_action(struct hb_gpu *gpu, const struct hb_action *action)
{
	struct hb_recorder *recorder = gpu->daemon->recorder;
	if (recorder && !recorder->full && !recorder->over)
		hb_recording_write_action(recorder->out, gpu->number, recorder->last_ns, action);
}

/* Writes a core that already runs: its tenants as if they were added now. What it has learned is not recorded. */
static void write_running_core(struct hb_gpu *gpu, int64_t now_ns)
{
	hb_recorder_core(gpu, now_ns, &gpu->core_config);
	for (uint32_t i = 0; i < HB_TENANCIES_MAX; i++) {
		const struct hb_tenant *tenant = hb_core_tenant(gpu->core, i);
		if (!tenant)
			continue;
		struct hb_event event = {.kind = HB_EVENT_TENANT_ADD, .tenant = i};
		event.tenant_add.name = tenant->name;
		event.tenant_add.priority = tenant->priority;
		event.tenant_add.slo_ns = tenant->slo_auto ? 0 : tenant->slo_ns;
		event.tenant_add.slo_auto = tenant->slo_auto;
		event.tenant_add.slo_share_ppm = tenant->slo_share_ppm;
		event.tenant_add.weight = tenant->weight;
		event.tenant_add.copy_weight = tenant->copy_weight;
		event.tenant_add.user = tenant->user;
		event.tenant_add.shared = tenant->shared;
		hb_recorder_event(gpu, now_ns, &event);
		if (!tenant->busy)
			continue;
		event = (struct hb_event){.kind = HB_EVENT_BUSY, .tenant = i};
		hb_recorder_event(gpu, now_ns, &event);
	}
}

static void free_recorder(struct hb_recorder *recorder, struct hb_daemon *daemon)
{
	if (!recorder)
		return;
	if (recorder->out)
		fclose(recorder->out);
	hb_launch_reader_free(recorder->launches, daemon);
	free(recorder->text);
	free(recorder);
}

int hb_recorder_start(struct hb_daemon *daemon, int64_t limit_ns)
{
	int64_t now_ns = hb_clock_now_ns();
	if (daemon->recorder && !daemon->recorder->over)
		return -EBUSY;
	hb_recorder_free(daemon);
	struct hb_recorder *made = calloc(1, sizeof *made);
	if (made)
		made->out = open_memstream(&made->text, &made->length);
	if (made && made->out)
		made->launches = hb_launch_reader_new(now_ns);
	if (!made || !made->launches) {
		free_recorder(made, daemon);
		return -ENOMEM;
	}
	made->until_ns = now_ns + limit_ns;
	daemon->recorder = made;
	fprintf(made->out, "# hummingbird recording 1\n");
	for (uint32_t i = 0; i < daemon->n_gpus; i++)
		write_running_core(daemon->gpus[i], now_ns);
	hb_launch_reader_read(made->launches, daemon, now_ns);
	return 0;
}

char *hb_recorder_stop(struct hb_daemon *daemon, int *code)
{
	struct hb_recorder *recorder = daemon->recorder;
	char *text = NULL;
	*code = -ENOENT;
	if (!recorder)
		return NULL;
	hb_launch_reader_write(recorder->launches, daemon, recorder->out);
	*code = fclose(recorder->out) == 0 ? 0 : -ENOMEM;
	recorder->out = NULL;
	if (*code == 0) {
		text = recorder->text;
		recorder->text = NULL;
	}
	hb_recorder_free(daemon);
	return text;
}

void hb_recorder_free(struct hb_daemon *daemon)
{
	free_recorder(daemon->recorder, daemon);
	daemon->recorder = NULL;
}

int64_t hb_recorder_launches(struct hb_daemon *daemon, int64_t now_ns)
{
	struct hb_recorder *recorder = daemon->recorder;
	return recorder && !recorder->over ? hb_launch_reader_read(recorder->launches, daemon, now_ns) : HB_TIME_NEVER;
}

void hb_recorder_tick(struct hb_daemon *daemon, int64_t now_ns)
{
	struct hb_recorder *recorder = daemon->recorder;
	if (!recorder || now_ns < recorder->until_ns)
		return;
	if (!recorder->over)
		hb_launch_reader_end(recorder->launches, daemon);
	recorder->over = true;
	if (now_ns - recorder->until_ns > LINGER_NS)
		hb_recorder_free(daemon);
}
