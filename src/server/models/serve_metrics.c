/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the metrics; see serve_metrics.h. The samples of a metric must be adjacent, so each metric is a loop over all models. */
#include "server/models/serve_metrics.h"

#include "base/prom_text.h"
#include "server/models/dispatch_load.h"

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

static void write_predictions(void *argument, const struct hb_scheduler *scheduler)
{
	const struct metrics_page *page = argument;
	const struct hb_predictor *predictor = hb_scheduler_predictor(scheduler);
	static const struct {
		const char *label;
		double share;
	} quantiles[] = {{"0.5", 0.5}, {"0.95", 0.95}};
	char labels[LABELS_MAX];
	hb_prom_family(page->out, "hb_serve_prediction_error_ratio", HB_PROM_GAUGE,
		       "Quantiles of the relative errors |actual / predicted - 1| of the last batches");
	for (size_t i = 0; i < 2; i++) {
		hb_prom_label(labels, sizeof(labels), "quantile", quantiles[i].label);
		hb_prom_ratio(page->out, "hb_serve_prediction_error_ratio", labels,
			      (uint64_t)(hb_quantile_ring_get(&predictor->error_size, quantiles[i].share, 0) * 1e6));
	}
	hb_prom_family(page->out, "hb_serve_queued_requests", HB_PROM_GAUGE,
		       "Requests that wait in the queue, by priority");
	for (int p = 0; p < HB_SCHEDULER_PRIORITIES; p++) {
		hb_prom_label(labels, sizeof(labels), "priority", priority_names[p]);
		hb_prom_count(page->out, "hb_serve_queued_requests", labels, hb_scheduler_queued(scheduler, p));
	}
}

/* Writes the admitted requests of each priority, their limit (which holds for each priority alone), and pauses. */
static void write_queues(void *argument, const struct hb_scheduler *scheduler)
{
	const struct metrics_page *page = argument;
	char labels[LABELS_MAX];
	hb_prom_family(page->out, "hb_serve_admitted_requests", HB_PROM_GAUGE,
		       "Requests that wait or run, by priority");
	for (int p = 0; p < HB_SCHEDULER_PRIORITIES; p++) {
		hb_prom_label(labels, sizeof(labels), "priority", priority_names[p]);
		hb_prom_count(page->out, "hb_serve_admitted_requests", labels, hb_scheduler_admitted(scheduler, p));
	}
	hb_prom_family(page->out, "hb_serve_admitted_requests_limit", HB_PROM_GAUGE,
		       "Limit of requests that wait or run, for each priority (--queue)");
	hb_prom_count(page->out, "hb_serve_admitted_requests_limit", "", hb_scheduler_queue_max(scheduler));
	hb_prom_family(page->out, "hb_serve_pauses_total", HB_PROM_COUNTER,
		       "Times that a low-priority batch was paused because high priority would have missed a deadline");
	hb_prom_count(page->out, "hb_serve_pauses_total", "", hb_scheduler_counts_get(scheduler)->pauses);
	hb_prom_family(page->out, "hb_serve_aged_batches_total", HB_PROM_COUNTER,
		       "Low-priority batches that started, or were resumed, because they had waited too long");
	hb_prom_count(page->out, "hb_serve_aged_batches_total", "", hb_scheduler_counts_get(scheduler)->aged);
	hb_prom_family(page->out, "hb_serve_queue_full_total", HB_PROM_COUNTER,
		       "Requests refused because the limit of their priority (--queue) was reached");
	for (int p = 0; p < HB_SCHEDULER_PRIORITIES; p++) {
		hb_prom_label(labels, sizeof(labels), "priority", priority_names[p]);
		hb_prom_count(page->out, "hb_serve_queue_full_total", labels,
			      hb_scheduler_counts_get(scheduler)->full[p]);
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
	hb_dispatch_inspect(dispatch, write_predictions, &page);
	hb_dispatch_inspect(dispatch, write_queues, &page);
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
