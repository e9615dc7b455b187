/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Code: modules (each belongs to a context) and libraries (they belong to the
 * process and become a module in each context that uses them), with kernels,
 * functions and globals. The tables are guarded by sim.lock.
 */
#include "nvidia/takeover_kernel.h"
#include "simcuda/sim_driver.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static CUmodule modules; /* loaded by cuModuleLoad* */
static CUlibrary libraries;

static void function_init(CUfunction function, const struct sim_kernel *kernel, CUmodule module, CUkernel of)
{
	function->magic = SIM_MAGIC_FUNCTION;
	function->kernel = kernel;
	function->module = module;
	function->of = of;
}

static void module_free(CUmodule module)
{
	for (size_t i = 0; module->globals && i < module->image->n_globals; i++)
		if (module->globals[i])
			sim_memory_delete(module->globals[i]);
	if (module->owns_image)
		sim_image_free(module->image);
	module->magic = SIM_MAGIC_DEAD;
	free(module->globals);
	free(module->functions);
	free(module);
}

static CUresult module_new(CUcontext context, struct sim_image *image, CUlibrary library, CUmodule *out)
{
	CUmodule module = calloc(1, sizeof *module);
	if (!module)
		return CUDA_ERROR_OUT_OF_MEMORY;
	module->magic = SIM_MAGIC_MODULE;
	module->context = context;
	module->library = library;
	module->image = image;
	module->functions = calloc(image->n_kernels + 1, sizeof *module->functions);
	module->globals = calloc(image->n_globals + 1, sizeof *module->globals);
	CUresult result = module->functions && module->globals ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
	for (size_t i = 0; result == CUDA_SUCCESS && i < image->n_globals; i++)
		result = sim_memory_new(context, SIM_MEMORY_DEVICE, image->globals[i].bytes, NULL, &module->globals[i]);
	if (result != CUDA_SUCCESS) {
		module_free(module);
		return result;
	}
	for (size_t i = 0; i < image->n_kernels; i++)
		function_init(&module->functions[i], &image->kernels[i], module, library ? &library->kernels[i] : NULL);
	module->owns_image = !library;
	*out = module;
	return CUDA_SUCCESS;
}

static CUresult check_module(CUmodule module)
{
	CUresult result = sim_ready();
	if (result != CUDA_SUCCESS)
		return result;
	return module && module->magic == SIM_MAGIC_MODULE ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

/* A real driver loads its compiler with the first PTX. A test may have one: HB_SIM_COMPILER=1. */
static void call_compiler(const char *image)
{
	static const char ptx[] = ".version";
	const char *wanted = getenv("HB_SIM_COMPILER");
	if (!image || strncmp(image, ptx, sizeof ptx - 1) != 0 || !wanted || strcmp(wanted, "1") != 0)
		return;
	void *library = dlopen(HB_PTX_COMPILER, RTLD_NOW | RTLD_LOCAL);
	void (*compile)(void) = library ? (void (*)(void))dlsym(library, "hb_compile") : NULL;
	if (compile)
		compile();
}

CUresult sim_cuModuleLoadData(CUmodule *module, const void *image)
{
	CUcontext context;
	const char *text;
	struct sim_image *parsed;
	CUresult result = sim_current(&context);
	if (result == CUDA_SUCCESS && !module)
		result = CUDA_ERROR_INVALID_VALUE;
	if (result == CUDA_SUCCESS)
		result = sim_capture_forbids_unsafe();
	if (result == CUDA_SUCCESS)
		call_compiler(image);
	if (result == CUDA_SUCCESS)
		result = sim_image_text(image, &text);
	if (result == CUDA_SUCCESS)
		result = sim_image_parse(text, &parsed);
	if (result != CUDA_SUCCESS)
		return result;
	pthread_mutex_lock(&sim.lock);
	result = module_new(context, parsed, NULL, module);
	if (result == CUDA_SUCCESS) {
		(*module)->next = modules;
		modules = *module;
	}
	pthread_mutex_unlock(&sim.lock);
	if (result != CUDA_SUCCESS)
		sim_image_free(parsed);
	return result;
}

CUresult sim_cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned int numOptions, CUjit_option *options,
				void **optionValues)
{
	return sim_cuModuleLoadData(module, image);
}

CUresult sim_cuModuleLoadFatBinary(CUmodule *module, const void *fatCubin)
{
	return sim_cuModuleLoadData(module, fatCubin);
}

/* The caller frees *text. */
static CUresult read_file(const char *name, char **text)
{
	struct stat status;
	int fd = name ? open(name, O_RDONLY | O_CLOEXEC) : -1;
	if (fd < 0)
		return name ? CUDA_ERROR_FILE_NOT_FOUND : CUDA_ERROR_INVALID_VALUE;
	CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
	if (fstat(fd, &status) == 0 && (*text = calloc(1, (size_t)status.st_size + 1)))
		result = read(fd, *text, (size_t)status.st_size) == status.st_size ? CUDA_SUCCESS
										   : CUDA_ERROR_OPERATING_SYSTEM;
	if (result == CUDA_ERROR_OPERATING_SYSTEM)
		free(*text);
	close(fd);
	return result;
}

CUresult sim_cuModuleLoad(CUmodule *module, const char *fname)
{
	char *text;
	CUresult result = sim_ready();
	if (result == CUDA_SUCCESS)
		result = read_file(fname, &text);
	if (result != CUDA_SUCCESS)
		return result;
	result = sim_cuModuleLoadData(module, text);
	free(text);
	return result;
}

static void unlink_module(CUmodule *list, CUmodule module)
{
	for (; *list; list = &(*list)->next)
		if (*list == module) {
			*list = module->next;
			return;
		}
}

/* Waits for work that uses the code, as the real driver does. */
CUresult sim_cuModuleUnload(CUmodule hmod)
{
	CUresult result = check_module(hmod);
	if (result == CUDA_SUCCESS && hmod->library)
		result = CUDA_ERROR_NOT_PERMITTED;
	if (result == CUDA_SUCCESS)
		result = sim_capture_forbids_unsafe();
	if (result != CUDA_SUCCESS)
		return result;
	sim_wait_context(hmod->context);
	pthread_mutex_lock(&sim.lock);
	unlink_module(&modules, hmod);
	module_free(hmod);
	pthread_mutex_unlock(&sim.lock);
	return CUDA_SUCCESS;
}

CUresult sim_cuModuleGetFunction(CUfunction *hfunc, CUmodule hmod, const char *name)
{
	CUresult result = check_module(hmod);
	if (result == CUDA_SUCCESS && (!hfunc || !name))
		result = CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; result == CUDA_SUCCESS && i < hmod->image->n_kernels; i++)
		if (strcmp(hmod->image->kernels[i].name, name) == 0) {
			*hfunc = &hmod->functions[i];
			return CUDA_SUCCESS;
		}
	return result == CUDA_SUCCESS ? CUDA_ERROR_NOT_FOUND : result;
}

static CUresult global_of(CUmodule module, CUdeviceptr *address, size_t *bytes, const char *name)
{
	for (size_t i = 0; i < module->image->n_globals; i++) {
		if (strcmp(module->image->globals[i].name, name) != 0)
			continue;
		if (address)
			*address = module->globals[i];
		if (bytes)
			*bytes = module->image->globals[i].bytes;
		return CUDA_SUCCESS;
	}
	return CUDA_ERROR_NOT_FOUND;
}

CUresult sim_cuModuleGetGlobal_v2(CUdeviceptr *dptr, size_t *bytes, CUmodule hmod, const char *name)
{
	CUresult result = check_module(hmod);
	if (result == CUDA_SUCCESS && !name)
		result = CUDA_ERROR_INVALID_VALUE;
	return result == CUDA_SUCCESS ? global_of(hmod, dptr, bytes, name) : result;
}

CUresult sim_cuModuleGetLoadingMode(CUmoduleLoadingMode *mode)
{
	if (!mode)
		return CUDA_ERROR_INVALID_VALUE;
	*mode = CU_MODULE_EAGER_LOADING;
	return CUDA_SUCCESS;
}

CUresult sim_cuModuleGetFunctionCount(unsigned int *count, CUmodule mod)
{
	CUresult result = check_module(mod);
	if (result == CUDA_SUCCESS && !count)
		result = CUDA_ERROR_INVALID_VALUE;
	if (result == CUDA_SUCCESS)
		*count = (unsigned)mod->image->n_kernels;
	return result;
}

CUresult sim_cuModuleEnumerateFunctions(CUfunction *functions, unsigned int numFunctions, CUmodule mod)
{
	CUresult result = check_module(mod);
	if (result == CUDA_SUCCESS && !functions)
		result = CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; result == CUDA_SUCCESS && i < numFunctions && i < mod->image->n_kernels; i++)
		functions[i] = &mod->functions[i];
	return result;
}

/* --- libraries --------------------------------------------------------------------- */

static CUresult check_library(CUlibrary library)
{
	CUresult result = sim_ready();
	if (result != CUDA_SUCCESS)
		return result;
	return library && library->magic == SIM_MAGIC_LIBRARY ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult sim_cuLibraryLoadData(CUlibrary *library, const void *code, CUjit_option *jitOptions, void **jitOptionsValues,
			       unsigned int numJitOptions, CUlibraryOption *libraryOptions, void **libraryOptionValues,
			       unsigned int numLibraryOptions)
{
	const char *text;
	CUresult result = sim_ready();
	if (result == CUDA_SUCCESS && !library)
		result = CUDA_ERROR_INVALID_VALUE;
	if (result == CUDA_SUCCESS)
		result = sim_image_text(code, &text);
	if (result != CUDA_SUCCESS)
		return result;
	CUlibrary made = calloc(1, sizeof *made);
	result = made ? sim_image_parse(text, &made->image) : CUDA_ERROR_OUT_OF_MEMORY;
	if (result == CUDA_SUCCESS && !(made->kernels = calloc(made->image->n_kernels + 1, sizeof *made->kernels))) {
		sim_image_free(made->image);
		result = CUDA_ERROR_OUT_OF_MEMORY;
	}
	if (result != CUDA_SUCCESS) {
		free(made);
		return result;
	}
	made->magic = SIM_MAGIC_LIBRARY;
	for (size_t i = 0; i < made->image->n_kernels; i++) {
		made->kernels[i].magic = SIM_MAGIC_KERNEL;
		made->kernels[i].kernel = &made->image->kernels[i];
		made->kernels[i].library = made;
	}
	pthread_mutex_lock(&sim.lock);
	made->next = libraries;
	libraries = made;
	pthread_mutex_unlock(&sim.lock);
	*library = made;
	return CUDA_SUCCESS;
}

CUresult sim_cuLibraryLoadFromFile(CUlibrary *library, const char *fileName, CUjit_option *jitOptions,
				   void **jitOptionsValues, unsigned int numJitOptions, CUlibraryOption *libraryOptions,
				   void **libraryOptionValues, unsigned int numLibraryOptions)
{
	char *text;
	CUresult result = sim_ready();
	if (result == CUDA_SUCCESS)
		result = read_file(fileName, &text);
	if (result != CUDA_SUCCESS)
		return result;
	result = sim_cuLibraryLoadData(library, text, NULL, NULL, 0, NULL, NULL, 0);
	free(text);
	return result;
}

CUresult sim_cuLibraryUnload(CUlibrary library)
{
	CUresult result = check_library(library);
	if (result != CUDA_SUCCESS)
		return result;
	for (CUmodule module = library->modules; module; module = module->next)
		if (module->context->alive)
			sim_wait_context(module->context);
	pthread_mutex_lock(&sim.lock);
	for (CUlibrary *at = &libraries; *at; at = &(*at)->next)
		if (*at == library) {
			*at = library->next;
			break;
		}
	while (library->modules) {
		CUmodule module = library->modules;
		library->modules = module->next;
		module_free(module);
	}
	library->magic = SIM_MAGIC_DEAD;
	sim_image_free(library->image);
	free(library->kernels);
	free(library);
	pthread_mutex_unlock(&sim.lock);
	return CUDA_SUCCESS;
}

CUresult sim_cuLibraryGetKernel(CUkernel *pKernel, CUlibrary library, const char *name)
{
	CUresult result = check_library(library);
	if (result == CUDA_SUCCESS && (!pKernel || !name))
		result = CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; result == CUDA_SUCCESS && i < library->image->n_kernels; i++)
		if (strcmp(library->image->kernels[i].name, name) == 0) {
			*pKernel = &library->kernels[i];
			return CUDA_SUCCESS;
		}
	return result == CUDA_SUCCESS ? CUDA_ERROR_NOT_FOUND : result;
}

CUresult sim_cuLibraryGetKernelCount(unsigned int *count, CUlibrary lib)
{
	CUresult result = check_library(lib);
	if (result == CUDA_SUCCESS && !count)
		result = CUDA_ERROR_INVALID_VALUE;
	if (result == CUDA_SUCCESS)
		*count = (unsigned)lib->image->n_kernels;
	return result;
}

CUresult sim_cuLibraryEnumerateKernels(CUkernel *kernels, unsigned int numKernels, CUlibrary lib)
{
	CUresult result = check_library(lib);
	if (result == CUDA_SUCCESS && !kernels)
		result = CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; result == CUDA_SUCCESS && i < numKernels && i < lib->image->n_kernels; i++)
		kernels[i] = &lib->kernels[i];
	return result;
}

/* Returns the library's module in a context, and makes it at first use. */
static CUresult module_in(CUlibrary library, CUcontext context, CUmodule *module)
{
	CUresult result = CUDA_SUCCESS;
	pthread_mutex_lock(&sim.lock);
	CUmodule at = library->modules;
	while (at && at->context != context)
		at = at->next;
	if (!at) {
		result = module_new(context, library->image, library, &at);
		if (result == CUDA_SUCCESS) {
			at->next = library->modules;
			library->modules = at;
		}
	}
	pthread_mutex_unlock(&sim.lock);
	if (result == CUDA_SUCCESS)
		*module = at;
	return result;
}

CUresult sim_cuLibraryGetModule(CUmodule *pMod, CUlibrary library)
{
	CUcontext context;
	CUresult result = check_library(library);
	if (result == CUDA_SUCCESS)
		result = sim_current(&context);
	if (result == CUDA_SUCCESS && !pMod)
		result = CUDA_ERROR_INVALID_VALUE;
	return result == CUDA_SUCCESS ? module_in(library, context, pMod) : result;
}

CUresult sim_cuLibraryGetGlobal(CUdeviceptr *dptr, size_t *bytes, CUlibrary library, const char *name)
{
	CUmodule module;
	CUresult result = name ? sim_cuLibraryGetModule(&module, library) : CUDA_ERROR_INVALID_VALUE;
	return result == CUDA_SUCCESS ? global_of(module, dptr, bytes, name) : result;
}

CUresult sim_function_of(CUfunction handle, CUcontext context, CUfunction *function)
{
	if (!handle)
		return CUDA_ERROR_INVALID_HANDLE;
	if (SIM_LIKELY(handle->magic == SIM_MAGIC_FUNCTION)) {
		*function = handle;
		return handle->module->context == context ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
	}
	CUkernel kernel = (CUkernel)(void *)handle;
	if (kernel->magic != SIM_MAGIC_KERNEL)
		return CUDA_ERROR_INVALID_HANDLE;
	CUmodule module;
	CUresult result = module_in(kernel->library, context, &module);
	if (result == CUDA_SUCCESS)
		*function = &module->functions[kernel - kernel->library->kernels];
	return result;
}

CUresult sim_cuKernelGetFunction(CUfunction *pFunc, CUkernel kernel)
{
	CUcontext context;
	CUresult result = sim_current(&context);
	if (result == CUDA_SUCCESS && !pFunc)
		result = CUDA_ERROR_INVALID_VALUE;
	return result == CUDA_SUCCESS ? sim_function_of((CUfunction)(void *)kernel, context, pFunc) : result;
}

static void end_in(CUmodule *list, CUcontext context)
{
	while (*list) {
		CUmodule module = *list;
		if (module->context != context) {
			list = &module->next;
			continue;
		}
		*list = module->next;
		module_free(module);
	}
}

/* Unloads the code of a context that is about to end. Under sim.lock. */
void sim_modules_of_context_end(CUcontext context)
{
	end_in(&modules, context);
	for (CUlibrary library = libraries; library; library = library->next)
		end_in(&library->modules, context);
}
