/* SPDX-License-Identifier: Apache-2.0 */
/* Metrics of elastic memory; see metrics_elastic.h. Tenants without elastic memory have no samples. */
#include "daemon/metrics_elastic.h"

#include "base/prom_text.h"
#include "daemon/daemon.h"
#include "daemon/elastic_records.h"
#include "daemon/elastic_state.h"

static const char *const stay_keys[] = {
#define HB_STAY_REASON(name, key, text) [HB_PAGE_STAY_##name] = (key),
#include "hummingbird/stay_reasons.def"
#undef HB_STAY_REASON
};

static const char *const directions[] = {"away", "home"};

static void write_labelled(const struct hb_metrics_scene *scene, const char *name, const char *value, uint64_t count)
{
	char labels[HB_METRICS_LABELS];
	hb_prom_count(scene->out, scene->name, hb_metrics_own_label(scene, name, value, labels), count);
}

void hb_metrics_elastic_pool(struct hb_metrics_scene *scene)
{
	write_labelled(scene, "state", "configured", scene->daemon->config.elastic_host_bytes);
	write_labelled(scene, "state", "granted", hb_elastic_granted(scene->daemon));
}

void hb_metrics_elastic_needs(struct hb_metrics_scene *scene)
{
	write_labelled(scene, "result", "met", scene->gpu->elastic->needs_met);
	write_labelled(scene, "result", "failed", scene->gpu->elastic->needs_failed);
}

void hb_metrics_elastic_tiers(struct hb_metrics_scene *scene)
{
	struct hb_elastic_bytes bytes = hb_elastic_count(scene->tenancy, scene->gpu_index);
	if (!hb_tenancy_is_elastic(scene->tenancy))
		return;
	write_labelled(scene, "tier", "local", bytes.local);
	write_labelled(scene, "tier", "peer", bytes.peer);
	write_labelled(scene, "tier", "host", bytes.host);
}

void hb_metrics_elastic_stays(struct hb_metrics_scene *scene)
{
	struct hb_elastic_bytes bytes = hb_elastic_count(scene->tenancy, scene->gpu_index);
	for (size_t i = 0; hb_tenancy_is_elastic(scene->tenancy) && i < HB_N_PAGE_STAYS; i++)
		write_labelled(scene, "reason", stay_keys[i], bytes.stays[i]);
}

/* NULL: the tenant has no elastic memory. */
static const struct hb_elastic_tenant *moves_of(const struct hb_metrics_scene *scene)
{
	return hb_tenancy_is_elastic(scene->tenancy) ? &scene->gpu->elastic->tenants[scene->tenancy->index] : NULL;
}

void hb_metrics_elastic_moves(struct hb_metrics_scene *scene)
{
	for (int i = 0; moves_of(scene) && i < 2; i++)
		write_labelled(scene, "direction", directions[i], moves_of(scene)->moves[i]);
}

void hb_metrics_elastic_bytes(struct hb_metrics_scene *scene)
{
	for (int i = 0; moves_of(scene) && i < 2; i++)
		write_labelled(scene, "direction", directions[i], moves_of(scene)->moved_bytes[i]);
}

void hb_metrics_elastic_time(struct hb_metrics_scene *scene)
{
	char labels[HB_METRICS_LABELS];
	for (int i = 0; moves_of(scene) && i < 2; i++)
		hb_prom_seconds(scene->out, scene->name,
				hb_metrics_own_label(scene, "direction", directions[i], labels),
				(uint64_t)moves_of(scene)->move_ns[i]);
}
