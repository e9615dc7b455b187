/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernel launches: checked as the real driver does, then given a duration by
 * the image's duration model. A kernel without host function costs no allocation.
 */
#include "simcuda/sim_driver.h"

#include <stdlib.h>
#include <string.h>

#define SHARED_STATIC_LIMIT 49152u
#define SHARED_OPTIN_LIMIT 232448u
#define CLUSTER_LIMIT 16u
#define NEVER_NS INT64_C(1000000000000000)

static uint64_t product(const unsigned size[3])
{
	return (uint64_t)size[0] * size[1] * size[2];
}

/* Packs the parameters into one block, from an array of pointers or from a buffer in `extra`. */
static CUresult pack_parameters(const struct sim_kernel *kernel, void *const *params, void *const *extra,
				unsigned char *packed)
{
	const unsigned char *buffer = NULL;
	size_t bytes = 0;
	if (!kernel->n_params)
		return CUDA_SUCCESS;
	for (size_t i = 0; extra && extra[i] != CU_LAUNCH_PARAM_END; i += 2) {
		if (extra[i] == CU_LAUNCH_PARAM_BUFFER_POINTER)
			buffer = extra[i + 1];
		else if (extra[i] == CU_LAUNCH_PARAM_BUFFER_SIZE && extra[i + 1])
			bytes = *(const size_t *)extra[i + 1];
		else
			return CUDA_ERROR_INVALID_VALUE;
	}
	if ((params != NULL) == (buffer != NULL) || (buffer && bytes < kernel->params_size))
		return CUDA_ERROR_INVALID_VALUE;
	if (buffer) {
		memcpy(packed, buffer, kernel->params_size);
		return CUDA_SUCCESS;
	}
	for (uint32_t i = 0; i < kernel->n_params; i++) {
		if (!params[i])
			return CUDA_ERROR_INVALID_VALUE;
		memcpy(packed + kernel->param_offset[i], params[i], kernel->param_bytes[i]);
	}
	return CUDA_SUCCESS;
}

static CUresult check_shape(CUfunction function, const CUDA_KERNEL_NODE_PARAMS *p)
{
	const struct sim_kernel *kernel = function->kernel;
	uint64_t threads = (uint64_t)p->blockDimX * p->blockDimY * p->blockDimZ;
	if (!p->gridDimX || !p->gridDimY || !p->gridDimZ || !threads || p->gridDimX > 2147483647u ||
	    p->gridDimY > 65535 || p->gridDimZ > 65535 || p->blockDimX > 1024 || p->blockDimY > 1024 ||
	    p->blockDimZ > 64 || threads > 1024)
		return CUDA_ERROR_INVALID_VALUE;
	if (threads > kernel->max_threads || threads * kernel->registers > (uint32_t)sim.info.spec.sm_registers)
		return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
	uint64_t allowed = function->max_dynamic_shared ? (uint64_t)function->max_dynamic_shared
							: SHARED_STATIC_LIMIT - kernel->shared_bytes;
	if (kernel->shared_bytes > SHARED_STATIC_LIMIT)
		allowed = SHARED_OPTIN_LIMIT - kernel->shared_bytes;
	return p->sharedMemBytes > allowed ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

static CUresult read_attributes(const CUlaunchAttribute *attributes, unsigned n, struct sim_task *task)
{
	for (unsigned i = 0; i < n; i++) {
		const CUlaunchAttributeValue *value = &attributes[i].value;
		if (attributes[i].id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION) {
			const unsigned size[3] = {value->clusterDim.x, value->clusterDim.y, value->clusterDim.z};
			uint64_t blocks = product(size);
			if (!blocks || blocks > CLUSTER_LIMIT)
				return CUDA_ERROR_INVALID_CLUSTER_SIZE;
			if (sim_gpc_refuses((uint32_t)blocks))
				return CUDA_ERROR_NOT_SUPPORTED;
			for (int k = 0; k < 3; k++)
				if (task->u.kernel.grid[k] % size[k])
					return CUDA_ERROR_INVALID_VALUE;
			task->work.cluster = (uint32_t)blocks;
		} else if (attributes[i].id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE) {
			task->u.kernel.cooperative = value->cooperative;
		} else if (attributes[i].id == CU_LAUNCH_ATTRIBUTE_PRIORITY) {
			task->u.kernel.priority = value->priority;
		} else if (attributes[i].id > CU_LAUNCH_ATTRIBUTE_MAX) {
			return CUDA_ERROR_INVALID_VALUE;
		}
	}
	return CUDA_SUCCESS;
}

static int64_t duration(const struct sim_kernel *kernel, uint64_t blocks, const unsigned char *args)
{
	double ns = (double)kernel->ns + kernel->ns_per_block * (double)blocks;
	if (kernel->ns_param >= 0) {
		uint64_t more;
		memcpy(&more, args + kernel->param_offset[kernel->ns_param], sizeof more);
		ns += (double)more;
	}
	return ns < 1 ? 1 : ns > 1e15 ? (int64_t)1e15 : (int64_t)ns;
}

static void price_launch(struct sim_task *task, const unsigned char *args)
{
	const struct sim_kernel *kernel = task->u.kernel.kernel;
	uint32_t cluster = task->work.cluster;
	task->work = (struct sim_work){
		.kind = kernel->takeover ? HB_GPU_MODEL_TAKEOVER : HB_GPU_MODEL_KERNEL,
		.blocks = product(task->u.kernel.grid),
		.threads = (uint32_t)product(task->u.kernel.block),
		.registers = kernel->registers,
		.shared_bytes = kernel->shared_bytes + task->u.kernel.shared_bytes,
		.cluster = cluster,
		.memory_share = kernel->memory_share,
	};
	/* A takeover kernel runs until it is released, or for the maximum that the image names. */
	task->work.duration_ns = kernel->takeover && !kernel->ns ? 0 : duration(kernel, task->work.blocks, args);
}

/* All blocks of a cooperative launch must fit on the GPU at once. */
static CUresult check_cooperative(const struct sim_task *task, CUfunction function)
{
	int per_sm;
	if (!task->u.kernel.cooperative)
		return CUDA_SUCCESS;
	CUresult result = sim_cuOccupancyMaxActiveBlocksPerMultiprocessor(&per_sm, function, (int)task->work.threads,
									  task->u.kernel.shared_bytes);
	if (result == CUDA_SUCCESS && task->work.blocks > (uint64_t)per_sm * (uint32_t)sim.info.spec.sm_count)
		result = CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
	return result;
}

/* Fills a task of kind KERNEL. Arguments go to task->u.kernel.args, which is allocated here if needed. */
static CUresult fill_kernel_task(CUcontext context, const CUDA_KERNEL_NODE_PARAMS *p,
				 const CUlaunchAttribute *attributes, unsigned n_attributes, struct sim_task *task,
				 unsigned char *packed)
{
	CUfunction function;
	CUresult result = sim_function_of(p->func ? p->func : (CUfunction)(void *)p->kern, context, &function);
	if (result == CUDA_SUCCESS)
		result = check_shape(function, p);
	if (result != CUDA_SUCCESS)
		return result;
	task->u.kernel.kernel = function->kernel;
	task->u.kernel.function = function;
	task->u.kernel.kern = p->func && p->func->magic == SIM_MAGIC_FUNCTION ? NULL : function->of;
	task->u.kernel.grid[0] = p->gridDimX;
	task->u.kernel.grid[1] = p->gridDimY;
	task->u.kernel.grid[2] = p->gridDimZ;
	task->u.kernel.block[0] = p->blockDimX;
	task->u.kernel.block[1] = p->blockDimY;
	task->u.kernel.block[2] = p->blockDimZ;
	task->u.kernel.shared_bytes = p->sharedMemBytes;
	result = read_attributes(attributes, n_attributes, task);
	if (result == CUDA_SUCCESS)
		result = pack_parameters(function->kernel, p->kernelParams, p->extra, packed);
	if (result != CUDA_SUCCESS)
		return result;
	price_launch(task, packed);
	return check_cooperative(task, function);
}

static CUresult keep_args(struct sim_task *task, const unsigned char *packed)
{
	size_t bytes = task->u.kernel.kernel->params_size;
	if (!bytes)
		return CUDA_SUCCESS;
	task->u.kernel.args = malloc(bytes);
	if (!task->u.kernel.args)
		return CUDA_ERROR_OUT_OF_MEMORY;
	memcpy(task->u.kernel.args, packed, bytes);
	return CUDA_SUCCESS;
}

CUresult sim_kernel_task(CUcontext context, const CUDA_KERNEL_NODE_PARAMS *params, const CUlaunchAttribute *attributes,
			 unsigned n_attributes, struct sim_task *task)
{
	unsigned char packed[SIM_PARAMS_BYTES];
	CUresult result = fill_kernel_task(context, params, attributes, n_attributes, task, packed);
	return result == CUDA_SUCCESS ? keep_args(task, packed) : result;
}

static CUresult launch_takeover(CUstream stream, const struct sim_task *task, const unsigned char *packed)
{
	const volatile uint32_t *word;
	uint64_t seq;
	memcpy(&word, packed, sizeof word);
	if (!word)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult result = sim_submit(stream, &task->work, NULL, &seq);
	if (result == CUDA_SUCCESS)
		sim_watch_takeover(stream, seq, word);
	return result;
}

/* HB_SIM_ILLEGAL=N: the Nth kernel that this process launches reads an illegal address. */
static uint32_t count_to_fault(void)
{
	static _Atomic long left = -1; /* -1 = not read yet, 0 = no fault (any more) */
	long now = atomic_load_explicit(&left, memory_order_relaxed);
	if (SIM_LIKELY(now == 0))
		return 0;
	if (now < 0) {
		const char *text = getenv("HB_SIM_ILLEGAL");
		now = text ? strtol(text, NULL, 10) : 0;
		atomic_store(&left, now > 0 ? now : 0);
		if (now <= 0)
			return 0;
	}
	return atomic_fetch_sub(&left, 1) == 1 ? CUDA_ERROR_ILLEGAL_ADDRESS : 0;
}

static CUresult launch_kernel(const CUDA_KERNEL_NODE_PARAMS *params, const CUlaunchAttribute *attributes,
			      unsigned n_attributes, CUstream handle)
{
	unsigned char packed[SIM_PARAMS_BYTES];
	struct sim_task task = {.kind = SIM_TASK_KERNEL};
	CUstream stream;
	CUresult result = sim_stream_resolve(handle, &stream);
	if (result == CUDA_SUCCESS)
		result = fill_kernel_task(stream->context, params, attributes, n_attributes, &task, packed);
	if (result != CUDA_SUCCESS)
		return result;
	const struct sim_kernel *kernel = task.u.kernel.kernel;
	bool captured = atomic_load_explicit(&stream->capture, memory_order_relaxed) != NULL;
	bool implicit = stream->legacy && atomic_load_explicit(&stream->context->captures, memory_order_relaxed);
	if (!captured)
		sim_mask_launch(&task.work, task.u.kernel.mask);
	if (sim_gpc_is_stuck(kernel, task.work.cluster, task.u.kernel.mask))
		task.work.duration_ns = NEVER_NS;
	if (kernel->takeover && !captured)
		return launch_takeover(stream, &task, packed);
	if (!captured && (task.work.fault = count_to_fault()))
		task.work.duration_ns = 1;
	if (!kernel->host && !captured && !implicit)
		return sim_submit(stream, &task.work, NULL, NULL);
	struct sim_task *kept = sim_task_copy(&task);
	result = kept ? keep_args(kept, packed) : CUDA_ERROR_OUT_OF_MEMORY;
	if (result != CUDA_SUCCESS) {
		sim_task_free(kept);
		return result;
	}
	return sim_issue(stream, kept, NULL);
}

CUresult sim_cuLaunchKernel(CUfunction f, unsigned int gridDimX, unsigned int gridDimY, unsigned int gridDimZ,
			    unsigned int blockDimX, unsigned int blockDimY, unsigned int blockDimZ,
			    unsigned int sharedMemBytes, CUstream hStream, void **kernelParams, void **extra)
{
	const CUDA_KERNEL_NODE_PARAMS params = {f,         gridDimX,       gridDimY,     gridDimZ, blockDimX, blockDimY,
						blockDimZ, sharedMemBytes, kernelParams, extra,    NULL,      NULL};
	return launch_kernel(&params, NULL, 0, hStream);
}

CUresult sim_cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction f, void **kernelParams, void **extra)
{
	if (!config || (config->numAttrs && !config->attrs))
		return sim_ready() == CUDA_SUCCESS ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_NOT_INITIALIZED;
	const CUDA_KERNEL_NODE_PARAMS params = {f,
						config->gridDimX,
						config->gridDimY,
						config->gridDimZ,
						config->blockDimX,
						config->blockDimY,
						config->blockDimZ,
						config->sharedMemBytes,
						kernelParams,
						extra,
						NULL,
						NULL};
	return launch_kernel(&params, config->attrs, config->numAttrs, config->hStream);
}

CUresult sim_cuLaunchCooperativeKernel(CUfunction f, unsigned int gridDimX, unsigned int gridDimY,
				       unsigned int gridDimZ, unsigned int blockDimX, unsigned int blockDimY,
				       unsigned int blockDimZ, unsigned int sharedMemBytes, CUstream hStream,
				       void **kernelParams)
{
	const CUDA_KERNEL_NODE_PARAMS params = {f,         gridDimX,       gridDimY,     gridDimZ, blockDimX, blockDimY,
						blockDimZ, sharedMemBytes, kernelParams, NULL,     NULL,      NULL};
	const CUlaunchAttribute attribute = {.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE, .value.cooperative = 1};
	return launch_kernel(&params, &attribute, 1, hStream);
}

/* --- the interface of CUDA 3: shape and parameters are stored with the function ------------------------- */

static CUresult old_check(CUfunction function)
{
	CUresult result = sim_ready();
	if (result != CUDA_SUCCESS)
		return result;
	return function && function->magic == SIM_MAGIC_FUNCTION ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult sim_cuFuncSetBlockShape(CUfunction hfunc, int x, int y, int z)
{
	CUresult result = old_check(hfunc);
	if (result == CUDA_SUCCESS && (x < 1 || y < 1 || z < 1))
		result = CUDA_ERROR_INVALID_VALUE;
	if (result != CUDA_SUCCESS)
		return result;
	hfunc->old_block[0] = x;
	hfunc->old_block[1] = y;
	hfunc->old_block[2] = z;
	return CUDA_SUCCESS;
}

CUresult sim_cuFuncSetSharedSize(CUfunction hfunc, unsigned int bytes)
{
	CUresult result = old_check(hfunc);
	if (result == CUDA_SUCCESS)
		hfunc->old_shared = bytes;
	return result;
}

CUresult sim_cuParamSetSize(CUfunction hfunc, unsigned int numbytes)
{
	CUresult result = old_check(hfunc);
	if (result == CUDA_SUCCESS && numbytes > sizeof hfunc->old_params)
		result = CUDA_ERROR_INVALID_VALUE;
	if (result == CUDA_SUCCESS)
		hfunc->old_size = numbytes;
	return result;
}

CUresult sim_cuParamSetv(CUfunction hfunc, int offset, void *ptr, unsigned int numbytes)
{
	CUresult result = old_check(hfunc);
	if (result == CUDA_SUCCESS && (!ptr || offset < 0 || (size_t)offset + numbytes > sizeof hfunc->old_params))
		result = CUDA_ERROR_INVALID_VALUE;
	if (result == CUDA_SUCCESS)
		memcpy(hfunc->old_params + offset, ptr, numbytes);
	return result;
}

CUresult sim_cuParamSeti(CUfunction hfunc, int offset, unsigned int value)
{
	return sim_cuParamSetv(hfunc, offset, &value, sizeof value);
}

CUresult sim_cuParamSetf(CUfunction hfunc, int offset, float value)
{
	return sim_cuParamSetv(hfunc, offset, &value, sizeof value);
}

CUresult sim_cuLaunchGridAsync(CUfunction f, int grid_width, int grid_height, CUstream hStream)
{
	CUresult result = old_check(f);
	if (result != CUDA_SUCCESS)
		return result;
	if (grid_width < 1 || grid_height < 1 || !f->old_block[0])
		return CUDA_ERROR_INVALID_VALUE;
	size_t bytes = f->old_size;
	void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, f->old_params, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes,
			 CU_LAUNCH_PARAM_END};
	return sim_cuLaunchKernel(f, (unsigned)grid_width, (unsigned)grid_height, 1, (unsigned)f->old_block[0],
				  (unsigned)f->old_block[1], (unsigned)f->old_block[2], f->old_shared, hStream, NULL,
				  extra);
}

CUresult sim_cuLaunchGrid(CUfunction f, int grid_width, int grid_height)
{
	return sim_cuLaunchGridAsync(f, grid_width, grid_height, NULL);
}

CUresult sim_cuLaunch(CUfunction f)
{
	return sim_cuLaunchGridAsync(f, 1, 1, NULL);
}
