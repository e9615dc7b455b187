/* SPDX-License-Identifier: Apache-2.0 */
/* See dra_driver.h. */
#include "k8s/dra_driver.h"

#include "base/clock.h"
#include "base/log.h"
#include "dra.pb-c.h"
#include "grpc/rpc_server.h"
#include "k8s/claim_terms.h"
#include "k8s/message_parts.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define API_V1 "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/"
#define API_V1BETA1 "/k8s.io.kubelet.pkg.apis.dra.v1beta1.DRAPlugin/"
#define REGISTRATION "/pluginregistration.Registration/"
#define REGISTRATION_SOCKET "/" HB_DRA_DRIVER "-reg.sock"
#define DRIVER_SOCKET "/dra.sock"
#define NAME_MAX_BYTES 253
#define JOB_LIMIT_NS (30 * HB_NS_PER_S) /* for all claims of a request; the kubelet waits 45 s */

/* A claim of a request, and what became of it. */
struct dra_claim {
	char *space, *name, *uid;
	json_t *devices; /* prepared; a new reference */
	struct hb_error error;
};

/* A request of the kubelet. */
struct dra_job {
	struct hb_dra_driver *driver;
	struct dra_job *next;
	uv_work_t work;
	struct hb_rpc_call *call;
	bool prepares;
	json_t *cdi; /* a copy, because the thread's references would not be safe */
	struct dra_claim *claims;
	size_t n_claims;
};

struct hb_dra_driver {
	uv_loop_t *loop;
	const struct hb_dra_config *config;
	const struct hb_node_view *view;
	struct hb_prepared_claims *claims; /* the running job uses them */
	struct hb_rpc_server *registration, *service;
	struct dra_job *first, **last; /* the first one runs */
	size_t n_jobs;
	char complaint[600];
};

/* ---- a request on its thread ---- */

/* Whether a name of an object can be part of a path of the API server. */
static bool is_object_name(const char *name)
{
	size_t n = strlen(name);
	for (size_t i = 0; i < n; i++)
		if (!islower((unsigned char)name[i]) && !isdigit((unsigned char)name[i]) && !strchr("-.", name[i]))
			return false;
	return n && n <= NAME_MAX_BYTES && name[0] != '.';
}

/* Returns the claim's devices as the API server has them, a new reference, or NULL with *error. */
static json_t *fetch_devices(const struct hb_dra_driver *driver, const struct dra_claim *claim, struct hb_error *error)
{
	char path[2 * NAME_MAX_BYTES + 80];
	json_t *answer = NULL, *devices = NULL;
	snprintf(path, sizeof(path), "/apis/resource.k8s.io/v1/namespaces/%s/resourceclaims/%s", claim->space,
		 claim->name);
	int status = hb_api_request(&driver->config->server, "GET", path, NULL, &answer, error);
	const char *uid = json_string_value(json_object_get(json_object_get(answer, "metadata"), "uid"));
	if (status >= 0 && status != 200)
		hb_api_refused(error, "GET", path, status, answer);
	else if (status == 200 && (!uid || strcmp(uid, claim->uid) != 0))
		hb_error_format(error, "claim %s/%s has UID %.80s now, and not %s", claim->space, claim->name,
				uid ? uid : "?", claim->uid);
	else if (status == 200)
		devices = hb_claim_terms_read(answer, driver->config->node, error);
	json_decref(answer);
	return devices;
}

static void prepare_claim(struct dra_job *job, struct dra_claim *claim)
{
	struct hb_prepared_claims *claims = job->driver->claims;
	struct hb_claim_name name = {claim->space, claim->name, claim->uid};
	json_t *fetched = NULL;
	if (!job->cdi) {
		hb_error_format(&claim->error, "this node has no CDI file: run `hb cdi generate`");
		return;
	}
	if (!hb_prepared_claims_devices(claims, claim->uid)) {
		fetched = fetch_devices(job->driver, claim, &claim->error);
		if (!fetched)
			return;
	}
	if (hb_prepared_claims_add(claims, &name, fetched, job->cdi, &claim->error) == 0)
		claim->devices = json_incref(hb_prepared_claims_devices(claims, claim->uid));
	json_decref(fetched);
}

static void run_claim(struct dra_job *job, struct dra_claim *claim)
{
	if (!hb_claim_uid_is_valid(claim->uid) || !is_object_name(claim->space) || !is_object_name(claim->name))
		hb_error_format(&claim->error, "'%.80s/%.80s' with UID '%.80s' is not a claim", claim->space,
				claim->name, claim->uid);
	else if (job->prepares)
		prepare_claim(job, claim);
	else
		hb_prepared_claims_remove(job->driver->claims, claim->uid, &claim->error);
}

static void run_job(uv_work_t *work)
{
	struct dra_job *job = work->data;
	struct hb_error error = {""};
	int64_t until_ns = hb_clock_now_ns() + JOB_LIMIT_NS;
	for (size_t i = 0; i < job->n_claims; i++) {
		if (hb_clock_now_ns() < until_ns)
			run_claim(job, &job->claims[i]);
		else
			hb_error_format(&job->claims[i].error, "there was no time left for this claim");
	}
	if (hb_prepared_claims_save(job->driver->claims, &error) == 0)
		return;
	/* What a new hb-k8s would not know is not prepared. */
	for (size_t i = 0; i < job->n_claims; i++)
		if (!job->claims[i].error.text[0])
			job->claims[i].error = error;
}

/* ---- answers ---- */

static char *part_of(const json_t *object, const char *key)
{
	const char *text = json_string_value(json_object_get(object, key));
	return hb_part_text(text ? text : "");
}

static Dra__PreparedDevice *make_prepared(const json_t *found)
{
	Dra__PreparedDevice *device = hb_part_new(sizeof(*device));
	dra__prepared_device__init(device);
	size_t i;
	json_t *id;
	hb_part_append(&device->request_names, &device->n_request_names, part_of(found, "request"));
	device->pool_name = part_of(found, "pool");
	device->device_name = part_of(found, "device");
	device->share_id = part_of(found, "share");
	json_array_foreach(json_object_get(found, "cdi"), i, id)
	{
		const char *text = json_string_value(id);
		if (text)
			hb_part_append(&device->cdi_device_ids, &device->n_cdi_device_ids, hb_part_text(text));
	}
	return device;
}

static void answer_prepare(struct dra_job *job)
{
	Dra__PrepareResponse *answer = hb_part_new(sizeof(*answer));
	dra__prepare_response__init(answer);
	for (size_t i = 0; i < job->n_claims; i++) {
		const struct dra_claim *claim = &job->claims[i];
		Dra__PrepareEntry *entry = hb_part_new(sizeof(*entry));
		size_t k;
		json_t *device;
		dra__prepare_entry__init(entry);
		entry->key = hb_part_text(claim->uid);
		entry->value = hb_part_new(sizeof(*entry->value));
		dra__prepare_answer__init(entry->value);
		entry->value->error = hb_part_text(claim->error.text);
		if (!claim->error.text[0])
			json_array_foreach(claim->devices, k, device)
				hb_part_append(&entry->value->devices, &entry->value->n_devices, make_prepared(device));
		hb_part_append(&answer->claims, &answer->n_claims, entry);
	}
	hb_rpc_answer(job->call, &answer->base);
	protobuf_c_message_free_unpacked(&answer->base, NULL);
}

static void answer_unprepare(struct dra_job *job)
{
	Dra__UnprepareResponse *answer = hb_part_new(sizeof(*answer));
	dra__unprepare_response__init(answer);
	for (size_t i = 0; i < job->n_claims; i++) {
		Dra__UnprepareEntry *entry = hb_part_new(sizeof(*entry));
		dra__unprepare_entry__init(entry);
		entry->key = hb_part_text(job->claims[i].uid);
		entry->value = hb_part_new(sizeof(*entry->value));
		dra__unprepare_answer__init(entry->value);
		entry->value->error = hb_part_text(job->claims[i].error.text);
		hb_part_append(&answer->claims, &answer->n_claims, entry);
	}
	hb_rpc_answer(job->call, &answer->base);
	protobuf_c_message_free_unpacked(&answer->base, NULL);
}

/* ---- the queue ---- */

static void start_job(struct hb_dra_driver *driver);

static void free_job(struct dra_job *job)
{
	for (size_t i = 0; i < job->n_claims; i++) {
		free(job->claims[i].space);
		free(job->claims[i].name);
		free(job->claims[i].uid);
		json_decref(job->claims[i].devices);
	}
	free(job->claims);
	json_decref(job->cdi);
	free(job);
}

static void end_job(uv_work_t *work, int status)
{
	struct dra_job *job = work->data;
	struct hb_dra_driver *driver = job->driver;
	for (size_t i = 0; i < job->n_claims; i++)
		if (job->claims[i].error.text[0])
			hb_log_warning("%s: %s", job->prepares ? "prepare" : "unprepare", job->claims[i].error.text);
	if (job->prepares)
		answer_prepare(job);
	else
		answer_unprepare(job);
	hb_rpc_finish(job->call);
	driver->first = job->next;
	driver->n_jobs--;
	if (!driver->first)
		driver->last = &driver->first;
	free_job(job);
	start_job(driver);
}

/* A caller that has gone asks again; its claims need not be prepared now. */
static void skip_unwanted(struct hb_dra_driver *driver)
{
	while (driver->first && !hb_rpc_is_wanted(driver->first->call)) {
		struct dra_job *job = driver->first;
		driver->first = job->next;
		driver->n_jobs--;
		hb_rpc_finish(job->call);
		free_job(job);
	}
	if (!driver->first)
		driver->last = &driver->first;
}

static void start_job(struct hb_dra_driver *driver)
{
	skip_unwanted(driver);
	struct dra_job *job = driver->first;
	if (!job)
		return;
	job->cdi = json_deep_copy(driver->view->cdi);
	uv_queue_work(driver->loop, &job->work, run_job, end_job);
}

static void queue_job(struct hb_rpc_call *call, struct hb_dra_driver *driver, const Dra__ClaimsRequest *request,
		      bool prepares)
{
	if (driver->n_jobs == HB_DRA_REQUESTS_MAX || request->n_claims > HB_CLAIMS_MAX) {
		hb_rpc_fail(call, HB_RPC_RESOURCE_EXHAUSTED,
			    "%zu requests wait (at most %d), and this one has %zu claims (at most %d)", driver->n_jobs,
			    HB_DRA_REQUESTS_MAX, request->n_claims, HB_CLAIMS_MAX);
		return;
	}
	struct dra_job *job = hb_part_new(sizeof(*job));
	job->driver = driver;
	job->work.data = job;
	job->call = call;
	job->prepares = prepares;
	job->n_claims = request->n_claims;
	job->claims = hb_part_new((job->n_claims + 1) * sizeof(*job->claims));
	for (size_t i = 0; i < job->n_claims; i++) {
		job->claims[i].space = hb_part_text(request->claims[i]->namespace_);
		job->claims[i].name = hb_part_text(request->claims[i]->name);
		job->claims[i].uid = hb_part_text(request->claims[i]->uid);
	}
	hb_rpc_defer(call);
	*driver->last = job;
	driver->last = &job->next;
	if (driver->n_jobs++ == 0)
		start_job(driver);
}

/* ---- what the kubelet calls ---- */

static void prepare_resources(struct hb_rpc_call *call, void *service, const ProtobufCMessage *request)
{
	queue_job(call, service, (const Dra__ClaimsRequest *)request, true);
}

static void unprepare_resources(struct hb_rpc_call *call, void *service, const ProtobufCMessage *request)
{
	queue_job(call, service, (const Dra__ClaimsRequest *)request, false);
}

static void name_socket(const char *folder, const char *name, char path[512])
{
	snprintf(path, 512, "%s%s", folder, name);
}

static void get_info(struct hb_rpc_call *call, void *service, const ProtobufCMessage *request)
{
	const struct hb_dra_driver *driver = service;
	char endpoint[512], *versions[] = {(char *)"v1.DRAPlugin", (char *)"v1beta1.DRAPlugin"};
	Dra__PluginInfo info = DRA__PLUGIN_INFO__INIT;
	name_socket(driver->config->plugin_folder, DRIVER_SOCKET, endpoint);
	info.type = (char *)"DRAPlugin";
	info.name = (char *)HB_DRA_DRIVER;
	info.endpoint = endpoint;
	info.supported_versions = versions;
	info.n_supported_versions = sizeof(versions) / sizeof(*versions);
	hb_rpc_answer(call, &info.base);
}

static void note_registration(struct hb_rpc_call *call, void *service, const ProtobufCMessage *request)
{
	const Dra__RegistrationStatus *status = (const Dra__RegistrationStatus *)request;
	Dra__RegistrationStatusResponse answer = DRA__REGISTRATION_STATUS_RESPONSE__INIT;
	if (status->plugin_registered)
		hb_log_info(HB_DRA_DRIVER ": registered with the kubelet");
	else
		hb_log_warning(HB_DRA_DRIVER ": the kubelet did not register the driver: %.400s", status->error);
	hb_rpc_answer(call, &answer.base);
}

static const struct hb_rpc_method registration_methods[] = {
	{REGISTRATION "GetInfo", &dra__info_request__descriptor, get_info, false},
	{REGISTRATION "NotifyRegistrationStatus", &dra__registration_status__descriptor, note_registration, false},
	{NULL, NULL, NULL, false}};

static const struct hb_rpc_method service_methods[] = {
	{API_V1 "NodePrepareResources", &dra__claims_request__descriptor, prepare_resources, false},
	{API_V1 "NodeUnprepareResources", &dra__claims_request__descriptor, unprepare_resources, false},
	{API_V1BETA1 "NodePrepareResources", &dra__claims_request__descriptor, prepare_resources, false},
	{API_V1BETA1 "NodeUnprepareResources", &dra__claims_request__descriptor, unprepare_resources, false},
	{NULL, NULL, NULL, false}};

/* ---- the sockets ---- */

static bool check_socket(struct hb_dra_driver *driver, struct hb_rpc_server **server, const char *path,
			 const struct hb_rpc_method *methods)
{
	struct hb_error error;
	if (*server && hb_rpc_server_is_reachable(*server))
		return true;
	hb_rpc_server_close(*server);
	*server = NULL;
	if (hb_rpc_server_open(driver->loop, path, methods, driver, server, &error) == 0) {
		driver->complaint[0] = '\0';
		return true;
	}
	if (strcmp(driver->complaint, error.text) != 0)
		hb_log_warning("%s", error.text);
	snprintf(driver->complaint, sizeof(driver->complaint), "%s", error.text);
	return false;
}

/* The kubelet connects as soon as it sees the socket of the registration, so that is the second one. */
void hb_dra_driver_check(struct hb_dra_driver *driver)
{
	char path[512];
	name_socket(driver->config->plugin_folder, DRIVER_SOCKET, path);
	if (!check_socket(driver, &driver->service, path, service_methods))
		return;
	name_socket(driver->config->registry_folder, REGISTRATION_SOCKET, path);
	check_socket(driver, &driver->registration, path, registration_methods);
}

struct hb_dra_driver *hb_dra_driver_new(uv_loop_t *loop, const struct hb_dra_config *config,
					const struct hb_node_view *view, struct hb_prepared_claims *claims)
{
	struct hb_dra_driver *driver = hb_part_new(sizeof(*driver));
	driver->loop = loop;
	driver->config = config;
	driver->view = view;
	driver->claims = claims;
	driver->last = &driver->first;
	return driver;
}

void hb_dra_driver_close(struct hb_dra_driver *driver)
{
	hb_rpc_server_close(driver->registration);
	hb_rpc_server_close(driver->service);
	driver->registration = driver->service = NULL;
}

void hb_dra_driver_free(struct hb_dra_driver *driver)
{
	free(driver);
}
