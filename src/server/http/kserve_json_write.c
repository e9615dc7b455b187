/* SPDX-License-Identifier: Apache-2.0 */
/* Writes answers and documents; see kserve_json.h. */
#include "server/http/kserve_json.h"

#include "base/hb-version.h"
#include "base/json_text.h"
#include "server/models/model_info.h"

#include <stdlib.h>
#include <string.h>

static char *print_json(json_t *root)
{
	char *text = root ? json_dumps(root, JSON_COMPACT) : NULL;
	json_decref(root);
	return text;
}

/* ---- tensors as JSON ---- */

static bool add_element(struct hb_json_text *text, enum hb_dtype dtype, const void *at)
{
	union {
		int8_t i8;
		int16_t i16;
		int32_t i32;
		int64_t i64;
		uint8_t u8;
		uint16_t u16;
		uint32_t u32;
		uint64_t u64;
		float f32;
		double f64;
	} value;
	memcpy(&value, at, hb_dtype_bytes(dtype));
	switch (dtype) {
	case HB_DTYPE_BOOL:
		hb_json_text_add(text, value.u8 ? "true" : "false", value.u8 ? 4 : 5);
		return true;
	case HB_DTYPE_FP32:
		return hb_json_text_add_float(text, value.f32); /* false if it is not finite */
	case HB_DTYPE_FP64:
		return hb_json_text_add_double(text, value.f64);
	case HB_DTYPE_UINT8:
	case HB_DTYPE_UINT16:
	case HB_DTYPE_UINT32:
	case HB_DTYPE_UINT64:
		hb_json_text_add_unsigned(text, dtype == HB_DTYPE_UINT8    ? value.u8
						: dtype == HB_DTYPE_UINT16 ? value.u16
						: dtype == HB_DTYPE_UINT32 ? value.u32
									   : value.u64);
		return true;
	case HB_DTYPE_INT8:
	case HB_DTYPE_INT16:
	case HB_DTYPE_INT32:
	case HB_DTYPE_INT64:
		hb_json_text_add_integer(text, dtype == HB_DTYPE_INT8    ? value.i8
					       : dtype == HB_DTYPE_INT16 ? value.i16
					       : dtype == HB_DTYPE_INT32 ? value.i32
									 : value.i64);
		return true;
	default:
		return false; /* FP16, BF16: JSON output is not supported */
	}
}

static bool add_strings(struct hb_json_text *text, const struct hb_tensor *tensor)
{
	const char *at = tensor->data, *end = at + tensor->bytes;
	uint32_t length;
	for (bool first = true; end - at >= 4; first = false) {
		memcpy(&length, at, 4);
		at += 4;
		if (!first)
			HB_JSON_TEXT_ADD(text, ",");
		if ((size_t)(end - at) < length ||
		    !hb_json_text_add_text(text, at, length)) /* false if it is not UTF-8 */
			return false;
		at += length;
	}
	return true;
}

static bool add_elements(struct hb_json_text *text, const struct hb_tensor *tensor)
{
	size_t size = hb_dtype_bytes(tensor->dtype), n = size ? tensor->bytes / size : 0;
	bool written = true;
	HB_JSON_TEXT_ADD(text, ",\"data\":[");
	if (size == 0)
		written = add_strings(text, tensor);
	for (size_t i = 0; i < n && written; i++) {
		if (i)
			HB_JSON_TEXT_ADD(text, ",");
		written = add_element(text, tensor->dtype, (const char *)tensor->data + i * size);
	}
	HB_JSON_TEXT_ADD(text, "]");
	return written;
}

/* ---- answers ---- */

static const struct hb_output_request *find_output_request(const struct hb_inference *infer, const char *name)
{
	for (uint32_t i = 0; i < infer->n_requested; i++)
		if (strcmp(infer->requested[i].name, name) == 0)
			return &infer->requested[i];
	return NULL;
}

/* Adds `,"key":"value"`. `before` is the text up to the value. Values are UTF-8: that was checked when they were read. */
static void add_member(struct hb_json_text *text, const char *before, const char *value)
{
	hb_json_text_add(text, before, strlen(before));
	if (!hb_json_text_add_text(text, value, strlen(value)))
		HB_JSON_TEXT_ADD(text, "\"\"");
}

static void add_region(struct hb_json_text *text, const struct hb_region_part *part)
{
	add_member(text, ",\"parameters\":{\"shared_memory_region\":", part->region);
	HB_JSON_TEXT_ADD(text, ",\"shared_memory_offset\":");
	hb_json_text_add_unsigned(text, part->offset);
	HB_JSON_TEXT_ADD(text, ",\"shared_memory_byte_size\":");
	hb_json_text_add_unsigned(text, part->bytes);
	HB_JSON_TEXT_ADD(text, "}");
}

static bool is_binary(const struct hb_inference *infer, const struct hb_output_request *request)
{
	return request ? request->binary && !request->part.region[0] : infer->binary_outputs;
}

static bool add_output(struct hb_json_text *text, struct hb_inference *infer, const struct hb_tensor *tensor,
		       const struct hb_output_request *request)
{
	bool written = true;
	add_member(text, "{\"name\":", tensor->name);
	add_member(text, ",\"datatype\":", hb_dtype_name(tensor->dtype));
	HB_JSON_TEXT_ADD(text, ",\"shape\":[");
	for (uint32_t i = 0; i < tensor->n_dims; i++) {
		if (i)
			HB_JSON_TEXT_ADD(text, ",");
		hb_json_text_add_integer(text, tensor->dims[i]);
	}
	HB_JSON_TEXT_ADD(text, "]");
	if (request && request->part.region[0]) {
		add_region(text, &tensor->part);
	} else if (is_binary(infer, request)) {
		HB_JSON_TEXT_ADD(text, ",\"parameters\":{\"binary_data_size\":");
		hb_json_text_add_unsigned(text, tensor->bytes);
		HB_JSON_TEXT_ADD(text, "}");
	} else {
		written = add_elements(text, tensor);
	}
	HB_JSON_TEXT_ADD(text, "}");
	if (!written)
		hb_inference_fail(
			infer, HB_ANSWER_BROKEN,
			"output \"%s\" cannot be expressed in JSON (a value that is not finite or not UTF-8, or its data type): "
			"request binary data",
			tensor->name);
	return written;
}

/* Iterates over the outputs that the client asked for, or over all of them; *at is the state. */
static const struct hb_tensor *find_next_output(const struct hb_inference *infer, uint32_t *at,
						const struct hb_output_request **request)
{
	while (*at < infer->n_outputs) {
		const struct hb_tensor *tensor = &infer->outputs[(*at)++];
		*request = find_output_request(infer, tensor->name);
		if (*request || infer->n_requested == 0)
			return tensor;
	}
	return NULL;
}

static bool add_outputs(struct hb_json_text *text, struct hb_inference *infer)
{
	const struct hb_output_request *request;
	const struct hb_tensor *tensor;
	uint32_t at = 0;
	HB_JSON_TEXT_ADD(text, ",\"outputs\":[");
	for (bool first = true; (tensor = find_next_output(infer, &at, &request)); first = false) {
		if (!first)
			HB_JSON_TEXT_ADD(text, ",");
		if (!add_output(text, infer, tensor, request))
			return false;
	}
	HB_JSON_TEXT_ADD(text, "]}");
	return true;
}

static void add_binary(struct hb_json_text *text, const struct hb_inference *infer)
{
	const struct hb_output_request *request;
	const struct hb_tensor *tensor;
	uint32_t at = 0;
	while ((tensor = find_next_output(infer, &at, &request)))
		if (is_binary(infer, request))
			hb_json_text_add(text, tensor->data, tensor->bytes);
}

/* Returns a buffer size that is large enough for most answers. */
static size_t estimate_size(const struct hb_inference *infer)
{
	size_t room = 512;
	for (uint32_t i = 0; i < infer->n_outputs; i++)
		room += 256 + infer->outputs[i].bytes;
	return room;
}

size_t hb_kserve_json_write(struct hb_inference *infer, const struct hb_model_config *model, char **out,
			    size_t *json_bytes)
{
	struct hb_json_text text;
	hb_json_text_init(&text, estimate_size(infer));
	add_member(&text, "{\"model_name\":", model->name);
	HB_JSON_TEXT_ADD(&text, ",\"model_version\":\"1\"");
	if (infer->id[0])
		add_member(&text, ",\"id\":", infer->id);
	bool written = add_outputs(&text, infer);
	*json_bytes = text.bytes;
	if (written)
		add_binary(&text, infer);
	if (written && !text.no_memory) {
		*out = text.data;
		return text.bytes;
	}
	if (infer->answer == HB_ANSWER_OK)
		hb_inference_fail(infer, HB_ANSWER_UNAVAILABLE, "out of memory");
	free(text.data);
	return 0;
}

static json_t *make_shape(const int64_t *dims, uint32_t n, bool batched)
{
	json_t *shape = json_array();
	if (batched)
		json_array_append_new(shape, json_integer(-1));
	for (uint32_t i = 0; i < n; i++)
		json_array_append_new(shape, json_integer(dims[i]));
	return shape;
}

/* ---- documents ---- */

char *hb_kserve_json_error(const char *reason)
{
	json_t *text = json_string(reason); /* NULL if it is not UTF-8 */
	return print_json(json_pack("{s:o}", "error", text ? text : json_string("request refused")));
}

char *hb_kserve_json_server(void)
{
	json_t *extensions = json_array();
	for (size_t i = 0; hb_model_info_extensions[i]; i++)
		json_array_append_new(extensions, json_string(hb_model_info_extensions[i]));
	return print_json(
		json_pack("{s:s, s:s, s:o}", "name", "hummingbird", "version", HB_VERSION, "extensions", extensions));
}

static json_t *list_tensors(const struct hb_tensor_spec *specs, uint32_t n, bool batched)
{
	json_t *list = json_array();
	for (uint32_t i = 0; i < n; i++)
		json_array_append_new(list, json_pack("{s:s, s:s, s:o}", "name", specs[i].name, "datatype",
						      hb_dtype_name((enum hb_dtype)specs[i].dtype), "shape",
						      make_shape(specs[i].dims, specs[i].n_dims, batched)));
	return list;
}

char *hb_kserve_json_model(const struct hb_model_config *model)
{
	bool batched = model->max_batch > 0;
	return print_json(json_pack("{s:s, s:[s], s:s, s:o, s:o}", "name", model->name, "versions", "1", "platform",
				    hb_model_info_platform(model), "inputs",
				    list_tensors(model->inputs, model->n_inputs, batched), "outputs",
				    list_tensors(model->outputs, model->n_outputs, batched)));
}

static json_t *list_config_tensors(const struct hb_tensor_spec *specs, uint32_t n, bool inputs)
{
	json_t *list = json_array();
	for (uint32_t i = 0; i < n; i++) {
		json_t *one = json_pack("{s:s, s:s, s:o}", "name", specs[i].name, "data_type",
					hb_dtype_config_name((enum hb_dtype)specs[i].dtype), "dims",
					make_shape(specs[i].dims, specs[i].n_dims, false));
		if (inputs)
			json_object_set_new(one, "format", json_string("FORMAT_NONE"));
		json_array_append_new(list, one);
	}
	return list;
}

char *hb_kserve_json_model_config(const struct hb_model_config *model)
{
	json_t *root = json_pack("{s:s, s:s, s:s, s:{s:{s:i}}, s:I, s:o, s:o}", "name", model->name, "platform",
				 hb_model_info_platform(model), "backend", "", "version_policy", "latest",
				 "num_versions", 1, "max_batch_size", (json_int_t)model->max_batch, "input",
				 list_config_tensors(model->inputs, model->n_inputs, true), "output",
				 list_config_tensors(model->outputs, model->n_outputs, false));
	if (model->max_batch > 0)
		json_object_set_new(root, "dynamic_batching",
				    json_pack("{s:i, s:i}", "priority_levels", HB_SCHEDULER_PRIORITIES,
					      "default_priority_level", model->priority + 1));
	return print_json(root);
}

static json_t *make_duration(const struct hb_duration *duration)
{
	return json_pack("{s:I, s:I}", "count", (json_int_t)duration->count, "ns", (json_int_t)duration->ns);
}

static json_t *list_batches(const struct hb_served_model_stats *stats)
{
	json_t *list = json_array();
	for (int i = 1; i <= HB_SCHEDULER_BATCH_MAX; i++)
		if (stats->batch[i].infer.count)
			json_array_append_new(list, json_pack("{s:i, s:o, s:o, s:o}", "batch_size", i, "compute_input",
							      make_duration(&stats->batch[i].input), "compute_infer",
							      make_duration(&stats->batch[i].infer), "compute_output",
							      make_duration(&stats->batch[i].output)));
	return list;
}

static json_t *make_share(const double shares[2], enum hb_demand_origin origin)
{
	return json_pack("{s:f, s:f, s:s}", "one", shares[0], "most", shares[1], "source",
			 hb_model_info_origin(origin));
}

static json_t *make_demand(const struct hb_served_demand *demand)
{
	json_t *transfer = json_pack("{s:I, s:I, s:s}", "in", (json_int_t)demand->used.in_bytes, "out",
				     (json_int_t)demand->used.out_bytes, "source",
				     hb_model_info_origin(demand->transfer));
	return json_pack("{s:o, s:o, s:o}", "sm_share", make_share(demand->used.sm, demand->sm), "memory_share",
			 make_share(demand->used.memory, demand->memory), "transfer", transfer);
}

struct json_listing {
	json_t *list;
	const char *name;
	bool ready_only;
};

static void add_statistics(void *argument, struct hb_served_model *model)
{
	struct json_listing *listing = argument;
	const struct hb_served_model_stats *stats = &model->stats;
	static const struct hb_duration none;
	if ((listing->name && strcmp(listing->name, model->config.name) != 0) ||
	    model->state == HB_SERVED_MODEL_UNLOADED)
		return;
	json_t *inference = json_pack(
		"{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "success", make_duration(&stats->success), "fail",
		make_duration(&stats->fail), "queue", make_duration(&stats->queue), "compute_input",
		make_duration(&stats->input), "compute_infer", make_duration(&stats->infer), "compute_output",
		make_duration(&stats->output), "cache_hit", make_duration(&none), "cache_miss", make_duration(&none));
	json_array_append_new(listing->list,
			      json_pack("{s:s, s:s, s:I, s:I, s:I, s:o, s:o, s:o}", "name", model->config.name,
					"version", "1", "last_inference", (json_int_t)stats->ended_ms,
					"inference_count", (json_int_t)stats->inferences, "execution_count",
					(json_int_t)stats->executions, "inference_stats", inference, "batch_stats",
					list_batches(stats), "demand", make_demand(&model->demand)));
}

char *hb_kserve_json_statistics(struct hb_dispatch *dispatch, const char *name)
{
	struct json_listing listing = {.list = json_array(), .name = name};
	hb_dispatch_each_model(dispatch, add_statistics, &listing);
	return print_json(json_pack("{s:o}", "model_stats", listing.list));
}

static void add_to_index(void *argument, struct hb_served_model *model)
{
	struct json_listing *listing = argument;
	if (!listing->ready_only || model->state == HB_SERVED_MODEL_READY)
		json_array_append_new(listing->list,
				      json_pack("{s:s, s:s, s:s, s:s}", "name", model->config.name, "version", "1",
						"state", hb_model_info_state(model), "reason", model->why));
}

char *hb_kserve_json_index(struct hb_dispatch *dispatch, bool ready_only)
{
	struct json_listing listing = {.list = json_array(), .ready_only = ready_only};
	hb_dispatch_each_model(dispatch, add_to_index, &listing);
	return print_json(listing.list);
}

char *hb_kserve_json_regions(const struct hb_shared_region *regions, uint32_t n)
{
	json_t *list = json_array();
	for (uint32_t i = 0; i < n; i++)
		json_array_append_new(list, json_pack("{s:s, s:s, s:I, s:I}", "name", regions[i].name, "key",
						      regions[i].key, "offset", (json_int_t)regions[i].offset,
						      "byte_size", (json_int_t)regions[i].bytes));
	return print_json(list);
}
