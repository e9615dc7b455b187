/* SPDX-License-Identifier: Apache-2.0 */
/* Memsets. On the GPU they are small memory-bound kernels. */
#include "simcuda/sim_driver.h"

#include <stdlib.h>

CUresult sim_set_task(CUdeviceptr to, size_t pitch, unsigned value, unsigned element, size_t width, size_t height,
		      struct sim_task **out)
{
	uint64_t bytes = (uint64_t)element * width * (height ? height : 1);
	if ((element != 1 && element != 2 && element != 4) || to % element || !width)
		return CUDA_ERROR_INVALID_VALUE;
	if (!sim_memory_covers((uintptr_t)to, (height > 1 ? (height - 1) * pitch : 0) + element * width))
		return CUDA_ERROR_INVALID_VALUE;
	struct sim_task *task = sim_task_new(SIM_TASK_SET);
	if (!task)
		return CUDA_ERROR_OUT_OF_MEMORY;
	task->u.set.to = (struct sim_box){(char *)(uintptr_t)to, pitch, 0};
	task->u.set.width = width;
	task->u.set.height = height ? height : 1;
	task->u.set.value = value;
	task->u.set.element = element;
	task->work = (struct sim_work){.kind = HB_GPU_MODEL_KERNEL, .threads = 512, .memory_share = 0.8f};
	task->work.duration_ns = 1500 + (int64_t)(1e9 * (double)bytes / sim.info.spec.memory_bytes_per_s);
	task->work.blocks = bytes / 65536 + 1;
	if (task->work.blocks > (uint32_t)sim.info.spec.sm_count)
		task->work.blocks = (uint32_t)sim.info.spec.sm_count;
	*out = task;
	return CUDA_SUCCESS;
}

/* Host memory is set before the call returns, device memory when the stream reaches the task. */
static CUresult set_memory(CUdeviceptr to, size_t pitch, unsigned value, unsigned element, size_t width, size_t height,
			   CUstream handle, bool async)
{
	CUstream stream;
	struct sim_task *task;
	struct sim_memory memory;
	uint64_t seq = 0;
	CUresult result = sim_stream_resolve(handle, &stream);
	if (result == CUDA_SUCCESS && !async)
		result = sim_capture_forbids_unsafe();
	if (result != CUDA_SUCCESS || !width || !height)
		return result;
	result = sim_set_task(to, pitch, value, element, width, height, &task);
	bool host = sim_memory_find((uintptr_t)to, &memory) && memory.kind != SIM_MEMORY_DEVICE;
	if (result == CUDA_SUCCESS)
		result = sim_issue(stream, task, &seq);
	return result == CUDA_SUCCESS && host && !async ? sim_wait_stream(stream, seq) : result;
}

CUresult sim_cuMemsetD8_v2(CUdeviceptr dstDevice, unsigned char uc, size_t N)
{
	return set_memory(dstDevice, 0, uc, 1, N, 1, NULL, false);
}

CUresult sim_cuMemsetD16_v2(CUdeviceptr dstDevice, unsigned short us, size_t N)
{
	return set_memory(dstDevice, 0, us, 2, N, 1, NULL, false);
}

CUresult sim_cuMemsetD32_v2(CUdeviceptr dstDevice, unsigned int ui, size_t N)
{
	return set_memory(dstDevice, 0, ui, 4, N, 1, NULL, false);
}

CUresult sim_cuMemsetD2D8_v2(CUdeviceptr dstDevice, size_t dstPitch, unsigned char uc, size_t Width, size_t Height)
{
	return set_memory(dstDevice, dstPitch, uc, 1, Width, Height, NULL, false);
}

CUresult sim_cuMemsetD2D16_v2(CUdeviceptr dstDevice, size_t dstPitch, unsigned short us, size_t Width, size_t Height)
{
	return set_memory(dstDevice, dstPitch, us, 2, Width, Height, NULL, false);
}

CUresult sim_cuMemsetD2D32_v2(CUdeviceptr dstDevice, size_t dstPitch, unsigned int ui, size_t Width, size_t Height)
{
	return set_memory(dstDevice, dstPitch, ui, 4, Width, Height, NULL, false);
}

CUresult sim_cuMemsetD8Async(CUdeviceptr dstDevice, unsigned char uc, size_t N, CUstream hStream)
{
	return set_memory(dstDevice, 0, uc, 1, N, 1, hStream, true);
}

CUresult sim_cuMemsetD16Async(CUdeviceptr dstDevice, unsigned short us, size_t N, CUstream hStream)
{
	return set_memory(dstDevice, 0, us, 2, N, 1, hStream, true);
}

CUresult sim_cuMemsetD32Async(CUdeviceptr dstDevice, unsigned int ui, size_t N, CUstream hStream)
{
	return set_memory(dstDevice, 0, ui, 4, N, 1, hStream, true);
}

CUresult sim_cuMemsetD2D8Async(CUdeviceptr dstDevice, size_t dstPitch, unsigned char uc, size_t Width, size_t Height,
			       CUstream hStream)
{
	return set_memory(dstDevice, dstPitch, uc, 1, Width, Height, hStream, true);
}

CUresult sim_cuMemsetD2D16Async(CUdeviceptr dstDevice, size_t dstPitch, unsigned short us, size_t Width, size_t Height,
				CUstream hStream)
{
	return set_memory(dstDevice, dstPitch, us, 2, Width, Height, hStream, true);
}

CUresult sim_cuMemsetD2D32Async(CUdeviceptr dstDevice, size_t dstPitch, unsigned int ui, size_t Width, size_t Height,
				CUstream hStream)
{
	return set_memory(dstDevice, dstPitch, ui, 4, Width, Height, hStream, true);
}
