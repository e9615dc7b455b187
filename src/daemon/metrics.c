/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes the text of /metrics: the table metrics.def, the counters that
 * processes keep on their pages (hb_shim_*) and the counters of the cores
 * (hb_core_*). All samples of one metric must be written together, so each
 * metric is one walk over its subjects. A GPU's labels are made once for each
 * scrape. Tenants can write anything to their pages: values from a page are
 * only printed as numbers.
 */
#include "daemon/metrics.h"

#include "base/clock.h"
#include "base/hb-version.h"
#include "base/paths.h"
#include "base/prom_text.h"
#include "core/tenant.h"
#include "daemon/daemon.h"
#include "daemon/gpu_events.h"
#include "daemon/gpu_measures.h"
#include "daemon/gpu_processes.h"
#include "daemon/metrics_elastic.h"
#include "daemon/metrics_scene.h"
#include "daemon/mps_server.h"
#include "daemon/status_tenant.h"
#include "gpu/provider.h"

#include <jansson.h>
#include <stdio_ext.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void write_count(const struct hb_metrics_scene *scene, uint64_t value)
{
	hb_prom_count(scene->out, scene->name, scene->labels, value);
}

static void write_seconds(const struct hb_metrics_scene *scene, int64_t value_ns)
{
	hb_prom_seconds(scene->out, scene->name, scene->labels, value_ns > 0 ? (uint64_t)value_ns : 0);
}

static void write_histogram(const struct hb_metrics_scene *scene, const struct hb_hist *hist)
{
	hb_prom_histogram(scene->out, scene->name, scene->labels, hist);
}

/* --- the daemon ------------------------------------------------------------------------ */

static void build_info(struct hb_metrics_scene *scene)
{
	char labels[HB_METRICS_LABELS];
	hb_prom_count(scene->out, scene->name, hb_metrics_own_label(scene, "version", HB_VERSION, labels), 1);
}

static void write_uptime(struct hb_metrics_scene *scene)
{
	write_seconds(scene, scene->now_ns - scene->daemon->started_ns);
}

static void mps_state(struct hb_metrics_scene *scene)
{
	static const char *const states[] = {
#define X(name, text) text,
		HB_MPS_STATE_LIST(X)
#undef X
	};
	char labels[HB_METRICS_LABELS];
	const char *now = hb_mps_state_text(scene->daemon->mps);
	for (size_t i = 0; i < sizeof states / sizeof *states; i++)
		hb_prom_count(scene->out, scene->name, hb_metrics_own_label(scene, "state", states[i], labels),
			      strcmp(states[i], now) == 0);
}

/* --- users ---------------------------------------------------------------------------------- */

static void write_places(struct hb_metrics_scene *scene, const uint64_t values[HB_N_PLACES])
{
	char labels[HB_METRICS_LABELS];
	for (int i = 0; i < HB_N_PLACES; i++)
		hb_prom_count(scene->out, scene->name,
			      hb_metrics_own_label(scene, "place", hb_place_key((enum hb_place_kind)i), labels),
			      values[i]);
}

static void user_held(struct hb_metrics_scene *scene)
{
	uint64_t held[HB_N_PLACES];
	for (size_t i = 0; i < HB_N_PLACES; i++)
		held[i] = scene->user->held[i];
	write_places(scene, held);
}

static void user_refused(struct hb_metrics_scene *scene)
{
	write_places(scene, scene->user->refused);
}

static void user_requests(struct hb_metrics_scene *scene)
{
	write_count(scene, scene->user->requests);
}

static void user_loop(struct hb_metrics_scene *scene)
{
	write_seconds(scene, scene->user->loop_ns);
}

static void user_log(struct hb_metrics_scene *scene)
{
	write_count(scene, scene->user->log_suppressed);
}

/* --- GPUs ---------------------------------------------------------------------------------- */

static void gpu_info(struct hb_metrics_scene *scene)
{
	char labels[HB_METRICS_LABELS];
	hb_metrics_own_label(scene, "engine", hb_status_engine(scene->gpu->engine), labels);
	hb_metrics_label(labels, "policy", hb_core_policy(scene->gpu->core));
	hb_prom_count(scene->out, scene->name, labels, 1);
}

static void gpu_total(struct hb_metrics_scene *scene)
{
	if (scene->gpu->use && scene->gpu->use->total_bytes)
		write_count(scene, scene->gpu->use->total_bytes);
}

static void gpu_used(struct hb_metrics_scene *scene)
{
	if (scene->gpu->use && scene->gpu->use->total_bytes)
		write_count(scene, scene->gpu->use->used_bytes);
}

static void gpu_reserve(struct hb_metrics_scene *scene)
{
	write_count(scene, scene->gpu->page->reserve_bytes);
}

static void gpu_low_memory(struct hb_metrics_scene *scene)
{
	write_count(scene, scene->gpu->page->low_used_bytes);
}

static void gpu_tenants(struct hb_metrics_scene *scene)
{
	char labels[HB_METRICS_LABELS];
	hb_prom_count(scene->out, scene->name, hb_metrics_own_label(scene, "priority", "high", labels),
		      scene->gpu->n_high);
	hb_prom_count(scene->out, scene->name, hb_metrics_own_label(scene, "priority", "low", labels),
		      scene->gpu->n_low);
}

static void gpu_time(struct hb_metrics_scene *scene)
{
	char labels[HB_METRICS_LABELS];
	for (int is_low = 0; is_low <= 1; is_low++)
		hb_prom_seconds(scene->out, scene->name,
				hb_metrics_own_label(scene, "priority", is_low ? "low" : "high", labels),
				hb_gpu_usage_time(scene->gpu, is_low));
}

struct uncovered {
	uint64_t processes, bytes;
};

static struct uncovered sum_uncovered(const struct hb_metrics_scene *scene)
{
	const struct hb_gpu_use *use = scene->gpu->use;
	struct uncovered sum = {0};
	for (uint32_t i = 0; use && i < use->n_users; i++) {
		const struct hb_gpu_user *user = &use->users[i];
		char name[32];
		if (!hb_gpu_process_is_outside(scene->daemon, user->pid, name))
			continue;
		sum.processes++;
		sum.bytes += user->bytes == HB_GPU_BYTES_UNKNOWN ? 0 : user->bytes;
	}
	return sum;
}

static void gpu_uncovered(struct hb_metrics_scene *scene)
{
	write_count(scene, sum_uncovered(scene).processes);
}

static void gpu_uncovered_memory(struct hb_metrics_scene *scene)
{
	write_count(scene, sum_uncovered(scene).bytes);
}

static void gpu_known(struct hb_metrics_scene *scene)
{
	write_count(scene, scene->gpu->use && !scene->gpu->use->why[0]);
}

static void gpu_ejected(struct hb_metrics_scene *scene)
{
	write_count(scene, hb_core_ejection(scene->gpu->core)->reason != HB_EJECT_NONE);
}

static void gpu_lost(struct hb_metrics_scene *scene)
{
	write_count(scene, scene->gpu->is_lost);
}

static void gpu_faults(struct hb_metrics_scene *scene)
{
	const struct hb_gpu_fault *fault = hb_gpu_last_event(scene->gpu);
	write_count(scene, fault ? fault->count : 0);
}

static void gpu_last_xid(struct hb_metrics_scene *scene)
{
	const struct hb_gpu_fault *fault = hb_gpu_last_event(scene->gpu);
	if (fault && fault->event.kind == HB_GPU_EVENT_XID)
		write_count(scene, fault->event.xid);
}

static void gpu_preemption(struct hb_metrics_scene *scene)
{
	write_histogram(scene, &scene->gpu->measures->preemption);
}

static void gpu_turn(struct hb_metrics_scene *scene)
{
	write_histogram(scene, &scene->gpu->measures->turn);
}

/* --- tenants -------------------------------------------------------------------------------- */

static void tenant_info(struct hb_metrics_scene *scene)
{
	char labels[HB_METRICS_LABELS], program[64];
	const char *command = hb_path_command(scene->tenancy->command);
	snprintf(program, sizeof program, "%.*s", (int)strcspn(command, " "), command);
	hb_metrics_own_label(scene, "user", scene->tenancy->peer.user, labels);
	hb_metrics_label(labels, "program", program);
	hb_metrics_label(labels, "mps", scene->tenancy->flags & HB_REGISTER_MPS ? "yes" : "no");
	const struct hb_cgroup_place *place = &scene->tenancy->peer.place;
	const char *const names[] = {"container_id", "pod_uid", "container_namespace", "slurm_job"};
	const char *const values[] = {place->container, place->pod, place->container_space, place->slurm_job};
	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		if (*values[i])
			hb_metrics_label(labels, names[i], values[i]);
	hb_prom_count(scene->out, scene->name, labels, 1);
}

static void tenant_age(struct hb_metrics_scene *scene)
{
	write_seconds(scene, scene->now_ns - scene->tenancy->since_ns);
}

static void tenant_processes(struct hb_metrics_scene *scene)
{
	write_count(scene, scene->tenancy->n_members);
}

static void tenant_reduced(struct hb_metrics_scene *scene)
{
	write_count(scene, scene->tenancy->reduced[0] != '\0');
}

static void tenant_limit(struct hb_metrics_scene *scene)
{
	if (scene->tenancy->rights.memory_bytes)
		write_count(scene, scene->tenancy->rights.memory_bytes);
}

static void tenant_target(struct hb_metrics_scene *scene)
{
	if (scene->tenancy->rights.slo_ns)
		hb_prom_ratio(scene->out, scene->name, scene->labels, scene->tenancy->attainment_ppm);
}

/* --- a tenant on a GPU ------------------------------------------------------------------------ */

static const struct hb_tenant *find_core_tenant(const struct hb_metrics_scene *scene)
{
	return hb_core_tenant(scene->gpu->core, scene->tenancy->index);
}

static const struct hb_tenant_measures *measures_of(const struct hb_metrics_scene *scene)
{
	return &scene->gpu->measures->tenants[scene->tenancy->index];
}

static void use_slo(struct hb_metrics_scene *scene)
{
	const struct hb_tenant *tenant = find_core_tenant(scene);
	if (tenant && tenant->slo_ns)
		write_seconds(scene, tenant->slo_ns);
}

static void use_attainment(struct hb_metrics_scene *scene)
{
	const struct hb_tenant *tenant = find_core_tenant(scene);
	if (tenant && tenant->counters.requests_judged)
		hb_prom_ratio(scene->out, scene->name, scene->labels, hb_tenant_attainment_ppm(tenant));
}

static void use_requests(struct hb_metrics_scene *scene)
{
	const struct hb_tenant *tenant = find_core_tenant(scene);
	if (tenant && tenant->priority == HB_PRIORITY_HIGH)
		write_histogram(scene, tenant->latency);
}

static void use_wait(struct hb_metrics_scene *scene)
{
	if (hb_tenancy_is_low(scene->tenancy))
		write_histogram(scene, measures_of(scene)->wait);
}

static void use_preempted(struct hb_metrics_scene *scene)
{
	if (hb_tenancy_is_low(scene->tenancy))
		write_count(scene, measures_of(scene)->preemptions);
}

static void use_active(struct hb_metrics_scene *scene)
{
	if (!hb_tenancy_is_server(scene->tenancy))
		write_seconds(scene, (int64_t)measures_of(scene)->active_ns);
}

static void use_memory(struct hb_metrics_scene *scene)
{
	write_count(scene, scene->tenancy->page->gpus[scene->gpu_index].used_bytes);
}

static void use_gate(struct hb_metrics_scene *scene)
{
	if (!hb_tenancy_is_server(scene->tenancy))
		write_count(scene, scene->gpu->tenants[scene->tenancy->index].gate != HB_GATE_CLOSED);
}

static void use_slice(struct hb_metrics_scene *scene)
{
	static const char *const classes[] = {[HB_GROUP_COMPUTE] = "compute", [HB_GROUP_COPY] = "copy"};
	char labels[HB_METRICS_LABELS];
	for (size_t i = 0; i < HB_N_GROUP_CLASSES; i++)
		hb_prom_seconds(scene->out, scene->name, hb_metrics_own_label(scene, "class", classes[i], labels),
				(uint64_t)scene->tenancy->page->gpus[scene->gpu_index].slice_us[i] * HB_NS_PER_US);
}

static void use_mechanism(struct hb_metrics_scene *scene)
{
	json_t *mechanisms = hb_status_mechanisms(scene->tenancy, scene->gpu_index), *entry;
	char labels[HB_METRICS_LABELS];
	size_t i;
	json_array_foreach(mechanisms, i, entry)
	{
		const char *name = json_string_value(json_object_get(entry, "mechanism"));
		hb_prom_count(scene->out, scene->name,
			      hb_metrics_own_label(scene, "mechanism", name ? name : "", labels),
			      json_is_true(json_object_get(entry, "enforced")));
	}
	json_decref(mechanisms);
}

/* --- the table --------------------------------------------------------------------------------------- */

static const struct {
	const char *name;
	const char *what;
	hb_metrics_writer *write;
	void (*walk)(struct hb_metrics_scene *scene, hb_metrics_writer *write);
	enum hb_prom_type type;
} families[] = {
#define hb_metrics_walk_DAEMON hb_metrics_walk_daemon
#define hb_metrics_walk_USER hb_metrics_walk_users
#define hb_metrics_walk_GPU hb_metrics_walk_gpus
#define hb_metrics_walk_TENANT hb_metrics_walk_tenants
#define hb_metrics_walk_USE hb_metrics_walk_uses
#define HB_METRIC(subject, type, name, writer, what) {name, what, writer, hb_metrics_walk_##subject, HB_PROM_##type},
#include "daemon/metrics.def"
};

/* --- counter tables --------------------------------------------------------------------------------- */

/* Sums the counters of all processes, including those that have ended. */
static void sum_counters(struct hb_tenancy *tenancy, uint64_t sums[HB_N_COUNTS])
{
	uint32_t left = tenancy->n_members;
	memcpy(sums, tenancy->past, sizeof tenancy->past);
	for (uint32_t slot = 0; left && slot < HB_PAGE_PROCESSES; slot++) {
		if (!tenancy->members[slot].watch)
			continue;
		left--;
		for (size_t i = 0; i < HB_N_COUNTS; i++)
			sums[i] += tenancy->page->processes[slot].counters[i];
	}
}

static void write_page_counters(struct hb_metrics_scene *scene)
{
	static const struct hb_counter_info infos[] = {
#define HB_COUNTER(name, unit, what) {#name, unit, what},
#include "hummingbird/counters.def"
	};
	uint64_t(*sums)[HB_N_COUNTS] = calloc(HB_TENANCIES_MAX, sizeof *sums);
	char name[HB_PROM_NAME_MAX];
	for (uint32_t i = 0; sums && i < HB_TENANCIES_MAX; i++)
		if (scene->daemon->tenancies[i])
			sum_counters(scene->daemon->tenancies[i], sums[i]);
	for (size_t row = 0; sums && row < HB_N_COUNTS; row++) {
		hb_prom_counter_name("shim", &infos[row], name);
		hb_prom_family(scene->out, name, HB_PROM_COUNTER, infos[row].description);
		for (uint32_t i = 0; i < HB_TENANCIES_MAX; i++) {
			if (!scene->daemon->tenancies[i])
				continue;
			scene->labels[0] = '\0';
			hb_metrics_label_tenant(scene->daemon->tenancies[i], scene->labels);
			hb_metrics_label(scene->labels, "Hostname", scene->host);
			hb_prom_counter(scene->out, name, scene->labels, &infos[row], sums[i][row]);
		}
	}
	free(sums);
}

static const struct {
	struct hb_counter_info info;
	size_t offset;
} core_counters[] = {
#define HB_COUNTER(name, unit, what) {{#name, unit, what}, offsetof(struct hb_tenant_counters, name)},
#include "core/tenant_counters.def"
};

static void write_core_counter(struct hb_metrics_scene *scene)
{
	const struct hb_tenant *tenant = find_core_tenant(scene);
	uint64_t value;
	if (!tenant || hb_tenancy_is_server(scene->tenancy))
		return;
	memcpy(&value, (const char *)&tenant->counters + core_counters[scene->row].offset, sizeof value);
	hb_prom_counter(scene->out, scene->name, scene->labels, &core_counters[scene->row].info, value);
}

static void write_core_counters(struct hb_metrics_scene *scene)
{
	char name[HB_PROM_NAME_MAX];
	for (scene->row = 0; scene->row < sizeof core_counters / sizeof *core_counters; scene->row++) {
		scene->name = hb_prom_counter_name("core", &core_counters[scene->row].info, name);
		hb_prom_family(scene->out, name, HB_PROM_COUNTER, core_counters[scene->row].info.description);
		hb_metrics_walk_uses(scene, write_core_counter);
	}
}

/* --- the text ------------------------------------------------------------------------------------------ */

static void write_all(struct hb_metrics_scene *scene)
{
	for (uint32_t i = 0; i < scene->daemon->n_gpus; i++)
		hb_metrics_label_gpu(scene, scene->daemon->gpus[i], scene->gpu_labels[i]);
	for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
		scene->name = families[i].name;
		hb_prom_family(scene->out, scene->name, families[i].type, families[i].what);
		families[i].walk(scene, families[i].write);
	}
	write_page_counters(scene);
	write_core_counters(scene);
}

char *hb_metrics_text(struct hb_daemon *daemon, int64_t now_ns, size_t *length)
{
	char *text = NULL, labels[HB_METRICS_LABELS] = "";
	struct hb_metrics_scene scene = {.daemon = daemon, .now_ns = now_ns, .labels = labels};
	scene.gpu_labels = calloc(HB_GPUS_MAX, sizeof *scene.gpu_labels);
	scene.out = scene.gpu_labels ? open_memstream(&text, length) : NULL;
	if (gethostname(scene.host, sizeof scene.host - 1) < 0)
		strcpy(scene.host, "unknown");
	if (scene.out) {
		__fsetlocking(scene.out, FSETLOCKING_BYCALLER);
		write_all(&scene);
		if (fclose(scene.out) != 0) {
			free(text);
			text = NULL;
		}
	}
	free(scene.gpu_labels);
	return text;
}
