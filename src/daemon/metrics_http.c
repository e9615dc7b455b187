/* SPDX-License-Identifier: Apache-2.0 */
/* Serves metrics, status and the live page over HTTP; see metrics.h. */
#include "daemon/metrics.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/paths.h"
#include "daemon/http_server.h"
#include "daemon/status_json.h"
#include "live_page.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#define TEXT_TYPE "text/plain; version=0.0.4; charset=utf-8"

/* A page whose text is made for all who ask for it between two ticks. */
enum made_page { MADE_METRICS, MADE_STATUS, MADE_HISTORY, N_MADE_PAGES };

struct hb_metrics {
	struct hb_http *http; /* NULL = the server could not be started */
	struct hb_loop_share share;
	bool in_tick;                              /* requests that had to wait are served now */
	struct hb_shared_text *made[N_MADE_PAGES]; /* for them; NULL = not made yet */
};

static void set_answer(struct hb_http_answer *answer, const char *type, struct hb_shared_text *body)
{
	*answer = (struct hb_http_answer){.status = body ? 200 : 503, .type = type, .body = body};
}

static void set_constant(struct hb_http_answer *answer, const char *type, const char *text)
{
	set_answer(answer, type, hb_shared_text_new(strdup(text), strlen(text)));
}

typedef char *make_text_fn(struct hb_daemon *daemon, int64_t now_ns, size_t *length);

/* Sends the page that was made in this tick. If there is none, makes it, or lets the request wait until it may be made. */
static void serve_made(struct hb_daemon *daemon, enum made_page page, make_text_fn *make_text, const char *type,
		       struct hb_http_answer *answer)
{
	struct hb_metrics *metrics = daemon->metrics;
	int64_t begin_ns = hb_clock_now_ns();
	size_t length = 0;
	if (metrics->in_tick && metrics->made[page]) {
		set_answer(answer, type, hb_shared_text_use(metrics->made[page]));
		return;
	}
	if (begin_ns < metrics->share.next_ns) {
		answer->status = 0;
		return;
	}
	char *text = make_text(daemon, begin_ns, &length);
	struct hb_shared_text *made = hb_shared_text_new(text, length);
	if (metrics->in_tick && made)
		metrics->made[page] = hb_shared_text_use(made);
	set_answer(answer, type, made);
	hb_loop_share_spend(&metrics->share, begin_ns, hb_clock_now_ns());
}

static void serve_metrics(struct hb_daemon *daemon, struct hb_http_answer *answer)
{
	serve_made(daemon, MADE_METRICS, hb_metrics_text, TEXT_TYPE, answer);
}

/* Shortens "/usr/bin/python serve.py --token ..." to "python": every user of the machine can read these pages. */
static json_t *program_json(const char *command)
{
	command = hb_path_command(command);
	return json_stringn(command, strcspn(command, " "));
}

static void shorten_command(json_t *object, const char *key)
{
	const char *command = json_string_value(json_object_get(object, key));
	json_object_set_new(object, key, program_json(command ? command : ""));
}

/* The last fault in the MPS server names programs, too. */
static void shorten_fault(json_t *fault)
{
	json_t *entry;
	size_t i;
	if (!json_is_object(fault))
		return;
	shorten_command(fault, "command");
	json_array_foreach(json_object_get(fault, "harmed"), i, entry) shorten_command(entry, "command");
}

/* It changes every few seconds only, so it has a page of its own. */
static void remove_history(json_t *root)
{
	json_t *entry, *use;
	size_t i, j;
	json_array_foreach(json_object_get(root, "gpus"), i, entry) json_object_del(entry, "history");
	json_array_foreach(json_object_get(root, "tenants"), i, entry)
		json_array_foreach(json_object_get(entry, "gpus"), j, use) json_object_del(use, "history");
}

/* Takes over the reference to `root`; NULL = out of memory. */
static char *dump_json(json_t *root, size_t *length)
{
	char *text = root ? json_dumps(root, JSON_COMPACT) : NULL;
	json_decref(root);
	*length = text ? strlen(text) : 0;
	return text;
}

static char *make_status(struct hb_daemon *daemon, int64_t now_ns, size_t *length)
{
	json_t *root = hb_status_json(daemon, now_ns), *entry;
	size_t i;
	json_array_foreach(json_object_get(root, "tenants"), i, entry)
	{
		shorten_command(entry, "command");
		json_object_del(entry, "engine_why"); /* contains the command line of the other program */
	}
	remove_history(root);
	shorten_fault(json_object_get(json_object_get(json_object_get(root, "daemon"), "mps"), "fault"));
	json_array_foreach(json_object_get(root, "engines"), i, entry)
	{
		shorten_command(entry, "high");
		shorten_command(entry, "low");
	}
	return dump_json(root, length);
}

static void serve_status(struct hb_daemon *daemon, struct hb_http_answer *answer)
{
	serve_made(daemon, MADE_STATUS, make_status, "application/json", answer);
}

static char *make_history(struct hb_daemon *daemon, int64_t now_ns, size_t *length)
{
	return dump_json(hb_status_history(daemon, now_ns), length);
}

static void serve_history(struct hb_daemon *daemon, struct hb_http_answer *answer)
{
	serve_made(daemon, MADE_HISTORY, make_history, "application/json", answer);
}

static void serve_page(struct hb_daemon *daemon, struct hb_http_answer *answer)
{
	set_constant(answer, "text/html; charset=utf-8", live_html);
}

static void serve_health(struct hb_daemon *daemon, struct hb_http_answer *answer)
{
	set_constant(answer, "text/plain; charset=utf-8", "ok\n");
}

static const struct {
	const char *path;
	void (*serve)(struct hb_daemon *daemon, struct hb_http_answer *answer);
} pages[] = {
	{"/", serve_page},
	{"/metrics", serve_metrics},
	{"/status.json", serve_status},
	{"/history.json", serve_history},
	{"/healthz", serve_health},
};

static void handle_request(void *argument, const char *path, struct hb_http_answer *answer)
{
	answer->status = 404;
	for (size_t i = 0; i < sizeof pages / sizeof *pages; i++)
		if (strcmp(pages[i].path, path) == 0)
			pages[i].serve(argument, answer);
}

static int listen_on(struct hb_daemon *daemon, const char *text, struct hb_http **http, struct hb_error *error)
{
	struct sockaddr_storage address;
	int result = hb_http_address_parse(text, &address, error);
	if (result < 0)
		return result;
	if (!hb_http_address_is_loopback(&address))
		hb_log_warning(
			"metrics: %s is not a loopback address: everyone who can reach it can read who uses the GPUs",
			text);
	return hb_http_new(&daemon->loop, &address, handle_request, daemon, http, error);
}

void hb_metrics_new(struct hb_daemon *daemon)
{
	const char *text = daemon->options.metrics[0] ? daemon->options.metrics : daemon->config.metrics;
	struct hb_error error = {""};
	snprintf(daemon->metrics_why, sizeof daemon->metrics_why, "%s",
		 "not requested (hbd --metrics, or metrics: in hummingbird.yaml)");
	daemon->metrics = text[0] ? calloc(1, sizeof *daemon->metrics) : NULL;
	if (!daemon->metrics)
		return;
	if (listen_on(daemon, text, &daemon->metrics->http, &error) < 0) {
		snprintf(daemon->metrics_why, sizeof daemon->metrics_why, "%.60s: %.120s", text, error.text);
		hb_log_error("metrics are not served: %s", daemon->metrics_why);
		return;
	}
	daemon->metrics_why[0] = '\0';
	snprintf(daemon->metrics_address, sizeof daemon->metrics_address, "%s", hb_http_address(daemon->metrics->http));
	hb_log_info("metrics are served on http://%s/metrics", daemon->metrics_address);
}

void hb_metrics_free(struct hb_daemon *daemon)
{
	if (daemon->metrics)
		hb_http_free(daemon->metrics->http);
	free(daemon->metrics);
	daemon->metrics = NULL;
}

void hb_metrics_tick(struct hb_daemon *daemon, int64_t now_ns)
{
	struct hb_metrics *metrics = daemon->metrics;
	if (!metrics || !metrics->http)
		return;
	metrics->in_tick = true;
	hb_http_tick(metrics->http, now_ns);
	metrics->in_tick = false;
	for (size_t i = 0; i < N_MADE_PAGES; i++) {
		hb_shared_text_drop(metrics->made[i]);
		metrics->made[i] = NULL;
	}
}
