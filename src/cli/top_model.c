/* SPDX-License-Identifier: Apache-2.0 */
/* Computes the numbers of `hb top`; see top_model.h. */
#include "cli/top_model.h"

#include "base/clock.h"
#include "cli/status_fields.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

const char *const hb_top_sort_words[HB_TOP_SORT_KEYS + 1] = {
#define X(name, word, first, second, down) word,
	HB_TOP_SORTS(X)
#undef X
		NULL,
};

/* --- reading ------------------------------------------------------------------------- */

/* Sums over a tenant's GPUs. */
struct use_sums {
	int64_t requests, preemptions, used_ns, memory, away;
	bool used_known, used_estimated;
};

static struct use_sums sum_uses(const json_t *tenant)
{
	struct use_sums sum = {0};
	const json_t *use;
	size_t i;
	json_array_foreach(json_object_get(tenant, "gpus"), i, use)
	{
		sum.requests += hb_status_number(use, "requests");
		sum.preemptions += hb_status_number(use, "preemptions");
		sum.used_ns += hb_status_number(use, "used_ns");
		sum.used_known |= json_object_get(use, "used_ns") != NULL;
		sum.used_estimated |= json_is_true(json_object_get(use, "used_estimated"));
		sum.memory += hb_status_number(use, "memory_used");
		const json_t *elastic = json_object_get(use, "elastic");
		sum.away += hb_status_number(elastic, "peer") + hb_status_number(elastic, "host");
	}
	return sum;
}

static int64_t count_launches(const json_t *tenant)
{
	const json_t *counters = json_object_get(tenant, "counters");
	return hb_status_number(counters, "kernels") + hb_status_number(counters, "graphs");
}

/* --- tenants --------------------------------------------------------------------------- */

/* Returns the change per second. A counter that decreased (a new daemon, another engine) counts from 0. */
static double compute_rate(int64_t now, int64_t before, double seconds)
{
	int64_t change = now >= before ? now - before : now;
	return seconds > 0 ? (double)change / seconds : 0;
}

/* The daemon says what the tenant used (daemon/usage_history.h). A new kind of number counts from 0. */
static void fill_share(struct hb_top_tenant *to, const struct use_sums *now, const struct use_sums *before,
		       double seconds)
{
	bool same = now->used_estimated == before->used_estimated;
	double share = compute_rate(now->used_ns, same ? before->used_ns : 0, seconds) / (double)HB_NS_PER_S;
	to->share = !now->used_known ? HB_TOP_UNKNOWN : share < 1 ? share : 1;
	to->share_estimated = now->used_estimated;
}

static void fill_slo(struct hb_top_tenant *to, const json_t *tenant)
{
	const json_t *use = json_array_get(json_object_get(tenant, "gpus"), 0),
		     *latency = json_object_get(use, "latency");
	const json_t *met = json_object_get(use, "attainment_ppm");
	int64_t learned_ns = hb_status_number(use, "slo_ns"), asked_ns = hb_status_number(tenant, "slo_asked_ns");
	to->slo_ns = learned_ns > 0 ? learned_ns : asked_ns;
	to->target = (double)hb_status_number(tenant, "attainment_asked_ppm") / 1e6;
	to->met = json_is_integer(met) ? (double)json_integer_value(met) / 1e6 : HB_TOP_UNKNOWN;
	to->p50_ns = hb_status_number(latency, "p50_ns");
	to->p99_ns = hb_status_number(latency, "p99_ns");
	to->gate = *hb_status_text(use, "gate") ? hb_status_text(use, "gate") : "-";
}

static void fill_unready(struct hb_top_tenant *to, const json_t *tenant)
{
	const json_t *counters = json_object_get(tenant, "counters");
	int64_t requests = hb_status_number(counters, "requests"),
		held = hb_status_number(counters, "requests_with_takeover");
	bool known = to->high && requests > 0 && hb_status_number(counters, "signs") > 0;
	to->unready = known ? (double)(requests - held) / (double)requests : HB_TOP_UNKNOWN;
}

static void fill_tenant(struct hb_top_tenant *to, const json_t *tenant, const json_t *before, double seconds)
{
	const json_t *old = hb_status_find_tenant(before, hb_status_number(tenant, "id"));
	struct use_sums now = sum_uses(tenant), then = sum_uses(old);
	double over = old ? seconds : (double)hb_status_number(tenant, "age_ns") / (double)HB_NS_PER_S;
	to->id = (uint32_t)hb_status_number(tenant, "id");
	to->priority = hb_status_text(tenant, "priority");
	to->high = strcmp(to->priority, "high") == 0;
	to->server = strcmp(to->priority, "mps server") == 0;
	to->user = hb_status_text(tenant, "user");
	to->command = hb_status_text(tenant, "command");
	to->json = tenant;
	fill_slo(to, tenant);
	to->requests_s = compute_rate(now.requests, then.requests, over);
	to->launches_s = compute_rate(count_launches(tenant), count_launches(old), over);
	to->preemptions_s = compute_rate(now.preemptions, then.preemptions, over);
	to->memory = (uint64_t)now.memory;
	to->away = (uint64_t)now.away;
	fill_share(to, &now, &then, over);
	fill_unready(to, tenant);
}

/* --- GPUs ------------------------------------------------------------------------------------ */

static void fill_gpu(struct hb_top_gpu *to, const json_t *gpu)
{
	to->json = gpu;
	to->uuid = hb_status_text(gpu, "uuid");
	to->name = *hb_status_text(gpu, "name") ? hb_status_text(gpu, "name") : to->uuid;
	to->engine = hb_status_text(gpu, "engine");
	to->policy = hb_status_text(gpu, "policy");
	to->ejected = hb_status_text(gpu, "ejected");
	to->lost = json_is_true(json_object_get(json_object_get(gpu, "health"), "lost"));
	to->high = (uint32_t)hb_status_number(gpu, "high");
	to->low = (uint32_t)hb_status_number(gpu, "low");
	to->not_managed = (uint32_t)json_array_size(json_object_get(gpu, "uncovered"));
	to->memory_used = (uint64_t)hb_status_number(gpu, "memory_used");
	to->memory_total = (uint64_t)hb_status_number(gpu, "memory_total");
	const json_t *low = json_object_get(gpu, "low_active_ppm");
	to->harvest = json_is_integer(low) ? (double)json_integer_value(low) / 1e6 : HB_TOP_UNKNOWN;
	to->harvest_estimated = json_is_true(json_object_get(gpu, "low_active_estimated"));
}

/* --- the model ---------------------------------------------------------------------------------- */

int hb_top_model_make(struct hb_top_model *model, json_t *status, const json_t *before)
{
	const json_t *gpus = json_object_get(status, "gpus"), *tenants = json_object_get(status, "tenants"), *entry;
	struct hb_top_model made = {.n_gpus = json_array_size(gpus), .n_tenants = json_array_size(tenants)};
	int64_t up_ns = hb_status_number(json_object_get(status, "daemon"), "uptime_ns");
	int64_t up_before_ns = hb_status_number(json_object_get(before, "daemon"), "uptime_ns");
	size_t i;
	made.gpus = calloc(made.n_gpus + 1, sizeof *made.gpus);
	made.tenants = calloc(made.n_tenants + 1, sizeof *made.tenants);
	if (!made.gpus || !made.tenants) {
		hb_top_model_fini(&made);
		return -ENOMEM;
	}
	/* The counters of a daemon that was restarted since are not comparable. */
	if (before && up_ns > up_before_ns)
		made.seconds = (double)(up_ns - up_before_ns) / (double)HB_NS_PER_S;
	else
		before = NULL;
	json_array_foreach(tenants, i, entry) fill_tenant(&made.tenants[i], entry, before, made.seconds);
	json_array_foreach(gpus, i, entry) fill_gpu(&made.gpus[i], entry);
	made.status = status;
	*model = made;
	return 0;
}

void hb_top_model_fini(struct hb_top_model *model)
{
	free(model->gpus);
	free(model->tenants);
	json_decref(model->status);
	*model = (struct hb_top_model){.status = NULL};
}

struct tenant_order {
	enum hb_top_sort sort;
	bool reverse;
};

#define COMPARE(first, second) (((first) > (second)) - ((first) < (second)))

static int compare_tenants(const void *left, const void *right, void *argument)
{
	const struct hb_top_tenant *a = left, *b = right;
	const struct tenant_order *order = argument;
	int result = 0;
	bool reversed = order->reverse;
	switch (order->sort) {
#define X(name, word, first, second, down) \
	case HB_TOP_BY_##name: \
		result = COMPARE(first, second); \
		reversed ^= down; \
		break;
		HB_TOP_SORTS(X)
#undef X
	default:
		break;
	}
	if (result == 0)
		return COMPARE(a->id, b->id);
	return reversed ? -result : result;
}

static bool matches_word(const struct hb_top_tenant *tenant, const char *word)
{
	return strcasestr(tenant->command, word) || strcasestr(tenant->user, word) ||
	       strcasestr(tenant->priority, word);
}

void hb_top_model_arrange(struct hb_top_model *model, const char *filter, enum hb_top_sort sort, bool reverse)
{
	struct tenant_order order = {sort, reverse};
	size_t kept = 0;
	for (size_t i = 0; i < model->n_tenants; i++)
		if (matches_word(&model->tenants[i], filter))
			model->tenants[kept++] = model->tenants[i];
	model->n_tenants = kept;
	qsort_r(model->tenants, kept, sizeof *model->tenants, compare_tenants, &order);
}

const struct hb_top_tenant *hb_top_model_find(const struct hb_top_model *model, uint32_t id)
{
	for (size_t i = 0; i < model->n_tenants; i++)
		if (model->tenants[i].id == id)
			return &model->tenants[i];
	return NULL;
}
