/* SPDX-License-Identifier: Apache-2.0 */
/* Calls of ONNX Runtime's C API; see onnx_runtime.h. */
#include "server/backends/onnx_runtime.h"

#include "base/log.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define API_VERSION 1
#define SEVERITY_ERROR 3
#define DEVICE_ALLOCATOR 0
#define MEMORY_DEFAULT 0
#define ONNX_STRING 8

struct onnx_calls {
#define HB_ONNX_CALL(place, name, result, arguments) result(*name) arguments;
#include "server/backends/onnx_calls.def"
#undef HB_ONNX_CALL
};

/* Result of OrtGetApiBase(). */
struct onnx_api_base {
	const void *const *(*get_api)(uint32_t version);
	const char *(*get_version)(void);
};

struct hb_onnx {
	void *library;
	struct onnx_calls calls;
	void *env, *options, *run_options, *session, *memory, *allocator;
	void *values[HB_TENSORS_MAX];  /* outputs of the last run */
	char *strings[HB_TENSORS_MAX]; /* content of the outputs of type BYTES */
};

/* Returns ONNX's number of an element type; 0 = the type is not supported. */
static int convert_to_onnx_type(enum hb_dtype dtype)
{
	static const int numbers[HB_DTYPES] = {
		[HB_DTYPE_FP32] = 1,    [HB_DTYPE_UINT8] = 2, [HB_DTYPE_INT8] = 3,  [HB_DTYPE_UINT16] = 4,
		[HB_DTYPE_INT16] = 5,   [HB_DTYPE_INT32] = 6, [HB_DTYPE_INT64] = 7, [HB_DTYPE_BYTES] = ONNX_STRING,
		[HB_DTYPE_BOOL] = 9,    [HB_DTYPE_FP16] = 10, [HB_DTYPE_FP64] = 11, [HB_DTYPE_UINT32] = 12,
		[HB_DTYPE_UINT64] = 13, [HB_DTYPE_BF16] = 16,
	};
	return numbers[dtype];
}

/* Releases a status that the library returned. Returns 0 for success, else -EIO with the status's message in *error. */
static int check_status(const struct hb_onnx *onnx, void *status, const char *what, struct hb_error *error)
{
	if (!status)
		return 0;
	hb_error_set(error, -EIO, "%s: %.400s", what, onnx->calls.GetErrorMessage(status));
	onnx->calls.ReleaseStatus(status);
	return -EIO;
}

/* ---- opening ---- */

static int find_calls(struct hb_onnx *onnx, const char *name, struct hb_error *error)
{
	const struct onnx_api_base *(*base)(void);
	*(void **)&base = dlsym(onnx->library, "OrtGetApiBase");
	const void *const *table = base && base() ? base()->get_api(API_VERSION) : NULL;
	if (!table)
		return hb_error_set(error, -ENOTSUP, "%s is not ONNX Runtime", name);
#define HB_ONNX_CALL(place, name, result, arguments) memcpy(&onnx->calls.name, &table[place], sizeof(void *));
#include "server/backends/onnx_calls.def"
#undef HB_ONNX_CALL
	hb_log_info("ONNX Runtime %s", base()->get_version());
	return 0;
}

static int load_library(struct hb_onnx *onnx, const char *name, struct hb_error *error)
{
	static const char *const names[] = {"libonnxruntime.so.1", "libonnxruntime.so", NULL};
	for (int i = 0; !name[0] && !onnx->library && names[i]; i++)
		onnx->library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
	if (name[0])
		onnx->library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
	if (onnx->library)
		return find_calls(onnx, name[0] ? name : "libonnxruntime.so", error);
	return hb_error_set(error, -ENOENT,
			    "ONNX Runtime cannot be loaded: %.200s; install it, or set `library` in model.yaml",
			    dlerror());
}

/* GPU builds of the library export this function in addition to the table. */
static void use_gpu(struct hb_onnx *onnx)
{
	void *(*append)(void *options, int device);
	struct hb_error error = {.text = ""};
	*(void **)&append = dlsym(onnx->library, "OrtSessionOptionsAppendExecutionProvider_CUDA");
	if (append && check_status(onnx, append(onnx->options, 0), "CUDA", &error) < 0)
		hb_log_warning("ONNX Runtime runs on the CPU: %s", error.text);
}

static int open_session(struct hb_onnx *onnx, const char *file, struct hb_error *error)
{
	const struct onnx_calls *calls = &onnx->calls;
	int result = check_status(onnx, calls->CreateEnv(SEVERITY_ERROR, "hb serve", &onnx->env), "ONNX Runtime",
				  error);
	if (result == 0)
		result = check_status(onnx, calls->CreateSessionOptions(&onnx->options), "ONNX Runtime", error);
	if (result == 0)
		result = check_status(onnx, calls->CreateRunOptions(&onnx->run_options), "ONNX Runtime", error);
	if (result == 0)
		result = check_status(onnx, calls->CreateCpuMemoryInfo(DEVICE_ALLOCATOR, MEMORY_DEFAULT, &onnx->memory),
				      "ONNX Runtime", error);
	if (result == 0)
		result = check_status(onnx, calls->GetAllocatorWithDefaultOptions(&onnx->allocator), "ONNX Runtime",
				      error);
	if (result < 0)
		return result;
	use_gpu(onnx);
	return check_status(onnx, calls->CreateSession(onnx->env, file, onnx->options, &onnx->session), file, error);
}

static void release_outputs(struct hb_onnx *onnx)
{
	for (uint32_t i = 0; i < HB_TENSORS_MAX; i++)
		if (onnx->values[i])
			onnx->calls.ReleaseValue(onnx->values[i]);
	for (uint32_t i = 0; i < HB_TENSORS_MAX; i++)
		free(onnx->strings[i]);
	memset(onnx->values, 0, sizeof(onnx->values));
	memset(onnx->strings, 0, sizeof(onnx->strings));
}

static void close_session(struct hb_onnx *onnx)
{
	release_outputs(onnx);
	if (onnx->session)
		onnx->calls.ReleaseSession(onnx->session);
	if (onnx->memory)
		onnx->calls.ReleaseMemoryInfo(onnx->memory);
	if (onnx->run_options)
		onnx->calls.ReleaseRunOptions(onnx->run_options);
	if (onnx->options)
		onnx->calls.ReleaseSessionOptions(onnx->options);
	if (onnx->env)
		onnx->calls.ReleaseEnv(onnx->env);
	/* The library is not unloaded: its threads may still be ending. */
	free(onnx);
}

int hb_onnx_open(const char *library, const char *file, struct hb_onnx **out, struct hb_error *error)
{
	struct hb_onnx *onnx = calloc(1, sizeof(*onnx));
	if (!onnx)
		return hb_error_set(error, -ENOMEM, "out of memory");
	int result = load_library(onnx, library, error);
	if (result == 0)
		result = open_session(onnx, file, error);
	if (result < 0) {
		close_session(onnx);
		return result;
	}
	*out = onnx;
	return 0;
}

/* ---- the model's tensors ---- */

struct found_tensor {
	char name[HB_TENSOR_NAME_MAX];
	int type;      /* ONNX's number of the type; 0 = not a tensor */
	size_t n_dims; /* 0 = the tensor is a scalar, or its shape is not known */
	int64_t dims[HB_TENSOR_DIMS_MAX];
};

static int read_tensor_info(struct hb_onnx *onnx, const void *info, struct found_tensor *found, struct hb_error *error)
{
	int result = check_status(onnx, onnx->calls.GetTensorElementType(info, &found->type), found->name, error);
	if (result == 0)
		result = check_status(onnx, onnx->calls.GetDimensionsCount(info, &found->n_dims), found->name, error);
	if (result == 0 && found->n_dims > 0 && found->n_dims <= HB_TENSOR_DIMS_MAX)
		result = check_status(onnx, onnx->calls.GetDimensions(info, found->dims, found->n_dims), found->name,
				      error);
	return result;
}

static int read_tensor(struct hb_onnx *onnx, bool input, size_t index, struct found_tensor *found,
		       struct hb_error *error)
{
	const struct onnx_calls *calls = &onnx->calls;
	char *name = NULL;
	void *type = NULL;
	const void *info = NULL;
	int result = check_status(onnx,
				  input ? calls->SessionGetInputName(onnx->session, index, onnx->allocator, &name)
					: calls->SessionGetOutputName(onnx->session, index, onnx->allocator, &name),
				  "the model's tensors", error);
	if (result < 0)
		return result;
	snprintf(found->name, sizeof(found->name), "%s", name);
	check_status(onnx, calls->AllocatorFree(onnx->allocator, name), "", NULL);
	result = check_status(onnx,
			      input ? calls->SessionGetInputTypeInfo(onnx->session, index, &type)
				    : calls->SessionGetOutputTypeInfo(onnx->session, index, &type),
			      found->name, error);
	found->type = 0;
	if (result == 0)
		result = check_status(onnx, calls->CastTypeInfoToTensorInfo(type, &info), found->name, error);
	if (result == 0 && info)
		result = read_tensor_info(onnx, info, found, error);
	if (type)
		calls->ReleaseTypeInfo(type);
	return result;
}

/* Writes dimensions as in "4x-1". */
static void write_dims(const int64_t *dims, size_t n_dims, char *out, size_t size)
{
	size_t at = (size_t)snprintf(out, size, n_dims ? "" : "no dimension");
	for (size_t i = 0; i < n_dims && at < size; i++)
		at += (size_t)snprintf(out + at, size - at, "%s%lld", i ? "x" : "", (long long)dims[i]);
}

/*
 * Compares dimensions. An input dimension of any size in model.yaml, including that of the batch, must be of any size in the
 * model, too; otherwise the model was perhaps exported for one item only. Outputs of any size are checked after each run.
 */
static int compare_dims(const struct found_tensor *found, bool input, const struct hb_onnx_tensor *tensor,
			struct hb_error *error)
{
	char ours[160], theirs[160];
	bool fits = found->n_dims == 0 || found->n_dims == tensor->n_dims;
	for (size_t i = 0; fits && i < found->n_dims; i++)
		fits = found->dims[i] < 0 || found->dims[i] == tensor->dims[i] || (!input && tensor->dims[i] < 0);
	if (fits)
		return 0;
	write_dims(tensor->dims, tensor->n_dims, ours, sizeof(ours));
	write_dims(found->dims, found->n_dims < HB_TENSOR_DIMS_MAX ? found->n_dims : HB_TENSOR_DIMS_MAX, theirs,
		   sizeof(theirs));
	return hb_error_set(error, -EINVAL,
			    "%s %s: the shape with the batch is %s in model.yaml, but %s in the model (-1 = any)",
			    input ? "input" : "output", tensor->name, ours, theirs);
}

static int compare_tensor(const struct found_tensor *found, bool input, const struct hb_onnx_tensor *tensor,
			  struct hb_error *error)
{
	const char *what = input ? "input" : "output";
	if (convert_to_onnx_type(tensor->dtype) == 0)
		return hb_error_set(error, -EINVAL, "%s %s: platform onnxruntime does not support %s", what,
				    tensor->name, hb_dtype_name(tensor->dtype));
	if (found->type != convert_to_onnx_type(tensor->dtype))
		return hb_error_set(error, -EINVAL,
				    "%s %s: model.yaml says %s, but the model has another type (ONNX's number %d)",
				    what, tensor->name, hb_dtype_name(tensor->dtype), found->type);
	return compare_dims(found, input, tensor, error);
}

static int check_tensor(struct hb_onnx *onnx, bool input, size_t n, const struct hb_onnx_tensor *tensor,
			struct hb_error *error)
{
	const char *what = input ? "input" : "output";
	struct found_tensor found;
	for (size_t i = 0; i < n; i++) {
		int result = read_tensor(onnx, input, i, &found, error);
		if (result < 0)
			return result;
		if (strcmp(found.name, tensor->name) == 0)
			return compare_tensor(&found, input, tensor, error);
	}
	return hb_error_set(error, -EINVAL,
			    "%s %s of model.yaml is not in the model; number %zu of the model is \"%s\"", what,
			    tensor->name, n, n ? found.name : "");
}

int hb_onnx_check(struct hb_onnx *onnx, const struct hb_onnx_tensor *inputs, uint32_t n_inputs,
		  const struct hb_onnx_tensor *outputs, uint32_t n_outputs, struct hb_error *error)
{
	size_t model_inputs = 0, model_outputs = 0;
	int result = check_status(onnx, onnx->calls.SessionGetInputCount(onnx->session, &model_inputs), "inputs",
				  error);
	if (result == 0)
		result = check_status(onnx, onnx->calls.SessionGetOutputCount(onnx->session, &model_outputs), "outputs",
				      error);
	for (uint32_t i = 0; i < n_inputs && result == 0; i++)
		result = check_tensor(onnx, true, model_inputs, &inputs[i], error);
	for (uint32_t i = 0; i < n_outputs && result == 0; i++)
		result = check_tensor(onnx, false, model_outputs, &outputs[i], error);
	if (result == 0 && model_inputs != n_inputs)
		result = hb_error_set(error, -EINVAL, "the model has %zu inputs, model.yaml %u", model_inputs,
				      n_inputs);
	return result;
}

/* ---- running ---- */

/*
 * Copies the elements of a BYTES tensor as NUL-terminated strings, which the library requires. Returns an array of their
 * addresses, followed by the strings; free() it. On failure *why is set.
 */
static const char **copy_strings(const struct hb_onnx_tensor *tensor, size_t n, const char **why)
{
	const char *from = tensor->data;
	uint64_t left = tensor->bytes;
	uint32_t length;
	const char **strings = malloc(n * sizeof(*strings) + tensor->bytes + 1);
	char *to = (char *)(strings + n);
	*why = strings ? "the strings are longer than the tensor" : "out of memory";
	for (size_t i = 0; strings && i < n; i++) {
		memcpy(&length, from, left >= sizeof(length) ? sizeof(length) : 0);
		if (left < sizeof(length) || length > left - sizeof(length))
			break;
		from += sizeof(length);
		if (memchr(from, '\0', length)) {
			*why = "ONNX Runtime does not accept strings with a zero byte";
			break;
		}
		strings[i] = memcpy(to, from, length);
		to[length] = '\0';
		to += length + 1; /* there is room: the copy has no length of 4 bytes */
		from += length;
		left -= sizeof(length) + length;
		*why = i + 1 == n ? NULL : *why;
	}
	return strings;
}

static int make_string_input(struct hb_onnx *onnx, const struct hb_onnx_tensor *tensor, void **value,
			     struct hb_error *error)
{
	size_t n = (size_t)hb_tensor_elements(tensor->dims, tensor->n_dims);
	const char *why = NULL;
	const char **strings = n ? copy_strings(tensor, n, &why) : NULL;
	int result = why ? hb_error_set(error, -EIO, "input %s: %s", tensor->name, why) : 0;
	if (result == 0)
		result = check_status(onnx,
				      onnx->calls.CreateTensorAsOrtValue(onnx->allocator, tensor->dims, tensor->n_dims,
									 ONNX_STRING, value),
				      tensor->name, error);
	if (result == 0 && n)
		result = check_status(onnx, onnx->calls.FillStringTensor(*value, strings, n), tensor->name, error);
	free(strings);
	return result;
}

static int make_input(struct hb_onnx *onnx, const struct hb_onnx_tensor *tensor, void **value, struct hb_error *error)
{
	if (tensor->dtype == HB_DTYPE_BYTES)
		return make_string_input(onnx, tensor, value, error);
	return check_status(onnx,
			    onnx->calls.CreateTensorWithDataAsOrtValue(onnx->memory, tensor->data, tensor->bytes,
								       tensor->dims, tensor->n_dims,
								       convert_to_onnx_type(tensor->dtype), value),
			    tensor->name, error);
}

static int read_shape(struct hb_onnx *onnx, const void *info, struct hb_onnx_tensor *tensor, struct hb_error *error)
{
	size_t n_dims = 0;
	int result = check_status(onnx, onnx->calls.GetDimensionsCount(info, &n_dims), tensor->name, error);
	if (result == 0 && n_dims > HB_TENSOR_DIMS_MAX)
		result = hb_error_set(error, -EIO, "output %s: %zu dimensions", tensor->name, n_dims);
	if (result == 0)
		result = check_status(onnx, onnx->calls.GetDimensions(info, tensor->dims, n_dims), tensor->name, error);
	if (result < 0)
		return result;
	tensor->n_dims = (uint32_t)n_dims;
	int64_t elements = hb_tensor_elements(tensor->dims, tensor->n_dims);
	if (elements < 0)
		return hb_error_set(error, -EIO, "output %s has no size", tensor->name);
	tensor->bytes = (uint64_t)elements * hb_dtype_bytes(tensor->dtype);
	return 0;
}

/* Reads a BYTES output. The library returns all content in one block and the offset of each element. */
static int read_strings(struct hb_onnx *onnx, uint32_t index, struct hb_onnx_tensor *tensor, struct hb_error *error)
{
	size_t n = (size_t)hb_tensor_elements(tensor->dims, tensor->n_dims), bytes = 0;
	int result = check_status(onnx, onnx->calls.GetStringTensorDataLength(onnx->values[index], &bytes),
				  tensor->name, error);
	if (result < 0)
		return result;
	size_t *begins = malloc((n + 1) * sizeof(*begins));
	char *plain = malloc(bytes + 1), *at = onnx->strings[index] = malloc(bytes + n * sizeof(uint32_t) + 1);
	if (!begins || !plain || !at)
		result = hb_error_set(error, -ENOMEM, "output %s: out of memory", tensor->name);
	if (result == 0 && n)
		result = check_status(onnx,
				      onnx->calls.GetStringTensorContent(onnx->values[index], plain, bytes, begins, n),
				      tensor->name, error);
	for (size_t i = 0; result == 0 && i < n; i++) {
		uint32_t length = (uint32_t)((i + 1 < n ? begins[i + 1] : bytes) - begins[i]);
		memcpy(at, &length, sizeof(length));
		memcpy(at + sizeof(length), plain + begins[i], length);
		at += sizeof(length) + length;
	}
	free(begins);
	free(plain);
	tensor->data = onnx->strings[index];
	tensor->bytes = bytes + n * sizeof(uint32_t);
	return result;
}

static int read_output(struct hb_onnx *onnx, uint32_t index, struct hb_onnx_tensor *tensor, struct hb_error *error)
{
	void *info = NULL, *value = onnx->values[index];
	int result = check_status(onnx, onnx->calls.GetTensorTypeAndShape(value, &info), tensor->name, error);
	if (result < 0)
		return result;
	result = read_shape(onnx, info, tensor, error);
	onnx->calls.ReleaseTensorTypeAndShapeInfo(info);
	if (result == 0 && tensor->dtype == HB_DTYPE_BYTES)
		return read_strings(onnx, index, tensor, error);
	return result < 0 ? result
			  : check_status(onnx, onnx->calls.GetTensorMutableData(value, &tensor->data), tensor->name,
					 error);
}

int hb_onnx_run(struct hb_onnx *onnx, const struct hb_onnx_tensor *inputs, uint32_t n_inputs,
		struct hb_onnx_tensor *outputs, uint32_t n_outputs, struct hb_error *error)
{
	const char *input_names[HB_TENSORS_MAX], *output_names[HB_TENSORS_MAX];
	void *values[HB_TENSORS_MAX] = {NULL};
	int result = 0;
	release_outputs(onnx);
	for (uint32_t i = 0; i < n_outputs; i++)
		output_names[i] = outputs[i].name;
	for (uint32_t i = 0; i < n_inputs && result == 0; i++) {
		input_names[i] = inputs[i].name;
		result = make_input(onnx, &inputs[i], &values[i], error);
	}
	if (result == 0)
		result = check_status(onnx,
				      onnx->calls.Run(onnx->session, onnx->run_options, input_names,
						      (const void *const *)values, n_inputs, output_names, n_outputs,
						      onnx->values),
				      "the model", error);
	for (uint32_t i = 0; i < n_inputs; i++)
		if (values[i])
			onnx->calls.ReleaseValue(values[i]);
	for (uint32_t i = 0; i < n_outputs && result == 0; i++)
		result = read_output(onnx, i, &outputs[i], error);
	return result;
}

void hb_onnx_stop(struct hb_onnx *onnx, bool stop)
{
	const struct onnx_calls *calls = &onnx->calls;
	check_status(onnx,
		     stop ? calls->RunOptionsSetTerminate(onnx->run_options)
			  : calls->RunOptionsUnsetTerminate(onnx->run_options),
		     "stop", NULL);
}
