/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Computes what `hb top` shows (rates, shares, attainment) from the daemon's status and an earlier status, and sorts and
 * filters the tenants. Pure: it uses no terminal, no daemon and no clock.
 */
#ifndef HB_CLI_TOP_MODEL_H
#define HB_CLI_TOP_MODEL_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HB_TOP_UNKNOWN (-1.0)

struct hb_top_gpu {
	const char *uuid, *name, *engine, *policy, *ejected;
	bool lost;                          /* the GPU does not answer the driver */
	uint32_t high, low, not_managed;    /* tenants of each priority; processes that belong to no tenant */
	uint64_t memory_used, memory_total; /* bytes; memory_total 0 = not known */
	const json_t *json;                 /* the GPU's entry in the status */
	double harvest;         /* share of the last 5 s in which low priority had the GPU, or HB_TOP_UNKNOWN */
	bool harvest_estimated; /* `harvest` is estimated from the times of launches, because there are no turns */
};

struct hb_top_tenant {
	uint32_t id;
	const char *priority, *user, *command, *gate;
	bool high, server;
	int64_t slo_ns; /* 0 = none, -1 = being learned */
	double target;  /* share of requests that must meet the SLO */
	double met;     /* share of requests that met the SLO, or HB_TOP_UNKNOWN */
	double requests_s, launches_s, preemptions_s;
	int64_t p50_ns, p99_ns; /* 0 = no request yet */
	double share;           /* share of the time on the GPU, or HB_TOP_UNKNOWN */
	bool share_estimated;   /* `share` is estimated from the times of launches */
	double unready;         /* share of requests that arrived before the GPU was taken over, or HB_TOP_UNKNOWN */
	uint64_t memory;
	uint64_t away;      /* part of `memory` that has moved to another GPU or to the host */
	const json_t *json; /* the tenant's entry in the status */
};

struct hb_top_model {
	json_t *status; /* owned; the texts above point into it */
	double seconds; /* interval of the rates; 0 = since each tenant started */
	struct hb_top_gpu *gpus;
	size_t n_gpus;
	struct hb_top_tenant *tenants;
	size_t n_tenants;
};

/* Sort keys: X(NAME, word of --sort, value of tenant a, value of tenant b, largest first). */
#define HB_TOP_SORTS(X) \
	X(ID, "id", a->id, b->id, false) \
	X(PRIORITY, "priority", b->high, a->high, false) \
	X(REQUESTS, "requests", a->requests_s, b->requests_s, true) \
	X(P99, "p99", a->p99_ns, b->p99_ns, true) \
	X(MET, "met", a->met, b->met, false) \
	X(SHARE, "share", a->share, b->share, true) \
	X(MEMORY, "memory", a->memory, b->memory, true) \
	X(PREEMPTIONS, "preemptions", a->preemptions_s, b->preemptions_s, true)
enum hb_top_sort {
#define X(name, word, first, second, down) HB_TOP_BY_##name,
	HB_TOP_SORTS(X)
#undef X
		HB_TOP_SORT_KEYS
};
extern const char *const hb_top_sort_words[HB_TOP_SORT_KEYS + 1]; /* NULL at the end */

/*
 * Computes the model of `status`, the JSON of `hb status --json`; takes over its reference on success. `before` is an
 * earlier status or NULL. Missing fields count as 0, so that an older daemon can be shown. Returns 0 or -ENOMEM.
 */
int hb_top_model_make(struct hb_top_model *model, json_t *status, const json_t *before);
void hb_top_model_fini(struct hb_top_model *model);
/* Keeps the tenants with the word `filter` in program, user or priority ("" = all), and sorts them. */
void hb_top_model_arrange(struct hb_top_model *model, const char *filter, enum hb_top_sort sort, bool reverse);
const struct hb_top_tenant *hb_top_model_find(const struct hb_top_model *model, uint32_t id);

#endif
