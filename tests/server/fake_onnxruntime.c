/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A library that hb-onnx-worker takes for ONNX Runtime, for tests where PyPI cannot be reached. test_onnx.py checks with the
 * real library that its functions are at the places of onnx_calls.def.
 *
 * A model is a text with lines `in NAME TYPE DIM...` and `out NAME TYPE DIM...`. TYPE is ONNX's number of the type; a DIM of
 * -1 is any size. An output is a copy of the input at the same place. With a line `slow`, a run whose first number is 1
 * makes a file "runs" and continues until it is terminated. With a line `breaks`, a run whose first number is not 0 fails,
 * and fake_cuda.c then gives this number as the error of its context. Objects that are not released end the process.
 */
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define PLACES 102
#define MOST 16
#define DIMS 8
#define STRING 8
#define MOST_ALIVE (4 * MOST) /* of one run and the outputs of the one before */

struct status {
	char text[200];
};

struct tensor {
	char name[64];
	int type;
	size_t n_dims;
	int64_t dims[DIMS];
	void *data; /* of texts: n addresses */
	bool own;
};

struct session {
	struct tensor tensors[2][MOST]; /* inputs, outputs */
	size_t n[2];
	bool slow, breaks;
};

static _Atomic(int) alive, stopped;

static void *grown(size_t bytes)
{
	void *object = calloc(1, bytes);
	if (!object || ++alive > MOST_ALIVE) {
		fprintf(stderr, "fake onnxruntime: %d objects were not released\n", alive);
		abort();
	}
	return object;
}

static void release(void *object)
{
	alive--;
	free(object);
}

static void *failed(const char *what, const char *name)
{
	struct status *status = grown(sizeof(*status));
	snprintf(status->text, sizeof(status->text), "%s %s", what, name);
	return status;
}

static const char *GetErrorMessage(const void *status)
{
	return ((const struct status *)status)->text;
}

static size_t elements(const struct tensor *tensor)
{
	size_t n = 1;
	for (size_t i = 0; i < tensor->n_dims; i++)
		n *= (size_t)tensor->dims[i];
	return n;
}

/* ---- opening ---- */

static void *CreateEnv(int severity, const char *name, void **env)
{
	*env = grown(1);
	return NULL;
}

static void *CreateSessionOptions(void **options)
{
	*options = grown(1);
	return NULL;
}

static void *CreateRunOptions(void **options)
{
	*options = grown(1);
	return NULL;
}

static void *CreateCpuMemoryInfo(int allocator, int type, void **memory)
{
	*memory = grown(1);
	return NULL;
}

static void *GetAllocatorWithDefaultOptions(void **allocator)
{
	static int only;
	*allocator = &only;
	return NULL;
}

static bool read_tensor(struct session *session, int which, const char *line)
{
	int used = 0;
	struct tensor *tensor = &session->tensors[which][session->n[which]];
	if (session->n[which] == MOST || sscanf(line, "%63s %d%n", tensor->name, &tensor->type, &used) != 2)
		return false;
	session->n[which]++;
	char *end;
	for (line += used; tensor->n_dims < DIMS; line = end, tensor->n_dims++) {
		tensor->dims[tensor->n_dims] = strtoll(line, &end, 10);
		if (end == line)
			break;
	}
	return true;
}

static void *CreateSession(const void *env, const char *path, const void *options, void **out)
{
	char line[256];
	struct session *session = grown(sizeof(*session));
	FILE *file = fopen(path, "r");
	bool good = file != NULL;
	while (good && fgets(line, sizeof(line), file)) {
		if (strncmp(line, "slow", 4) == 0)
			session->slow = true;
		else if (strncmp(line, "breaks", 6) == 0)
			session->breaks = true;
		else
			good = strncmp(line, "in ", 3) == 0
				       ? read_tensor(session, 0, line + 3)
				       : strncmp(line, "out ", 4) == 0 && read_tensor(session, 1, line + 4);
	}
	if (file)
		fclose(file);
	if (good) {
		*out = session;
		return NULL;
	}
	release(session);
	return failed("no model:", path);
}

/* ---- what a model has ---- */

static void *SessionGetInputCount(const void *session, size_t *n)
{
	*n = ((const struct session *)session)->n[0];
	return NULL;
}

static void *SessionGetOutputCount(const void *session, size_t *n)
{
	*n = ((const struct session *)session)->n[1];
	return NULL;
}

static void *name_of(const struct tensor *tensor, char **name)
{
	*name = grown(sizeof(tensor->name));
	memcpy(*name, tensor->name, sizeof(tensor->name));
	return NULL;
}

static void *SessionGetInputName(const void *session, size_t index, void *allocator, char **name)
{
	return name_of(&((const struct session *)session)->tensors[0][index], name);
}

static void *SessionGetOutputName(const void *session, size_t index, void *allocator, char **name)
{
	return name_of(&((const struct session *)session)->tensors[1][index], name);
}

static void *AllocatorFree(void *allocator, void *data)
{
	release(data);
	return NULL;
}

static void *copy_of(const struct tensor *tensor, void **out)
{
	*out = memcpy(grown(sizeof(*tensor)), tensor, sizeof(*tensor));
	return NULL;
}

static void *SessionGetInputTypeInfo(const void *session, size_t index, void **type)
{
	return copy_of(&((const struct session *)session)->tensors[0][index], type);
}

static void *SessionGetOutputTypeInfo(const void *session, size_t index, void **type)
{
	return copy_of(&((const struct session *)session)->tensors[1][index], type);
}

static void *CastTypeInfoToTensorInfo(const void *type, const void **info)
{
	*info = type;
	return NULL;
}

static void *GetTensorElementType(const void *info, int *type)
{
	*type = ((const struct tensor *)info)->type;
	return NULL;
}

static void *GetDimensionsCount(const void *info, size_t *n)
{
	*n = ((const struct tensor *)info)->n_dims;
	return NULL;
}

static void *GetDimensions(const void *info, int64_t *dims, size_t n)
{
	memcpy(dims, ((const struct tensor *)info)->dims, n * sizeof(*dims));
	return NULL;
}

static void *GetTensorTypeAndShape(const void *value, void **info)
{
	return copy_of(value, info);
}

/* ---- values ---- */

static struct tensor *new_value(const int64_t *dims, size_t n_dims, int type)
{
	struct tensor *value = grown(sizeof(*value));
	value->type = type;
	value->n_dims = n_dims;
	memcpy(value->dims, dims, n_dims * sizeof(*dims));
	return value;
}

static void *CreateTensorWithDataAsOrtValue(const void *memory, void *data, size_t bytes, const int64_t *dims,
					    size_t n_dims, int type, void **value)
{
	struct tensor *tensor = new_value(dims, n_dims, type);
	tensor->data = data;
	*value = tensor;
	return NULL;
}

static void *FillStringTensor(void *value, const char *const *texts, size_t n)
{
	struct tensor *tensor = value;
	if (n != elements(tensor))
		return failed("other texts than", "the shape says");
	tensor->data = calloc(n + 1, sizeof(char *));
	for (size_t i = 0; i < n && tensor->data; i++)
		((char **)tensor->data)[i] = strdup(texts[i]);
	tensor->own = true;
	return NULL;
}

static void *CreateTensorAsOrtValue(void *allocator, const int64_t *dims, size_t n_dims, int type, void **value)
{
	*value = new_value(dims, n_dims, type);
	return NULL;
}

static void *GetStringTensorDataLength(const void *value, size_t *bytes)
{
	const struct tensor *tensor = value;
	*bytes = 0;
	for (size_t i = 0; i < elements(tensor); i++)
		*bytes += strlen(((char **)tensor->data)[i]);
	return NULL;
}

static void *GetStringTensorContent(const void *value, void *texts, size_t bytes, size_t *offsets, size_t n)
{
	const struct tensor *tensor = value;
	size_t at = 0;
	for (size_t i = 0; i < n; i++) {
		const char *text = ((char **)tensor->data)[i];
		offsets[i] = at;
		memcpy((char *)texts + at, text, strlen(text));
		at += strlen(text);
	}
	return at == bytes ? NULL : failed("other bytes than", "there are");
}

static void *GetTensorMutableData(void *value, void **data)
{
	*data = ((struct tensor *)value)->data;
	return NULL;
}

static void ReleaseValue(void *value)
{
	struct tensor *tensor = value;
	for (size_t i = 0; tensor->own && tensor->type == STRING && i < elements(tensor); i++)
		free(((char **)tensor->data)[i]);
	if (tensor->own)
		free(tensor->data);
	release(tensor);
}

/* ---- running ---- */

static void *RunOptionsSetTerminate(void *options)
{
	stopped = 1;
	return NULL;
}

static void *RunOptionsUnsetTerminate(void *options)
{
	stopped = 0;
	return NULL;
}

static void run_until_stopped(void)
{
	const struct timespec pause = {.tv_nsec = 1000000};
	FILE *file = fopen("runs", "w");
	if (file)
		fclose(file);
	while (!stopped)
		nanosleep(&pause, NULL);
}

/* Loads the fake driver, as ONNX Runtime loads CUDA, and sets the error of its context. */
static void break_context(int error)
{
	const char *driver = getenv("HB_FAKE_CUDA");
	FILE *file = fopen("broken", "w");
	if (file) {
		fprintf(file, "%d", error);
		fclose(file);
	}
	if (driver && !dlopen(driver, RTLD_NOW))
		abort();
}

static size_t find(const struct session *session, int which, const char *name)
{
	size_t index = 0;
	while (index < session->n[which] && strcmp(session->tensors[which][index].name, name) != 0)
		index++;
	return index;
}

static struct tensor *value_like(const struct tensor *input)
{
	static const uint8_t bytes[] = {0, 4, 1, 1, 2, 2, 4, 8, 0, 1, 2, 8, 4, 8, 0, 0, 2};
	struct tensor *value = new_value(input->dims, input->n_dims, input->type);
	if (input->type == STRING) {
		FillStringTensor(value, input->data, elements(input));
		return value;
	}
	value->own = true;
	value->data = malloc(elements(input) * bytes[input->type] + 1);
	if (value->data)
		memcpy(value->data, input->data, elements(input) * bytes[input->type]);
	return value;
}

static void *Run(void *opened, const void *options, const char *const *input_names, const void *const *inputs,
		 size_t n_inputs, const char *const *output_names, size_t n_outputs, void **outputs)
{
	const struct session *session = opened;
	const struct tensor *by_place[MOST] = {NULL};
	for (size_t i = 0; i < n_inputs; i++)
		by_place[find(session, 0, input_names[i])] = inputs[i];
	if (session->slow && *(const float *)by_place[0]->data == 1)
		run_until_stopped();
	if (stopped)
		return failed("the run was", "stopped");
	if (session->breaks && *(const float *)by_place[0]->data > 0) {
		break_context((int)*(const float *)by_place[0]->data);
		return failed("the run was", "broken");
	}
	for (size_t i = 0; i < n_outputs; i++)
		outputs[i] = value_like(by_place[find(session, 1, output_names[i])]);
	return NULL;
}

/* ---- the library ---- */

#define ReleaseEnv release
#define ReleaseStatus release
#define ReleaseMemoryInfo release
#define ReleaseSession release
#define ReleaseRunOptions release
#define ReleaseTypeInfo release
#define ReleaseTensorTypeAndShapeInfo release
#define ReleaseSessionOptions release

static const void *const *get_api(uint32_t version)
{
	static const void *table[PLACES];
#define HB_ONNX_CALL(place, name, result, arguments) table[place] = (const void *)(uintptr_t) & (name);
#include "server/backends/onnx_calls.def"
#undef HB_ONNX_CALL
	return version == 1 ? table : NULL;
}

static const char *get_version(void)
{
	return "1.0, which it is not";
}

struct api_base {
	const void *const *(*get_api)(uint32_t version);
	const char *(*get_version)(void);
};

__attribute__((visibility("default"))) const struct api_base *OrtGetApiBase(void);

const struct api_base *OrtGetApiBase(void)
{
	static const struct api_base base = {get_api, get_version};
	return &base;
}
