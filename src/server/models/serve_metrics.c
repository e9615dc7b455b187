/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the metrics; see serve_metrics.h. The samples of a metric must be adjacent, so each metric is a loop over all models. */
#include "server/models/serve_metrics.h"

#include "base/prom_text.h"
#include "server/models/dispatch_load.h"
#include "server/models/model_info.h"

#include <stdlib.h>
#include <string.h>

#define LABELS_MAX 320

static const char *const priority_names[HB_SCHEDULER_PRIORITIES] = {"high", "low"};

static const char *const outcome_names[] = {
#define HB_ANSWER(name, http, grpc, reason) #name,
#include "server/kserve/status_codes.def"
#undef HB_ANSWER
};

struct metrics_page {
	FILE *out;
	const char *family;
	size_t row;
};

static size_t label_model(const struct hb_served_model *model, char labels[LABELS_MAX])
{
	size_t n = hb_prom_label(labels, LABELS_MAX, "model", model->config.name);
	labels[n++] = ',';
	return n + hb_prom_label(labels + n, LABELS_MAX - n, "version", "1");
}

static size_t append_label(char labels[LABELS_MAX], size_t n, const char *name, const char *value)
{
	labels[n++] = ',';
	return n + hb_prom_label(labels + n, LABELS_MAX - n, name, value);
}

/* ---- metrics with one value per model ---- */

static const struct {
	const char *name;
	enum hb_prom_type type;
	const char *help;
} rows[] = {
#define HB_SERVE_METRIC(name, type, value, help) {name, type, help},
#include "server/models/serve_metrics.def"
#undef HB_SERVE_METRIC
};

static uint64_t read_row_value(const struct hb_served_model_stats *stats, size_t row)
{
	const uint64_t values[] = {
#define HB_SERVE_METRIC(name, type, value, help) value,
#include "server/models/serve_metrics.def"
#undef HB_SERVE_METRIC
	};
	return values[row];
}

static void write_row(void *argument, struct hb_served_model *model)
{
	const struct metrics_page *page = argument;
	char labels[LABELS_MAX];
	label_model(model, labels);
	hb_prom_count(page->out, page->family, labels, read_row_value(&model->stats, page->row));
}

/* ---- metrics with several values per model ---- */

static void write_failures(void *argument, struct hb_served_model *model)
{
	static const char *const reasons[] = {"REJECTED", "CANCELED", "BACKEND", "TIMEOUT", "OTHER"};
	const struct metrics_page *page = argument;
	char labels[LABELS_MAX];
	for (size_t r = 0; r < sizeof(reasons) / sizeof(*reasons); r++) {
		uint64_t n = 0;
		for (int answer = 0; answer < HB_ANSWERS; answer++)
			if (strcmp(hb_answer_reason((enum hb_answer)answer), reasons[r]) == 0)
				n += model->stats.answers[HB_SCHEDULER_HIGH][answer] +
				     model->stats.answers[HB_SCHEDULER_LOW][answer];
		append_label(labels, label_model(model, labels), "reason", reasons[r]);
		hb_prom_count(page->out, page->family, labels, n);
	}
}

static void write_outcomes(void *argument, struct hb_served_model *model)
{
	const struct metrics_page *page = argument;
	char labels[LABELS_MAX];
	for (int p = 0; p < HB_SCHEDULER_PRIORITIES; p++)
		for (int answer = 0; answer < HB_ANSWERS; answer++) {
			size_t n = append_label(labels, label_model(model, labels), "priority", priority_names[p]);
			append_label(labels, n, "outcome", outcome_names[answer]);
			hb_prom_count(page->out, page->family, labels, model->stats.answers[p][answer]);
		}
}

static void write_missed(void *argument, struct hb_served_model *model)
{
	const struct metrics_page *page = argument;
	char labels[LABELS_MAX];
	for (int p = 0; p < HB_SCHEDULER_PRIORITIES; p++) {
		append_label(labels, label_model(model, labels), "priority", priority_names[p]);
		const uint64_t *answers = model->stats.answers[p];
		hb_prom_count(page->out, page->family, labels,
			      model->stats.late[p] + answers[HB_ANSWER_LATE] + answers[HB_ANSWER_TIMEOUT]);
	}
}

static void write_latency(void *argument, struct hb_served_model *model)
{
	const struct metrics_page *page = argument;
	char labels[LABELS_MAX];
	for (int p = 0; p < HB_SCHEDULER_PRIORITIES; p++) {
		append_label(labels, label_model(model, labels), "priority", priority_names[p]);
		hb_prom_histogram(page->out, page->family, labels, model->latency[p]);
	}
}

static void write_ready(void *argument, struct hb_served_model *model)
{
	const struct metrics_page *page = argument;
	char labels[LABELS_MAX];
	label_model(model, labels);
	hb_prom_count(page->out, page->family, labels, model->state == HB_SERVED_MODEL_READY);
}

static void write_shares(const struct metrics_page *page, const struct hb_served_model *model, const char *name,
			 const double shares[2], enum hb_demand_origin origin)
{
	static const char *const batches[2] = {"one", "most"};
	char labels[LABELS_MAX];
	for (int i = 0; i < 2; i++) {
		size_t n = append_label(labels, label_model(model, labels), "demand", name);
		n = append_label(labels, n, "batch", batches[i]);
		append_label(labels, n, "source", hb_model_info_origin(origin));
		hb_prom_ratio(page->out, page->family, labels, (uint64_t)(shares[i] * 1e6 + 0.5));
	}
}

static void write_demand(void *argument, struct hb_served_model *model)
{
	const struct hb_served_demand *demand = &model->demand;
	write_shares(argument, model, "sm_share", demand->used.sm, demand->sm);
	write_shares(argument, model, "memory_share", demand->used.memory, demand->memory);
}

static void write_transfer(void *argument, struct hb_served_model *model)
{
	const struct metrics_page *page = argument;
	const struct hb_served_demand *demand = &model->demand;
	char labels[LABELS_MAX];
	for (int out = 0; out < 2; out++) {
		size_t n = append_label(labels, label_model(model, labels), "direction", out ? "out" : "in");
		append_label(labels, n, "source", hb_model_info_origin(demand->transfer));
		hb_prom_count(page->out, page->family, labels,
			      (uint64_t)(out ? demand->used.out_bytes : demand->used.in_bytes));
	}
}

static void write_trial(void *argument, struct hb_served_model *model)
{
	const struct metrics_page *page = argument;
	char labels[LABELS_MAX];
	label_model(model, labels);
	hb_prom_count(page->out, page->family, labels, model->demand.is_wanted);
}

/* What the schedulers of all GPUs have counted together. */
struct scheduler_sums {
	uint64_t queued[HB_SCHEDULER_PRIORITIES], admitted[HB_SCHEDULER_PRIORITIES], full[HB_SCHEDULER_PRIORITIES];
	uint64_t pauses, aged;
};

static void add_up(struct hb_scheduler *const *schedulers, uint32_t n, struct scheduler_sums *sums)
{
	*sums = (struct scheduler_sums){0};
	for (uint32_t i = 0; i < n; i++) {
		const struct hb_scheduler_counts *counts = hb_scheduler_counts_get(schedulers[i]);
		for (int p = 0; p < HB_SCHEDULER_PRIORITIES; p++) {
			sums->queued[p] += hb_scheduler_queued(schedulers[i], p);
			sums->admitted[p] += hb_scheduler_admitted(schedulers[i], p);
			sums->full[p] += counts->full[p];
		}
		sums->pauses += counts->pauses;
		sums->aged += counts->aged;
	}
}

static void write_errors(const struct metrics_page *page, struct hb_scheduler *const *schedulers, uint32_t n)
{
	static const struct {
		const char *label;
		double share;
	} quantiles[] = {{"0.5", 0.5}, {"0.95", 0.95}};
	char labels[LABELS_MAX], number[16];
	hb_prom_family(page->out, "hb_serve_prediction_error_ratio", HB_PROM_GAUGE,
		       "Quantiles of the relative errors |actual / predicted - 1| of the last batches");
	for (uint32_t i = 0; i < n; i++)
		for (size_t q = 0; q < 2; q++) {
			const struct hb_predictor *predictor = hb_scheduler_predictor(schedulers[i]);
			double error = hb_quantile_ring_get(&predictor->error_size, quantiles[q].share, 0);
			size_t length = hb_prom_label(labels, sizeof(labels), "quantile", quantiles[q].label);
			snprintf(number, sizeof(number), "%u", i);
			if (n > 1)
				append_label(labels, length, "gpu", number);
			hb_prom_ratio(page->out, "hb_serve_prediction_error_ratio", labels, (uint64_t)(error * 1e6));
		}
}

static void write_by_priority(const struct metrics_page *page, const char *name, enum hb_prom_type type,
			      const uint64_t counts[HB_SCHEDULER_PRIORITIES], const char *help)
{
	char labels[LABELS_MAX];
	hb_prom_family(page->out, name, type, help);
	for (int p = 0; p < HB_SCHEDULER_PRIORITIES; p++) {
		hb_prom_label(labels, sizeof(labels), "priority", priority_names[p]);
		hb_prom_count(page->out, name, labels, counts[p]);
	}
}

static void write_count(const struct metrics_page *page, const char *name, enum hb_prom_type type, uint64_t count,
			const char *help)
{
	hb_prom_family(page->out, name, type, help);
	hb_prom_count(page->out, name, "", count);
}

static void write_schedulers(void *argument, struct hb_scheduler *const *schedulers, uint32_t n)
{
	const struct metrics_page *page = argument;
	struct scheduler_sums sums;
	add_up(schedulers, n, &sums);
	write_errors(page, schedulers, n);
	write_by_priority(page, "hb_serve_queued_requests", HB_PROM_GAUGE, sums.queued,
			  "Requests that wait in the queue, by priority");
	write_by_priority(page, "hb_serve_admitted_requests", HB_PROM_GAUGE, sums.admitted,
			  "Requests that wait or run, by priority");
	write_count(page, "hb_serve_admitted_requests_limit", HB_PROM_GAUGE, hb_scheduler_queue_max(schedulers[0]),
		    "Limit of requests that wait or run, for each priority (--queue)");
	write_count(page, "hb_serve_pauses_total", HB_PROM_COUNTER, sums.pauses,
		    "Times that a low-priority batch was paused because high priority would have missed a deadline");
	write_count(page, "hb_serve_aged_batches_total", HB_PROM_COUNTER, sums.aged,
		    "Low-priority batches that started, or were resumed, because they had waited too long");
	write_by_priority(page, "hb_serve_queue_full_total", HB_PROM_COUNTER, sums.full,
			  "Requests refused because the limit of their priority (--queue) was reached");
}

/* The shares of the models that had a request, by priority. */
struct in_time_shares {
	double share[HB_SCHEDULER_PRIORITIES][HB_SCHEDULER_MODELS_MAX];
	uint32_t n[HB_SCHEDULER_PRIORITIES];
};

static void collect_shares(void *argument, struct hb_served_model *model)
{
	struct in_time_shares *shares = argument;
	for (int p = 0; p < HB_SCHEDULER_PRIORITIES; p++)
		if (model->stats.in_time[p].known && shares->n[p] < HB_SCHEDULER_MODELS_MAX)
			shares->share[p][shares->n[p]++] = model->stats.in_time[p].value;
}

static void write_fairness(struct hb_dispatch *dispatch, FILE *out)
{
	struct in_time_shares shares = {.n = {0}};
	char labels[LABELS_MAX];
	hb_dispatch_each_model(dispatch, collect_shares, &shares);
	hb_prom_family(out, "hb_serve_fairness_ratio", HB_PROM_GAUGE,
		       "Jain's index of the models' shares of recent requests in time, by priority; 1 = all equal");
	for (int p = 0; p < HB_SCHEDULER_PRIORITIES; p++) {
		hb_prom_label(labels, sizeof(labels), "priority", priority_names[p]);
		hb_prom_ratio(out, "hb_serve_fairness_ratio", labels,
			      (uint64_t)(hb_jain_index(shares.share[p], shares.n[p]) * 1e6 + 0.5));
	}
}

static void write_families(struct hb_dispatch *dispatch, struct metrics_page *page)
{
	static const struct {
		const char *name;
		enum hb_prom_type type;
		void (*write)(void *argument, struct hb_served_model *model);
		const char *help;
	} families[] = {
		{"hb_serve_model_ready", HB_PROM_GAUGE, write_ready, "1 if the model is ready, else 0"},
		{"nv_inference_request_failure", HB_PROM_COUNTER, write_failures,
		 "Number of failed inference requests, by reason"},
		{"hb_serve_requests_total", HB_PROM_COUNTER, write_outcomes,
		 "Requests answered, by priority and outcome"},
		{"hb_serve_deadlines_missed_total", HB_PROM_COUNTER, write_missed,
		 "Requests refused because they would be late, timed out, or answered after their deadline"},
		{"hb_serve_model_demand_ratio", HB_PROM_GAUGE, write_demand,
		 "Share of the GPU that a batch of one item and the largest batch use alone, by source: default, typed, measured, recorded"},
		{"hb_serve_model_transfer_bytes", HB_PROM_GAUGE, write_transfer,
		 "Bytes of one item copied to the GPU and back, by source"},
		{"hb_serve_model_demand_trial", HB_PROM_GAUGE, write_trial,
		 "1 while the model's demand is being measured or waits for that, else 0"},
		{"hb_serve_request_seconds", HB_PROM_HISTOGRAM, write_latency,
		 "Time from the arrival of a request to its results, in the server"},
	};
	for (size_t i = 0; i < sizeof(families) / sizeof(*families); i++) {
		page->family = families[i].name;
		hb_prom_family(page->out, page->family, families[i].type, families[i].help);
		hb_dispatch_each_model(dispatch, families[i].write, page);
	}
}

static void write_memory(FILE *out, const struct hb_memory_budget *memory)
{
	hb_prom_family(out, "hb_serve_request_memory_bytes", HB_PROM_GAUGE, "Memory used by requests");
	uint64_t connections = atomic_load(&memory->connection_bytes), used = atomic_load(&memory->used_bytes);
	hb_prom_count(out, "hb_serve_request_memory_bytes", "", used > connections ? used - connections : 0);
	hb_prom_family(out, "hb_serve_connection_memory_bytes", HB_PROM_GAUGE,
		       "Memory used by gRPC connections; a part of the limit of the memory used by requests");
	hb_prom_count(out, "hb_serve_connection_memory_bytes", "", connections);
	hb_prom_family(out, "hb_serve_request_memory_limit_bytes", HB_PROM_GAUGE,
		       "Limit of the memory used by requests (--memory)");
	hb_prom_count(out, "hb_serve_request_memory_limit_bytes", "", memory->limit_bytes);
}

char *hb_serve_metrics(struct hb_dispatch *dispatch, const struct hb_memory_budget *memory,
		       const struct hb_access *access, const struct hb_tls *tls, size_t *bytes)
{
	char *text = NULL;
	struct metrics_page page = {.out = open_memstream(&text, bytes)};
	if (!page.out)
		return NULL;
	for (page.row = 0; page.row < sizeof(rows) / sizeof(*rows); page.row++) {
		page.family = rows[page.row].name;
		hb_prom_family(page.out, page.family, rows[page.row].type, rows[page.row].help);
		hb_dispatch_each_model(dispatch, write_row, &page);
	}
	write_families(dispatch, &page);
	write_fairness(dispatch, page.out);
	hb_dispatch_inspect(dispatch, write_schedulers, &page);
	hb_prom_family(page.out, "hb_serve_waiting_loads", HB_PROM_GAUGE, "Requests to load a model that wait");
	hb_prom_count(page.out, "hb_serve_waiting_loads", "", hb_dispatch_waiting_loads(dispatch));
	if (memory)
		write_memory(page.out, memory);
	hb_access_write_metrics(access, page.out);
	if (tls)
		hb_tls_write_metrics(tls, page.out);
	if (fclose(page.out) != 0) {
		free(text);
		return NULL;
	}
	return text;
}
