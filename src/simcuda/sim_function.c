/* SPDX-License-Identifier: Apache-2.0 */
/* Attributes of functions and kernels, and the number of their blocks that fit on an SM. */
#include "simcuda/sim_driver.h"

#include <stddef.h>

static CUresult check_function(CUfunction function)
{
	CUresult result = sim_ready();
	if (result != CUDA_SUCCESS)
		return result;
	return function && function->magic == SIM_MAGIC_FUNCTION ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

static CUresult check_kernel(CUkernel kernel)
{
	CUresult result = sim_ready();
	if (result != CUDA_SUCCESS)
		return result;
	return kernel && kernel->magic == SIM_MAGIC_KERNEL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

static CUresult get_attribute(const struct sim_kernel *kernel, const int *set, CUfunction_attribute attribute,
			      int *value)
{
	switch (attribute) {
	case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
		*value = (int)kernel->max_threads;
		return CUDA_SUCCESS;
	case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
		*value = (int)kernel->shared_bytes;
		return CUDA_SUCCESS;
	case CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES:
		*value = 0;
		return CUDA_SUCCESS;
	case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES:
		*value = (int)kernel->local_bytes;
		return CUDA_SUCCESS;
	case CU_FUNC_ATTRIBUTE_NUM_REGS:
		*value = (int)kernel->registers;
		return CUDA_SUCCESS;
	case CU_FUNC_ATTRIBUTE_PTX_VERSION:
	case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
		*value = 90;
		return CUDA_SUCCESS;
	default:
		if (attribute < 0 || attribute >= CU_FUNC_ATTRIBUTE_MAX)
			return CUDA_ERROR_INVALID_VALUE;
		*value = set[attribute];
		return CUDA_SUCCESS;
	}
}

static CUresult set_attribute(int *values, CUfunction_attribute attribute, int value)
{
	bool may = attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES ||
		   attribute == CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT ||
		   (attribute >= CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH && attribute < CU_FUNC_ATTRIBUTE_MAX);
	if (!may || value < -1 || (attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES && value > 232448))
		return CUDA_ERROR_INVALID_VALUE;
	values[attribute] = value;
	return CUDA_SUCCESS;
}

CUresult sim_cuFuncGetAttribute(int *pi, CUfunction_attribute attrib, CUfunction hfunc)
{
	CUresult result = check_function(hfunc);
	if (result == CUDA_SUCCESS && !pi)
		result = CUDA_ERROR_INVALID_VALUE;
	return result == CUDA_SUCCESS ? get_attribute(hfunc->kernel, hfunc->attributes, attrib, pi) : result;
}

CUresult sim_cuFuncSetAttribute(CUfunction hfunc, CUfunction_attribute attrib, int value)
{
	CUresult result = check_function(hfunc);
	if (result == CUDA_SUCCESS)
		result = set_attribute(hfunc->attributes, attrib, value);
	if (result == CUDA_SUCCESS && attrib == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES)
		hfunc->max_dynamic_shared = value;
	return result;
}

CUresult sim_cuFuncSetCacheConfig(CUfunction hfunc, CUfunc_cache config)
{
	return check_function(hfunc);
}

CUresult sim_cuFuncGetModule(CUmodule *hmod, CUfunction hfunc)
{
	CUresult result = check_function(hfunc);
	if (result == CUDA_SUCCESS && !hmod)
		result = CUDA_ERROR_INVALID_VALUE;
	if (result == CUDA_SUCCESS)
		*hmod = hfunc->module;
	return result;
}

CUresult sim_cuFuncGetName(const char **name, CUfunction hfunc)
{
	CUresult result = check_function(hfunc);
	if (result == CUDA_SUCCESS && !name)
		result = CUDA_ERROR_INVALID_VALUE;
	if (result == CUDA_SUCCESS)
		*name = hfunc->kernel->name;
	return result;
}

static CUresult param_info(const struct sim_kernel *kernel, size_t index, size_t *offset, size_t *bytes)
{
	if (index >= kernel->n_params || !offset)
		return CUDA_ERROR_INVALID_VALUE;
	*offset = kernel->param_offset[index];
	if (bytes)
		*bytes = kernel->param_bytes[index];
	return CUDA_SUCCESS;
}

CUresult sim_cuFuncGetParamInfo(CUfunction func, size_t paramIndex, size_t *paramOffset, size_t *paramSize)
{
	CUresult result = check_function(func);
	return result == CUDA_SUCCESS ? param_info(func->kernel, paramIndex, paramOffset, paramSize) : result;
}

CUresult sim_cuFuncIsLoaded(CUfunctionLoadingState *state, CUfunction function)
{
	CUresult result = check_function(function);
	if (result == CUDA_SUCCESS && !state)
		result = CUDA_ERROR_INVALID_VALUE;
	if (result == CUDA_SUCCESS)
		*state = CU_FUNCTION_LOADING_STATE_LOADED;
	return result;
}

CUresult sim_cuFuncLoad(CUfunction function)
{
	return check_function(function);
}

CUresult sim_cuKernelGetAttribute(int *pi, CUfunction_attribute attrib, CUkernel kernel, CUdevice dev)
{
	CUresult result = check_kernel(kernel);
	if (result == CUDA_SUCCESS && !pi)
		result = CUDA_ERROR_INVALID_VALUE;
	return result == CUDA_SUCCESS ? get_attribute(kernel->kernel, kernel->attributes, attrib, pi) : result;
}

/* Applies also to the functions that exist for the kernel in contexts. */
CUresult sim_cuKernelSetAttribute(CUfunction_attribute attrib, int val, CUkernel kernel, CUdevice dev)
{
	CUresult result = check_kernel(kernel);
	if (result == CUDA_SUCCESS)
		result = set_attribute(kernel->attributes, attrib, val);
	if (result != CUDA_SUCCESS)
		return result;
	pthread_mutex_lock(&sim.lock);
	ptrdiff_t index = kernel - kernel->library->kernels;
	for (CUmodule module = kernel->library->modules; module; module = module->next) {
		module->functions[index].attributes[attrib] = val;
		if (attrib == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES)
			module->functions[index].max_dynamic_shared = val;
	}
	pthread_mutex_unlock(&sim.lock);
	return CUDA_SUCCESS;
}

CUresult sim_cuKernelGetName(const char **name, CUkernel hfunc)
{
	CUresult result = check_kernel(hfunc);
	if (result == CUDA_SUCCESS && !name)
		result = CUDA_ERROR_INVALID_VALUE;
	if (result == CUDA_SUCCESS)
		*name = hfunc->kernel->name;
	return result;
}

CUresult sim_cuKernelGetLibrary(CUlibrary *pLib, CUkernel kernel)
{
	CUresult result = check_kernel(kernel);
	if (result == CUDA_SUCCESS && !pLib)
		result = CUDA_ERROR_INVALID_VALUE;
	if (result == CUDA_SUCCESS)
		*pLib = kernel->library;
	return result;
}

CUresult sim_cuKernelSetCacheConfig(CUkernel kernel, CUfunc_cache config, CUdevice dev)
{
	return check_kernel(kernel);
}

CUresult sim_cuKernelGetParamInfo(CUkernel kernel, size_t paramIndex, size_t *paramOffset, size_t *paramSize)
{
	CUresult result = check_kernel(kernel);
	return result == CUDA_SUCCESS ? param_info(kernel->kernel, paramIndex, paramOffset, paramSize) : result;
}

/* --- occupancy --------------------------------------------------------------------------------- */

/* Returns the model's answer, or 0 for a block that fits on no SM. */
static int blocks_per_sm(const struct sim_kernel *kernel, int threads, size_t dynamic)
{
	const struct hb_gpu_spec *spec = &sim.info.spec;
	const struct hb_gpu_model_work work = {
		.kind = HB_GPU_MODEL_KERNEL,
		.duration_ns = 1,
		.blocks = 1,
		.threads = (uint32_t)threads,
		.registers = kernel->registers,
		.shared_bytes = kernel->shared_bytes + (uint32_t)dynamic,
	};
	if (threads > (int)kernel->max_threads || (double)threads * kernel->registers > spec->sm_registers ||
	    work.shared_bytes + spec->block_shared_overhead_bytes > spec->sm_shared_bytes)
		return 0;
	return (int)hb_gpu_model_occupancy(spec, &work);
}

CUresult sim_cuOccupancyMaxActiveBlocksPerMultiprocessor(int *numBlocks, CUfunction func, int blockSize,
							 size_t dynamicSMemSize)
{
	CUresult result = check_function(func);
	if (result == CUDA_SUCCESS && (!numBlocks || blockSize < 1 || dynamicSMemSize > 232448))
		result = CUDA_ERROR_INVALID_VALUE;
	if (result == CUDA_SUCCESS)
		*numBlocks = blocks_per_sm(func->kernel, blockSize, dynamicSMemSize);
	return result;
}

CUresult sim_cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *numBlocks, CUfunction func, int blockSize,
								  size_t dynamicSMemSize, unsigned int flags)
{
	if (flags > CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE)
		return CUDA_ERROR_INVALID_VALUE;
	return sim_cuOccupancyMaxActiveBlocksPerMultiprocessor(numBlocks, func, blockSize, dynamicSMemSize);
}

CUresult sim_cuOccupancyMaxPotentialBlockSize(int *minGridSize, int *blockSize, CUfunction func,
					      CUoccupancyB2DSize blockSizeToDynamicSMemSize, size_t dynamicSMemSize,
					      int blockSizeLimit)
{
	CUresult result = check_function(func);
	if (result == CUDA_SUCCESS && (!minGridSize || !blockSize))
		result = CUDA_ERROR_INVALID_VALUE;
	if (result != CUDA_SUCCESS)
		return result;
	int limit = (int)func->kernel->max_threads, best = 0, best_size = 0, best_blocks = 0;
	if (blockSizeLimit > 0 && blockSizeLimit < limit)
		limit = blockSizeLimit;
	/* Returns the largest of the block sizes that fill the SM best. */
	for (int size = (limit + 31) / 32 * 32; size >= 32; size -= 32) {
		size_t dynamic = blockSizeToDynamicSMemSize ? blockSizeToDynamicSMemSize(size) : dynamicSMemSize;
		int blocks = blocks_per_sm(func->kernel, size, dynamic);
		if (blocks * size > best) {
			best = blocks * size;
			best_size = size < limit ? size : limit;
			best_blocks = blocks;
		}
	}
	*blockSize = best_size;
	*minGridSize = best_blocks * (int)sim.info.spec.sm_count;
	return CUDA_SUCCESS;
}

CUresult sim_cuOccupancyMaxPotentialBlockSizeWithFlags(int *minGridSize, int *blockSize, CUfunction func,
						       CUoccupancyB2DSize blockSizeToDynamicSMemSize,
						       size_t dynamicSMemSize, int blockSizeLimit, unsigned int flags)
{
	if (flags > CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE)
		return CUDA_ERROR_INVALID_VALUE;
	return sim_cuOccupancyMaxPotentialBlockSize(minGridSize, blockSize, func, blockSizeToDynamicSMemSize,
						    dynamicSMemSize, blockSizeLimit);
}

CUresult sim_cuOccupancyAvailableDynamicSMemPerBlock(size_t *dynamicSmemSize, CUfunction func, int numBlocks,
						     int blockSize)
{
	CUresult result = check_function(func);
	if (result == CUDA_SUCCESS && (!dynamicSmemSize || numBlocks < 1 || blockSize < 1))
		result = CUDA_ERROR_INVALID_VALUE;
	if (result != CUDA_SUCCESS)
		return result;
	uint32_t each = (uint32_t)sim.info.spec.sm_shared_bytes / (uint32_t)numBlocks;
	uint32_t taken = func->kernel->shared_bytes + 1024;
	*dynamicSmemSize = each > taken ? each - taken : 0;
	return CUDA_SUCCESS;
}

static uint32_t cluster_of(const CUlaunchConfig *config)
{
	for (unsigned i = 0; config->attrs && i < config->numAttrs; i++)
		if (config->attrs[i].id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION)
			return config->attrs[i].value.clusterDim.x * config->attrs[i].value.clusterDim.y *
			       config->attrs[i].value.clusterDim.z;
	return 1;
}

CUresult sim_cuOccupancyMaxActiveClusters(int *numClusters, CUfunction func, const CUlaunchConfig *config)
{
	int blocks;
	if (!numClusters || !config)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult result = sim_cuOccupancyMaxActiveBlocksPerMultiprocessor(
		&blocks, func, (int)(config->blockDimX * config->blockDimY * config->blockDimZ),
		config->sharedMemBytes);
	uint32_t cluster = cluster_of(config);
	if (result == CUDA_SUCCESS && !cluster)
		result = CUDA_ERROR_INVALID_CLUSTER_SIZE;
	if (result == CUDA_SUCCESS)
		*numClusters = (int)((uint32_t)blocks * (uint32_t)sim.info.spec.sm_count / cluster);
	return result;
}

CUresult sim_cuOccupancyMaxPotentialClusterSize(int *clusterSize, CUfunction func, const CUlaunchConfig *config)
{
	CUresult result = check_function(func);
	if (result == CUDA_SUCCESS && (!clusterSize || !config))
		result = CUDA_ERROR_INVALID_VALUE;
	if (result == CUDA_SUCCESS)
		*clusterSize = 8;
	return result;
}
