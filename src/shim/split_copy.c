/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Split copies of the application's machine code: the range check, compiled once by
 * the driver, and for each image and context one module with all kernels of the
 * image that can be split. Called with the lock of split_image.c, at the first
 * launch of a function, on the application's thread; takes some milliseconds.
 */
#include "base/log.h"
#include "cubin/fatbin.h"
#include "cubin/sass.h"
#include "cubin/splice.h"
#include "shim/shim.h"
#include "shim/split.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* One cubin of an image, spliced and loaded. */
struct hb_split_module {
	struct hb_split_module *next;
	CUcontext context;
	CUmodule module; /* NULL: none of its kernels can be split, or the driver refused it */
	uint8_t *bytes;  /* the original cubin, from which names and reasons are read */
	struct hb_cubin cubin;
	struct hb_splice splice;
	bool is_refused;
};

static struct hb_prologue prologue;
static enum { NOT_TRIED, READY, REFUSED } prologue_state;

static int read_linked_prologue(CUlinkState link)
{
	void *cubin;
	size_t size;
	const char *why = "the driver does not compile the range check";
	if (HB_REAL(cuLinkAddData_v2)(link, CU_JIT_INPUT_PTX, (void *)(uintptr_t)hb_prologue_ptx,
				      strlen(hb_prologue_ptx) + 1, "range", 0, NULL, NULL) == CUDA_SUCCESS &&
	    HB_REAL(cuLinkComplete)(link, &cubin, &size) == CUDA_SUCCESS &&
	    hb_prologue_take(&prologue, cubin, size, &why) == 0)
		return READY;
	hb_log(HB_LOG_WARNING, "kernels are not split: %s", why);
	return REFUSED;
}

/* Returns whether kernels of this GPU may be split: they were tried there, or the user wants to try. */
static bool may_split(void)
{
	const char *setting = getenv("HB_SPLIT");
	return hb_sass_is_proven(prologue.arch) || (setting && strcmp(setting, "offline") == 0);
}

static bool prepare_prologue(void)
{
	CUlinkState link;
	if (prologue_state == NOT_TRIED) {
		prologue_state = REFUSED;
		if (HB_REAL(cuLinkCreate_v2)(0, NULL, NULL, &link) == CUDA_SUCCESS) {
			prologue_state = read_linked_prologue(link);
			HB_REAL(cuLinkDestroy)(link);
		}
	}
	return prologue_state == READY;
}

static void free_module(struct hb_split_module *module)
{
	hb_cubin_close(&module->cubin);
	hb_splice_free(&module->splice);
	free(module->bytes);
	free(module);
}

void hb_split_copies_free(struct hb_split_image *image)
{
	while (image->modules) {
		struct hb_split_module *module = image->modules;
		image->modules = module->next;
		/* A library may outlive its contexts and their copies; a module is unloaded while its context exists. */
		if (module->module && !image->is_library)
			HB_REAL(cuModuleUnload)(module->module);
		free_module(module);
	}
}

void hb_split_copies_drop(struct hb_split_image *image, CUcontext context)
{
	struct hb_split_module **at = &image->modules;
	while (*at) {
		struct hb_split_module *module = *at;
		if (module->context != context) {
			at = &module->next;
			continue;
		}
		*at = module->next;
		free_module(module);
	}
}

/* Takes ownership of `bytes`. NULL: the cubin cannot be read. */
static struct hb_split_module *make_module(uint8_t *bytes, size_t size, CUcontext context)
{
	struct hb_split_module *module = calloc(1, sizeof *module);
	if (!module || hb_cubin_open(&module->cubin, bytes, size)) {
		free(module);
		free(bytes);
		return NULL;
	}
	module->bytes = bytes;
	module->context = context;
	if (hb_splice(&module->cubin, &prologue, &module->splice))
		module->is_refused = true;
	else if (module->splice.bytes)
		module->is_refused = HB_REAL(cuModuleLoadData)(&module->module, module->splice.bytes) != CUDA_SUCCESS;
	free(module->splice.bytes);
	module->splice.bytes = NULL;
	return module;
}

/* Whether this cubin contains the kernel. */
static bool has_kernel(const uint8_t *bytes, size_t size, const char *name)
{
	struct hb_cubin cubin;
	if (hb_cubin_open(&cubin, bytes, size))
		return false;
	bool found = hb_cubin_find_kernel(&cubin, name) != NULL;
	hb_cubin_close(&cubin);
	return found;
}

/*
 * Returns a copy of the cubin that contains the kernel. Like the driver it takes the newest architecture that the GPU
 * executes. NULL: there is none, or there are several for that architecture.
 */
static uint8_t *find_cubin(const struct hb_split_image *image, const char *name, size_t *size)
{
	struct hb_fatbin fatbin;
	struct hb_fatbin_entry entry;
	uint8_t *found = NULL, *bytes;
	size_t n;
	unsigned arch = 0, n_found = 0;
	if (memcmp(image->bytes, ELFMAG, SELFMAG) == 0) {
		found = malloc(image->size);
		*size = image->size;
		return found ? memcpy(found, image->bytes, image->size) : NULL;
	}
	if (hb_fatbin_open(&fatbin, image->bytes, image->size))
		return NULL;
	while (hb_fatbin_next(&fatbin, &entry) == 1) {
		if (entry.kind != HB_FATBIN_CUBIN || !hb_sass_runs_on(entry.arch, prologue.arch) || entry.arch < arch ||
		    hb_fatbin_unpack(&entry, &bytes, &n))
			continue;
		if (!has_kernel(bytes, n, name)) {
			free(bytes);
			continue;
		}
		n_found = entry.arch == arch ? n_found + 1 : 1;
		arch = entry.arch;
		free(found);
		found = bytes;
		*size = n;
	}
	if (n_found > 1) {
		free(found);
		found = NULL;
	}
	return found;
}

/* Returns the module with the copy of a kernel in this context, creating it if necessary; NULL: not possible. */
static struct hb_split_module *find_module(struct hb_split_image *image, const char *name, CUcontext context)
{
	size_t size = 0;
	for (struct hb_split_module *module = image->modules; module; module = module->next)
		if (module->context == context && hb_cubin_find_kernel(&module->cubin, name))
			return module;
	uint8_t *bytes = find_cubin(image, name, &size);
	struct hb_split_module *module = bytes ? make_module(bytes, size, context) : NULL;
	if (module) {
		module->next = image->modules;
		image->modules = module;
	}
	return module;
}

/* The copy must equal the original in everything that decides how it runs, and must not require clusters. */
static bool are_alike(CUfunction original, CUfunction copy)
{
	static const CUfunction_attribute same[] = {
		CU_FUNC_ATTRIBUTE_NUM_REGS, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES,
		CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, CU_FUNC_ATTRIBUTE_BINARY_VERSION};
	int a, b;
	for (size_t i = 0; i < sizeof same / sizeof *same; i++)
		if (HB_REAL(cuFuncGetAttribute)(&a, same[i], original) != CUDA_SUCCESS ||
		    HB_REAL(cuFuncGetAttribute)(&b, same[i], copy) != CUDA_SUCCESS || a != b)
			return false;
	return HB_REAL(cuFuncGetAttribute)(&a, CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH, original) == CUDA_SUCCESS &&
	       a == 0;
}

enum hb_split_reason hb_split_copy(struct hb_split_image *image, const char *name, CUfunction original,
				   struct hb_split_function *function)
{
	CUcontext context;
	if (!prepare_prologue() || HB_REAL(cuCtxGetCurrent)(&context) != CUDA_SUCCESS)
		return HB_SPLIT_driver;
	if (!may_split())
		return HB_SPLIT_offline;
	struct hb_split_module *module = find_module(image, name, context);
	if (!module)
		return HB_SPLIT_form;
	if (module->is_refused)
		return HB_SPLIT_driver;
	const struct hb_cubin_kernel *kernel = hb_cubin_find_kernel(&module->cubin, name);
	if (!kernel)
		return HB_SPLIT_form;
	const struct hb_spliced_kernel *spliced = &module->splice.kernels[kernel - module->cubin.kernels];
	if (spliced->reason != HB_SPLIT_none)
		return spliced->reason;
	if (HB_REAL(cuModuleGetFunction)(&function->copy, module->module, name) != CUDA_SUCCESS ||
	    !are_alike(original, function->copy))
		return HB_SPLIT_driver;
	function->context = context;
	function->n_parameters = spliced->n_parameters;
	function->parameter_bytes = spliced->parameter_bytes;
	function->bounds_place = spliced->bounds_place;
	return HB_SPLIT_none;
}
