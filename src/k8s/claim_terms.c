/* SPDX-License-Identifier: Apache-2.0 */
/* See claim_terms.h. */
#include "k8s/claim_terms.h"

#include "base/slo.h"
#include "base/units.h"
#include "base/uuid.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define API_VERSION HB_DRA_DRIVER "/v1"
#define KIND "TenantParameters"

struct claim_terms {
	bool is_high;
	struct hb_slo slo;
	uint64_t memory_bytes;
};

/* Where a parameter stands, for errors. */
struct terms_place {
	const char *space, *claim, *request, *source;
};

/* ---- names of devices ---- */

char *hb_dra_device_format(const unsigned char uuid[16], bool is_high, char name[static HB_DRA_DEVICE_SIZE])
{
	char text[HB_UUID_TEXT_SIZE];
	hb_uuid_format(uuid, text);
	for (char *at = text; *at; at++)
		*at = (char)tolower((unsigned char)*at);
	snprintf(name, HB_DRA_DEVICE_SIZE, "%s-%s", text, is_high ? "high" : "low");
	return name;
}

int hb_dra_device_parse(const char *name, unsigned char uuid[16], bool *is_high)
{
	char text[HB_UUID_TEXT_SIZE], written[HB_DRA_DEVICE_SIZE];
	unsigned char found[16];
	const char *priority = strrchr(name, '-');
	if (strlen(name) >= HB_DRA_DEVICE_SIZE || !priority || strncmp(name, "gpu-", 4) != 0)
		return -EINVAL;
	snprintf(text, sizeof(text), "GPU-%s", name + 4);
	bool high = strcmp(priority, "-high") == 0;
	if (hb_uuid_parse(text, found) < 0 || strcmp(hb_dra_device_format(found, high, written), name) != 0)
		return -EINVAL;
	memcpy(uuid, found, sizeof(found));
	*is_high = high;
	return 0;
}

/* ---- quantities ---- */

/* The factor of a suffix; 0 = there is no such suffix. */
static uint64_t suffix_factor(const char *suffix)
{
	static const char letters[] = "KMGTPE", decimal[] = "kMGTPE";
	const char *at;
	if (!*suffix)
		return 1;
	uint64_t factor = 1;
	if (suffix[1] == 'i' && !suffix[2] && (at = strchr(letters, suffix[0])))
		return UINT64_C(1) << (10 * (at - letters + 1));
	if (!suffix[1] && (at = strchr(decimal, suffix[0]))) {
		for (const char *i = decimal; i <= at; i++)
			factor *= 1000;
		return factor;
	}
	if ((suffix[0] == 'e' || suffix[0] == 'E') && isdigit((unsigned char)suffix[1]) && !suffix[2]) {
		for (int i = 0; i < suffix[1] - '0'; i++)
			factor *= 10;
		return factor;
	}
	return 0;
}

int hb_quantity_parse(const char *text, uint64_t *bytes)
{
	const char *at = text;
	uint64_t digits = 0, scale = 1;
	bool has_point = false;
	for (; isdigit((unsigned char)*at) || (*at == '.' && !has_point); at++) {
		if (*at == '.') {
			has_point = true;
			continue;
		}
		if (__builtin_mul_overflow(digits, 10, &digits) ||
		    __builtin_add_overflow(digits, (uint64_t)(*at - '0'), &digits) ||
		    (has_point && __builtin_mul_overflow(scale, 10, &scale)))
			return -EINVAL;
	}
	uint64_t factor = at == text || !isdigit((unsigned char)at[-1]) ? 0 : suffix_factor(at);
	unsigned __int128 product = (unsigned __int128)digits * factor;
	if (!factor || product % scale || product / scale > INT64_MAX)
		return -EINVAL;
	*bytes = (uint64_t)(product / scale);
	return 0;
}

/* ---- parameters ---- */

static const char *text_of(const json_t *object, const char *key)
{
	const char *text = json_string_value(json_object_get(object, key));
	return text ? text : "";
}

static int fail_parameter(const struct terms_place *place, struct hb_error *error, const char *what)
{
	return hb_error_set(error, -EINVAL, "claim %s/%s, request %s, parameters of the %s: %s", place->space,
			    place->claim, place->request, place->source, what);
}

static int take_priority(const struct terms_place *place, const char *value, struct claim_terms *terms,
			 struct hb_error *error)
{
	bool is_high = strcmp(value, "high") == 0;
	char what[160];
	if (!is_high && strcmp(value, "low") != 0) {
		snprintf(what, sizeof(what), "priority: '%.40s' is not high or low", value);
		return fail_parameter(place, error, what);
	}
	if (is_high && !terms->is_high)
		return fail_parameter(
			place, error,
			"priority: high is not granted: the device, or the device class, has priority low");
	terms->is_high = is_high;
	return 0;
}

static int take_memory(const struct terms_place *place, const char *value, struct claim_terms *terms,
		       struct hb_error *error)
{
	uint64_t bytes = 0;
	char what[160];
	if ((hb_quantity_parse(value, &bytes) < 0 && hb_bytes_parse(value, &bytes, NULL) < 0) || !bytes) {
		snprintf(what, sizeof(what), "memory: '%.40s' is not a size such as 40Gi", value);
		return fail_parameter(place, error, what);
	}
	terms->memory_bytes = bytes;
	return 0;
}

static int take_slo(const struct terms_place *place, const char *value, struct claim_terms *terms,
		    struct hb_error *error)
{
	struct hb_error why;
	char what[sizeof(why) + 8];
	if (hb_slo_parse(value, &terms->slo, &why) == 0)
		return 0;
	snprintf(what, sizeof(what), "slo: %s", why.text);
	return fail_parameter(place, error, what);
}

static int take_parameter(const struct terms_place *place, const char *key, const char *value,
			  struct claim_terms *terms, struct hb_error *error)
{
	char what[240];
	if (strcmp(key, "apiVersion") == 0 && strcmp(value, API_VERSION) == 0)
		return 0;
	if (strcmp(key, "kind") == 0 && strcmp(value, KIND) == 0)
		return 0;
	if (strcmp(key, "priority") == 0)
		return take_priority(place, value, terms, error);
	if (strcmp(key, "memory") == 0)
		return take_memory(place, value, terms, error);
	if (strcmp(key, "slo") == 0)
		return take_slo(place, value, terms, error);
	snprintf(what, sizeof(what),
		 "%.40s: '%.40s': expected apiVersion " API_VERSION ", kind " KIND ", and priority, slo and memory",
		 key, value);
	return fail_parameter(place, error, what);
}

static int take_parameters(const struct terms_place *place, json_t *parameters, struct claim_terms *terms,
			   struct hb_error *error)
{
	const char *key;
	json_t *value;
	char what[160];
	if (strcmp(text_of(parameters, "apiVersion"), API_VERSION) != 0 ||
	    strcmp(text_of(parameters, "kind"), KIND) != 0)
		return fail_parameter(place, error, "apiVersion is not " API_VERSION ", or kind is not " KIND);
	json_object_foreach(parameters, key, value)
	{
		if (!json_is_string(value)) {
			snprintf(what, sizeof(what), "%.40s: is not a string", key);
			return fail_parameter(place, error, what);
		}
		int result = take_parameter(place, key, json_string_value(value), terms, error);
		if (result < 0)
			return result;
	}
	return 0;
}

/* ---- which parameters apply ---- */

/* Whether a list of requests is empty or has this request; "main" includes "main/sub". */
static bool names_request(const json_t *requests, const char *request)
{
	size_t i;
	json_t *item;
	json_array_foreach(requests, i, item)
	{
		const char *name = json_string_value(item);
		size_t n = name ? strlen(name) : 0;
		if (n && strncmp(name, request, n) == 0 && (request[n] == '\0' || request[n] == '/'))
			return true;
	}
	return json_array_size(requests) == 0;
}

static int take_configs(struct terms_place *place, const json_t *configs, const char *source, const char *source_name,
			struct claim_terms *terms, struct hb_error *error)
{
	size_t i;
	json_t *config;
	place->source = source_name;
	json_array_foreach(configs, i, config)
	{
		json_t *opaque = json_object_get(config, "opaque");
		if (strcmp(text_of(config, "source"), source) != 0 ||
		    strcmp(text_of(opaque, "driver"), HB_DRA_DRIVER) != 0 ||
		    !names_request(json_object_get(config, "requests"), place->request))
			continue;
		int result = take_parameters(place, json_object_get(opaque, "parameters"), terms, error);
		if (result < 0)
			return result;
	}
	return 0;
}

/* The memory that the scheduler reserved is a limit, too. 0 = none was requested. */
static int take_capacity(const struct terms_place *place, const json_t *consumed, struct claim_terms *terms,
			 struct hb_error *error)
{
	const json_t *memory = json_object_get(consumed, "memory");
	uint64_t bytes = 0;
	if (!memory)
		memory = json_object_get(consumed, HB_DRA_DRIVER "/memory");
	if (memory && (!json_is_string(memory) || hb_quantity_parse(json_string_value(memory), &bytes) < 0))
		return hb_error_set(error, -EINVAL,
				    "claim %s/%s, request %s: the consumed capacity of memory is not a quantity",
				    place->space, place->claim, place->request);
	if (bytes && (!terms->memory_bytes || bytes < terms->memory_bytes))
		terms->memory_bytes = bytes;
	return 0;
}

static int read_device(struct terms_place *place, const json_t *result, const json_t *configs, json_t *devices,
		       struct hb_error *error)
{
	const char *name = text_of(result, "device");
	unsigned char uuid[16];
	struct claim_terms terms = {.is_high = false};
	if (hb_dra_device_parse(name, uuid, &terms.is_high) < 0)
		return hb_error_set(error, -EINVAL,
				    "claim %s/%s, request %s: '%.80s' is not a device of " HB_DRA_DRIVER, place->space,
				    place->claim, place->request, name);
	int code = take_configs(place, configs, "FromClass", "device class", &terms, error);
	if (code == 0)
		code = take_configs(place, configs, "FromClaim", "claim", &terms, error);
	if (code == 0)
		code = take_capacity(place, json_object_get(result, "consumedCapacity"), &terms, error);
	if (code < 0)
		return code;
	json_t *device = json_pack("{s:s, s:s, s:s, s:s, s:s, s:I, s:I, s:I}", "request", place->request, "pool",
				   text_of(result, "pool"), "device", name, "share", text_of(result, "shareID"),
				   "priority", terms.is_high ? "high" : "low", "slo_ns",
				   (json_int_t)terms.slo.latency_ns, "attainment_ppm", (json_int_t)terms.slo.share_ppm,
				   "memory_bytes", (json_int_t)terms.memory_bytes);
	return json_array_append_new(devices, device) < 0 ? hb_error_set(error, -ENOMEM, "out of memory") : 0;
}

json_t *hb_claim_terms_read(const json_t *claim, const char *node, struct hb_error *error)
{
	const json_t *metadata = json_object_get(claim, "metadata");
	const json_t *given = json_object_get(json_object_get(json_object_get(claim, "status"), "allocation"),
					      "devices");
	struct terms_place place = {.space = text_of(metadata, "namespace"), .claim = text_of(metadata, "name")};
	json_t *devices = json_array(), *result;
	size_t i;
	int code = 0;
	json_array_foreach(json_object_get(given, "results"), i, result)
	{
		if (strcmp(text_of(result, "driver"), HB_DRA_DRIVER) != 0 || strcmp(text_of(result, "pool"), node) != 0)
			continue;
		place.request = text_of(result, "request");
		code = json_array_size(devices) == HB_CLAIM_DEVICES_MAX
			       ? hb_error_set(error, -E2BIG, "claim %s/%s: has more than %d devices", place.space,
					      place.claim, HB_CLAIM_DEVICES_MAX)
			       : read_device(&place, result, json_object_get(given, "config"), devices, error);
		if (code < 0)
			break;
	}
	if (code == 0 && json_array_size(devices) == 0)
		code = hb_error_set(error, -ENOENT,
				    "claim %s/%s: no device of " HB_DRA_DRIVER " on node %s is allocated", place.space,
				    place.claim, node);
	if (code < 0) {
		json_decref(devices);
		return NULL;
	}
	return devices;
}
