/* SPDX-License-Identifier: Apache-2.0 */
/* What the daemon serves over HTTP; see metrics.h. */
#include "daemon/metrics.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/paths.h"
#include "daemon/http_server.h"
#include "live_page.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#define TEXT_TYPE "text/plain; version=0.0.4; charset=utf-8"

struct hb_metrics {
	struct hb_http *http; /* NULL = it could not be started */
	char why[200];
};

static void take_text(struct hb_http_answer *answer, const char *type, char *text, size_t length)
{
	*answer = (struct hb_http_answer){
		.status = text ? 200 : 503, .type = type, .body = text, .body_length = length};
}

static void serve_metrics(struct hb_daemon *daemon, struct hb_http_answer *answer)
{
	size_t length = 0;
	char *text = hb_metrics_text(daemon, hb_clock_now_ns(), &length);
	take_text(answer, TEXT_TYPE, text, length);
}

/* "python" of "/usr/bin/python serve.py --token ...": any user of the machine can read what is served here. */
static json_t *program_of(const char *command)
{
	command = hb_path_command(command);
	return json_stringn(command, strcspn(command, " "));
}

static void shorten(json_t *object, const char *key)
{
	const char *command = json_string_value(json_object_get(object, key));
	json_object_set_new(object, key, program_of(command ? command : ""));
}

static void serve_status(struct hb_daemon *daemon, struct hb_http_answer *answer)
{
	json_t *root = hb_status_json(daemon, hb_clock_now_ns()), *entry;
	size_t i;
	json_array_foreach(json_object_get(root, "tenants"), i, entry)
	{
		shorten(entry, "command");
		json_object_del(entry, "engine_why"); /* it names the other program with its arguments */
	}
	json_array_foreach(json_object_get(root, "engines"), i, entry)
	{
		shorten(entry, "high");
		shorten(entry, "low");
	}
	char *text = root ? json_dumps(root, JSON_COMPACT) : NULL;
	json_decref(root);
	take_text(answer, "application/json", text, text ? strlen(text) : 0);
}

static void serve_page(struct hb_daemon *daemon, struct hb_http_answer *answer)
{
	char *text = strdup(live_html);
	take_text(answer, "text/html; charset=utf-8", text, text ? strlen(text) : 0);
}

static void serve_health(struct hb_daemon *daemon, struct hb_http_answer *answer)
{
	char *text = strdup("ok\n");
	take_text(answer, "text/plain; charset=utf-8", text, text ? strlen(text) : 0);
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

static void handle(void *argument, const char *path, struct hb_http_answer *answer)
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
		hb_log_warning("metrics: %s is not loopback: whoever reaches it can read who uses the GPUs", text);
	return hb_http_new(&daemon->loop, &address, handle, daemon, http, error);
}

void hb_metrics_new(struct hb_daemon *daemon)
{
	const char *text = daemon->options.metrics[0] ? daemon->options.metrics : daemon->config.metrics;
	struct hb_error error = {""};
	daemon->metrics = text[0] ? calloc(1, sizeof *daemon->metrics) : NULL;
	if (!daemon->metrics)
		return;
	if (listen_on(daemon, text, &daemon->metrics->http, &error) == 0) {
		hb_log_info("metrics on http://%s/metrics", hb_http_address(daemon->metrics->http));
		return;
	}
	snprintf(daemon->metrics->why, sizeof daemon->metrics->why, "%.60s: %.120s", text, error.text);
	hb_log_error("metrics are not served: %s", daemon->metrics->why);
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

json_t *hb_metrics_json(const struct hb_daemon *daemon)
{
	const struct hb_metrics *metrics = daemon->metrics;
	return json_pack("{s:s, s:s}", "address", metrics && metrics->http ? hb_http_address(metrics->http) : "", "why",
			 metrics ? metrics->why : "not asked for (hbd --metrics, or metrics: in hummingbird.yaml)");
}
