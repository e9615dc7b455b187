/* SPDX-License-Identifier: Apache-2.0 */
/* Labels of metrics, and walks over the subjects that have metrics; see metrics_scene.h. */
#include "daemon/metrics_scene.h"

#include "base/prom_text.h"
#include "base/uuid.h"
#include "daemon/gpu_measures.h"
#include "daemon/status_tenant.h"
#include "daemon/status_users.h"

#include <string.h>

void hb_metrics_label(char labels[HB_METRICS_LABELS], const char *name, const char *value)
{
	size_t used = strlen(labels);
	if (used + 2 >= HB_METRICS_LABELS)
		return;
	if (used)
		labels[used++] = ',';
	labels[used] = '\0';
	if (hb_prom_label(labels + used, HB_METRICS_LABELS - used, name, value) == 0 && used)
		labels[used - 1] = '\0';
}

void hb_metrics_label_gpu(const struct hb_metrics_scene *scene, const struct hb_gpu *gpu,
			  char labels[HB_METRICS_LABELS])
{
	char uuid[HB_UUID_TEXT_SIZE], node[32];
	hb_uuid_format(gpu->uuid, uuid);
	snprintf(node, sizeof node, "nvidia%s", gpu->measures->index);
	labels[0] = '\0';
	hb_metrics_label(labels, "gpu", gpu->measures->index);
	hb_metrics_label(labels, "UUID", uuid);
	hb_metrics_label(labels, "device", gpu->measures->index[0] ? node : "");
	hb_metrics_label(labels, "modelName", gpu->measures->name);
	hb_metrics_label(labels, "Hostname", scene->host);
}

void hb_metrics_label_tenant(const struct hb_tenancy *tenancy, char labels[HB_METRICS_LABELS])
{
	char number[16];
	snprintf(number, sizeof number, "%u", tenancy->number);
	hb_metrics_label(labels, "tenant", number);
	hb_metrics_label(labels, "priority", hb_status_role(tenancy));
}

const char *hb_metrics_own_label(const struct hb_metrics_scene *scene, const char *name, const char *value,
				 char labels[HB_METRICS_LABELS])
{
	strcpy(labels, scene->labels);
	hb_metrics_label(labels, name, value);
	return labels;
}

/* --- walks ---------------------------------------------------------------------------------- */

void hb_metrics_walk_daemon(struct hb_metrics_scene *scene, hb_metrics_writer *write)
{
	scene->labels[0] = '\0';
	hb_metrics_label(scene->labels, "Hostname", scene->host);
	write(scene);
}

void hb_metrics_walk_users(struct hb_metrics_scene *scene, hb_metrics_writer *write)
{
	for (size_t i = 0; i < HB_USERS_MAX; i++) {
		scene->user = &scene->daemon->users.users[i];
		if (!hb_status_shows_user(scene->user))
			continue;
		scene->labels[0] = '\0';
		hb_metrics_label(scene->labels, "user", scene->user->name);
		hb_metrics_label(scene->labels, "Hostname", scene->host);
		write(scene);
	}
}

void hb_metrics_walk_gpus(struct hb_metrics_scene *scene, hb_metrics_writer *write)
{
	for (uint32_t i = 0; i < scene->daemon->n_gpus; i++) {
		scene->gpu = scene->daemon->gpus[i];
		strcpy(scene->labels, scene->gpu_labels[i]);
		write(scene);
	}
}

void hb_metrics_walk_tenants(struct hb_metrics_scene *scene, hb_metrics_writer *write)
{
	for (uint32_t i = 0; i < HB_TENANCIES_MAX; i++) {
		scene->tenancy = scene->daemon->tenancies[i];
		if (!scene->tenancy)
			continue;
		scene->labels[0] = '\0';
		hb_metrics_label_tenant(scene->tenancy, scene->labels);
		hb_metrics_label(scene->labels, "Hostname", scene->host);
		write(scene);
	}
}

static uint32_t find_gpu_number(const struct hb_metrics_scene *scene, const struct hb_gpu *gpu)
{
	uint32_t i = 0;
	while (i + 1 < scene->daemon->n_gpus && scene->daemon->gpus[i] != gpu)
		i++;
	return i;
}

void hb_metrics_walk_uses(struct hb_metrics_scene *scene, hb_metrics_writer *write)
{
	for (uint32_t i = 0; i < HB_TENANCIES_MAX; i++) {
		scene->tenancy = scene->daemon->tenancies[i];
		for (uint32_t gpu_index = 0; scene->tenancy && gpu_index < scene->tenancy->n_gpus; gpu_index++) {
			scene->gpu_index = gpu_index;
			scene->gpu = scene->tenancy->gpus[gpu_index];
			strcpy(scene->labels, scene->gpu_labels[find_gpu_number(scene, scene->gpu)]);
			hb_metrics_label_tenant(scene->tenancy, scene->labels);
			write(scene);
		}
	}
}
