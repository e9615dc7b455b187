/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hooks that mark kernels which the spatial engine must treat differently.
 * Kernels of collectives (NCCL, NVSHMEM) are recognised by name when the program
 * looks them up: a rank that waits would block all others. Kernels that may use
 * wide clusters are recognised by a function attribute. A mark is removed when the
 * kernel's code is unloaded, because another kernel may get the same handle.
 *
 * Launches read the rows without a lock. A thread claims a row by storing the
 * kernel; it stores what the kernel belongs to afterwards, while that code is
 * loaded.
 */
#include "shim/kernel_marks.h"
#include "base/log.h"
#include "shim/shim.h"
#include "shim/takeover.h"

#include <string.h>

#define MARKED_MAX 1024

struct mark_row {
	_Atomic(const void *) kernel; /* NULL: free */
	_Atomic(const void *) code;   /* module or library of the kernel; NULL: unknown */
	_Atomic(CUcontext) context;   /* context whose end removes the mark; NULL: none */
};

struct mark_set {
	struct mark_row rows[MARKED_MAX];
	atomic_uint n;        /* number of rows used so far */
	atomic_bool lost_one; /* no room for a mark: every kernel counts as marked */
};
static struct mark_set marks[HB_N_KERNEL_MARKS];

bool hb_kernel_is_marked(enum hb_kernel_mark mark, const void *kernel)
{
	struct mark_set *set = &marks[mark];
	unsigned n = atomic_load_explicit(&set->n, memory_order_acquire);
	for (unsigned i = 0; i < n; i++)
		if (atomic_load_explicit(&set->rows[i].kernel, memory_order_relaxed) == kernel)
			return true;
	return atomic_load_explicit(&set->lost_one, memory_order_relaxed);
}

static struct mark_row *take_row(struct mark_set *set, const void *kernel)
{
	for (unsigned i = 0; i < MARKED_MAX; i++) {
		const void *unused = NULL;
		if (!atomic_compare_exchange_strong(&set->rows[i].kernel, &unused, kernel))
			continue;
		unsigned n = atomic_load(&set->n);
		while (n <= i && !atomic_compare_exchange_weak(&set->n, &n, i + 1))
			;
		return &set->rows[i];
	}
	return NULL;
}

/* Libraries set an attribute before each launch, so a mark is added once. Two threads may both add it, which is harmless. */
static void add_mark(enum hb_kernel_mark mark, const void *kernel, const void *code, CUcontext context)
{
	if (hb_kernel_is_marked(mark, kernel))
		return;
	struct mark_row *row = take_row(&marks[mark], kernel);
	if (row) {
		atomic_store(&row->code, code);
		atomic_store(&row->context, context);
	} else if (!atomic_exchange(&marks[mark].lost_one, true)) {
		hb_log_warning("more than %d kernels %s: from now on no kernel of this process is %s", MARKED_MAX,
			       mark == HB_MARK_WIDE ? "may use wide clusters" : "belong to collectives",
			       mark == HB_MARK_WIDE ? "masked" : "delayed");
	}
}

static void free_row(struct mark_row *row)
{
	atomic_store(&row->code, NULL);
	atomic_store(&row->context, NULL);
	atomic_store(&row->kernel, NULL);
}

void hb_kernel_marks_forget_code(const void *code)
{
	for (int mark = 0; mark < HB_N_KERNEL_MARKS; mark++)
		for (unsigned i = 0; code && i < MARKED_MAX; i++)
			if (atomic_load(&marks[mark].rows[i].code) == code)
				free_row(&marks[mark].rows[i]);
}

void hb_kernel_marks_forget_context(CUcontext context)
{
	for (int mark = 0; mark < HB_N_KERNEL_MARKS; mark++)
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

static bool is_collective_name(const char *name)
{
	return name && (strstr(name, "nccl") || strstr(name, "nvshmem"));
}

CUresult hb_hook_cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name)
{
	CUresult result = HB_DOUBT(HB_REAL(cuModuleGetFunction)(function, module, name));
	if (result == CUDA_SUCCESS && is_collective_name(name))
		add_mark(HB_MARK_COLLECTIVE, *function, module, current_context());
	return result;
}

CUresult hb_hook_cuLibraryGetKernel(CUkernel *kernel, CUlibrary library, const char *name)
{
	CUresult result = HB_REAL(cuLibraryGetKernel)(kernel, library, name);
	if (result == CUDA_SUCCESS && is_collective_name(name))
		add_mark(HB_MARK_COLLECTIVE, *kernel, library, NULL);
	return result;
}

/* The driver may have fewer functions than requested; it leaves the other entries unchanged. */
CUresult hb_hook_cuModuleEnumerateFunctions(CUfunction *functions, unsigned int n_asked, CUmodule module)
{
	unsigned n = 0;
	CUresult result = HB_DOUBT(HB_REAL(cuModuleEnumerateFunctions)(functions, n_asked, module));
	if (result != CUDA_SUCCESS || HB_REAL(cuModuleGetFunctionCount)(&n, module) != CUDA_SUCCESS)
		return result;
	for (unsigned i = 0; i < n && i < n_asked; i++) {
		const char *name = NULL;
		if (HB_REAL(cuFuncGetName)(&name, functions[i]) == CUDA_SUCCESS && is_collective_name(name))
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
		if (HB_REAL(cuKernelGetName)(&name, kernels[i]) == CUDA_SUCCESS && is_collective_name(name))
			add_mark(HB_MARK_COLLECTIVE, kernels[i], library, NULL);
	}
	return result;
}

/* The CUDA runtime launches a collective by the function that it got for the kernel. */
void hb_kernel_marks_note_function(CUfunction function, CUkernel kernel)
{
	for (enum hb_kernel_mark mark = 0; mark < HB_N_KERNEL_MARKS; mark++) {
		CUlibrary library = NULL;
		if (hb_kernel_is_marked(mark, kernel) && !hb_kernel_is_marked(mark, function)) {
			HB_REAL(cuKernelGetLibrary)(&library, kernel);
			add_mark(mark, function, library, current_context());
		}
	}
}

/* ---- hooks: attributes ---- */

/*
 * The attribute allows clusters of more than eight blocks. Libraries such as cuBLAS set it for all their kernels and then give
 * the size at each launch; if a launch gives none, the kernel's code may contain it.
 */
CUresult hb_hook_cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value)
{
	CUmodule module = NULL;
	if (attribute == CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED && value &&
	    !hb_kernel_is_marked(HB_MARK_WIDE, function)) {
		HB_REAL(cuFuncGetModule)(&module, function);
		add_mark(HB_MARK_WIDE, function, module, current_context());
	}
	return HB_DOUBT(HB_REAL(cuFuncSetAttribute)(function, attribute, value));
}

CUresult hb_hook_cuKernelSetAttribute(CUfunction_attribute attribute, int value, CUkernel kernel, CUdevice device)
{
	CUlibrary library = NULL;
	if (attribute == CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED && value &&
	    !hb_kernel_is_marked(HB_MARK_WIDE, kernel)) {
		HB_REAL(cuKernelGetLibrary)(&library, kernel);
		add_mark(HB_MARK_WIDE, kernel, library, NULL);
	}
	return HB_DOUBT(HB_REAL(cuKernelSetAttribute)(attribute, value, kernel, device));
}
