/* SPDX-License-Identifier: Apache-2.0 */
/* See top_model.h. */
#include "cli/top_model.h"

#include "base/clock.h"

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

static const char *text_of(const json_t *object, const char *key)
{
	const char *text = json_string_value(json_object_get(object, key));
	return text ? text : "";
}

static int64_t number_of(const json_t *object, const char *key)
{
	return json_integer_value(json_object_get(object, key));
}

static const json_t *inside(const json_t *object, const char *key)
{
	return json_object_get(object, key);
}

/* What is summed over a tenant's GPUs. */
struct use_sums {
	int64_t requests, together, preempted, latency_ns, turn_ns, active_ns, memory;
	bool active_known;
};

static struct use_sums sum_uses(const json_t *tenant)
{
	struct use_sums sum = {0};
	const json_t *use;
	size_t i;
	json_array_foreach(inside(tenant, "gpus"), i, use)
	{
		const json_t *scheduling = inside(use, "scheduling");
		sum.requests += number_of(use, "requests");
		sum.together += number_of(use, "requests") - number_of(scheduling, "requests_alone");
		sum.preempted += number_of(use, "preempted");
		sum.latency_ns += number_of(inside(use, "latency"), "sum_ns");
		sum.turn_ns += number_of(scheduling, "turn_time");
		sum.active_ns += number_of(use, "active_ns");
		sum.active_known |= inside(use, "active_ns") != NULL;
		sum.memory += number_of(use, "memory_used");
	}
	return sum;
}

static int64_t count_launches(const json_t *tenant)
{
	const json_t *counters = inside(tenant, "counters");
	return number_of(counters, "kernels") + number_of(counters, "graphs");
}

static const json_t *find_tenant(const json_t *status, int64_t id)
{
	const json_t *tenant;
	size_t i;
	json_array_foreach(inside(status, "tenants"), i, tenant) if (number_of(tenant, "id") == id) return tenant;
	return NULL;
}

/* --- tenants --------------------------------------------------------------------------- */

/* Change a second; a counter that went back (the daemon is a new one, an engine was changed) counts as from 0. */
static double rate(int64_t now, int64_t before, double seconds)
{
	int64_t change = now >= before ? now - before : now;
	return seconds > 0 ? (double)change / seconds : 0;
}

static double limited(double share)
{
	return share > 1 ? 1 : share;
}

/* Requests and turns are exact; where there are neither, launching stands for being on the GPU. */
static void fill_share(struct hb_top_tenant *to, const struct use_sums *now, const struct use_sums *before,
		       double seconds)
{
	double second_ns = (double)HB_NS_PER_S;
	bool exact = to->high ? now->latency_ns > 0 : now->turn_ns > 0;
	int64_t here = exact ? (to->high ? now->latency_ns : now->turn_ns) : now->active_ns;
	int64_t there = exact ? (to->high ? before->latency_ns : before->turn_ns) : before->active_ns;
	bool known = !to->server && (exact || now->active_known);
	to->share = known ? limited(rate(here, there, seconds) / second_ns) : HB_TOP_UNKNOWN;
	to->share_estimated = !exact;
}

static void fill_slo(struct hb_top_tenant *to, const json_t *tenant)
{
	const json_t *use = json_array_get(inside(tenant, "gpus"), 0), *latency = inside(use, "latency");
	const json_t *met = inside(use, "attainment_ppm");
	int64_t learned_ns = number_of(use, "slo_ns"), asked_ns = number_of(tenant, "slo_asked_ns");
	to->slo_ns = learned_ns > 0 ? learned_ns : asked_ns;
	to->target = (double)number_of(tenant, "attainment_asked_ppm") / 1e6;
	to->met = json_is_integer(met) ? (double)json_integer_value(met) / 1e6 : HB_TOP_UNKNOWN;
	to->p50_ns = number_of(latency, "p50_ns");
	to->p99_ns = number_of(latency, "p99_ns");
	to->gate = *text_of(use, "gate") ? text_of(use, "gate") : "-";
}

static void fill_missed(struct hb_top_tenant *to, const json_t *tenant)
{
	const json_t *counters = inside(tenant, "counters");
	int64_t requests = number_of(counters, "requests"), held = number_of(counters, "requests_with_takeover");
	bool known = to->high && requests > 0 && number_of(counters, "signs") > 0;
	to->missed = known ? (double)(requests - held) / (double)requests : HB_TOP_UNKNOWN;
}

static void fill_tenant(struct hb_top_tenant *to, const json_t *tenant, const json_t *before, double seconds)
{
	const json_t *old = find_tenant(before, number_of(tenant, "id"));
	struct use_sums now = sum_uses(tenant), then = sum_uses(old);
	double over = old ? seconds : (double)number_of(tenant, "age_ns") / (double)HB_NS_PER_S;
	to->id = (uint32_t)number_of(tenant, "id");
	to->priority = text_of(tenant, "priority");
	to->high = strcmp(to->priority, "high") == 0;
	to->server = strcmp(to->priority, "mps server") == 0;
	to->user = text_of(tenant, "user");
	to->command = text_of(tenant, "command");
	to->json = tenant;
	fill_slo(to, tenant);
	to->requests_s = rate(now.requests, then.requests, over);
	to->launches_s = rate(count_launches(tenant), count_launches(old), over);
	to->preemptions_s = to->high ? rate(now.together, then.together, over)
				     : rate(now.preempted, then.preempted, over);
	to->memory = (uint64_t)now.memory;
	fill_share(to, &now, &then, over);
	fill_missed(to, tenant);
}

/* --- GPUs ------------------------------------------------------------------------------------ */

static bool uses_gpu(const struct hb_top_tenant *tenant, const char *uuid)
{
	const json_t *use;
	size_t i;
	json_array_foreach(inside(tenant->json, "gpus"), i,
			   use) if (strcmp(text_of(use, "gpu"), uuid) == 0) return true;
	return false;
}

/* What LP had: its turns; or, where the hardware switches, the time it launched in, less the requests of HP. */
static double measure_harvest(const struct hb_top_model *model, struct hb_top_gpu *gpu)
{
	double turns = 0, active = 0, high = 0;
	bool any = false;
	for (size_t i = 0; i < model->n_tenants; i++) {
		const struct hb_top_tenant *tenant = &model->tenants[i];
		if (tenant->server || !uses_gpu(tenant, gpu->uuid))
			continue;
		if (tenant->high) {
			high += tenant->share_estimated ? 0 : tenant->share;
			continue;
		}
		if (tenant->share < 0)
			continue;
		any = true;
		gpu->harvest_estimated |= tenant->share_estimated;
		turns += tenant->share;
		active = tenant->share > active ? tenant->share : active;
	}
	if (!any)
		return HB_TOP_UNKNOWN;
	return gpu->harvest_estimated ? active * (1 - limited(high)) : limited(turns);
}

static void fill_gpu(struct hb_top_gpu *to, const json_t *gpu)
{
	to->uuid = text_of(gpu, "uuid");
	to->name = *text_of(gpu, "name") ? text_of(gpu, "name") : to->uuid;
	to->engine = text_of(gpu, "engine");
	to->policy = text_of(gpu, "policy");
	to->ejected = text_of(gpu, "ejected");
	to->high = (uint32_t)number_of(gpu, "high");
	to->low = (uint32_t)number_of(gpu, "low");
	to->uncovered = (uint32_t)json_array_size(inside(gpu, "uncovered"));
	to->memory_used = (uint64_t)number_of(gpu, "memory_used");
	to->memory_total = (uint64_t)number_of(gpu, "memory_total");
}

/* --- the whole ---------------------------------------------------------------------------------- */

int hb_top_model_make(struct hb_top_model *model, json_t *status, const json_t *before)
{
	const json_t *gpus = inside(status, "gpus"), *tenants = inside(status, "tenants"), *entry;
	struct hb_top_model made = {.n_gpus = json_array_size(gpus), .n_tenants = json_array_size(tenants)};
	int64_t up_ns = number_of(inside(status, "daemon"), "uptime_ns");
	int64_t up_before_ns = number_of(inside(before, "daemon"), "uptime_ns");
	size_t i;
	made.gpus = calloc(made.n_gpus + 1, sizeof *made.gpus);
	made.tenants = calloc(made.n_tenants + 1, sizeof *made.tenants);
	if (!made.gpus || !made.tenants) {
		hb_top_model_fini(&made);
		return -ENOMEM;
	}
	/* A daemon that started anew has another past. */
	if (before && up_ns > up_before_ns)
		made.seconds = (double)(up_ns - up_before_ns) / (double)HB_NS_PER_S;
	else
		before = NULL;
	json_array_foreach(tenants, i, entry) fill_tenant(&made.tenants[i], entry, before, made.seconds);
	json_array_foreach(gpus, i, entry)
	{
		fill_gpu(&made.gpus[i], entry);
		made.gpus[i].harvest = measure_harvest(&made, &made.gpus[i]);
	}
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

struct order {
	enum hb_top_sort sort;
	bool reverse;
};

#define COMPARE(first, second) (((first) > (second)) - ((first) < (second)))

static int compare(const void *left, const void *right, void *argument)
{
	const struct hb_top_tenant *a = left, *b = right;
	const struct order *order = argument;
	int result = 0;
	bool turned = order->reverse;
	switch (order->sort) {
#define X(name, word, first, second, down) \
	case HB_TOP_BY_##name: \
		result = COMPARE(first, second); \
		turned ^= down; \
		break;
		HB_TOP_SORTS(X)
#undef X
	default:
		break;
	}
	if (result == 0)
		return COMPARE(a->id, b->id);
	return turned ? -result : result;
}

static bool has_word(const struct hb_top_tenant *tenant, const char *word)
{
	return strcasestr(tenant->command, word) || strcasestr(tenant->user, word) ||
	       strcasestr(tenant->priority, word);
}

void hb_top_model_arrange(struct hb_top_model *model, const char *filter, enum hb_top_sort sort, bool reverse)
{
	struct order order = {sort, reverse};
	size_t kept = 0;
	for (size_t i = 0; i < model->n_tenants; i++)
		if (has_word(&model->tenants[i], filter))
			model->tenants[kept++] = model->tenants[i];
	model->n_tenants = kept;
	qsort_r(model->tenants, kept, sizeof *model->tenants, compare, &order);
}

const struct hb_top_tenant *hb_top_model_find(const struct hb_top_model *model, uint32_t id)
{
	for (size_t i = 0; i < model->n_tenants; i++)
		if (model->tenants[i].id == id)
			return &model->tenants[i];
	return NULL;
}
