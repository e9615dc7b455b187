/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads the images that replace machine code: lines of text with the duration of a
 * kernel and the host function that provides its effect. Format:
 * docs/simcuda.md.
 */
#include "simcuda/sim_driver.h"

#include "base/log.h"

#include <ctype.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAGIC "HBSIM1"
#define WRAPPER_MAGIC "\xb1\x43\x62\x46" /* as it is in memory */
#define LINE_MAX_BYTES 1024

CUresult sim_image_text(const void *data, const char **text)
{
	struct {
		uint32_t magic, version;
		const void *data;
	} wrapper;
	if (!data)
		return CUDA_ERROR_INVALID_VALUE;
	/* strncmp() reads nothing behind the first difference: a short image may end where readable memory ends. */
	if (strncmp(data, WRAPPER_MAGIC, strlen(WRAPPER_MAGIC)) == 0) {
		memcpy(&wrapper, data, sizeof wrapper);
		data = wrapper.data;
	}
	if (strncmp(data, MAGIC, strlen(MAGIC)) != 0)
		return CUDA_ERROR_NO_BINARY_FOR_GPU; /* machine code and PTX are for real GPUs */
	*text = data;
	return CUDA_SUCCESS;
}

void sim_image_free(struct sim_image *image)
{
	if (!image)
		return;
	for (size_t i = 0; i < image->n_kernels; i++)
		free(image->kernels[i].name);
	for (size_t i = 0; i < image->n_globals; i++)
		free(image->globals[i].name);
	free(image->kernels);
	free(image->globals);
	free(image);
}

static bool read_params(struct sim_kernel *kernel, const char *value)
{
	kernel->n_params = kernel->params_size = 0;
	while (*value && strcmp(value, "none") != 0) {
		char *end;
		unsigned long bytes = strtoul(value, &end, 10);
		if (end == value || !bytes || bytes > 4096 || kernel->n_params == SIM_PARAMS_MAX ||
		    (*end && *end != ','))
			return false;
		/* Parameters have natural alignment, as compilers pack them. */
		uint32_t align = bytes >= 8 ? 8 : bytes >= 4 ? 4 : bytes >= 2 ? 2 : 1;
		uint32_t offset = (kernel->params_size + align - 1) / align * align;
		if (offset + bytes > SIM_PARAMS_BYTES)
			return false;
		kernel->param_offset[kernel->n_params] = offset;
		kernel->param_bytes[kernel->n_params++] = (uint32_t)bytes;
		kernel->params_size = offset + (uint32_t)bytes;
		value = *end ? end + 1 : end;
	}
	return true;
}

static bool read_number(const char *value, double low, double high, double *out)
{
	char *end;
	*out = strtod(value, &end);
	return end != value && !*end && *out >= low && *out <= high;
}

/* Returns 0, or the error for the load call. */
static CUresult kernel_key(struct sim_kernel *kernel, const char *key, const char *value)
{
	double number = 0;
	bool good = true;
	if (strcmp(key, "host") == 0) {
		void *symbol = dlsym(RTLD_DEFAULT, value);
		memcpy(&kernel->host, &symbol, sizeof symbol);
		return symbol ? CUDA_SUCCESS : CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND;
	}
	if (strcmp(key, "params") == 0)
		return read_params(kernel, value) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_IMAGE;
	if (strcmp(key, "ns") == 0 && (good = read_number(value, 0, 1e15, &number)))
		kernel->ns = (int64_t)number;
	else if (strcmp(key, "ns_per_block") == 0 && (good = read_number(value, 0, 1e12, &number)))
		kernel->ns_per_block = number;
	else if (strcmp(key, "ns_param") == 0 && (good = read_number(value, 0, SIM_PARAMS_MAX - 1, &number)))
		kernel->ns_param = (int)number;
	else if (strcmp(key, "registers") == 0 && (good = read_number(value, 1, 255, &number)))
		kernel->registers = (uint32_t)number;
	else if (strcmp(key, "shared") == 0 && (good = read_number(value, 0, 232448, &number)))
		kernel->shared_bytes = (uint32_t)number;
	else if (strcmp(key, "local") == 0 && (good = read_number(value, 0, 1 << 20, &number)))
		kernel->local_bytes = (uint32_t)number;
	else if (strcmp(key, "max_threads") == 0 && (good = read_number(value, 1, 1024, &number)))
		kernel->max_threads = (uint32_t)number;
	else if (strcmp(key, "memory_share") == 0 && (good = read_number(value, 0, 1, &number)))
		kernel->memory_share = (float)number;
	else
		good = false;
	return good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_IMAGE;
}

static void *grow_array_twice(void *table, size_t n, size_t size)
{
	/* Doubles the array at powers of two. */
	if (n & (n - 1))
		return table;
	return realloc(table, (n ? n * 2 : 1) * size);
}

/* Reads a kernel's kind from its first word. */
static void set_kind(struct sim_kernel *kernel, const char *what)
{
	kernel->takeover = strcmp(what, "takeover") == 0;
	if (kernel->takeover)
		read_params(kernel, "8");
	if (strcmp(what, "marks") == 0) {
		read_params(kernel, "8,8");
		kernel->ns_param = 1;
		kernel->host = sim_mask_mark;
	}
	if (strcmp(what, "meets") == 0) {
		read_params(kernel, "8,8,8");
		kernel->ns_param = 1;
		kernel->host = sim_gpc_meet;
	}
	if (strcmp(what, "hammers") == 0) {
		read_params(kernel, "8,8,8,8");
		kernel->host = sim_channel_hammer;
	}
}

static CUresult add_kernel(struct sim_image *image, const char *what, const char *name, char **state)
{
	struct sim_kernel *bigger = grow_array_twice(image->kernels, image->n_kernels, sizeof *bigger);
	if (!bigger)
		return CUDA_ERROR_OUT_OF_MEMORY;
	image->kernels = bigger;
	struct sim_kernel *kernel = &image->kernels[image->n_kernels];
	*kernel = (struct sim_kernel){.name = strdup(name), .ns_param = -1, .registers = 32, .max_threads = 1024};
	if (!kernel->name)
		return CUDA_ERROR_OUT_OF_MEMORY;
	image->n_kernels++;
	set_kind(kernel, what);
	for (char *word = strtok_r(NULL, " \t", state); word; word = strtok_r(NULL, " \t", state)) {
		char *value = strchr(word, '=');
		if (!value)
			return CUDA_ERROR_INVALID_IMAGE;
		*value++ = '\0';
		CUresult result = kernel_key(kernel, word, value);
		if (result != CUDA_SUCCESS) {
			hb_log_warning("image: kernel %s: %s=%s is not understood or not found", name, word, value);
			return result;
		}
	}
	if (kernel->ns_param >= (int)kernel->n_params ||
	    (kernel->ns_param >= 0 && kernel->param_bytes[kernel->ns_param] != 8))
		return CUDA_ERROR_INVALID_IMAGE;
	return CUDA_SUCCESS;
}

static CUresult add_global(struct sim_image *image, const char *name, char **state)
{
	const char *word = strtok_r(NULL, " \t", state);
	double bytes;
	if (!word || strncmp(word, "bytes=", 6) != 0 || !read_number(word + 6, 1, 1e12, &bytes))
		return CUDA_ERROR_INVALID_IMAGE;
	struct sim_global *bigger = grow_array_twice(image->globals, image->n_globals, sizeof *bigger);
	if (!bigger)
		return CUDA_ERROR_OUT_OF_MEMORY;
	image->globals = bigger;
	image->globals[image->n_globals].bytes = (size_t)bytes;
	image->globals[image->n_globals].name = strdup(name);
	return image->globals[image->n_globals++].name ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult read_line(struct sim_image *image, char *line)
{
	char *state = NULL;
	char *comment = strchr(line, '#');
	if (comment)
		*comment = '\0';
	const char *what = strtok_r(line, " \t\r", &state);
	if (!what)
		return CUDA_SUCCESS;
	const char *name = strtok_r(NULL, " \t\r", &state);
	if (!name)
		return CUDA_ERROR_INVALID_IMAGE;
	if (strcmp(what, "kernel") == 0 || strcmp(what, "takeover") == 0 || strcmp(what, "marks") == 0 ||
	    strcmp(what, "meets") == 0 || strcmp(what, "hammers") == 0)
		return add_kernel(image, what, name, &state);
	if (strcmp(what, "global") == 0)
		return add_global(image, name, &state);
	return CUDA_ERROR_INVALID_IMAGE;
}

CUresult sim_image_parse(const char *text, struct sim_image **out)
{
	struct sim_image *image = calloc(1, sizeof *image);
	CUresult result = image ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
	text = strchr(text, '\n');
	while (result == CUDA_SUCCESS && text && *++text) {
		char line[LINE_MAX_BYTES];
		size_t n = strcspn(text, "\n");
		if (n >= sizeof line) {
			result = CUDA_ERROR_INVALID_IMAGE;
			break;
		}
		memcpy(line, text, n);
		line[n] = '\0';
		result = read_line(image, line);
		text = text[n] ? text + n : NULL;
	}
	if (result != CUDA_SUCCESS) {
		sim_image_free(image);
		return result;
	}
	*out = image;
	return CUDA_SUCCESS;
}
