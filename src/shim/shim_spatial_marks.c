/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernels that are not as others in the spatial engine. Those of collectives are
 * known by their names, which are looked at when the program looks them up: a
 * rank that waits must not be the one that others wait for. Those that may have
 * wide clusters are known by an attribute. A mark goes with the code that the
 * kernel is of: another kernel may get the same handle.
 *
 * Launches read the rows without a lock. A row is taken by its kernel; what it is
 * of is written after that, on the thread that has the code loaded.
 */
#include "base/log.h"
#include "shim/shim.h"
#include "shim/shim_spatial.h"
#include "shim/split.h"
#include "shim/takeover.h"

#include <string.h>

#define MARKED_MAX 1024

struct row {
	_Atomic(const void *) kernel; /* NULL: free */
	_Atomic(const void *) code;   /* the module or library it is of; NULL: not known */
	_Atomic(CUcontext) context;   /* that it ends with; NULL: none */
};

struct marked {
	struct row rows[MARKED_MAX];
	atomic_uint n;        /* rows that were ever used */
	atomic_bool lost_one; /* for lack of room: any kernel may be it */
};
static struct marked marks[HB_N_MARKS];

bool hb_shim_spatial_is_marked(enum hb_mark mark, const void *kernel)
{
	struct marked *set = &marks[mark];
	unsigned n = atomic_load_explicit(&set->n, memory_order_acquire);
	for (unsigned i = 0; i < n; i++)
		if (atomic_load_explicit(&set->rows[i].kernel, memory_order_relaxed) == kernel)
			return true;
	return atomic_load_explicit(&set->lost_one, memory_order_relaxed);
}

static struct row *take_row(struct marked *set, const void *kernel)
{
	for (unsigned i = 0; i < MARKED_MAX; i++) {
		const void *nobody = NULL;
		if (!atomic_compare_exchange_strong(&set->rows[i].kernel, &nobody, kernel))
			continue;
		unsigned n = atomic_load(&set->n);
		while (n <= i && !atomic_compare_exchange_weak(&set->n, &n, i + 1))
			;
		return &set->rows[i];
	}
	return NULL;
}

/* Once: libraries set the attributes of a kernel again before each launch. Two threads may both do it, which is harmless. */
static void add_mark(enum hb_mark mark, const void *kernel, const void *code, CUcontext context)
{
	if (hb_shim_spatial_is_marked(mark, kernel))
		return;
	struct row *row = take_row(&marks[mark], kernel);
	if (row) {
		atomic_store(&row->code, code);
		atomic_store(&row->context, context);
	} else if (!atomic_exchange(&marks[mark].lost_one, true)) {
		hb_log_warning("more than %d kernels %s: from now on none of this process is %s", MARKED_MAX,
			       mark == HB_MARK_WIDE ? "may have wide clusters" : "are of collectives",
			       mark == HB_MARK_WIDE ? "kept to a part of the GPU" : "held back");
	}
}

static void free_row(struct row *row)
{
	atomic_store(&row->code, NULL);
	atomic_store(&row->context, NULL);
	atomic_store(&row->kernel, NULL);
}

void hb_shim_spatial_code_leaves(const void *code)
{
	for (int mark = 0; mark < HB_N_MARKS; mark++)
		for (unsigned i = 0; code && i < MARKED_MAX; i++)
			if (atomic_load(&marks[mark].rows[i].code) == code)
				free_row(&marks[mark].rows[i]);
}

void hb_shim_spatial_code_of_context_gone(CUcontext context)
{
	for (int mark = 0; mark < HB_N_MARKS; mark++)
		for (unsigned i = 0; context && i < MARKED_MAX; i++)
			if (atomic_load(&marks[mark].rows[i].context) == context)
				free_row(&marks[mark].rows[i]);
}

static CUcontext current_context(void)
{
	CUcontext context;
	return HB_REAL(cuCtxGetCurrent)(&context) == CUDA_SUCCESS ? context : NULL;
}

/* ---- hooks: names ---- */

static bool names_collective(const char *name)
{
	return name && (strstr(name, "nccl") || strstr(name, "nvshmem"));
}

CUresult hb_hook_cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name)
{
	CUresult result = HB_DOUBT(HB_REAL(cuModuleGetFunction)(function, module, name));
	if (result == CUDA_SUCCESS && names_collective(name))
		add_mark(HB_MARK_COLLECTIVE, *function, module, current_context());
	return result;
}

CUresult hb_hook_cuLibraryGetKernel(CUkernel *kernel, CUlibrary library, const char *name)
{
	CUresult result = HB_REAL(cuLibraryGetKernel)(kernel, library, name);
	if (result == CUDA_SUCCESS && names_collective(name))
		add_mark(HB_MARK_COLLECTIVE, *kernel, library, NULL);
	return result;
}

/* The driver may have fewer than were asked for, and leaves the rest as it was. */
CUresult hb_hook_cuModuleEnumerateFunctions(CUfunction *functions, unsigned int n_asked, CUmodule module)
{
	unsigned n = 0;
	CUresult result = HB_DOUBT(HB_REAL(cuModuleEnumerateFunctions)(functions, n_asked, module));
	if (result != CUDA_SUCCESS || HB_REAL(cuModuleGetFunctionCount)(&n, module) != CUDA_SUCCESS)
		return result;
	for (unsigned i = 0; i < n && i < n_asked; i++) {
		const char *name = NULL;
		if (HB_REAL(cuFuncGetName)(&name, functions[i]) == CUDA_SUCCESS && names_collective(name))
			add_mark(HB_MARK_COLLECTIVE, functions[i], module, current_context());
	}
	return result;
}

CUresult hb_hook_cuLibraryEnumerateKernels(CUkernel *kernels, unsigned int n_asked, CUlibrary library)
{
	unsigned n = 0;
	CUresult result = HB_REAL(cuLibraryEnumerateKernels)(kernels, n_asked, library);
	if (result != CUDA_SUCCESS || HB_REAL(cuLibraryGetKernelCount)(&n, library) != CUDA_SUCCESS)
		return result;
	for (unsigned i = 0; i < n && i < n_asked; i++) {
		const char *name = NULL;
		if (HB_REAL(cuKernelGetName)(&name, kernels[i]) == CUDA_SUCCESS && names_collective(name))
			add_mark(HB_MARK_COLLECTIVE, kernels[i], library, NULL);
	}
	return result;
}

/* Collectives are launched by the function that the runtime makes of their kernel. */
void hb_shim_spatial_note_function(CUfunction function, CUkernel kernel)
{
	for (enum hb_mark mark = 0; mark < HB_N_MARKS; mark++) {
		CUlibrary library = NULL;
		if (hb_shim_spatial_is_marked(mark, kernel) && !hb_shim_spatial_is_marked(mark, function)) {
			HB_REAL(cuKernelGetLibrary)(&library, kernel);
			add_mark(mark, function, library, current_context());
		}
	}
}

/* ---- hooks: attributes ---- */

/*
 * The leave to use clusters of more than eight blocks. Libraries give it to all their kernels (cuBLAS does) and then name
 * the size at each launch; where a launch names none it may be in the kernel's code.
 */
CUresult hb_hook_cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value)
{
	CUmodule module = NULL;
	if (attribute == CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED && value &&
	    !hb_shim_spatial_is_marked(HB_MARK_WIDE, function)) {
		HB_REAL(cuFuncGetModule)(&module, function);
		add_mark(HB_MARK_WIDE, function, module, current_context());
	}
	return HB_DOUBT(HB_REAL(cuFuncSetAttribute)(function, attribute, value));
}

CUresult hb_hook_cuKernelSetAttribute(CUfunction_attribute attribute, int value, CUkernel kernel, CUdevice device)
{
	CUlibrary library = NULL;
	if (attribute == CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED && value &&
	    !hb_shim_spatial_is_marked(HB_MARK_WIDE, kernel)) {
		HB_REAL(cuKernelGetLibrary)(&library, kernel);
		add_mark(HB_MARK_WIDE, kernel, library, NULL);
	}
	return HB_DOUBT(HB_REAL(cuKernelSetAttribute)(attribute, value, kernel, device));
}
