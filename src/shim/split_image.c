/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which image a function came from. Hooks of the calls that load code note the
 * image under its module or library; the first launch of a function asks the
 * driver for its module (or library) and name, and makes the sliced copy ready.
 * Later launches find the function in a table, without a lock.
 */
#include "base/log.h"
#include "cubin/fatbin.h"
#include "shim/extension.h"
#include "shim/kernel_marks.h"
#include "shim/launch_trace.h"
#include "shim/shim.h"
#include "shim/shim_spatial.h"
#include "shim/shim_tenant.h"
#include "shim/split.h"
#include "shim/takeover.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define KEPT_BYTES_MAX ((size_t)256 << 20) /* of images that are not part of a loaded file */

enum { FUNCTIONS = 8192 /* power of two */, FUNCTIONS_USED_MAX = FUNCTIONS / 2, PAIRS = 8192 };
#define GONE ((void *)1) /* handle of a function whose module was unloaded; others may lie behind it */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct hb_split_image *images;
static size_t n_kept_bytes;
static struct hb_split_function functions[FUNCTIONS];
static unsigned n_functions; /* places that are not empty */
static uint64_t n_made;

/* Functions that were made from kernels of libraries: the driver tells only the other direction. */
static struct {
	CUfunction function;
	CUkernel kernel;
} pairs[PAIRS];
static unsigned n_pairs;

/* ---- loading ---- */

/* Images in a file that is mapped by the loader stay; others may be freed once they are loaded. */
static const void *keep(const void *bytes, size_t size, bool *is_ours)
{
	Dl_info info;
	*is_ours = false;
	if (dladdr(bytes, &info))
		return bytes;
	if (size > KEPT_BYTES_MAX - n_kept_bytes)
		return NULL;
	void *copy = malloc(size);
	if (copy) {
		memcpy(copy, bytes, size);
		n_kept_bytes += size;
		*is_ours = true;
	}
	return copy;
}

static void note_image(void *handle, const void *bytes, bool is_library)
{
	size_t size = hb_image_size(&bytes);
	struct hb_split_image *image = size ? calloc(1, sizeof *image) : NULL;
	if (!image)
		return;
	pthread_mutex_lock(&lock);
	image->handle = handle;
	image->size = size;
	image->is_library = is_library;
	image->bytes = keep(bytes, size, &image->is_ours);
	if (image->bytes) {
		image->next = images;
		images = image;
		image = NULL;
	}
	pthread_mutex_unlock(&lock);
	free(image);
}

static CUresult loaded(CUresult result, void *handle, const void *bytes, bool is_library)
{
	hb_shim_count(HB_COUNT_modules, 1);
	if (result == CUDA_SUCCESS && bytes && hb_split_is_possible())
		note_image(handle, bytes, is_library);
	return result;
}

CUresult hb_hook_cuModuleLoadData(CUmodule *module, const void *image)
{
	CUresult result = HB_WIDE(HB_REAL(cuModuleLoadData)(module, image));
	return loaded(result, result == CUDA_SUCCESS ? *module : NULL, image, false);
}

CUresult hb_hook_cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned int n_options, CUjit_option *options,
				    void **values)
{
	CUresult result = HB_WIDE(HB_REAL(cuModuleLoadDataEx)(module, image, n_options, options, values));
	return loaded(result, result == CUDA_SUCCESS ? *module : NULL, image, false);
}

CUresult hb_hook_cuModuleLoadFatBinary(CUmodule *module, const void *image)
{
	CUresult result = HB_WIDE(HB_REAL(cuModuleLoadFatBinary)(module, image));
	return loaded(result, result == CUDA_SUCCESS ? *module : NULL, image, false);
}

CUresult hb_hook_cuLibraryLoadData(CUlibrary *library, const void *code, CUjit_option *options, void **values,
				   unsigned int n_options, CUlibraryOption *library_options, void **library_values,
				   unsigned int n_library_options)
{
	CUresult result = HB_WIDE(HB_REAL(cuLibraryLoadData)(library, code, options, values, n_options, library_options,
							     library_values, n_library_options));
	return loaded(result, result == CUDA_SUCCESS ? *library : NULL, code, true);
}

/* Libraries ask for the same ones again and again. */
static CUkernel kernel_of(CUfunction function)
{
	for (unsigned i = n_pairs; i-- > 0;)
		if (pairs[i].function == function)
			return pairs[i].kernel;
	return NULL;
}

CUresult hb_hook_cuKernelGetFunction(CUfunction *function, CUkernel kernel)
{
	CUresult result = HB_DOUBT(HB_REAL(cuKernelGetFunction)(function, kernel));
	if (result == CUDA_SUCCESS)
		hb_kernel_marks_note_function(*function, kernel);
	if (result == CUDA_SUCCESS && hb_split_is_possible()) {
		pthread_mutex_lock(&lock);
		if (kernel_of(*function) != kernel && n_pairs < PAIRS) {
			pairs[n_pairs].function = *function;
			pairs[n_pairs++].kernel = kernel;
		}
		pthread_mutex_unlock(&lock);
	}
	return result;
}

/* ---- unloading ---- */

static void *handle_at(unsigned i)
{
	return atomic_load_explicit(&functions[i % FUNCTIONS].handle, memory_order_relaxed);
}

/* Places of functions that are gone, and behind which nothing lies, are empty again. Twice: the table goes round. */
static void give_places_back(void)
{
	for (unsigned i = 2 * FUNCTIONS; i-- > 0;)
		if (handle_at(i) == GONE && !handle_at(i + 1)) {
			atomic_store_explicit(&functions[i % FUNCTIONS].handle, NULL, memory_order_release);
			n_functions--;
		}
}

/* NULL: those whose image is not known. They are looked at again when they are launched again. */
static void forget_functions(const struct hb_split_image *image)
{
	for (unsigned i = 0; i < FUNCTIONS; i++)
		if (handle_at(i) && functions[i].image == image)
			atomic_store_explicit(&functions[i].handle, GONE, memory_order_release);
	give_places_back();
}

/* Before the driver frees it, so that a handle that comes again is not taken for the old one. */
static void forget_image(void *handle)
{
	if (!hb_split_is_possible())
		return;
	pthread_mutex_lock(&lock);
	struct hb_split_image **at = &images, *image;
	while (*at && (*at)->handle != handle)
		at = &(*at)->next;
	image = *at;
	forget_functions(image);
	if (image) {
		*at = image->next;
		hb_split_copies_free(image);
		if (image->is_ours) {
			n_kept_bytes -= image->size;
			free((void *)(uintptr_t)image->bytes);
		}
		free(image);
	}
	n_pairs = 0; /* functions of the library are no more; others are asked for again, or run whole */
	pthread_mutex_unlock(&lock);
}

void hb_split_context_gone(CUcontext context)
{
	if (!hb_split_is_possible())
		return;
	pthread_mutex_lock(&lock);
	for (unsigned i = 0; i < FUNCTIONS; i++)
		if ((functions[i].context == context || functions[i].only_in == context) && handle_at(i))
			atomic_store_explicit(&functions[i].handle, GONE, memory_order_release);
	give_places_back();
	for (struct hb_split_image *image = images; image; image = image->next)
		hb_split_copies_drop(image, context);
	pthread_mutex_unlock(&lock);
	if (hb_shim_extension.context_gone)
		hb_shim_extension.context_gone(context);
}

CUresult hb_hook_cuModuleUnload(CUmodule module)
{
	hb_takeover_begin_wide();
	forget_image(module);
	hb_kernel_marks_forget_code(module);
	hb_launch_trace_forget();
	CUresult result = HB_REAL(cuModuleUnload)(module);
	hb_takeover_end_wide();
	return result;
}

CUresult hb_hook_cuLibraryUnload(CUlibrary library)
{
	forget_image(library);
	hb_kernel_marks_forget_code(library);
	hb_launch_trace_forget();
	return HB_WIDE(HB_REAL(cuLibraryUnload)(library));
}

/* ---- functions ---- */

static unsigned home_of(const void *handle)
{
	return (unsigned)(((uintptr_t)handle >> 4) * UINT64_C(0x9e3779b97f4a7c15) >> 40) % FUNCTIONS;
}

static struct hb_split_function *find(const void *handle, CUcontext context)
{
	for (unsigned i = home_of(handle);; i = (i + 1) % FUNCTIONS) {
		void *here = atomic_load_explicit(&functions[i].handle, memory_order_acquire);
		if (here == handle && (!functions[i].only_in || functions[i].only_in == context))
			return &functions[i];
		if (!here)
			return NULL;
	}
}

static struct hb_split_image *image_of(const void *handle)
{
	struct hb_split_image *image = images;
	while (image && image->handle != handle)
		image = image->next;
	return image;
}

/* What the handle is: a function of a module, or a kernel of a library, perhaps already made a function (another handle). */
static struct hb_split_image *origin_of(CUfunction handle, bool *is_kernel, CUfunction *whole, const char **name)
{
	CUmodule module;
	CUlibrary library;
	CUkernel kernel = kernel_of(handle);
	*whole = handle;
	if (!kernel && HB_REAL(cuFuncGetModule)(&module, handle) == CUDA_SUCCESS && image_of(module))
		return HB_REAL(cuFuncGetName)(name, handle) == CUDA_SUCCESS ? image_of(module) : NULL;
	if (!kernel) {
		kernel = (CUkernel)(void *)handle;
		if (HB_REAL(cuKernelGetFunction)(whole, kernel) != CUDA_SUCCESS)
			return NULL;
		*is_kernel = true;
	}
	if (HB_REAL(cuKernelGetLibrary)(&library, kernel) != CUDA_SUCCESS ||
	    HB_REAL(cuKernelGetName)(name, kernel) != CUDA_SUCCESS)
		return NULL;
	return image_of(library);
}

static void make_function(struct hb_split_function *function, CUfunction handle, CUcontext context)
{
	const char *name = NULL;
	bool is_kernel = false;
	struct hb_split_image *image = origin_of(handle, &is_kernel, &function->original, &name);
	function->image = image;
	function->only_in = is_kernel ? context : NULL;
	function->context = NULL; /* the place may have been another's */
	function->serial = ++n_made;
	function->reason = image && name ? hb_split_copy(image, name, function->original, function) : HB_SPLIT_image;
	hb_log(HB_LOG_INFO, "slices: %s: %s", name ? name : "?", hb_split_reason_text(function->reason));
}

/* With the lock held, for one that is not in the table. NULL: no room. */
static struct hb_split_function *place_for(const void *handle)
{
	unsigned i = home_of(handle);
	while (handle_at(i) && handle_at(i) != GONE)
		i = (i + 1) % FUNCTIONS;
	return handle_at(i) || n_functions < FUNCTIONS_USED_MAX ? &functions[i] : NULL;
}

const struct hb_split_function *hb_split_function_of(CUfunction handle, CUcontext context)
{
	struct hb_split_function *function = find(handle, context);
	/* While something is recorded, most of what follows is illegal. */
	if (function || atomic_load_explicit(&hb_captures, memory_order_relaxed) > 0)
		return function;
	pthread_mutex_lock(&lock);
	function = find(handle, context);
	if (!function && (function = place_for(handle))) {
		make_function(function, handle, context);
		n_functions += !atomic_load_explicit(&function->handle, memory_order_relaxed);
		atomic_store_explicit(&function->handle, handle, memory_order_release);
	}
	pthread_mutex_unlock(&lock);
	return function;
}

void hb_split_images_leave_in_child(void)
{
	pthread_mutex_init(&lock, NULL);
}
