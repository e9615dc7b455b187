/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The part of the fake driver that loads machine code, in a separate build for the
 * tests of splitting. It reads cubins and records for each kernel which blocks its
 * launches would run: all of them, or, for a kernel with a range check, the blocks
 * within the bounds in its last parameter. Its linker returns the compiled range check
 * of tests/cubin. Launches return at once; a value that a stream writes appears when
 * the launches before it would be done.
 */
#include "fake_driver.h"

#include "base/clock.h"
#include "cubin/code_info.h"
#include "cubin/fatbin.h"
#include "cubin/prologue.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#pragma GCC visibility push(default)
#include "shim/cuda_calls.h"
unsigned hb_fake_runs_of(uint32_t block);
unsigned hb_fake_launches_of_parts(void);
void hb_fake_set_refusal(const char *what);
int hb_fake_setting_of_copy(int attribute);
void hb_fake_on_part(void (*act)(unsigned n));
bool hb_fake_is_idle(void);
int hb_fake_copies(void);
void hb_fake_wait_in(const char *call, void (*until)(void));
#pragma GCC visibility pop

enum { BLOCKS = 16384, FUNCTIONS = 64, MS = 2 };

struct fake_module {
	struct hb_cubin cubin;
	uint8_t *bytes;
	CUcontext context; /* NULL: a library, which belongs to no context */
	bool has_check;
};

/* A function, or a kernel of a library, which has one function per context. */
struct fake_function {
	struct fake_module *module;
	const struct hb_cubin_kernel *kernel;
	CUcontext context; /* NULL: a kernel of a library */
	int settings[32];
};

static atomic_uint runs[BLOCKS];
static atomic_uint n_part_launches;
static struct fake_function functions[FUNCTIONS];
static unsigned n_functions;
static const char *refused = "";
static atomic_int n_copies;
static const char *waits_in = "";
static void (*wait_until)(void);

unsigned hb_fake_runs_of(uint32_t block)
{
	return block < BLOCKS ? atomic_exchange(&runs[block], 0) : 0;
}

unsigned hb_fake_launches_of_parts(void)
{
	return atomic_exchange(&n_part_launches, 0);
}

/* The calls that the driver refuses from now on: "link" or "load". */
void hb_fake_set_refusal(const char *what)
{
	refused = what;
}

/* Settings of the split copy whose kernel was looked up last. */
int hb_fake_setting_of_copy(int attribute)
{
	int value = -1;
	for (unsigned i = 0; i < n_functions && i < FUNCTIONS; i++)
		if (functions[i].module->has_check)
			value = functions[i].settings[attribute];
	return value;
}

/* The split copies that are loaded now. */
int hb_fake_copies(void)
{
	return atomic_load(&n_copies);
}

/* The next call of this function waits until `until` has returned, as the driver may wait for work. */
void hb_fake_wait_in(const char *call, void (*until)(void))
{
	wait_until = until;
	waits_in = call;
}

static void wait_in(const char *call)
{
	if (strcmp(waits_in, call) != 0)
		return;
	waits_in = "";
	wait_until();
}

/* ---- modules ---- */

static uint8_t *copy_of(const void *image, size_t *size)
{
	struct hb_fatbin fatbin;
	struct hb_fatbin_entry entry;
	uint8_t *bytes;
	*size = hb_image_size(&image);
	if (*size && hb_fatbin_open(&fatbin, image, *size) == 0)
		return hb_fatbin_next(&fatbin, &entry) == 1 && hb_fatbin_unpack(&entry, &bytes, size) == 0 ? bytes
													   : NULL;
	bytes = *size ? malloc(*size) : NULL;
	return bytes ? memcpy(bytes, image, *size) : NULL;
}

/* A module whose run_plain has three parameters is a split copy. */
static bool has_check(const struct hb_cubin *cubin)
{
	struct hb_code_facts facts;
	const struct hb_cubin_kernel *kernel = hb_cubin_find_kernel(cubin, "run_plain");
	return kernel && hb_code_info_read(cubin, kernel, &facts) == HB_SPLIT_none && facts.n_parameters == 3;
}

static CUcontext current_context(void)
{
	CUcontext context = NULL;
	cuCtxGetCurrent(&context);
	return context;
}

static CUresult load(void **handle, const void *image, CUcontext context)
{
	size_t size;
	uint8_t *bytes = copy_of(image, &size);
	struct fake_module *module = calloc(1, sizeof *module);
	if (!bytes || !module || hb_cubin_open(&module->cubin, bytes, size)) {
		free(bytes);
		free(module);
		return CUDA_ERROR_NO_BINARY_FOR_GPU;
	}
	module->bytes = bytes;
	module->context = context;
	module->has_check = has_check(&module->cubin);
	if (module->has_check && strcmp(refused, "load") == 0)
		return CUDA_ERROR_INVALID_IMAGE;
	atomic_fetch_add(&n_copies, module->has_check);
	*handle = module;
	return CUDA_SUCCESS;
}

static CUresult get(void **handle, struct fake_module *module, const char *name, CUcontext context)
{
	const struct hb_cubin_kernel *kernel = hb_cubin_find_kernel(&module->cubin, name);
	if (!kernel)
		return CUDA_ERROR_NOT_FOUND;
	for (unsigned i = 0; i < n_functions && i < FUNCTIONS; i++)
		if (functions[i].kernel == kernel && functions[i].context == context) {
			*handle = &functions[i];
			return CUDA_SUCCESS;
		}
	struct fake_function *function = &functions[n_functions++ % FUNCTIONS]; /* handles are reused */
	*function = (struct fake_function){module, kernel, context, {0}};
	*handle = function;
	return CUDA_SUCCESS;
}

CUresult cuModuleLoadData(CUmodule *module, const void *image)
{
	hb_fake_count("cuModuleLoadData");
	wait_in("cuModuleLoadData");
	return load((void **)module, image, current_context());
}

CUresult cuModuleUnload(CUmodule handle)
{
	const struct fake_module *module = (struct fake_module *)(void *)handle;
	hb_fake_count("cuModuleUnload");
	wait_in("cuModuleUnload");
	if (module->context != current_context())
		return CUDA_ERROR_INVALID_CONTEXT;
	atomic_fetch_sub(&n_copies, module->has_check);
	return CUDA_SUCCESS;
}

CUresult cuLibraryUnload(CUlibrary library)
{
	hb_fake_count("cuLibraryUnload");
	return CUDA_SUCCESS;
}

CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name)
{
	hb_fake_count("cuModuleGetFunction");
	wait_in("cuModuleGetFunction");
	return get((void **)function, (struct fake_module *)(void *)module, name,
		   ((struct fake_module *)(void *)module)->context);
}

CUresult cuFuncGetModule(CUmodule *module, CUfunction function)
{
	wait_in("cuFuncGetModule");
	*module = (CUmodule)(void *)((struct fake_function *)(void *)function)->module;
	return ((struct fake_module *)(void *)*module)->context ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuFuncGetName(const char **name, CUfunction function)
{
	*name = ((struct fake_function *)(void *)function)->kernel->name;
	return CUDA_SUCCESS;
}

CUresult cuFuncGetAttribute(int *value, CUfunction_attribute attribute, CUfunction function)
{
	wait_in("cuFuncGetAttribute");
	*value = ((struct fake_function *)(void *)function)->settings[attribute];
	return CUDA_SUCCESS;
}

CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value)
{
	((struct fake_function *)(void *)function)->settings[attribute] = value;
	return CUDA_SUCCESS;
}

CUresult cuLibraryLoadData(CUlibrary *library, const void *code, CUjit_option *options, void **values,
			   unsigned int n_options, CUlibraryOption *library_options, void **library_values,
			   unsigned int n_library_options)
{
	hb_fake_count("cuLibraryLoadData");
	return load((void **)library, code, NULL);
}

CUresult cuLibraryGetKernel(CUkernel *kernel, CUlibrary library, const char *name)
{
	return get((void **)kernel, (struct fake_module *)(void *)library, name, NULL);
}

CUresult cuKernelGetFunction(CUfunction *function, CUkernel kernel)
{
	const struct fake_function *handle = (struct fake_function *)(void *)kernel;
	return handle->context ? CUDA_ERROR_INVALID_HANDLE
			       : get((void **)function, handle->module, handle->kernel->name, current_context());
}

CUresult cuKernelGetLibrary(CUlibrary *library, CUkernel kernel)
{
	*library = (CUlibrary)(void *)((struct fake_function *)(void *)kernel)->module;
	return CUDA_SUCCESS;
}

CUresult cuKernelGetName(const char **name, CUkernel kernel)
{
	*name = ((struct fake_function *)(void *)kernel)->kernel->name;
	return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device)
{
	*value = 8; /* SMs */
	return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *n_blocks, CUfunction function, int n_threads,
						     size_t shared_bytes)
{
	*n_blocks = 2;
	return CUDA_SUCCESS;
}

CUresult cuEventElapsedTime_v2(float *ms, CUevent begin, CUevent end)
{
	*ms = MS;
	return CUDA_SUCCESS;
}

CUresult cuEventDestroy_v2(CUevent event)
{
	hb_fake_count("cuEventDestroy_v2");
	return CUDA_SUCCESS;
}

/* ---- the linker ---- */

CUresult cuLinkCreate_v2(unsigned int n_options, CUjit_option *options, void **values, CUlinkState *link)
{
	*link = (CUlinkState)(void *)functions;
	wait_in("cuLinkCreate_v2");
	return strcmp(refused, "link") == 0 ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS;
}

CUresult cuLinkAddData_v2(CUlinkState link, CUjitInputType type, void *data, size_t size, const char *name,
			  unsigned int n_options, CUjit_option *options, void **values)
{
	return type == CU_JIT_INPUT_PTX && strcmp(data, hb_prologue_ptx) == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuLinkComplete(CUlinkState link, void **cubin, size_t *size)
{
	static uint8_t bytes[1 << 15];
	const char *path = getenv("HB_TEST_RANGE_CHECK");
	int fd = open(path ? path : "", O_RDONLY | O_CLOEXEC);
	ssize_t n = read(fd, bytes, sizeof bytes);
	close(fd);
	*cubin = bytes;
	*size = n > 0 ? (size_t)n : 0;
	return n > 0 ? CUDA_SUCCESS : CUDA_ERROR_FILE_NOT_FOUND;
}

CUresult cuLinkDestroy(CUlinkState link)
{
	return CUDA_SUCCESS;
}

/* ---- time: one queue, kernels one after another ---- */

enum { WRITES = 64 };
static pthread_mutex_t queue = PTHREAD_MUTEX_INITIALIZER;
static int64_t drained_ns;
static struct {
	_Atomic(uint32_t) *word;
	uint32_t value;
	int64_t due_ns;
} writes[WRITES];
static unsigned n_writes, n_written;
static bool has_writer;
static void (*on_part)(unsigned n);

/* Called at each launch of a part, before it would run. */
void hb_fake_on_part(void (*act)(unsigned n))
{
	on_part = act;
}

bool hb_fake_is_idle(void)
{
	pthread_mutex_lock(&queue);
	bool is_idle = hb_clock_now_ns() >= drained_ns && n_writes == n_written;
	pthread_mutex_unlock(&queue);
	return is_idle;
}

static void enqueue(uint64_t n_blocks, uint64_t n_all)
{
	pthread_mutex_lock(&queue);
	int64_t now_ns = hb_clock_now_ns();
	drained_ns = (drained_ns > now_ns ? drained_ns : now_ns) + (int64_t)(MS * HB_NS_PER_MS * n_blocks / n_all);
	pthread_mutex_unlock(&queue);
}

/* With the lock held. */
static void write_what_is_due(void)
{
	while (n_written != n_writes && writes[n_written % WRITES].due_ns <= hb_clock_now_ns()) {
		atomic_store(writes[n_written % WRITES].word, writes[n_written % WRITES].value);
		n_written++;
	}
}

static void *be_the_writer(void *unused)
{
	for (;;) {
		pthread_mutex_lock(&queue);
		write_what_is_due();
		pthread_mutex_unlock(&queue);
		usleep(20);
	}
	return NULL;
}

CUresult cuStreamWriteValue32_v2(CUstream stream, CUdeviceptr address, unsigned int value, unsigned int flags)
{
	pthread_t thread;
	hb_fake_count("cuStreamWriteValue32_v2");
	pthread_mutex_lock(&queue);
	if (!has_writer)
		has_writer = pthread_create(&thread, NULL, be_the_writer, NULL) == 0 && pthread_detach(thread) == 0;
	bool has_room = n_writes - n_written < WRITES;
	if (has_room) {
		/* NOLINTNEXTLINE(performance-no-int-to-ptr): a host address from cuMemHostAlloc */
		writes[n_writes % WRITES].word = (_Atomic(uint32_t) *)(uintptr_t)address;
		writes[n_writes % WRITES].value = value;
		writes[n_writes++ % WRITES].due_ns = drained_ns;
	}
	pthread_mutex_unlock(&queue);
	return has_room ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN;
}

CUresult cuMemHostAlloc(void **pointer, size_t bytes, unsigned int flags)
{
	static _Alignas(64) uint8_t memory[1 << 14];
	hb_fake_count("cuMemHostAlloc");
	*pointer = memory;
	return bytes <= sizeof memory ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* ---- launches ---- */

static struct hb_bounds bounds_of(const struct fake_function *function, void **parameters, void **extra)
{
	struct hb_bounds bounds = {0, UINT32_MAX};
	struct hb_code_facts facts;
	if (!function->module->has_check ||
	    hb_code_info_read(&function->module->cubin, function->kernel, &facts) != HB_SPLIT_none)
		return bounds;
	const void *at = parameters ? parameters[facts.n_parameters - 1]
				    : (const uint8_t *)extra[1] + facts.parameter_bytes - HB_BOUNDS_BYTES;
	memcpy(&bounds, at, sizeof bounds);
	unsigned n = atomic_fetch_add(&n_part_launches, 1) + 1;
	if (on_part)
		on_part(n);
	return bounds;
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction handle, void **parameters, void **extra)
{
	const struct fake_function *function = (struct fake_function *)(void *)handle;
	if (function->context && function->context != current_context())
		return CUDA_ERROR_INVALID_HANDLE;
	struct hb_bounds bounds = bounds_of(function, parameters, extra);
	uint32_t n_blocks = config->gridDimX * config->gridDimY * config->gridDimZ;
	hb_fake_count("cuLaunchKernelEx");
	enqueue(bounds.count < n_blocks ? bounds.count : n_blocks, n_blocks);
	for (uint32_t i = 0; i < n_blocks && i < BLOCKS; i++)
		if (i - bounds.first < bounds.count)
			atomic_fetch_add(&runs[i], 1);
	return CUDA_SUCCESS;
}

CUresult cuLaunchKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
			unsigned int block_x, unsigned int block_y, unsigned int block_z, unsigned int shared_bytes,
			CUstream stream, void **parameters, void **extra)
{
	const CUlaunchConfig config = {grid_x,  grid_y,       grid_z, block_x, block_y,
				       block_z, shared_bytes, stream, NULL,    0};
	hb_fake_count("cuLaunchKernel");
	return cuLaunchKernelEx(&config, function, parameters, extra);
}
