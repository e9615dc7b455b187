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

struct hb_metrics {
	struct hb_http *http; /* NULL = the server could not be started */
};

static void set_answer(struct hb_http_answer *answer, const char *type, char *text, size_t length)
{
	*answer = (struct hb_http_answer){
		.status = text ? 200 : 503, .type = type, .body = text, .body_length = length};
}

static void serve_metrics(struct hb_daemon *daemon, struct hb_http_answer *answer)
{
	size_t length = 0;
	char *text = hb_metrics_text(daemon, hb_clock_now_ns(), &length);
	set_answer(answer, TEXT_TYPE, text, length);
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

static void serve_status(struct hb_daemon *daemon, struct hb_http_answer *answer)
{
	json_t *root = hb_status_json(daemon, hb_clock_now_ns()), *entry;
	size_t i;
	json_array_foreach(json_object_get(root, "tenants"), i, entry)
	{
		shorten_command(entry, "command");
		json_object_del(entry, "engine_why"); /* contains the command line of the other program */
	}
	json_array_foreach(json_object_get(root, "engines"), i, entry)
	{
		shorten_command(entry, "high");
		shorten_command(entry, "low");
	}
	char *text = root ? json_dumps(root, JSON_COMPACT) : NULL;
	json_decref(root);
	set_answer(answer, "application/json", text, text ? strlen(text) : 0);
}

static void serve_page(struct hb_daemon *daemon, struct hb_http_answer *answer)
{
	char *text = strdup(live_html);
	set_answer(answer, "text/html; charset=utf-8", text, text ? strlen(text) : 0);
}

static void serve_health(struct hb_daemon *daemon, struct hb_http_answer *answer)
{
	char *text = strdup("ok\n");
	set_answer(answer, "text/plain; charset=utf-8", text, text ? strlen(text) : 0);
}

static const struct {
	const char *path;
	void (*serve)(struct hb_daemon *daemon, struct hb_http_answer *answer);
} pages[] = {
	{"/", serve_page},
	{"/metrics", serve_metrics},
	{"/status.json", serve_status},
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
	if (daemon->metrics && daemon->metrics->http)
		hb_http_tick(daemon->metrics->http, now_ns);
}
