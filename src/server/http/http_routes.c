/* SPDX-License-Identifier: Apache-2.0 */
/* Which function answers which path: one table. See kserve_http.h. */
#include "server/http/http_call.h"
#include "server/models/serve_metrics.h"

#include "base/json.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define SEGMENTS_MAX 8
#define PATH_MAX_BYTES 512

/* What the stars of a pattern stand for. */
struct captures {
	const char *at[2];
	uint32_t n;
};

typedef enum MHD_Result route_function(struct hb_http_call *call, const struct captures *captures);

static struct hb_dispatch *dispatch_of(const struct hb_http_call *call)
{
	return call->http->config.dispatch;
}

/* ---- health and metadata ---- */

static enum MHD_Result live(struct hb_http_call *call, const struct captures *captures)
{
	return hb_http_send_nothing(call, 200);
}

static enum MHD_Result ready(struct hb_http_call *call, const struct captures *captures)
{
	return hb_http_send_nothing(call, hb_dispatch_ready(dispatch_of(call)) ? 200 : 503);
}

static enum MHD_Result server(struct hb_http_call *call, const struct captures *captures)
{
	return hb_http_send_json(call, 200, hb_kserve_json_server());
}

static struct hb_served_model *take(struct hb_http_call *call, const struct captures *captures, int *status,
				    char *reason, size_t size)
{
	enum hb_answer answer;
	struct hb_served_model *model = hb_dispatch_take_model(
		dispatch_of(call), captures->at[0], captures->n > 1 ? captures->at[1] : NULL, &answer, reason, size);
	*status = hb_answer_http(answer);
	return model;
}

static enum MHD_Result model_ready(struct hb_http_call *call, const struct captures *captures)
{
	char reason[256];
	int status;
	hb_dispatch_give_model(dispatch_of(call), take(call, captures, &status, reason, sizeof(reason)));
	return status == 200 ? hb_http_send_nothing(call, 200) : hb_http_refuse(call, status, reason);
}

static enum MHD_Result model(struct hb_http_call *call, const struct captures *captures)
{
	char reason[256];
	int status;
	struct hb_served_model *found = take(call, captures, &status, reason, sizeof(reason));
	if (!found)
		return hb_http_refuse(call, status, reason);
	char *json = hb_kserve_json_model(&found->config);
	hb_dispatch_give_model(dispatch_of(call), found);
	return hb_http_send_json(call, 200, json);
}

static enum MHD_Result model_config(struct hb_http_call *call, const struct captures *captures)
{
	char reason[256];
	int status;
	struct hb_served_model *found = take(call, captures, &status, reason, sizeof(reason));
	if (!found)
		return hb_http_refuse(call, status, reason);
	char *json = hb_kserve_json_model_config(&found->config);
	hb_dispatch_give_model(dispatch_of(call), found);
	return hb_http_send_json(call, 200, json);
}

static enum MHD_Result infer(struct hb_http_call *call, const struct captures *captures)
{
	return hb_http_infer(call, captures->at[0], captures->n > 1 ? captures->at[1] : NULL);
}

static enum MHD_Result all_statistics(struct hb_http_call *call, const struct captures *captures)
{
	return hb_http_send_json(call, 200, hb_kserve_json_statistics(dispatch_of(call), NULL));
}

static enum MHD_Result statistics(struct hb_http_call *call, const struct captures *captures)
{
	char reason[256];
	int status;
	struct hb_served_model *found = take(call, captures, &status, reason, sizeof(reason));
	if (!found)
		return hb_http_refuse(call, status, reason);
	hb_dispatch_give_model(dispatch_of(call), found);
	return hb_http_send_json(call, 200, hb_kserve_json_statistics(dispatch_of(call), captures->at[0]));
}

static enum MHD_Result metrics(struct hb_http_call *call, const struct captures *captures)
{
	size_t bytes = 0;
	char *text = hb_serve_metrics(dispatch_of(call), call->http->config.memory, &bytes);
	return text ? hb_http_send(call, 200, "text/plain; version=0.0.4; charset=utf-8", text, bytes, bytes) : MHD_NO;
}

/* ---- the repository ---- */

/* The body's object; NULL with an answer queued in *result where it is none. An empty body is an empty object. */
static json_t *parse(struct hb_http_call *call, enum MHD_Result *result)
{
	struct hb_error error = {.text = ""};
	json_t *root = NULL;
	if (call->body->bytes == 0)
		return json_object();
	if (hb_json_parse(call->body->data, call->body->bytes, "request", &root, &error) == 0 && json_is_object(root))
		return root;
	json_decref(root);
	*result = hb_http_refuse(call, 400, error.text[0] ? error.text : "the request must be a JSON object");
	return NULL;
}

static enum MHD_Result repository_index(struct hb_http_call *call, const struct captures *captures)
{
	enum MHD_Result result = MHD_NO;
	json_t *root = parse(call, &result);
	if (!root)
		return result;
	bool ready_only = json_is_true(json_object_get(root, "ready"));
	json_decref(root);
	return hb_http_send_json(call, 200, hb_kserve_json_index(dispatch_of(call), ready_only));
}

static enum MHD_Result refuse_load(struct hb_http_call *call, int status, const char *name, const char *why)
{
	char text[512];
	snprintf(text, sizeof(text), HB_LOAD_FAILED, name, why);
	return hb_http_refuse(call, status, text);
}

static enum MHD_Result answer_load(struct hb_http_call *call)
{
	return call->answer ? refuse_load(call, 400, call->name, call->answer) : hb_http_send_nothing(call, 200);
}

/* A worker takes its time to come up: a thread of its own waits for it. */
static void *load_model(void *argument)
{
	struct hb_http_call *call = argument;
	struct hb_kserve_http *http = call->http;
	struct hb_error error = {.text = ""};
	if (hb_dispatch_load(dispatch_of(call), call->name, &error) < 0)
		call->answer = strdup(error.text);
	hb_http_resume(call);
	pthread_mutex_lock(&http->lock);
	http->slow--;
	pthread_cond_broadcast(&http->ended);
	pthread_mutex_unlock(&http->lock);
	return NULL;
}

/* Triton's load can bring a configuration and files along. */
static bool overrides_files(json_t *root)
{
	const char *key;
	json_t *value;
	json_object_foreach(json_object_get(root, "parameters"), key,
			    value) if (hb_parameter_overrides(key)) return true;
	return false;
}

static enum MHD_Result load(struct hb_http_call *call, const struct captures *captures)
{
	struct hb_kserve_http *http = call->http;
	enum MHD_Result result = MHD_NO;
	pthread_t thread;
	json_t *root = parse(call, &result);
	if (!root)
		return result;
	bool overrides = overrides_files(root);
	json_decref(root);
	if (!hb_served_model_name_fits(captures->at[0]))
		return refuse_load(call, 400, captures->at[0], HB_LOAD_NO_NAME);
	if (overrides)
		return refuse_load(call, 501, captures->at[0], HB_LOAD_OVERRIDES);
	strcpy(call->name, captures->at[0]);
	call->finish = answer_load;
	pthread_mutex_lock(&http->lock);
	bool over = http->over;
	http->slow += !over;
	pthread_mutex_unlock(&http->lock);
	if (over)
		return hb_http_refuse(call, 503, HB_HTTP_SHUTTING_DOWN);
	if (pthread_create(&thread, NULL, load_model, call) != 0) {
		pthread_mutex_lock(&http->lock);
		http->slow--;
		pthread_mutex_unlock(&http->lock);
		return hb_http_refuse(call, 503, "no thread could be started");
	}
	pthread_detach(thread);
	return hb_http_suspend(call);
}

static enum MHD_Result unload(struct hb_http_call *call, const struct captures *captures)
{
	struct hb_error error = {.text = ""};
	int result = hb_dispatch_unload(dispatch_of(call), captures->at[0], &error);
	return result < 0 ? hb_http_refuse(call, 400, error.text) : hb_http_send_nothing(call, 200);
}

/* ---- shared memory ---- */

static enum MHD_Result list_regions(struct hb_http_call *call, const char *name)
{
	struct hb_error error = {.text = ""};
	struct hb_shared_region *regions = calloc(HB_SHARED_REGIONS_MAX, sizeof(*regions));
	if (!regions)
		return MHD_NO;
	int n = hb_shared_memory_list(call->http->config.regions, name, regions, HB_SHARED_REGIONS_MAX, &error);
	char *json = n < 0 ? NULL : hb_kserve_json_regions(regions, (uint32_t)n);
	free(regions);
	return n < 0 ? hb_http_refuse(call, 400, error.text) : hb_http_send_json(call, 200, json);
}

static enum MHD_Result all_regions(struct hb_http_call *call, const struct captures *captures)
{
	return list_regions(call, "");
}

static enum MHD_Result region_status(struct hb_http_call *call, const struct captures *captures)
{
	return list_regions(call, captures->at[0]);
}

static enum MHD_Result register_region(struct hb_http_call *call, const struct captures *captures)
{
	struct hb_error error = {.text = ""};
	struct hb_shared_region region = {.offset = 0};
	enum MHD_Result answered = MHD_NO;
	const char *key = NULL;
	json_int_t offset = 0, bytes = 0;
	json_t *root = parse(call, &answered);
	if (!root)
		return answered;
	int result = hb_json_unpack(root, "request", &error, "{s:s, s?I, s:I}", "key", &key, "offset", &offset,
				    "byte_size", &bytes);
	if (result == 0 && (strlen(captures->at[0]) >= sizeof(region.name) || strlen(key) >= sizeof(region.key) ||
			    offset < 0 || bytes <= 0))
		result = hb_error_set(&error, -1,
				      "name and key have up to %d characters, offset and byte_size are not negative",
				      HB_SHARED_REGION_NAME_MAX - 1);
	if (result == 0) {
		strcpy(region.name, captures->at[0]);
		strcpy(region.key, key);
		region.offset = (uint64_t)offset;
		region.bytes = (uint64_t)bytes;
		result = hb_shared_memory_register(call->http->config.regions, &region, &error);
	}
	json_decref(root);
	return result < 0 ? hb_http_refuse(call, 400, error.text) : hb_http_send_nothing(call, 200);
}

static enum MHD_Result unregister_region(struct hb_http_call *call, const struct captures *captures)
{
	struct hb_error error = {.text = ""};
	int result = hb_shared_memory_unregister(call->http->config.regions, captures->n ? captures->at[0] : "",
						 &error);
	return result < 0 ? hb_http_refuse(call, 400, error.text) : hb_http_send_nothing(call, 200);
}

/* CUDA's handles cannot be opened here: the server has no context of its own. */
static enum MHD_Result no_cuda_regions(struct hb_http_call *call, const struct captures *captures)
{
	return hb_http_send_json(call, 200, strdup("[]"));
}

static enum MHD_Result refuse_cuda(struct hb_http_call *call, const struct captures *captures)
{
	return hb_http_refuse(call, 501, "CUDA shared memory is not supported; use system shared memory");
}

/* ---- ours ---- */

static enum MHD_Result set_policy(struct hb_http_call *call, const struct captures *captures)
{
	struct hb_error error = {.text = ""};
	int result = hb_dispatch_set_policy(dispatch_of(call), captures->at[0], &error);
	return result < 0 ? hb_http_refuse(call, result == -EBUSY ? 409 : 404, error.text)
			  : hb_http_send_nothing(call, 200);
}

/* ---- the table ---- */

static const struct {
	const char *method, *pattern;
	route_function *function;
} routes[] = {
	{"POST", "v2/models/*/infer", infer},
	{"POST", "v2/models/*/versions/*/infer", infer},
	{"GET", "v2/health/live", live},
	{"GET", "v2/health/ready", ready},
	{"GET", "v2", server},
	{"GET", "v2/models/stats", all_statistics},
	{"GET", "v2/models/*/stats", statistics},
	{"GET", "v2/models/*/versions/*/stats", statistics},
	{"GET", "v2/models/*/ready", model_ready},
	{"GET", "v2/models/*/versions/*/ready", model_ready},
	{"GET", "v2/models/*/config", model_config},
	{"GET", "v2/models/*/versions/*/config", model_config},
	{"GET", "v2/models/*", model},
	{"GET", "v2/models/*/versions/*", model},
	{"POST", "v2/repository/index", repository_index},
	{"POST", "v2/repository/models/*/load", load},
	{"POST", "v2/repository/models/*/unload", unload},
	{"GET", "v2/systemsharedmemory/status", all_regions},
	{"GET", "v2/systemsharedmemory/region/*/status", region_status},
	{"POST", "v2/systemsharedmemory/region/*/register", register_region},
	{"POST", "v2/systemsharedmemory/region/*/unregister", unregister_region},
	{"POST", "v2/systemsharedmemory/unregister", unregister_region},
	{"GET", "v2/cudasharedmemory/status", no_cuda_regions},
	{"GET", "v2/cudasharedmemory/region/*/status", refuse_cuda},
	{"POST", "v2/cudasharedmemory/region/*/register", refuse_cuda},
	{"POST", "v2/cudasharedmemory/region/*/unregister", refuse_cuda},
	{"POST", "v2/cudasharedmemory/unregister", live},
	{"POST", "v2/policy/*", set_policy},
	{"GET", "metrics", metrics},
};

static bool matches(const char *pattern, char *const *segments, uint32_t n, struct captures *captures)
{
	captures->n = 0;
	for (uint32_t i = 0; i < n; i++) {
		size_t length = strcspn(pattern, "/");
		if (length == 0)
			return false;
		if (length == 1 && pattern[0] == '*')
			captures->at[captures->n++] = segments[i];
		else if (strlen(segments[i]) != length || memcmp(segments[i], pattern, length) != 0)
			return false;
		pattern += length;
		if (*pattern == '/')
			pattern++;
	}
	return *pattern == '\0';
}

static uint32_t cut(char *path, char **segments)
{
	uint32_t n = 0;
	char *rest = NULL;
	for (char *at = strtok_r(path, "/", &rest); at; at = strtok_r(NULL, "/", &rest)) {
		if (n == SEGMENTS_MAX)
			return SEGMENTS_MAX + 1;
		segments[n++] = at;
	}
	return n;
}

enum MHD_Result hb_http_route(struct hb_http_call *call, const char *url, const char *method)
{
	char path[PATH_MAX_BYTES], *segments[SEGMENTS_MAX];
	struct captures captures;
	bool other_method = false;
	/* The library leaves the body of its answer out. */
	const char *wanted = strcmp(method, "HEAD") == 0 ? "GET" : method;
	if (strlen(url) >= sizeof(path))
		return hb_http_refuse(call, 414, "the path is too long");
	strcpy(path, url);
	uint32_t n = cut(path, segments);
	for (size_t i = 0; i < sizeof(routes) / sizeof(*routes) && n <= SEGMENTS_MAX; i++) {
		if (!matches(routes[i].pattern, segments, n, &captures))
			continue;
		if (strcmp(routes[i].method, wanted) == 0)
			return routes[i].function(call, &captures);
		other_method = true;
	}
	return other_method ? hb_http_refuse(call, 405, "another method is needed for this path")
			    : hb_http_refuse(call, 404, "no such path");
}
