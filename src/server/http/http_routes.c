/* SPDX-License-Identifier: Apache-2.0 */
/* The functions that answer requests, and the table of paths that chooses one of them. See http_call.h. */
#include "server/http/http_call.h"
#include "server/models/serve_metrics.h"

#include "base/json.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define SEGMENTS_MAX 8
#define PATH_MAX_BYTES 512

/* The parts of a path that match the stars of its pattern. */
struct path_captures {
	const char *at[2];
	uint32_t n;
};

typedef enum MHD_Result route_function(struct hb_http_call *call, const struct path_captures *captures);

static struct hb_dispatch *get_dispatch(const struct hb_http_call *call)
{
	return call->http->config.dispatch;
}

/* ---- health and metadata ---- */

static enum MHD_Result get_live(struct hb_http_call *call, const struct path_captures *captures)
{
	return hb_http_send_nothing(call, 200);
}

static enum MHD_Result get_ready(struct hb_http_call *call, const struct path_captures *captures)
{
	return hb_http_send_nothing(call, hb_dispatch_ready(get_dispatch(call)) ? 200 : 503);
}

static enum MHD_Result get_server(struct hb_http_call *call, const struct path_captures *captures)
{
	return hb_http_send_json(call, 200, hb_kserve_json_server());
}

static struct hb_served_model *take_model(struct hb_http_call *call, const struct path_captures *captures, int *status,
					  char *reason, size_t size)
{
	enum hb_answer answer;
	struct hb_served_model *model = hb_dispatch_take_model(
		get_dispatch(call), captures->at[0], captures->n > 1 ? captures->at[1] : NULL, &answer, reason, size);
	*status = hb_answer_http(answer);
	return model;
}

static enum MHD_Result get_model_ready(struct hb_http_call *call, const struct path_captures *captures)
{
	char reason[256];
	int status;
	hb_dispatch_give_model(get_dispatch(call), take_model(call, captures, &status, reason, sizeof(reason)));
	return status == 200 ? hb_http_send_nothing(call, 200) : hb_http_refuse(call, status, reason);
}

/* Sends the document that `write` makes of the model that the path names. */
static enum MHD_Result send_model_document(struct hb_http_call *call, const struct path_captures *captures,
					   char *(*write)(const struct hb_model_config *model))
{
	char reason[256];
	int status;
	struct hb_served_model *found = take_model(call, captures, &status, reason, sizeof(reason));
	if (!found)
		return hb_http_refuse(call, status, reason);
	char *json = write(&found->config);
	hb_dispatch_give_model(get_dispatch(call), found);
	return hb_http_send_json(call, 200, json);
}

static enum MHD_Result get_model(struct hb_http_call *call, const struct path_captures *captures)
{
	return send_model_document(call, captures, hb_kserve_json_model);
}

static enum MHD_Result get_model_config(struct hb_http_call *call, const struct path_captures *captures)
{
	return send_model_document(call, captures, hb_kserve_json_model_config);
}

static enum MHD_Result post_infer(struct hb_http_call *call, const struct path_captures *captures)
{
	return hb_http_infer(call, captures->at[0], captures->n > 1 ? captures->at[1] : NULL);
}

static enum MHD_Result get_all_statistics(struct hb_http_call *call, const struct path_captures *captures)
{
	return hb_http_send_json(call, 200, hb_kserve_json_statistics(get_dispatch(call), NULL));
}

static enum MHD_Result get_statistics(struct hb_http_call *call, const struct path_captures *captures)
{
	char reason[256];
	int status;
	struct hb_served_model *found = take_model(call, captures, &status, reason, sizeof(reason));
	if (!found)
		return hb_http_refuse(call, status, reason);
	hb_dispatch_give_model(get_dispatch(call), found);
	return hb_http_send_json(call, 200, hb_kserve_json_statistics(get_dispatch(call), captures->at[0]));
}

static enum MHD_Result get_metrics(struct hb_http_call *call, const struct path_captures *captures)
{
	size_t bytes = 0;
	char *text = hb_serve_metrics(get_dispatch(call), call->http->config.memory, call->http->config.access,
				      call->http->config.tls, &bytes);
	if (!text)
		return MHD_NO;
	const char *coding = hb_http_compress(call, &text, &bytes);
	return hb_http_send(call, 200, "text/plain; version=0.0.4; charset=utf-8", text, bytes, coding, 0);
}

/* ---- the model repository ---- */

/*
 * Parses the body as a JSON object; an empty body means {}. NULL: the body is no object, and *result has the response.
 */
static json_t *parse_body(struct hb_http_call *call, enum MHD_Result *result)
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

static enum MHD_Result post_repository_index(struct hb_http_call *call, const struct path_captures *captures)
{
	enum MHD_Result result = MHD_NO;
	json_t *root = parse_body(call, &result);
	if (!root)
		return result;
	bool ready_only = json_is_true(json_object_get(root, "ready"));
	json_decref(root);
	return hb_http_send_json(call, 200, hb_kserve_json_index(get_dispatch(call), ready_only));
}

static enum MHD_Result refuse_load(struct hb_http_call *call, int status, const char *name, const char *why)
{
	char text[512];
	snprintf(text, sizeof(text), HB_LOAD_FAILED, name, why);
	return hb_http_refuse(call, status, text);
}

void hb_http_release_load(struct hb_http_call *call)
{
	if (!call->load)
		return;
	hb_http_uncount_wait(call);
	hb_http_unwatch_client(call);
	hb_load_free(call->load);
	call->load = NULL;
}

static enum MHD_Result finish_load(struct hb_http_call *call)
{
	const struct hb_load *load = call->load;
	enum MHD_Result result = load->result < 0 ? refuse_load(call, 400, load->name, load->error.text)
						  : hb_http_send_nothing(call, 200);
	hb_http_release_load(call);
	return result;
}

static void resume_load(struct hb_load *load)
{
	hb_http_resume(load->owner);
}

/* Returns whether a load request brings a configuration or files, as Triton allows. */
static bool overrides_files(json_t *root)
{
	const char *key;
	json_t *value;
	json_object_foreach(json_object_get(root, "parameters"), key,
			    value) if (hb_parameter_overrides(key)) return true;
	return false;
}

static enum MHD_Result post_load(struct hb_http_call *call, const struct path_captures *captures)
{
	enum MHD_Result result = MHD_NO;
	struct hb_error error = {.text = ""};
	json_t *root = parse_body(call, &result);
	if (!root)
		return result;
	bool overrides = overrides_files(root);
	json_decref(root);
	if (!hb_served_model_name_fits(captures->at[0]))
		return refuse_load(call, 400, captures->at[0], HB_LOAD_NO_NAME);
	if (overrides)
		return refuse_load(call, 501, captures->at[0], HB_LOAD_OVERRIDES);
	call->load = hb_load_new(captures->at[0], resume_load, call);
	if (!call->load)
		return MHD_NO;
	call->finish = finish_load;
	if (!hb_http_count_wait(call))
		return hb_http_refuse(call, 503, HB_HTTP_SHUTTING_DOWN);
	if (hb_dispatch_load(get_dispatch(call), call->load, &error) < 0) {
		hb_http_uncount_wait(call);
		return refuse_load(call, 503, call->load->name, error.text);
	}
	hb_http_watch_client(call, call->load, &hb_disconnect_load);
	return hb_http_suspend(call);
}

static enum MHD_Result post_unload(struct hb_http_call *call, const struct path_captures *captures)
{
	struct hb_error error = {.text = ""};
	int result = hb_dispatch_unload(get_dispatch(call), captures->at[0], &error);
	return result < 0 ? hb_http_refuse(call, 400, error.text) : hb_http_send_nothing(call, 200);
}

/* ---- shared memory ---- */

static enum MHD_Result list_regions(struct hb_http_call *call, const char *name)
{
	struct hb_error error = {.text = ""};
	struct hb_shared_region *regions = calloc(HB_SHARED_REGIONS_MAX, sizeof(*regions));
	if (!regions)
		return MHD_NO;
	int n = hb_shared_memory_list(call->http->config.shared_memory, call->caller.id, name, regions,
				      HB_SHARED_REGIONS_MAX, &error);
	char *json = n < 0 ? NULL : hb_kserve_json_regions(regions, (uint32_t)n);
	free(regions);
	return n < 0 ? hb_http_refuse(call, 400, error.text) : hb_http_send_json(call, 200, json);
}

static enum MHD_Result get_all_regions(struct hb_http_call *call, const struct path_captures *captures)
{
	return list_regions(call, "");
}

static enum MHD_Result get_region_status(struct hb_http_call *call, const struct path_captures *captures)
{
	return list_regions(call, captures->at[0]);
}

static enum MHD_Result post_register_region(struct hb_http_call *call, const struct path_captures *captures)
{
	struct hb_error error = {.text = ""};
	struct hb_shared_region region = {.offset = 0};
	enum MHD_Result answered = MHD_NO;
	const char *key = NULL;
	json_int_t offset = 0, bytes = 0;
	json_t *root = parse_body(call, &answered);
	if (!root)
		return answered;
	int result = hb_json_unpack(root, "request", &error, "{s:s, s?I, s:I}", "key", &key, "offset", &offset,
				    "byte_size", &bytes);
	if (result == 0 && (strlen(captures->at[0]) >= sizeof(region.name) || strlen(key) >= sizeof(region.key) ||
			    offset < 0 || bytes <= 0))
		result = hb_error_set(
			&error, -1,
			"name and key can have at most %d characters, offset must be at least 0 and byte_size at least 1",
			HB_SHARED_REGION_NAME_MAX - 1);
	if (result == 0) {
		strcpy(region.name, captures->at[0]);
		strcpy(region.key, key);
		region.offset = (uint64_t)offset;
		region.bytes = (uint64_t)bytes;
		result = hb_shared_memory_register(call->http->config.shared_memory, call->http->config.access,
						   &call->caller, &region, &error);
	}
	json_decref(root);
	return result < 0 ? hb_http_refuse(call, result == -EACCES ? 403 : 400, error.text)
			  : hb_http_send_nothing(call, 200);
}

static enum MHD_Result post_unregister_region(struct hb_http_call *call, const struct path_captures *captures)
{
	struct hb_error error = {.text = ""};
	int result = hb_shared_memory_unregister(call->http->config.shared_memory, call->caller.id,
						 captures->n ? captures->at[0] : "", &error);
	return result < 0 ? hb_http_refuse(call, 400, error.text) : hb_http_send_nothing(call, 200);
}

/* Sends an empty list of regions: the server has no CUDA context, so it cannot open handles of CUDA memory. */
static enum MHD_Result get_no_cuda_regions(struct hb_http_call *call, const struct path_captures *captures)
{
	return hb_http_send_json(call, 200, strdup("[]"));
}

static enum MHD_Result refuse_cuda(struct hb_http_call *call, const struct path_captures *captures)
{
	return hb_http_refuse(call, 501, "CUDA shared memory is not supported; use system shared memory");
}

/* ---- not part of KServe ---- */

static enum MHD_Result post_policy(struct hb_http_call *call, const struct path_captures *captures)
{
	struct hb_error error = {.text = ""};
	int result = hb_dispatch_set_policy(get_dispatch(call), captures->at[0], &error);
	return result < 0 ? hb_http_refuse(call, result == -EBUSY ? 409 : 404, error.text)
			  : hb_http_send_nothing(call, 200);
}

/* ---- the table ---- */

static const struct {
	const char *method, *pattern;
	route_function *function;
	enum hb_right right;
} routes[] = {
	{"POST", "v2/models/*/infer", post_infer, HB_RIGHT_USE},
	{"POST", "v2/models/*/versions/*/infer", post_infer, HB_RIGHT_USE},
	{"GET", "v2/health/live", get_live, HB_RIGHT_HEALTH},
	{"GET", "v2/health/ready", get_ready, HB_RIGHT_HEALTH},
	{"GET", "v2", get_server, HB_RIGHT_USE},
	{"GET", "v2/models/stats", get_all_statistics, HB_RIGHT_USE},
	{"GET", "v2/models/*/stats", get_statistics, HB_RIGHT_USE},
	{"GET", "v2/models/*/versions/*/stats", get_statistics, HB_RIGHT_USE},
	{"GET", "v2/models/*/ready", get_model_ready, HB_RIGHT_USE},
	{"GET", "v2/models/*/versions/*/ready", get_model_ready, HB_RIGHT_USE},
	{"GET", "v2/models/*/config", get_model_config, HB_RIGHT_USE},
	{"GET", "v2/models/*/versions/*/config", get_model_config, HB_RIGHT_USE},
	{"GET", "v2/models/*", get_model, HB_RIGHT_USE},
	{"GET", "v2/models/*/versions/*", get_model, HB_RIGHT_USE},
	{"POST", "v2/repository/index", post_repository_index, HB_RIGHT_USE},
	{"POST", "v2/repository/models/*/load", post_load, HB_RIGHT_CONTROL},
	{"POST", "v2/repository/models/*/unload", post_unload, HB_RIGHT_CONTROL},
	{"GET", "v2/systemsharedmemory/status", get_all_regions, HB_RIGHT_SHARED_MEMORY},
	{"GET", "v2/systemsharedmemory/region/*/status", get_region_status, HB_RIGHT_SHARED_MEMORY},
	{"POST", "v2/systemsharedmemory/region/*/register", post_register_region, HB_RIGHT_SHARED_MEMORY},
	{"POST", "v2/systemsharedmemory/region/*/unregister", post_unregister_region, HB_RIGHT_SHARED_MEMORY},
	{"POST", "v2/systemsharedmemory/unregister", post_unregister_region, HB_RIGHT_SHARED_MEMORY},
	{"GET", "v2/cudasharedmemory/status", get_no_cuda_regions, HB_RIGHT_USE},
	{"GET", "v2/cudasharedmemory/region/*/status", refuse_cuda, HB_RIGHT_USE},
	{"POST", "v2/cudasharedmemory/region/*/register", refuse_cuda, HB_RIGHT_USE},
	{"POST", "v2/cudasharedmemory/region/*/unregister", refuse_cuda, HB_RIGHT_USE},
	{"POST", "v2/cudasharedmemory/unregister", get_live, HB_RIGHT_USE},
	{"POST", "v2/policy/*", post_policy, HB_RIGHT_CONTROL},
	{"GET", "metrics", get_metrics, HB_RIGHT_USE},
};

static bool matches_pattern(const char *pattern, char *const *segments, uint32_t n, struct path_captures *captures)
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

/* Cuts a path at its slashes. Returns the number of segments; SEGMENTS_MAX + 1 = more than SEGMENTS_MAX. */
static uint32_t split_path(char *path, char **segments)
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

/* The result of a search for a path in the table. */
struct found_route {
	route_function *function; /* NULL: there is no such path, or it needs another method */
	enum hb_right right;
	struct path_captures captures;
	bool other_method;
};

/* Finds the row of a path, and cuts the path at its slashes. */
static struct found_route find_route(char *path, const char *method)
{
	char *segments[SEGMENTS_MAX];
	struct found_route found = {.right = HB_RIGHT_USE};
	/* HEAD is answered like GET; the library omits the body. */
	const char *wanted = strcmp(method, "HEAD") == 0 ? "GET" : method;
	uint32_t n = split_path(path, segments);
	for (size_t i = 0; i < sizeof(routes) / sizeof(*routes) && n <= SEGMENTS_MAX; i++) {
		if (!matches_pattern(routes[i].pattern, segments, n, &found.captures))
			continue;
		if (strcmp(routes[i].method, wanted) == 0) {
			found.function = routes[i].function;
			found.right = routes[i].right;
			return found;
		}
		found.other_method = true;
	}
	return found;
}

enum hb_right hb_http_find_right(const char *url, const char *method)
{
	char path[PATH_MAX_BYTES];
	if (strlen(url) >= sizeof(path))
		return HB_RIGHT_USE;
	strcpy(path, url);
	return find_route(path, method).right;
}

enum MHD_Result hb_http_route(struct hb_http_call *call, const char *url, const char *method)
{
	char path[PATH_MAX_BYTES];
	if (strlen(url) >= sizeof(path))
		return hb_http_refuse(call, 414, "the path is too long");
	strcpy(path, url);
	struct found_route found = find_route(path, method);
	if (found.function)
		return found.function(call, &found.captures);
	return found.other_method ? hb_http_refuse(call, 405, "this path needs another method")
				  : hb_http_refuse(call, 404, "this path does not exist");
}
