/* SPDX-License-Identifier: Apache-2.0 */
/* Reads and checks model.yaml; see model_config.h. */
#include "server/models/model_config.h"

#include "base/config.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

static const char *const dtype_names[] = {
#define HB_DTYPE(name, bytes, config_name, config_number) #name,
#include "server/kserve/dtypes.def"
#undef HB_DTYPE
	NULL};

static const char *const platform_names[] = {
#define HB_PLATFORM(name, ops, what) #name,
#include "server/models/platforms.def"
#undef HB_PLATFORM
	NULL};

static const char *const priority_names[] = {"high", "low", NULL};

static const struct hb_config_key dim_keys[] = {
	{.name = "", .type = HB_CONFIG_TYPE_INT, .offset = 0, .size = sizeof(int64_t), .min = -1, .max = 1 << 30},
	HB_CONFIG_END,
};
static const struct hb_config_key share_keys[] = {
	{.name = "", .type = HB_CONFIG_TYPE_REAL, .offset = 0, .size = sizeof(double), .real_min = 0, .real_max = 1},
	HB_CONFIG_END,
};
static const struct hb_config_key gpu_keys[] = {
	{.name = "", .type = HB_CONFIG_TYPE_INT, .offset = 0, .size = sizeof(int64_t), .min = 0, .max = 15},
	HB_CONFIG_END,
};
static const struct hb_config_key transfer_keys[] = {
	{.name = "",
	 .type = HB_CONFIG_TYPE_BYTES,
	 .offset = 0,
	 .size = sizeof(uint64_t),
	 .min = 0,
	 .max = INT64_C(1) << 40},
	HB_CONFIG_END,
};
static const struct hb_config_key tensor_keys[] = {
	HB_CONFIG_TEXT(struct hb_tensor_spec, name, "name", .required = true),
	HB_CONFIG_CHOICE(struct hb_tensor_spec, dtype, "datatype", .required = true, .choices = dtype_names),
	HB_CONFIG_LIST(struct hb_tensor_spec, dims, n_dims, "shape", .required = true, .keys = dim_keys),
	HB_CONFIG_END,
};
static const struct hb_config_key model_keys[] = {
	HB_CONFIG_CHOICE(struct hb_model_config, platform, "platform", .choices = platform_names),
	HB_CONFIG_TEXT(struct hb_model_config, command, "command"),
	HB_CONFIG_TEXT(struct hb_model_config, file, "model"),
	HB_CONFIG_TEXT(struct hb_model_config, library, "library"),
	HB_CONFIG_TEXT(struct hb_model_config, trace, "trace"),
	HB_CONFIG_INT(struct hb_model_config, max_batch, "max_batch", .min = 0, .max = 32),
	HB_CONFIG_CHOICE(struct hb_model_config, priority, "priority", .choices = priority_names),
	HB_CONFIG_DURATION(struct hb_model_config, deadline_ns, "deadline"),
	HB_CONFIG_DURATION(struct hb_model_config, run_ns, "run", .min = 1000, .max = INT64_C(3600000000000)),
	HB_CONFIG_DURATION(struct hb_model_config, limit_ns, "limit", .min = 1000000, .max = INT64_C(3600000000000)),
	HB_CONFIG_DURATION(struct hb_model_config, start_limit_ns, "start_limit", .min = 1000000,
			   .max = INT64_C(86400000000000)),
	HB_CONFIG_BYTES(struct hb_model_config, room_bytes, "room", .min = 1, .max = INT64_C(1) << 32),
	HB_CONFIG_LIST(struct hb_model_config, transfer_bytes, n_transfer, "transfer", .keys = transfer_keys),
	HB_CONFIG_DURATION(struct hb_model_config, delay_ns, "delay"),
	HB_CONFIG_LIST(struct hb_model_config, sm_share, n_sm_share, "sm_share", .keys = share_keys),
	HB_CONFIG_LIST(struct hb_model_config, memory_share, n_memory_share, "memory_share", .keys = share_keys),
	HB_CONFIG_BOOL(struct hb_model_config, measure_demand, "measure_demand"),
	HB_CONFIG_LIST(struct hb_model_config, gpus, n_gpus, "gpus", .keys = gpu_keys),
	HB_CONFIG_INT(struct hb_model_config, replicas, "replicas", .min = 1, .max = 16),
	HB_CONFIG_REAL(struct hb_model_config, stop_share, "stop_share", .real_min = 0, .real_max = 1),
	HB_CONFIG_LIST(struct hb_model_config, inputs, n_inputs, "inputs", .required = true, .keys = tensor_keys),
	HB_CONFIG_LIST(struct hb_model_config, outputs, n_outputs, "outputs", .required = true, .keys = tensor_keys),
	HB_CONFIG_END,
};

bool hb_served_model_name_fits(const char *name)
{
	size_t length = strlen(name);
	if (length == 0 || length >= HB_MODEL_NAME_MAX || name[0] == '.')
		return false;
	for (size_t i = 0; i < length; i++)
		if (!isalnum((unsigned char)name[i]) && !strchr("._-", name[i]))
			return false;
	return true;
}

uint64_t hb_tensor_spec_bytes(const struct hb_tensor_spec *spec)
{
	static const uint8_t bytes[] = {
#define HB_DTYPE(name, bytes, config_name, config_number) bytes,
#include "server/kserve/dtypes.def"
#undef HB_DTYPE
	};
	uint64_t all = bytes[spec->dtype] ? bytes[spec->dtype] : 64;
	for (uint32_t i = 0; i < spec->n_dims; i++)
		all *= spec->dims[i] > 0 ? (uint64_t)spec->dims[i] : 1;
	return all;
}

/*
 * Returns whether a tensor's name is valid. It must not contain line breaks: workers get names as lines of a variable.
 */
static bool is_tensor_name_valid(const char *name)
{
	const unsigned char *at = (const unsigned char *)name;
	while (*at >= ' ' && *at != 0x7f)
		at++;
	return name[0] && !*at;
}

static int check_tensors(const char *path, const char *what, const struct hb_tensor_spec *specs, uint32_t n,
			 bool batched, struct hb_error *error)
{
	if (n == 0)
		return hb_error_set(error, -EINVAL, "%s: %s: at least one tensor is needed", path, what);
	for (uint32_t i = 0; i < n; i++) {
		double elements = 1;
		if (!is_tensor_name_valid(specs[i].name))
			return hb_error_set(error, -EINVAL,
					    "%s: %s[%u].name: must not be empty or contain control characters", path,
					    what, i);
		if (batched && specs[i].n_dims == HB_TENSOR_DIMS_MAX)
			return hb_error_set(error, -EINVAL,
					    "%s: %s: %s: at most %d dimensions, without that of the batch", path, what,
					    specs[i].name, HB_TENSOR_DIMS_MAX - 1);
		for (uint32_t d = 0; d < specs[i].n_dims; d++) {
			if (specs[i].dims[d] == 0)
				return hb_error_set(error, -EINVAL, "%s: %s: %s: a dimension is 0", path, what,
						    specs[i].name);
			elements *= specs[i].dims[d] > 0 ? (double)specs[i].dims[d] : 1;
		}
		if (elements > (double)(1 << 30))
			return hb_error_set(error, -EINVAL, "%s: %s: %s: more than 2^30 elements", path, what,
					    specs[i].name);
		for (uint32_t k = 0; k < i; k++)
			if (strcmp(specs[i].name, specs[k].name) == 0)
				return hb_error_set(error, -EINVAL, "%s: %s: %s occurs twice", path, what,
						    specs[i].name);
	}
	return 0;
}

/* Refuses input dimensions of any size in a model with batches: requests of different shapes cannot form a batch. */
static int check_variable_dims(const char *path, const struct hb_tensor_spec *specs, uint32_t n, int64_t max_batch,
			       struct hb_error *error)
{
	for (uint32_t i = 0; i < n; i++)
		for (uint32_t d = 0; d < specs[i].n_dims; d++)
			if (max_batch > 1 && specs[i].dims[d] < 0)
				return hb_error_set(error, -EINVAL,
						    "%s: inputs: %s: a dimension of -1 needs max_batch 0 or 1", path,
						    specs[i].name);
	return 0;
}

/* Checks a key that one platform (`owner`) requires and the others refuse. */
static int check_platform_key(const char *path, const char *key, const char *value,
			      const struct hb_model_config *config, int owner, struct hb_error *error)
{
	bool wanted = config->platform == owner;
	if (config->platform == HB_PLATFORM_BY_GPU || wanted == (value[0] != '\0'))
		return 0;
	return hb_error_set(error, -EINVAL,
			    wanted ? "%s: %s: platform %s needs this key" : "%s: %s: this key is only for platform %s",
			    path, key, platform_names[owner]);
}

static int check_platform(const char *path, const struct hb_model_config *config, struct hb_error *error)
{
	if (config->platform == HB_PLATFORM_BY_GPU && !config->command[0] && !config->trace[0])
		return hb_error_set(error, -EINVAL, "%s: give a platform, a command or a trace", path);
	int result = check_platform_key(path, "command", config->command, config, HB_PLATFORM_worker, error);
	if (result == 0)
		result = check_platform_key(path, "trace", config->trace, config, HB_PLATFORM_trace, error);
	if (result == 0)
		result = check_platform_key(path, "model", config->file, config, HB_PLATFORM_onnxruntime, error);
	if (result == 0 && config->library[0] && config->platform != HB_PLATFORM_onnxruntime)
		result = hb_error_set(error, -EINVAL, "%s: library: this key is only for platform onnxruntime", path);
	if (result == 0 && config->delay_ns && config->platform != HB_PLATFORM_echo)
		result = hb_error_set(error, -EINVAL, "%s: delay: this key is only for platform echo", path);
	bool has_worker = config->platform == HB_PLATFORM_worker || config->platform == HB_PLATFORM_BY_GPU;
	if (result == 0 && config->stop_share > 0 && !has_worker)
		result = hb_error_set(error, -EINVAL, "%s: stop_share: this key is only for platform worker", path);
	return result;
}

void hb_model_config_settle(struct hb_model_config *config, bool gpu)
{
	if (config->platform == HB_PLATFORM_BY_GPU)
		config->platform = config->command[0] && (gpu || !config->trace[0]) ? HB_PLATFORM_worker
										    : HB_PLATFORM_trace;
}

static int check_gpus(const char *path, const struct hb_model_config *config, struct hb_error *error)
{
	for (uint32_t i = 0; i < config->n_gpus; i++)
		for (uint32_t k = 0; k < i; k++)
			if (config->gpus[i] == config->gpus[k])
				return hb_error_set(error, -EINVAL, "%s: gpus: %lld occurs twice", path,
						    (long long)config->gpus[i]);
	if (config->n_gpus && config->replicas > config->n_gpus)
		return hb_error_set(error, -EINVAL,
				    "%s: replicas: %lld, but \"gpus\" has %u: each replica needs its own", path,
				    (long long)config->replicas, config->n_gpus);
	return 0;
}

static int check_config(const char *path, struct hb_model_config *config, struct hb_error *error)
{
	int result = check_tensors(path, "inputs", config->inputs, config->n_inputs, config->max_batch > 0, error);
	if (result == 0)
		result = check_tensors(path, "outputs", config->outputs, config->n_outputs, config->max_batch > 0,
				       error);
	if (result == 0)
		result = check_variable_dims(path, config->inputs, config->n_inputs, config->max_batch, error);
	if (result == 0)
		result = check_platform(path, config, error);
	if (result == 0)
		result = check_gpus(path, config, error);
	if (result == 0 && config->n_transfer == 1)
		result = hb_error_set(error, -EINVAL, "%s: transfer: give two sizes, to the GPU and back", path);
	if (config->n_sm_share == 1)
		config->sm_share[1] = config->sm_share[0];
	if (config->n_memory_share == 1)
		config->memory_share[1] = config->memory_share[0];
	return result;
}

int hb_model_config_load(const char *folder, const char *name, struct hb_model_config *config, struct hb_error *error)
{
	char path[1200];
	struct hb_model_config read = {.platform = HB_PLATFORM_BY_GPU,
				       .run_ns = 5000000,
				       .limit_ns = INT64_C(60000000000),
				       .start_limit_ns = INT64_C(3600000000000),
				       .room_bytes = 16 << 20,
				       .sm_share = {0.5, 1},
				       .memory_share = {0.3, 0.5},
				       .measure_demand = true};
	if (!hb_served_model_name_fits(name))
		return hb_error_set(error, -EINVAL, "model \"%s\": a name has letters, digits and ._- only", name);
	snprintf(read.name, sizeof(read.name), "%s", name);
	if ((size_t)snprintf(read.folder, sizeof(read.folder), "%s/%s", folder, name) >= sizeof(read.folder))
		return hb_error_set(error, -ENAMETOOLONG, "%s/%s: the path is too long", folder, name);
	snprintf(path, sizeof(path), "%s/model.yaml", read.folder);
	int result = hb_config_load(path, model_keys, &read, sizeof(read), error);
	if (result == 0)
		result = check_config(path, &read, error);
	if (result == 0)
		*config = read;
	return result;
}
