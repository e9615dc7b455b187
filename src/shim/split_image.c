/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds the image that a function came from. Hooks of the calls that load code
 * record each image under its module or library. At the first launch of a function
 * the driver is asked for its module or library and its name, and the split copy is
 * prepared. Later launches find the function in a table.
 *
 * The lock is never held during a driver call: the call may wait for work on the
 * GPU, and that work for a thread that loads, unloads or launches.
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

#define KEPT_BYTES_MAX ((size_t)256 << 20) /* most bytes of copied images */

enum { FUNCTIONS = 8192 /* power of two */, FUNCTIONS_USED_MAX = FUNCTIONS / 2, PAIRS = 8192 };
#define GONE ((void *)1) /* handle of an unloaded function; later entries of its run are still valid */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct hb_split_image *images;
static size_t n_kept_bytes;
static struct split_entry {
	const void *handle; /* CUfunction or CUkernel as the application passes it */
	struct hb_split_function function;
} functions[FUNCTIONS];
static unsigned n_functions; /* entries with a handle, GONE included */
static uint64_t n_made;      /* functions entered so far: the last serial number */

/* Functions obtained from kernels of libraries. The driver has no call that returns the kernel of a function. */
static struct {
	CUfunction function;
	CUkernel kernel;
	CUcontext context;
} pairs[PAIRS];
static unsigned n_pairs;

void hb_split_lock(void)
{
	pthread_mutex_lock(&lock);
}

void hb_split_unlock(void)
{
	pthread_mutex_unlock(&lock);
}

struct hb_split_image *hb_split_image_of(const void *handle)
{
	struct hb_split_image *image = handle ? images : NULL;
	while (image && image->handle != handle)
		image = image->next;
	return image;
}

/* ---- loading ---- */

/*
 * Records an image, or a copy of it: the application may free one that is not in a file mapped by the loader. dladdr() waits
 * while another thread loads a file, whose constructors may load images.
 */
static void note_image(const void *handle, const void *bytes, CUcontext context)
{
	Dl_info info;
	size_t size = hb_image_size(&bytes);
	struct hb_split_image *image = size ? calloc(1, sizeof *image) : NULL;
	if (!image)
		return;
	bool is_ours = !dladdr(bytes, &info);
	*image = (struct hb_split_image){.handle = handle, .context = context, .size = size, .is_ours = is_ours};
	pthread_mutex_lock(&lock);
	bool has_room = !is_ours || size <= KEPT_BYTES_MAX - n_kept_bytes;
	if (has_room)
		image->bytes = is_ours ? hb_image_copy(bytes, size) : bytes;
	if (image->bytes) {
		n_kept_bytes += is_ours ? size : 0;
		image->next = images;
		images = image;
		image = NULL;
	}
	pthread_mutex_unlock(&lock);
	free(image);
}

static CUresult note_module(CUresult result, const CUmodule *module, const void *bytes)
{
	CUcontext context;
	hb_shim_count(HB_COUNT_modules, 1);
	if (result == CUDA_SUCCESS && bytes && hb_split_is_possible() &&
	    HB_REAL(cuCtxGetCurrent)(&context) == CUDA_SUCCESS)
		note_image(*module, bytes, context);
	return result;
}

CUresult hb_hook_cuModuleLoadData(CUmodule *module, const void *image)
{
	return note_module(HB_WIDE(HB_REAL(cuModuleLoadData)(module, image)), module, image);
}

CUresult hb_hook_cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned int n_options, CUjit_option *options,
				    void **values)
{
	return note_module(HB_WIDE(HB_REAL(cuModuleLoadDataEx)(module, image, n_options, options, values)), module,
			   image);
}

CUresult hb_hook_cuModuleLoadFatBinary(CUmodule *module, const void *image)
{
	return note_module(HB_WIDE(HB_REAL(cuModuleLoadFatBinary)(module, image)), module, image);
}

CUresult hb_hook_cuLibraryLoadData(CUlibrary *library, const void *code, CUjit_option *options, void **values,
				   unsigned int n_options, CUlibraryOption *library_options, void **library_values,
				   unsigned int n_library_options)
{
	CUresult result = HB_WIDE(HB_REAL(cuLibraryLoadData)(library, code, options, values, n_options, library_options,
							     library_values, n_library_options));
	hb_shim_count(HB_COUNT_modules, 1);
	if (result == CUDA_SUCCESS && code && hb_split_is_possible())
		note_image(*library, code, NULL);
	return result;
}

/* With the lock held. Libraries ask for the same ones again and again. */
static CUkernel kernel_of(CUfunction function)
{
	for (unsigned i = n_pairs; i-- > 0;)
		if (pairs[i].function == function)
			return pairs[i].kernel;
	return NULL;
}

CUresult hb_hook_cuKernelGetFunction(CUfunction *function, CUkernel kernel)
{
	CUcontext context;
	CUresult result = HB_DOUBT(HB_REAL(cuKernelGetFunction)(function, kernel));
	if (result == CUDA_SUCCESS)
		hb_kernel_marks_note_function(*function, kernel);
	if (result == CUDA_SUCCESS && hb_split_is_possible()) {
		bool has_context = HB_REAL(cuCtxGetCurrent)(&context) == CUDA_SUCCESS;
		pthread_mutex_lock(&lock);
		if (kernel_of(*function) != kernel && n_pairs < PAIRS) {
			pairs[n_pairs].context = has_context ? context : NULL;
			pairs[n_pairs].function = *function;
			pairs[n_pairs++].kernel = kernel;
		}
		pthread_mutex_unlock(&lock);
	}
	return result;
}

/* ---- unloading ---- */

static const void *handle_at(unsigned i)
{
	return functions[i % FUNCTIONS].handle;
}

/* Frees GONE entries at the end of a run. Goes through the table twice, because runs wrap around its end. */
static void free_gone_entries(void)
{
	for (unsigned i = 2 * FUNCTIONS; i-- > 0;)
		if (handle_at(i) == GONE && !handle_at(i + 1)) {
			functions[i % FUNCTIONS].handle = NULL;
			n_functions--;
		}
}

/* Removes the functions of this code; NULL: those of unknown code, which are examined again at their next launch. */
static void forget_functions(const void *code)
{
	for (unsigned i = 0; i < FUNCTIONS; i++)
		if (handle_at(i) && functions[i].function.code == code)
			functions[i].handle = GONE;
	free_gone_entries();
}

/* With the lock held: takes the image out of the list. */
static struct hb_split_image *unlink_image(struct hb_split_image **at)
{
	struct hb_split_image *image = *at;
	*at = image->next;
	n_kept_bytes -= image->is_ours ? image->size : 0;
	return image;
}

static void free_image(struct hb_split_image *image)
{
	if (image->is_ours)
		free((void *)(uintptr_t)image->bytes);
	free(image);
}

/* With the lock held: finds the place of an image in the list. */
static struct hb_split_image **find_place(const struct hb_split_image *image)
{
	struct hb_split_image **at = &images;
	while (*at != image)
		at = &(*at)->next;
	return at;
}

/* Takes the functions of an image out of the tables, and its handle from it. NULL: the image is not known. */
static struct hb_split_image *hide_image(const void *handle)
{
	pthread_mutex_lock(&lock);
	struct hb_split_image *image = hb_split_image_of(handle);
	forget_functions(image ? handle : NULL);
	if (image)
		image->handle = NULL;
	n_pairs = 0; /* pairs of other libraries are lost, too; their functions are asked for again or not split */
	pthread_mutex_unlock(&lock);
	return image;
}

/*
 * Called before the driver frees the code, because a new module may get the same handle. The image stays in the list until its
 * copies are unloaded, so that those in a context that ends meanwhile are dropped.
 */
static void forget_image(const void *handle)
{
	struct hb_split_image *image = hb_split_is_possible() ? hide_image(handle) : NULL;
	if (!image)
		return;
	hb_split_copies_free(image);
	pthread_mutex_lock(&lock);
	unlink_image(find_place(image));
	pthread_mutex_unlock(&lock);
	free_image(image);
}

static void drop_pairs(CUcontext context)
{
	unsigned kept = 0;
	for (unsigned i = 0; i < n_pairs; i++)
		if (pairs[i].context && pairs[i].context != context)
			pairs[kept++] = pairs[i];
	n_pairs = kept;
}

/* With the lock held. */
static void drop_context(CUcontext context)
{
	struct hb_split_image **at = &images;
	for (unsigned i = 0; i < FUNCTIONS; i++)
		if ((functions[i].function.context == context || functions[i].function.only_in == context) &&
		    handle_at(i))
			functions[i].handle = GONE;
	while (*at) {
		hb_split_copies_drop(*at, context);
		if ((*at)->context == context && (*at)->handle) {
			forget_functions((*at)->handle);
			free_image(unlink_image(at));
		} else {
			at = &(*at)->next;
		}
	}
	free_gone_entries();
	drop_pairs(context);
}

void hb_split_context_leaves(CUcontext context)
{
	if (!context || !hb_split_is_possible())
		return;
	pthread_mutex_lock(&lock);
	drop_context(context);
	pthread_mutex_unlock(&lock);
	if (hb_shim_extension.context_leaves)
		hb_shim_extension.context_leaves(context);
}

#define UNLOAD(name, type) \
	CUresult hb_hook_##name(type code) \
	{ \
		hb_takeover_begin_wide(); \
		forget_image(code); \
		hb_kernel_marks_forget_code(code); \
		hb_launch_trace_forget(); \
		CUresult result = HB_REAL(name)(code); \
		hb_takeover_end_wide(); \
		return result; \
	}

UNLOAD(cuModuleUnload, CUmodule)
UNLOAD(cuLibraryUnload, CUlibrary)

/* ---- functions ---- */

static unsigned find_home(const void *handle)
{
	return (unsigned)(((uintptr_t)handle >> 4) * UINT64_C(0x9e3779b97f4a7c15) >> 40) % FUNCTIONS;
}

/* With the lock held. */
static const struct hb_split_function *find_function(const void *handle, CUcontext context)
{
	for (unsigned i = find_home(handle); handle_at(i); i = (i + 1) % FUNCTIONS) {
		const struct hb_split_function *function = &functions[i].function;
		if (handle_at(i) == handle && (!function->only_in || function->only_in == context))
			return function;
	}
	return NULL;
}

static CUkernel find_kernel(CUfunction function)
{
	pthread_mutex_lock(&lock);
	CUkernel kernel = kernel_of(function);
	pthread_mutex_unlock(&lock);
	return kernel;
}

/* Returns the handle itself if its image is known, else NULL. */
static const void *find_code(const void *handle)
{
	pthread_mutex_lock(&lock);
	bool is_known = hb_split_image_of(handle) != NULL;
	pthread_mutex_unlock(&lock);
	return is_known ? handle : NULL;
}

/*
 * Returns the code that a handle belongs to. The handle is a function of a module, a kernel of a library, or the function (with
 * another handle) of such a kernel. NULL: unknown.
 */
static const void *find_origin(CUfunction handle, bool *is_kernel, CUfunction *original, const char **name)
{
	CUmodule module;
	CUlibrary library;
	CUkernel kernel = find_kernel(handle);
	*original = handle;
	if (!kernel && HB_REAL(cuFuncGetModule)(&module, handle) == CUDA_SUCCESS && find_code(module))
		return HB_REAL(cuFuncGetName)(name, handle) == CUDA_SUCCESS ? module : NULL;
	if (!kernel) {
		kernel = (CUkernel)(void *)handle;
		if (HB_REAL(cuKernelGetFunction)(original, kernel) != CUDA_SUCCESS)
			return NULL;
		*is_kernel = true;
	}
	if (HB_REAL(cuKernelGetLibrary)(&library, kernel) != CUDA_SUCCESS ||
	    HB_REAL(cuKernelGetName)(name, kernel) != CUDA_SUCCESS)
		return NULL;
	return find_code(library);
}

/* Without the lock. */
static void examine_function(struct hb_split_function *function, CUfunction handle, CUcontext context)
{
	const char *name = NULL;
	bool is_kernel = false;
	function->code = find_origin(handle, &is_kernel, &function->original, &name);
	function->only_in = is_kernel ? context : NULL;
	function->reason = function->code && name ? hb_split_copy(function->code, name, function) : HB_SPLIT_image;
	hb_log(HB_LOG_INFO, "splitting: %s: %s", name ? name : "?", hb_split_reason_text(function->reason));
}

/* With the lock held: returns an entry for a handle that is not in the table. NULL: no room. */
static struct split_entry *find_entry(const void *handle)
{
	unsigned i = find_home(handle);
	while (handle_at(i) && handle_at(i) != GONE)
		i = (i + 1) % FUNCTIONS;
	return handle_at(i) || n_functions < FUNCTIONS_USED_MAX ? &functions[i] : NULL;
}

/* With the lock held: adds a function that is not in the table. NULL: no room. */
static const struct hb_split_function *add_function(const void *handle, const struct hb_split_function *function)
{
	struct split_entry *entry = find_entry(handle);
	if (!entry)
		return NULL;
	n_functions += !entry->handle;
	*entry = (struct split_entry){.handle = handle, .function = *function};
	entry->function.serial = ++n_made;
	return &entry->function;
}

/* Copies the function out of the table, after adding `examined` if it is given and not there. */
static bool copy_out(const void *handle, CUcontext context, const struct hb_split_function *examined,
		     struct hb_split_function *found)
{
	pthread_mutex_lock(&lock);
	const struct hb_split_function *function = find_function(handle, context);
	if (!function && examined) /* else another thread was faster */
		function = add_function(handle, examined);
	if (function)
		*found = *function;
	pthread_mutex_unlock(&lock);
	return function;
}

static bool may_examine(const void *handle)
{
	/* While a stream captures, most of the calls of examine_function() are illegal. */
	if (atomic_load_explicit(&hb_captures, memory_order_relaxed) > 0)
		return false;
	pthread_mutex_lock(&lock);
	bool has_room = find_entry(handle);
	pthread_mutex_unlock(&lock);
	return has_room;
}

bool hb_split_function_of(CUfunction handle, CUcontext context, struct hb_split_function *found)
{
	struct hb_split_function examined = {0};
	if (copy_out(handle, context, NULL, found))
		return true;
	if (!may_examine(handle))
		return false;
	/* Another thread may begin a capture meanwhile, which calls in other modes would invalidate. */
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	HB_REAL(cuThreadExchangeStreamCaptureMode)(&mode);
	examine_function(&examined, handle, context);
	HB_REAL(cuThreadExchangeStreamCaptureMode)(&mode);
	return copy_out(handle, context, &examined, found);
}

void hb_split_images_leave_in_child(void)
{
	pthread_mutex_init(&lock, NULL);
}
