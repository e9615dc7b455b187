/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes to this process's slot which error ended its CUDA context, and when. All clients of an MPS server lose their
 * contexts together. The daemon compares the times to find the process that caused it.
 */
#include "base/clock.h"
#include "shim/shim.h"
#include "shim/shim_tenant.h"

/* Errors after which every call of the context fails. */
static bool ends_context(CUresult error)
{
	switch (error) {
	case CUDA_ERROR_ECC_UNCORRECTABLE:
	case CUDA_ERROR_ILLEGAL_ADDRESS:
	case CUDA_ERROR_LAUNCH_TIMEOUT:
	case CUDA_ERROR_ASSERT:
	case CUDA_ERROR_HARDWARE_STACK_ERROR:
	case CUDA_ERROR_ILLEGAL_INSTRUCTION:
	case CUDA_ERROR_MISALIGNED_ADDRESS:
	case CUDA_ERROR_INVALID_ADDRESS_SPACE:
	case CUDA_ERROR_INVALID_PC:
	case CUDA_ERROR_LAUNCH_FAILED:
	case CUDA_ERROR_MPS_RPC_FAILURE:
	case CUDA_ERROR_MPS_CLIENT_TERMINATED:
		return true;
	default:
		return false;
	}
}

void hb_tenant_note_error(CUresult error)
{
	struct hb_page_process *process = hb_place()->process;
	if (!ends_context(error) || atomic_load_explicit(&process->fault, memory_order_relaxed))
		return;
	atomic_store_explicit(&process->fault_ns, hb_clock_now_ns(), memory_order_relaxed);
	atomic_store_explicit(&process->fault, (uint32_t)error, memory_order_release);
}
