/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What `hb top` shows, computed from the daemon's status and the one before it:
 * rates, shares, attainment; sorted and filtered. Pure: no terminal, no daemon,
 * no clock. Used by cmd_top.c, top_view.c and top_screen.c.
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
	uint32_t high, low, uncovered;
	uint64_t memory_used, memory_total; /* total 0 = not known */
	double harvest;                     /* share of the time that low priority had the GPU; HB_TOP_UNKNOWN */
	bool harvest_estimated;             /* from when it launched, not from its turns */
};

struct hb_top_tenant {
	uint32_t id;
	const char *priority, *user, *command, *gate;
	bool high, server;
	int64_t slo_ns; /* 0 = none, -1 = being learned */
	double target;  /* share of requests that must meet it */
	double met;     /* share that did; HB_TOP_UNKNOWN */
	double requests_s, launches_s, preemptions_s;
	int64_t p50_ns, p99_ns; /* 0 = no request yet */
	double share;           /* of the time on the GPU; HB_TOP_UNKNOWN */
	bool share_estimated;   /* from when it launched, not from what ran */
	double missed;          /* share of requests that found the GPU not held; HB_TOP_UNKNOWN */
	uint64_t memory;
	const json_t *json; /* its entry in the status */
};

struct hb_top_model {
	json_t *status; /* kept alive for the texts above */
	double seconds; /* what rates are over; 0 = since each tenant began */
	struct hb_top_gpu *gpus;
	size_t n_gpus;
	struct hb_top_tenant *tenants;
	size_t n_tenants;
};

/* How tenants can be sorted: HB_TOP_SORT(NAME, "word", what is compared; the largest first where `down`). */
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
 * `status` as `hb status --json` gives it (its reference is taken over on
 * success), `before` an earlier one or NULL. Missing fields count as 0, so that
 * an older daemon can be looked at. 0 or -ENOMEM.
 */
int hb_top_model_make(struct hb_top_model *model, json_t *status, const json_t *before);
void hb_top_model_fini(struct hb_top_model *model);
/* Leaves those whose program, user or priority has the word in it ("" = all), in this order. */
void hb_top_model_arrange(struct hb_top_model *model, const char *filter, enum hb_top_sort sort, bool reverse);
const struct hb_top_tenant *hb_top_model_find(const struct hb_top_model *model, uint32_t id);

#endif
