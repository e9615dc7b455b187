/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stands for the closed library of XSched's authors, as far as their level 1 needs it: cuxtra.cpp asks the driver's public
 * calls for the parameters of a kernel. Levels 2 and 3 change kernels and the driver's private state; nothing here does
 * that, so a function of theirs ends the program.
 */
#pragma once

#include "xsched/cuda/hal/common/driver.h"

#include <cstddef>
#include <cstdio>
#include <cstdlib>

extern "C" {
CUfunction cuXtraKernelGetFunction(CUkernel kernel);
size_t cuXtraGetParamCount(CUfunction function);
void cuXtraGetParamInfo(CUfunction function, size_t index, size_t *offset, size_t *size, bool *in_shared);
void cuXtraGetExtraBuffer(void **extra, void **buffer, size_t *size);
// The intercepted calls that unload code or end a context call this one before.
__attribute__((visibility("default"))) void hb_forget_functions(void);
}

#define HB_NOT_AT_LEVEL_1(type, name) \
	template <typename... Arguments> [[noreturn]] inline type name(Arguments &&...) \
	{ \
		fprintf(stderr, "XSched was built for level 1 only, and it called " #name "\n"); \
		abort(); \
	}

HB_NOT_AT_LEVEL_1(CUdeviceptr, cuXtraGetEntryPoint)
HB_NOT_AT_LEVEL_1(CUdeviceptr, cuXtraInstrMemBlockAlloc)
HB_NOT_AT_LEVEL_1(size_t, cuXtraGetBarrierCnt)
HB_NOT_AT_LEVEL_1(size_t, cuXtraGetLocalRegsPerThread)
HB_NOT_AT_LEVEL_1(size_t, cuXtraGetTimeslice)
HB_NOT_AT_LEVEL_1(void, cuXtraGetBinary)
HB_NOT_AT_LEVEL_1(void, cuXtraGetTrapHandlerInfo)
HB_NOT_AT_LEVEL_1(void, cuXtraInstrMemBlockFree)
HB_NOT_AT_LEVEL_1(void, cuXtraInstrMemcpyHtoD)
HB_NOT_AT_LEVEL_1(void, cuXtraInvalInstrCache)
HB_NOT_AT_LEVEL_1(void, cuXtraMemcpyDtoH)
HB_NOT_AT_LEVEL_1(void, cuXtraMemcpyHtoD)
HB_NOT_AT_LEVEL_1(void, cuXtraSetBarrierCnt)
HB_NOT_AT_LEVEL_1(void, cuXtraSetDebuggerParams)
HB_NOT_AT_LEVEL_1(void, cuXtraSetEntryPoint)
HB_NOT_AT_LEVEL_1(void, cuXtraSetLocalRegsPerThread)
HB_NOT_AT_LEVEL_1(void, cuXtraSetTimeslice)
HB_NOT_AT_LEVEL_1(void, cuXtraTriggerTrap)
