/* SPDX-License-Identifier: Apache-2.0 */
/* Writing answers and documents; see kserve_json.h. */
#include "front/kserve_json.h"

#include "base/json.h"
#include "hb-version.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *const hb_kserve_extensions[] = {"binary_tensor_data", "model_repository",     "schedule_policy",
					    "statistics",         "system_shared_memory", NULL};

static const char *const platform_names[] = {
#define HB_PLATFORM(name, symbol, what) "hummingbird_" #name,
#include "front/platforms.def"
#undef HB_PLATFORM
};

const char *hb_kserve_platform(const struct hb_model_config *model)
{
	return platform_names[model->platform];
}

const char *hb_kserve_state(const struct hb_model *model)
{
	static const char *const names[] = {"UNAVAILABLE", "LOADING", "READY", "UNAVAILABLE"};
	return names[model->state];
}

static char *dump(json_t *root)
{
	char *text = root ? json_dumps(root, JSON_COMPACT) : NULL;
	json_decref(root);
	return text;
}

/* ---- tensors as JSON ---- */

static json_t *element(enum hb_dtype dtype, const void *at)
{
	union {
		int8_t i8;
		int16_t i16;
		int32_t i32;
		int64_t i64;
		uint8_t u8;
		uint16_t u16;
		uint32_t u32;
		float f32;
		double f64;
	} value;
	memcpy(&value, at, hb_dtype_bytes(dtype));
	switch (dtype) {
	case HB_DTYPE_BOOL:
		return json_boolean(value.u8);
	case HB_DTYPE_UINT8:
		return json_integer(value.u8);
	case HB_DTYPE_UINT16:
		return json_integer(value.u16);
	case HB_DTYPE_UINT32:
		return json_integer(value.u32);
	case HB_DTYPE_INT8:
		return json_integer(value.i8);
	case HB_DTYPE_INT16:
		return json_integer(value.i16);
	case HB_DTYPE_INT32:
		return json_integer(value.i32);
	case HB_DTYPE_INT64:
		return json_integer(value.i64);
	case HB_DTYPE_UINT64:
		return value.i64 >= 0 ? json_integer(value.i64) : NULL; /* JSON's integers end there */
	case HB_DTYPE_FP32:
		return json_real((double)value.f32); /* NULL where it is not finite */
	case HB_DTYPE_FP64:
		return json_real(value.f64);
	default:
		return NULL;
	}
}

static json_t *strings(const struct hb_tensor *tensor)
{
	json_t *list = json_array();
	const char *at = tensor->data, *end = at + tensor->bytes;
	while (list && end - at >= 4) {
		uint32_t length;
		memcpy(&length, at, 4);
		at += 4;
		json_t *text = (size_t)(end - at) >= length ? json_stringn(at, length) : NULL; /* UTF-8 only */
		if (!text || json_array_append_new(list, text) < 0) {
			json_decref(list);
			return NULL;
		}
		at += length;
	}
	return list;
}

static json_t *elements(const struct hb_tensor *tensor)
{
	size_t size = hb_dtype_bytes(tensor->dtype);
	json_t *list = size ? json_array() : strings(tensor);
	for (size_t i = 0; list && size && i < tensor->bytes / size; i++) {
		json_t *one = element(tensor->dtype, (const char *)tensor->data + i * size);
		if (!one || json_array_append_new(list, one) < 0) {
			json_decref(list);
			return NULL;
		}
	}
	return list;
}

static json_t *shape_of(const int64_t *dims, uint32_t n, bool batched)
{
	json_t *shape = json_array();
	if (batched)
		json_array_append_new(shape, json_integer(-1));
	for (uint32_t i = 0; i < n; i++)
		json_array_append_new(shape, json_integer(dims[i]));
	return shape;
}

/* ---- answers ---- */

struct writer {
	struct hb_infer *infer;
	json_t *outputs;
	const struct hb_tensor *binary[HB_TENSORS_MAX];
	uint32_t n_binary;
};

static const struct hb_wish *wish_for(const struct hb_infer *infer, const char *name)
{
	for (uint32_t i = 0; i < infer->n_wishes; i++)
		if (strcmp(infer->wishes[i].name, name) == 0)
			return &infer->wishes[i];
	return NULL;
}

static bool write_output(struct writer *writer, const struct hb_tensor *tensor, const struct hb_wish *wish)
{
	json_t *object = json_pack("{s:s, s:s, s:o}", "name", tensor->name, "datatype", hb_dtype_name(tensor->dtype),
				   "shape", shape_of(tensor->dims, tensor->n_dims, false));
	json_t *more;
	const char *key = "parameters";
	if (wish && wish->part.region[0]) {
		more = json_pack("{s:s, s:I, s:I}", "shared_memory_region", tensor->part.region, "shared_memory_offset",
				 (json_int_t)tensor->part.offset, "shared_memory_byte_size",
				 (json_int_t)tensor->part.bytes);
	} else if (wish ? wish->binary : writer->infer->binary_outputs) {
		more = json_pack("{s:I}", "binary_data_size", (json_int_t)tensor->bytes);
		writer->binary[writer->n_binary++] = tensor;
	} else {
		more = elements(tensor);
		key = "data";
	}
	if (!object || !more) {
		json_decref(object);
		json_decref(more);
		hb_infer_fail(
			writer->infer, HB_ANSWER_BROKEN,
			"output \"%s\" cannot be written as JSON (not finite, not UTF-8, or a type that JSON lacks): ask for "
			"binary data",
			tensor->name);
		return false;
	}
	json_object_set_new(object, key, more);
	json_array_append_new(writer->outputs, object);
	return true;
}

static bool write_outputs(struct writer *writer)
{
	const struct hb_infer *infer = writer->infer;
	for (uint32_t i = 0; i < infer->n_outputs; i++) {
		const struct hb_wish *wish = wish_for(infer, infer->outputs[i].name);
		if ((wish || infer->n_wishes == 0) && !write_output(writer, &infer->outputs[i], wish))
			return false;
	}
	return true;
}

static size_t join(const struct writer *writer, json_t *root, char **out, size_t *json_bytes)
{
	size_t bytes = *json_bytes = json_dumpb(root, NULL, 0, JSON_COMPACT);
	for (uint32_t i = 0; i < writer->n_binary; i++)
		bytes += writer->binary[i]->bytes;
	*out = malloc(bytes + 1);
	if (!*out)
		return 0;
	json_dumpb(root, *out, *json_bytes, JSON_COMPACT);
	char *at = *out + *json_bytes;
	for (uint32_t i = 0; i < writer->n_binary; i++) {
		memcpy(at, writer->binary[i]->data, writer->binary[i]->bytes);
		at += writer->binary[i]->bytes;
	}
	return bytes;
}

size_t hb_kserve_write(struct hb_infer *infer, const struct hb_model_config *model, char **out, size_t *json_bytes)
{
	struct writer writer = {.infer = infer, .outputs = json_array()};
	size_t bytes = 0;
	bool written = write_outputs(&writer);
	json_t *root = json_pack("{s:s, s:s, s:o}", "model_name", model->name, "model_version", "1", "outputs",
				 writer.outputs);
	if (infer->id[0])
		json_object_set_new(root, "id", json_string(infer->id));
	if (written && root)
		bytes = join(&writer, root, out, json_bytes);
	if (!bytes && infer->answer == HB_ANSWER_OK)
		hb_infer_fail(infer, HB_ANSWER_UNAVAILABLE, "out of memory");
	json_decref(root);
	return bytes;
}

/* ---- documents ---- */

char *hb_kserve_error(const char *reason)
{
	json_t *text = json_string(reason); /* NULL where it is not UTF-8 */
	return dump(json_pack("{s:o}", "error", text ? text : json_string("request refused")));
}

char *hb_kserve_server(void)
{
	json_t *extensions = json_array();
	for (size_t i = 0; hb_kserve_extensions[i]; i++)
		json_array_append_new(extensions, json_string(hb_kserve_extensions[i]));
	return dump(
		json_pack("{s:s, s:s, s:o}", "name", "hummingbird", "version", HB_VERSION, "extensions", extensions));
}

static json_t *specs_of(const struct hb_tensor_spec *specs, uint32_t n, bool batched)
{
	json_t *list = json_array();
	for (uint32_t i = 0; i < n; i++)
		json_array_append_new(list, json_pack("{s:s, s:s, s:o}", "name", specs[i].name, "datatype",
						      hb_dtype_name((enum hb_dtype)specs[i].dtype), "shape",
						      shape_of(specs[i].dims, specs[i].n_dims, batched)));
	return list;
}

char *hb_kserve_model(const struct hb_model_config *model)
{
	bool batched = model->max_batch > 0;
	return dump(json_pack("{s:s, s:[s], s:s, s:o, s:o}", "name", model->name, "versions", "1", "platform",
			      hb_kserve_platform(model), "inputs", specs_of(model->inputs, model->n_inputs, batched),
			      "outputs", specs_of(model->outputs, model->n_outputs, batched)));
}

static json_t *duration(const struct hb_duration *duration)
{
	return json_pack("{s:I, s:I}", "count", (json_int_t)duration->count, "ns", (json_int_t)duration->ns);
}

static json_t *batches(const struct hb_model_stats *stats)
{
	json_t *list = json_array();
	for (int i = 1; i <= HB_SERVE_BATCH_MAX; i++)
		if (stats->batch[i].infer.count)
			json_array_append_new(list, json_pack("{s:i, s:o, s:o, s:o}", "batch_size", i, "compute_input",
							      duration(&stats->batch[i].input), "compute_infer",
							      duration(&stats->batch[i].infer), "compute_output",
							      duration(&stats->batch[i].output)));
	return list;
}

struct listing {
	json_t *list;
	const char *name;
	bool ready_only;
};

static void add_statistics(void *argument, struct hb_model *model)
{
	struct listing *listing = argument;
	const struct hb_model_stats *stats = &model->stats;
	static const struct hb_duration none;
	if ((listing->name && strcmp(listing->name, model->config.name) != 0) || model->state == HB_MODEL_UNLOADED)
		return;
	json_t *inference = json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "success", duration(&stats->success),
				      "fail", duration(&stats->fail), "queue", duration(&stats->queue), "compute_input",
				      duration(&stats->input), "compute_infer", duration(&stats->infer),
				      "compute_output", duration(&stats->output), "cache_hit", duration(&none),
				      "cache_miss", duration(&none));
	json_array_append_new(listing->list,
			      json_pack("{s:s, s:s, s:I, s:I, s:I, s:o, s:o}", "name", model->config.name, "version",
					"1", "last_inference", (json_int_t)stats->ended_ms, "inference_count",
					(json_int_t)stats->inferences, "execution_count", (json_int_t)stats->executions,
					"inference_stats", inference, "batch_stats", batches(stats)));
}

char *hb_kserve_statistics(struct hb_dispatch *dispatch, const char *name)
{
	struct listing listing = {.list = json_array(), .name = name};
	hb_dispatch_each_model(dispatch, add_statistics, &listing);
	return dump(json_pack("{s:o}", "model_stats", listing.list));
}

static void add_to_index(void *argument, struct hb_model *model)
{
	struct listing *listing = argument;
	if (!listing->ready_only || model->state == HB_MODEL_READY)
		json_array_append_new(listing->list,
				      json_pack("{s:s, s:s, s:s, s:s}", "name", model->config.name, "version", "1",
						"state", hb_kserve_state(model), "reason", model->why));
}

char *hb_kserve_index(struct hb_dispatch *dispatch, bool ready_only)
{
	struct listing listing = {.list = json_array(), .ready_only = ready_only};
	hb_dispatch_each_model(dispatch, add_to_index, &listing);
	return dump(listing.list);
}

char *hb_kserve_regions(const struct hb_region *regions, uint32_t n)
{
	json_t *list = json_array();
	for (uint32_t i = 0; i < n; i++)
		json_array_append_new(list, json_pack("{s:s, s:s, s:I, s:I}", "name", regions[i].name, "key",
						      regions[i].key, "offset", (json_int_t)regions[i].offset,
						      "byte_size", (json_int_t)regions[i].bytes));
	return dump(list);
}
