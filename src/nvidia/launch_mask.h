/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SM masks for single launches. The driver calls back just before it passes a launch
 * descriptor to the GPU; bits in the descriptor keep the grid off single TPCs (pairs
 * of SMs). This is undocumented, so nothing is assumed: a probe with a small kernel
 * finds out which bits are real on this GPU and whether they have the expected
 * effect. Anything unknown switches masks off.
 *
 * If the GPC of each bit is known (gpc_find.h), masks can exclude entire GPCs
 * instead of being spread over all of them.
 *
 * Compiled into the shim and `hb doctor`; one user per process. The callback is the
 * profilers' interface, and is not used while a profiler uses it.
 *
 * Descriptor version 4.0 (Hopper): the version byte is at offset 72; the disable
 * bits are in the four words at offset 304 and take effect if the top bit of the
 * first word is set. Under a mask %smid counts only the remaining SMs, so a trial
 * counts SMs and does not identify them.
 */
#ifndef HB_GPU_LAUNCH_MASK_H
#define HB_GPU_LAUNCH_MASK_H

#include "nvidia/cuda_abi.h"

#include "nvidia/mask_states.h"

#include <stdbool.h>
#include <stdint.h>

#define HB_MASK_BITS 128

/* Callers number the GPUs of the process as they like, from 0 to HB_MASK_GPUS - 1; a number always means the same GPU. */
#define HB_MASK_GPUS 16

#define HB_MASK_CALLS(X) \
	X(cuGetExportTable) \
	X(cuCtxGetCurrent) \
	X(cuCtxGetDevice) \
	X(cuCtxGetStreamPriorityRange) \
	X(cuDeviceGetAttribute) \
	X(cuModuleLoadData) \
	X(cuModuleGetFunction) \
	X(cuMemAlloc_v2) \
	X(cuMemsetD8Async) \
	X(cuMemcpyDtoHAsync_v2) \
	X(cuLaunchKernel) \
	X(cuStreamCreateWithPriority) \
	X(cuStreamSynchronize)

/* The driver's own functions, because the shim's would count the trial as work of the application. */
struct hb_mask_calls {
#define X(name) __typeof__(name) *name;
	HB_MASK_CALLS(X)
#undef X
};

/*
 * Tries masks in the current context, which is on this GPU, in about 15 ms. Synchronizes only with its own
 * stream; must not run during a capture. After WORKS later calls return WORKS at
 * once; UNCLEAR may be tried again later. One caller at a time.
 *
 * The trial's kernel, stream and 2 KB of memory stay in the context: freeing memory waits for all work of the context. That
 * work may be a collective that waits for another process, and this process may be what the other one waits for.
 */
enum hb_mask_state hb_mask_probe(const struct hb_mask_calls *cuda, unsigned gpu);

/* Before the context ends, and what a trial has left in it. No trial runs meanwhile. */
void hb_mask_forget_context(CUcontext context);

/*
 * Lets this thread's launches, which must be on this GPU, use only `sms` SMs from now on; 0 = all. Has no effect
 * unless masks work there. Never less than half of the GPU, because a cluster must fit
 * into what remains of one GPC, or its launch never starts.
 */
void hb_mask_keep(unsigned gpu, uint32_t sms);
/* Lets this thread's launches use all SMs again. */
void hb_mask_keep_all(void);

/*
 * Makes masks exclude entire GPCs as far as possible (gpc_mask_order.h). group_of[bit] is the GPC of a TPC's bit, counted from 1,
 * and 0 for other bits. NULL: masks are spread over the GPU, as at first. False, without effect: the bits are not those
 * that the probe found, or differ from an earlier call. One caller at a time.
 */
bool hb_mask_use_gpcs(unsigned gpu, const uint8_t *group_of);

/* Whether masks exclude entire GPCs now. */
bool hb_mask_uses_gpcs(unsigned gpu);

/* Lists the bits that stand for a TPC, in order. Returns how many; 0 = masks do not work. For gpc_trial.h. */
uint32_t hb_mask_bits(unsigned gpu, uint8_t bits[HB_MASK_BITS]);

/* Removes these bits from this thread's launches from now on, whatever they are; NULL = none. For gpc_trial.h. */
void hb_mask_remove(const uint32_t removed[HB_MASK_BITS / 32]);

/* Returns the SMs of the GPU; 0 = masks do not work there. */
uint32_t hb_mask_sms(unsigned gpu);

#endif
