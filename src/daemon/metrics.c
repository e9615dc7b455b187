/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The text of /metrics: the table metrics.def, the counters that processes keep
 * on their pages (hb_shim_*) and those of the cores (hb_core_*). A family's
 * samples stand together, so each is one walk over its subjects; labels are made
 * once a scrape. Called by metrics_http.c. Pages are other people's memory:
 * every value is only ever a number to print.
 */
#include "daemon/metrics.h"

#include "base/clock.h"
#include "base/hb-version.h"
#include "base/paths.h"
#include "base/prom_text.h"
#include "base/uuid.h"
#include "core/tenant.h"
#include "daemon/meters.h"
#include "gpu/provider.h"

#include <jansson.h>
#include <stdio_ext.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LABELS_MAX 640

/* What the writers look at: only the parts that their subject has are set. */
struct scene {
	FILE *out;
	struct hb_daemon *daemon;
	int64_t now_ns;
	const char *name; /* of the family being written */
	const struct hb_device *device;
	struct hb_tenancy *tenancy;
	uint32_t gpu; /* index on the tenant's page */
	size_t row;   /* of the counter table being written */
	char *labels; /* of the subject */
	char host[256];
	char (*device_labels)[LABELS_MAX];
};

/* --- labels -------------------------------------------------------------------------- */

static void add_label(char labels[LABELS_MAX], const char *name, const char *value)
{
	size_t used = strlen(labels);
	if (used + 2 >= LABELS_MAX)
		return;
	if (used)
		labels[used++] = ',';
	labels[used] = '\0';
	if (hb_prom_label(labels + used, LABELS_MAX - used, name, value) == 0 && used)
		labels[used - 1] = '\0';
}

/* The names that DCGM's exporter uses, so that its metrics and these can be joined. */
static void label_device(const struct scene *scene, const struct hb_device *device, char labels[LABELS_MAX])
{
	char uuid[HB_UUID_TEXT_SIZE], node[32];
	hb_uuid_format(device->uuid, uuid);
	snprintf(node, sizeof node, "nvidia%s", device->meters->index);
	labels[0] = '\0';
	add_label(labels, "gpu", device->meters->index);
	add_label(labels, "UUID", uuid);
	add_label(labels, "device", device->meters->index[0] ? node : "");
	add_label(labels, "modelName", device->meters->name);
	add_label(labels, "Hostname", scene->host);
}

static void label_tenant(const struct hb_tenancy *tenancy, char labels[LABELS_MAX])
{
	char number[16];
	snprintf(number, sizeof number, "%u", tenancy->number);
	add_label(labels, "tenant", number);
	add_label(labels, "priority", hb_status_role(tenancy));
}

/* The subject's labels and one more. */
static const char *with(const struct scene *scene, const char *name, const char *value, char labels[LABELS_MAX])
{
	strcpy(labels, scene->labels);
	add_label(labels, name, value);
	return labels;
}

static void count(const struct scene *scene, uint64_t value)
{
	hb_prom_count(scene->out, scene->name, scene->labels, value);
}

static void seconds(const struct scene *scene, int64_t value_ns)
{
	hb_prom_seconds(scene->out, scene->name, scene->labels, value_ns > 0 ? (uint64_t)value_ns : 0);
}

static void histogram(const struct scene *scene, const struct hb_hist *hist)
{
	hb_prom_histogram(scene->out, scene->name, scene->labels, hist);
}

/* --- the daemon ------------------------------------------------------------------------ */

static void build_info(struct scene *scene)
{
	char labels[LABELS_MAX];
	hb_prom_count(scene->out, scene->name, with(scene, "version", HB_VERSION, labels), 1);
}

static void uptime(struct scene *scene)
{
	seconds(scene, scene->now_ns - scene->daemon->started_ns);
}

static void mps_state(struct scene *scene)
{
	static const char *const states[] = {
#define X(name, text) text,
		HB_MPS_STATE_LIST(X)
#undef X
	};
	char labels[LABELS_MAX];
	const char *now = hb_mps_state_text(scene->daemon->mps);
	for (size_t i = 0; i < sizeof states / sizeof *states; i++)
		hb_prom_count(scene->out, scene->name, with(scene, "state", states[i], labels),
			      strcmp(states[i], now) == 0);
}

/* --- GPUs ---------------------------------------------------------------------------------- */

static void gpu_info(struct scene *scene)
{
	char labels[LABELS_MAX];
	with(scene, "engine", hb_status_engine(scene->device->engine), labels);
	add_label(labels, "policy", hb_core_policy(scene->device->core));
	hb_prom_count(scene->out, scene->name, labels, 1);
}

static void gpu_total(struct scene *scene)
{
	if (scene->device->use && scene->device->use->total_bytes)
		count(scene, scene->device->use->total_bytes);
}

static void gpu_used(struct scene *scene)
{
	if (scene->device->use && scene->device->use->total_bytes)
		count(scene, scene->device->use->used_bytes);
}

static void gpu_reserve(struct scene *scene)
{
	count(scene, scene->device->page->reserve_bytes);
}

static void gpu_low_memory(struct scene *scene)
{
	count(scene, scene->device->page->low_used_bytes);
}

static void gpu_tenants(struct scene *scene)
{
	char labels[LABELS_MAX];
	hb_prom_count(scene->out, scene->name, with(scene, "priority", "high", labels), scene->device->n_high);
	hb_prom_count(scene->out, scene->name, with(scene, "priority", "low", labels), scene->device->n_low);
}

struct uncovered {
	uint64_t processes, bytes;
};

static struct uncovered sum_uncovered(const struct scene *scene)
{
	const struct hb_gpu_use *use = scene->device->use;
	struct uncovered sum = {0};
	for (uint32_t i = 0; use && i < use->n_users; i++) {
		const struct hb_gpu_user *user = &use->users[i];
		char name[32];
		if (hb_users_cover(scene->daemon, user->pid) || !hb_users_name(user->pid, name))
			continue;
		sum.processes++;
		sum.bytes += user->bytes == HB_GPU_BYTES_UNKNOWN ? 0 : user->bytes;
	}
	return sum;
}

static void gpu_uncovered(struct scene *scene)
{
	count(scene, sum_uncovered(scene).processes);
}

static void gpu_uncovered_memory(struct scene *scene)
{
	count(scene, sum_uncovered(scene).bytes);
}

static void gpu_known(struct scene *scene)
{
	count(scene, scene->device->use && !scene->device->use->why[0]);
}

static void gpu_ejected(struct scene *scene)
{
	count(scene, hb_core_ejection(scene->device->core)->reason != HB_EJECT_NONE);
}

static void gpu_not_carried_out(struct scene *scene)
{
	count(scene, scene->device->not_carried_out);
}

static void gpu_preemption(struct scene *scene)
{
	histogram(scene, &scene->device->meters->preemption);
}

static void gpu_turn(struct scene *scene)
{
	histogram(scene, &scene->device->meters->turn);
}

/* --- tenants -------------------------------------------------------------------------------- */

static void tenant_info(struct scene *scene)
{
	char labels[LABELS_MAX], program[64];
	const char *command = hb_path_command(scene->tenancy->command);
	snprintf(program, sizeof program, "%.*s", (int)strcspn(command, " "), command);
	with(scene, "user", scene->tenancy->peer.user, labels);
	add_label(labels, "program", program);
	add_label(labels, "mps", scene->tenancy->flags & HB_REGISTER_MPS ? "yes" : "no");
	hb_prom_count(scene->out, scene->name, labels, 1);
}

static void tenant_age(struct scene *scene)
{
	seconds(scene, scene->now_ns - scene->tenancy->since_ns);
}

static void tenant_processes(struct scene *scene)
{
	count(scene, scene->tenancy->n_members);
}

static void tenant_reduced(struct scene *scene)
{
	count(scene, scene->tenancy->reduced[0] != '\0');
}

static void tenant_limit(struct scene *scene)
{
	if (scene->tenancy->terms.memory_bytes)
		count(scene, scene->tenancy->terms.memory_bytes);
}

static void tenant_target(struct scene *scene)
{
	if (scene->tenancy->terms.slo_ns)
		hb_prom_ratio(scene->out, scene->name, scene->labels, scene->tenancy->attainment_ppm);
}

/* --- a tenant on a GPU ------------------------------------------------------------------------ */

static const struct hb_tenant *core_view(const struct scene *scene)
{
	return hb_core_tenant(scene->device->core, scene->tenancy->index);
}

static const struct hb_seat_meter *meter(const struct scene *scene)
{
	return &scene->device->meters->seats[scene->tenancy->index];
}

static void use_slo(struct scene *scene)
{
	const struct hb_tenant *tenant = core_view(scene);
	if (tenant && tenant->slo_ns)
		seconds(scene, tenant->slo_ns);
}

static void use_attainment(struct scene *scene)
{
	const struct hb_tenant *tenant = core_view(scene);
	if (tenant && tenant->counters.requests_judged)
		hb_prom_ratio(scene->out, scene->name, scene->labels, hb_tenant_attainment_ppm(tenant));
}

static void use_requests(struct scene *scene)
{
	const struct hb_tenant *tenant = core_view(scene);
	if (tenant && tenant->priority == HB_PRIORITY_HIGH)
		histogram(scene, tenant->latency);
}

static void use_wait(struct scene *scene)
{
	if (hb_tenancy_is_low(scene->tenancy))
		histogram(scene, meter(scene)->wait);
}

static void use_preempted(struct scene *scene)
{
	if (hb_tenancy_is_low(scene->tenancy))
		count(scene, meter(scene)->preemptions);
}

static void use_active(struct scene *scene)
{
	if (!hb_tenancy_is_server(scene->tenancy))
		seconds(scene, (int64_t)meter(scene)->active_ns);
}

static void use_memory(struct scene *scene)
{
	count(scene, scene->tenancy->page->gpus[scene->gpu].used_bytes);
}

static void use_gate(struct scene *scene)
{
	if (!hb_tenancy_is_server(scene->tenancy))
		count(scene, scene->device->seats[scene->tenancy->index].gate != HB_GATE_CLOSED);
}

static void use_slice(struct scene *scene)
{
	static const char *const classes[] = {[HB_GROUP_COMPUTE] = "compute", [HB_GROUP_COPY] = "copy"};
	char labels[LABELS_MAX];
	for (size_t i = 0; i < HB_N_GROUP_CLASSES; i++)
		hb_prom_seconds(scene->out, scene->name, with(scene, "class", classes[i], labels),
				(uint64_t)scene->tenancy->page->gpus[scene->gpu].slice_us[i] * HB_NS_PER_US);
}

static void use_mechanism(struct scene *scene)
{
	json_t *mechanisms = hb_status_mechanisms(scene->tenancy, scene->gpu), *entry;
	char labels[LABELS_MAX];
	size_t i;
	json_array_foreach(mechanisms, i, entry)
	{
		const char *name = json_string_value(json_object_get(entry, "mechanism"));
		hb_prom_count(scene->out, scene->name, with(scene, "mechanism", name ? name : "", labels),
			      json_is_true(json_object_get(entry, "enforced")));
	}
	json_decref(mechanisms);
}

/* --- walks --------------------------------------------------------------------------------------- */

typedef void writer_fn(struct scene *scene);

static void walk_daemon(struct scene *scene, writer_fn *write)
{
	scene->labels[0] = '\0';
	add_label(scene->labels, "Hostname", scene->host);
	write(scene);
}

static void walk_gpus(struct scene *scene, writer_fn *write)
{
	for (uint32_t i = 0; i < scene->daemon->n_devices; i++) {
		scene->device = scene->daemon->devices[i];
		strcpy(scene->labels, scene->device_labels[i]);
		write(scene);
	}
}

static void walk_tenants(struct scene *scene, writer_fn *write)
{
	for (uint32_t i = 0; i < HB_TENANCIES_MAX; i++) {
		scene->tenancy = scene->daemon->tenancies[i];
		if (!scene->tenancy)
			continue;
		scene->labels[0] = '\0';
		label_tenant(scene->tenancy, scene->labels);
		add_label(scene->labels, "Hostname", scene->host);
		write(scene);
	}
}

static uint32_t device_number(const struct scene *scene, const struct hb_device *device)
{
	uint32_t i = 0;
	while (i + 1 < scene->daemon->n_devices && scene->daemon->devices[i] != device)
		i++;
	return i;
}

static void walk_uses(struct scene *scene, writer_fn *write)
{
	for (uint32_t i = 0; i < HB_TENANCIES_MAX; i++) {
		scene->tenancy = scene->daemon->tenancies[i];
		for (uint32_t gpu = 0; scene->tenancy && gpu < scene->tenancy->n_devices; gpu++) {
			scene->gpu = gpu;
			scene->device = scene->tenancy->devices[gpu];
			strcpy(scene->labels, scene->device_labels[device_number(scene, scene->device)]);
			label_tenant(scene->tenancy, scene->labels);
			write(scene);
		}
	}
}

static const struct {
	const char *name;
	const char *what;
	writer_fn *write;
	void (*walk)(struct scene *scene, writer_fn *write);
	enum hb_prom_type type;
} families[] = {
#define walk_DAEMON walk_daemon
#define walk_GPU walk_gpus
#define walk_TENANT walk_tenants
#define walk_USE walk_uses
#define HB_METRIC(subject, type, name, writer, what) {name, what, writer, walk_##subject, HB_PROM_##type},
#include "daemon/metrics.def"
};

/* --- counter tables --------------------------------------------------------------------------------- */

/* Of all processes, those that are gone included. */
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

static void write_page_counters(struct scene *scene)
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
			label_tenant(scene->daemon->tenancies[i], scene->labels);
			add_label(scene->labels, "Hostname", scene->host);
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

static void write_core_counter(struct scene *scene)
{
	const struct hb_tenant *tenant = core_view(scene);
	uint64_t value;
	if (!tenant || hb_tenancy_is_server(scene->tenancy))
		return;
	memcpy(&value, (const char *)&tenant->counters + core_counters[scene->row].offset, sizeof value);
	hb_prom_counter(scene->out, scene->name, scene->labels, &core_counters[scene->row].info, value);
}

static void write_core_counters(struct scene *scene)
{
	char name[HB_PROM_NAME_MAX];
	for (scene->row = 0; scene->row < sizeof core_counters / sizeof *core_counters; scene->row++) {
		scene->name = hb_prom_counter_name("core", &core_counters[scene->row].info, name);
		hb_prom_family(scene->out, name, HB_PROM_COUNTER, core_counters[scene->row].info.description);
		walk_uses(scene, write_core_counter);
	}
}

/* --- the whole ------------------------------------------------------------------------------------------ */

static void write_all(struct scene *scene)
{
	for (uint32_t i = 0; i < scene->daemon->n_devices; i++)
		label_device(scene, scene->daemon->devices[i], scene->device_labels[i]);
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
	char *text = NULL, labels[LABELS_MAX] = "";
	struct scene scene = {.daemon = daemon, .now_ns = now_ns, .labels = labels};
	scene.device_labels = calloc(HB_DEVICES_MAX, sizeof *scene.device_labels);
	scene.out = scene.device_labels ? open_memstream(&text, length) : NULL;
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
	free(scene.device_labels);
	return text;
}
