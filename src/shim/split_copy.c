/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Split copies of the application's machine code: the range check, compiled once by
 * the driver, and for each image and context one module with all kernels of the
 * image that can be split. Called at the first launch of a function, on the
 * application's thread; takes some milliseconds. The driver is called without a
 * lock, so two threads may make the same copy at the same time; both are kept.
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

/* Guarded by hb_split_lock(); `prologue` does not change once it is ready. */
static struct hb_prologue prologue;
static enum prologue_state { NOT_TRIED, READY, REFUSED } prologue_state;

static enum prologue_state read_linked_prologue(CUlinkState link, struct hb_prologue *taken)
{
	void *cubin;
	size_t size;
	const char *why = "the driver does not compile the range check";
	if (HB_REAL(cuLinkAddData_v2)(link, CU_JIT_INPUT_PTX, (void *)(uintptr_t)hb_prologue_ptx,
				      strlen(hb_prologue_ptx) + 1, "range", 0, NULL, NULL) == CUDA_SUCCESS &&
	    HB_REAL(cuLinkComplete)(link, &cubin, &size) == CUDA_SUCCESS &&
	    hb_prologue_take(taken, cubin, size, &why) == 0)
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

static enum prologue_state compile_prologue(struct hb_prologue *taken)
{
	CUlinkState link;
	if (HB_REAL(cuLinkCreate_v2)(0, NULL, NULL, &link) != CUDA_SUCCESS)
		return REFUSED;
	enum prologue_state state = read_linked_prologue(link, taken);
	HB_REAL(cuLinkDestroy)(link);
	return state;
}

static bool prepare_prologue(void)
{
	struct hb_prologue taken;
	hb_split_lock();
	enum prologue_state state = prologue_state;
	hb_split_unlock();
	if (state != NOT_TRIED)
		return state == READY;
	state = compile_prologue(&taken);
	hb_split_lock();
	if (prologue_state == NOT_TRIED) { /* else another thread was faster */
		if (state == READY)
			prologue = taken;
		prologue_state = state;
	}
	state = prologue_state;
	hb_split_unlock();
	return state == READY;
}

static void free_module(struct hb_split_module *module)
{
	hb_cubin_close(&module->cubin);
	hb_splice_free(&module->splice);
	free(module->bytes);
	free(module);
}

static void unload_module(struct hb_split_module *module)
{
	CUcontext popped;
	if (module->module && HB_REAL(cuCtxPushCurrent_v2)(module->context) == CUDA_SUCCESS) {
		HB_REAL(cuModuleUnload)(module->module);
		HB_REAL(cuCtxPopCurrent_v2)(&popped);
	}
	free_module(module);
}

/* Takes one copy out of an image. Copies that stay are dropped if their context ends meanwhile. */
static struct hb_split_module *take_one(struct hb_split_image *image)
{
	hb_split_lock();
	struct hb_split_module *module = image->modules;
	if (module)
		image->modules = module->next;
	hb_split_unlock();
	return module;
}

void hb_split_copies_free(struct hb_split_image *image)
{
	/* The application may unload a library while a stream captures; calls in other modes would invalidate the capture. */
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	struct hb_split_module *module = take_one(image);
	if (!module)
		return;
	HB_REAL(cuThreadExchangeStreamCaptureMode)(&mode);
	for (; module; module = take_one(image))
		unload_module(module);
	HB_REAL(cuThreadExchangeStreamCaptureMode)(&mode);
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

/* Splices the cubin; load_module() follows. Takes ownership of `bytes`. NULL: the cubin cannot be read. */
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
	return module;
}

/* Into the current context, which is that of the module. */
static void load_module(struct hb_split_module *module)
{
	if (!module->is_refused && module->splice.bytes)
		module->is_refused = HB_REAL(cuModuleLoadData)(&module->module, module->splice.bytes) != CUDA_SUCCESS;
	free(module->splice.bytes);
	module->splice.bytes = NULL;
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

/* A copy of what a launch needs to know of a module: another thread may free the module as soon as the lock is released. */
struct copy_facts {
	CUmodule module;
	struct hb_spliced_kernel kernel;
};

static enum hb_split_reason read_facts(const struct hb_split_module *module, const char *name, struct copy_facts *facts)
{
	const struct hb_cubin_kernel *kernel = hb_cubin_find_kernel(&module->cubin, name);
	if (module->is_refused)
		return HB_SPLIT_driver;
	if (!kernel)
		return HB_SPLIT_form;
	facts->module = module->module;
	facts->kernel = module->splice.kernels[kernel - module->cubin.kernels];
	return facts->kernel.reason;
}

/* With the lock held. */
static struct hb_split_module *find_module(const struct hb_split_image *image, const char *name, CUcontext context)
{
	struct hb_split_module *module = image->modules;
	while (module && !(module->context == context && hb_cubin_find_kernel(&module->cubin, name)))
		module = module->next;
	return module;
}

/* Loads the module and adds it to the image. The image is gone if the application unloads it during a launch, which is an error. */
static enum hb_split_reason add_module(const void *handle, const char *name, struct hb_split_module *module,
				       struct copy_facts *facts)
{
	load_module(module);
	enum hb_split_reason reason = read_facts(module, name, facts);
	hb_split_lock();
	struct hb_split_image *image = hb_split_image_of(handle);
	if (image) {
		module->next = image->modules;
		image->modules = module;
	}
	hb_split_unlock();
	if (image)
		return reason;
	unload_module(module);
	return HB_SPLIT_image;
}

/* Finds the module with the copy of a kernel in this context, or makes it. */
static enum hb_split_reason take_module(const void *handle, const char *name, CUcontext context,
					struct copy_facts *facts)
{
	enum hb_split_reason reason = HB_SPLIT_form;
	struct hb_split_module *made = NULL;
	size_t size = 0;
	hb_split_lock();
	const struct hb_split_image *image = hb_split_image_of(handle);
	const struct hb_split_module *module = image ? find_module(image, name, context) : NULL;
	if (module)
		reason = read_facts(module, name, facts);
	uint8_t *bytes = image && !module ? find_cubin(image, name, &size) : NULL;
	hb_split_unlock();
	if (bytes)
		made = make_module(bytes, size, context);
	return made ? add_module(handle, name, made, facts) : reason;
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

enum hb_split_reason hb_split_copy(const void *handle, const char *name, struct hb_split_function *function)
{
	CUcontext context;
	struct copy_facts facts = {0};
	if (!prepare_prologue() || HB_REAL(cuCtxGetCurrent)(&context) != CUDA_SUCCESS)
		return HB_SPLIT_driver;
	if (!may_split())
		return HB_SPLIT_offline;
	enum hb_split_reason reason = take_module(handle, name, context, &facts);
	if (reason != HB_SPLIT_none)
		return reason;
	if (HB_REAL(cuModuleGetFunction)(&function->copy, facts.module, name) != CUDA_SUCCESS ||
	    !are_alike(function->original, function->copy))
		return HB_SPLIT_driver;
	function->context = context;
	function->n_parameters = facts.kernel.n_parameters;
	function->parameter_bytes = facts.kernel.parameter_bytes;
	function->bounds_place = facts.kernel.bounds_place;
	return HB_SPLIT_none;
}
