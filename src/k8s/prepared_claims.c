/* SPDX-License-Identifier: Apache-2.0 */
/* See prepared_claims.h. */
#include "k8s/prepared_claims.h"

#include "base/json.h"
#include "base/log.h"
#include "base/out_file.h"
#include "base/uuid.h"
#include "k8s/claim_terms.h"
#include "k8s/message_parts.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define VERSION 1
#define CDI_KIND HB_DRA_DRIVER "/claim"
#define FILE_PREFIX HB_DRA_DRIVER "-claim-"
#define FILE_SUFFIX ".json"
#define UID_MAX 63
#define FILE_PATH_MAX 4096

struct hb_prepared_claims {
	struct hb_claims_config config;
	json_t *claims; /* by UID */
	bool is_changed;
};

bool hb_claim_uid_is_valid(const char *uid)
{
	size_t n = strlen(uid);
	for (size_t i = 0; i < n; i++)
		if (!isalnum((unsigned char)uid[i]) && uid[i] != '-')
			return false;
	return n && n <= UID_MAX;
}

static void name_file(const struct hb_prepared_claims *claims, const char *uid, char path[FILE_PATH_MAX])
{
	snprintf(path, FILE_PATH_MAX, "%s/" FILE_PREFIX "%s" FILE_SUFFIX, claims->config.cdi_folder, uid);
}

/* ---- CDI files ---- */

/* Replaces a variable in a list of NAME=VALUE. */
static void set_variable(json_t *list, const char *name, json_t *text)
{
	size_t i = 0, n = strlen(name);
	while (i < json_array_size(list)) {
		const char *found = json_string_value(json_array_get(list, i));
		if (found && strncmp(found, name, n) == 0 && found[n] == '=')
			json_array_remove(list, i);
		else
			i++;
	}
	json_array_append_new(list, text);
}

static json_int_t number_of(const json_t *object, const char *key)
{
	return json_integer_value(json_object_get(object, key));
}

/* What the device of the priority adds to a container, with the terms of the claim. NULL: there is no such device. */
static json_t *make_edits(const json_t *cdi, const json_t *device)
{
	const char *priority = json_string_value(json_object_get(device, "priority"));
	json_t *found = NULL, *item;
	size_t i;
	json_array_foreach(json_object_get(cdi, "devices"), i, item)
	{
		const char *name = json_string_value(json_object_get(item, "name"));
		if (name && priority && strcmp(name, priority) == 0)
			found = json_object_get(item, "containerEdits");
	}
	json_t *edits = json_deep_copy(found), *variables = json_object_get(edits, "env");
	if (!json_is_array(variables)) {
		json_decref(edits);
		return NULL;
	}
	json_int_t slo_ns = number_of(device, "slo_ns"), ppm = number_of(device, "attainment_ppm");
	json_int_t bytes = number_of(device, "memory_bytes");
	if (slo_ns)
		set_variable(variables, "HB_SLO_NS", json_sprintf("HB_SLO_NS=%" JSON_INTEGER_FORMAT, slo_ns));
	if (ppm)
		set_variable(variables, "HB_ATTAINMENT_PPM",
			     json_sprintf("HB_ATTAINMENT_PPM=%" JSON_INTEGER_FORMAT, ppm));
	if (bytes)
		set_variable(variables, "HB_MEMORY_BYTES",
			     json_sprintf("HB_MEMORY_BYTES=%" JSON_INTEGER_FORMAT, bytes));
	return edits;
}

static json_t *make_file(const json_t *claim, const char *uid, const json_t *cdi, struct hb_error *error)
{
	json_t *devices = json_array(), *device;
	size_t i;
	json_array_foreach(json_object_get(claim, "devices"), i, device)
	{
		json_t *edits = make_edits(cdi, device);
		if (!edits) {
			hb_error_format(error, "the CDI file has no device %s: run `hb cdi generate` on this node",
					json_string_value(json_object_get(device, "priority")));
			json_decref(devices);
			return NULL;
		}
		json_array_append_new(devices, json_pack("{s:o, s:o}", "name", json_sprintf("claim-%s-%zu", uid, i),
							 "containerEdits", edits));
	}
	return hb_json_pack(error, "{s:O, s:s, s:o, s:O}", "cdiVersion", json_object_get(cdi, "cdiVersion"), "kind",
			    CDI_KIND, "devices", devices, "containerEdits", json_object_get(cdi, "containerEdits"));
}

static int write_json(const char *path, json_t *root, mode_t mode, struct hb_error *error)
{
	struct hb_out_file file;
	int result = root ? hb_out_file_open(&file, path, error) : -EINVAL;
	if (result < 0) {
		json_decref(root);
		return result;
	}
	fchmod(fileno(file.stream), mode);
	result = hb_out_file_wrote(&file, hb_json_write(root, file.stream, error), error);
	if (result == 0)
		result = hb_out_file_commit(&file, error);
	hb_out_file_fini(&file);
	json_decref(root);
	return result;
}

static int write_file(const struct hb_prepared_claims *claims, const char *uid, const json_t *claim, const json_t *cdi,
		      struct hb_error *error)
{
	char path[FILE_PATH_MAX];
	name_file(claims, uid, path);
	return write_json(path, make_file(claim, uid, cdi, error), 0644, error);
}

/* ---- claims ---- */

json_t *hb_prepared_claims_devices(const struct hb_prepared_claims *claims, const char *uid)
{
	return json_object_get(json_object_get(claims->claims, uid), "devices");
}

static json_t *list_cdi_ids(const struct hb_prepared_claims *claims, const char *uid, size_t i, const json_t *device)
{
	json_t *ids = json_pack("[o]", json_sprintf(CDI_KIND "=claim-%s-%zu", uid, i));
	unsigned char gpu[16];
	char text[HB_UUID_TEXT_SIZE];
	bool is_high;
	if (claims->config.grants_gpus &&
	    hb_dra_device_parse(json_string_value(json_object_get(device, "device")), gpu, &is_high) == 0)
		json_array_append_new(ids, json_sprintf("nvidia.com/gpu=%s", hb_uuid_format(gpu, text)));
	return ids;
}

static int add_new(struct hb_prepared_claims *claims, const struct hb_claim_name *name, const json_t *devices,
		   const json_t *cdi, struct hb_error *error)
{
	size_t i;
	json_t *device, *copy = json_deep_copy(devices);
	if (json_object_size(claims->claims) >= HB_CLAIMS_MAX) {
		json_decref(copy);
		return hb_error_set(error, -ENOSPC, "this node has %d prepared claims, which is the limit",
				    HB_CLAIMS_MAX);
	}
	json_array_foreach(copy, i, device)
		json_object_set_new(device, "cdi", list_cdi_ids(claims, name->uid, i, device));
	json_t *claim = hb_json_pack(error, "{s:s, s:s, s:o}", "namespace", name->space, "name", name->name, "devices",
				     copy);
	int result = claim ? write_file(claims, name->uid, claim, cdi, error) : -ENOMEM;
	if (result == 0) {
		json_object_set(claims->claims, name->uid, claim);
		claims->is_changed = true;
	}
	json_decref(claim);
	return result;
}

int hb_prepared_claims_add(struct hb_prepared_claims *claims, const struct hb_claim_name *name, const json_t *devices,
			   const json_t *cdi, struct hb_error *error)
{
	char path[FILE_PATH_MAX];
	const json_t *claim = json_object_get(claims->claims, name->uid);
	if (!claim)
		return add_new(claims, name, devices, cdi, error);
	name_file(claims, name->uid, path);
	return access(path, F_OK) == 0 ? 0 : write_file(claims, name->uid, claim, cdi, error);
}

int hb_prepared_claims_remove(struct hb_prepared_claims *claims, const char *uid, struct hb_error *error)
{
	char path[FILE_PATH_MAX];
	name_file(claims, uid, path);
	if (unlink(path) < 0 && errno != ENOENT)
		return hb_error_set(error, -errno, "%s: %s", path, strerror(errno));
	claims->is_changed |= json_object_del(claims->claims, uid) == 0;
	return 0;
}

/* ---- the checkpoint ---- */

int hb_prepared_claims_save(struct hb_prepared_claims *claims, struct hb_error *error)
{
	if (!claims->is_changed)
		return 0;
	json_t *root = hb_json_pack(error, "{s:i, s:O}", "version", VERSION, "claims", claims->claims);
	int result = write_json(claims->config.checkpoint, root, 0600, error);
	if (result == 0)
		claims->is_changed = false;
	return result;
}

static int check_claims(const char *path, json_t *found, struct hb_error *error)
{
	const char *uid;
	json_t *claim;
	if (json_object_size(found) > HB_CLAIMS_MAX)
		return hb_error_set(error, -EINVAL, "%s: has more than %d claims", path, HB_CLAIMS_MAX);
	json_object_foreach(
		found, uid,
		claim) if (!hb_claim_uid_is_valid(uid) ||
			   !json_is_array(json_object_get(
				   claim,
				   "devices"))) return hb_error_set(error, -EINVAL,
								    "%s: claim '%.80s' has no valid UID, or no devices",
								    path, uid);
	return 0;
}

static int load_checkpoint(struct hb_prepared_claims *claims, struct hb_error *error)
{
	const char *path = claims->config.checkpoint;
	json_t *root = NULL, *found;
	int version, result = hb_json_load(path, &root, error);
	if (result == -ENOENT) {
		claims->claims = json_object();
		return 0;
	}
	if (result == 0)
		result = hb_json_unpack(root, path, error, "{s:i, s:o}", "version", &version, "claims", &found);
	if (result == 0 && (version != VERSION || !json_is_object(found)))
		result = hb_error_set(error, -EINVAL, "%s: version %d of the file is not known to this hb-k8s (%d)",
				      path, version, VERSION);
	if (result == 0)
		result = check_claims(path, found, error);
	if (result == 0)
		claims->claims = json_incref(found);
	json_decref(root);
	return result;
}

/* Whether the name is that of a claim's file, with the claim's UID, or of one that was not completed ("" as UID). */
static bool read_file_name(const char *name, char uid[UID_MAX + 1])
{
	size_t n = strlen(name), prefix = sizeof(FILE_PREFIX) - 1, suffix = sizeof(FILE_SUFFIX) - 1;
	uid[0] = '\0';
	if (n <= prefix + suffix || strncmp(name, FILE_PREFIX, prefix) != 0)
		return false;
	if (strcmp(name + n - suffix, FILE_SUFFIX) == 0 && n - prefix - suffix <= UID_MAX)
		snprintf(uid, UID_MAX + 1, "%.*s", (int)(n - prefix - suffix), name + prefix);
	return uid[0] || strcmp(name + n - 4, ".tmp") == 0;
}

/* Files of claims that were not saved: hb-k8s ended before it answered. */
static void remove_unknown_files(const struct hb_prepared_claims *claims)
{
	DIR *folder = opendir(claims->config.cdi_folder);
	const struct dirent *entry;
	while (folder && (entry = readdir(folder))) {
		char uid[UID_MAX + 1], path[FILE_PATH_MAX];
		if (!read_file_name(entry->d_name, uid) || json_object_get(claims->claims, uid))
			continue;
		snprintf(path, sizeof(path), "%s/%s", claims->config.cdi_folder, entry->d_name);
		unlink(path);
	}
	if (folder)
		closedir(folder);
}

int hb_prepared_claims_open(const struct hb_claims_config *config, struct hb_prepared_claims **out,
			    struct hb_error *error)
{
	struct hb_prepared_claims *claims = hb_part_new(sizeof(*claims));
	claims->config = *config;
	int result = load_checkpoint(claims, error);
	if (result < 0) {
		hb_prepared_claims_free(claims);
		return result;
	}
	remove_unknown_files(claims);
	*out = claims;
	return 0;
}

void hb_prepared_claims_free(struct hb_prepared_claims *claims)
{
	if (!claims)
		return;
	json_decref(claims->claims);
	free(claims);
}
