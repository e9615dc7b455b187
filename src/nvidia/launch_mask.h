/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SM masks for single launches: the driver calls back just before it hands a
 * launch descriptor to the GPU, and the descriptor has bits that keep the grid
 * off single TPCs (pairs of SMs). Undocumented, so nothing is assumed: the
 * probe finds out which bits are real on this GPU, and that they do what they
 * should, with a small kernel; whatever is not as known switches masks off.
 *
 * Where it is known which bits are of one GPC (gpc_find.h), masks can leave out
 * whole GPCs instead of being spread over all.
 *
 * Compiled into the shim and `hb doctor`. One user a process. The callback is
 * the profilers' interface: it is left alone where one is set up.
 *
 * Version 4.0 (Hopper): version byte at 72; disable bits in the four words at
 * byte 304, in force when the top bit of the first word is set. Under a mask
 * %smid counts only the SMs that are left, so a trial counts SMs and does not
 * name them.
 */
#ifndef HB_GPU_LAUNCH_MASK_H
#define HB_GPU_LAUNCH_MASK_H

#include "nvidia/cuda_abi.h"

#include "nvidia/mask_states.h"

#include <stdbool.h>
#include <stdint.h>

#define HB_MASK_BITS 128

#define HB_MASK_CALLS(X) \
	X(cuGetExportTable) \
	X(cuCtxGetDevice) \
	X(cuCtxGetStreamPriorityRange) \
	X(cuDeviceGetAttribute) \
	X(cuModuleLoadData) \
	X(cuModuleUnload) \
	X(cuModuleGetFunction) \
	X(cuMemAlloc_v2) \
	X(cuMemFree_v2) \
	X(cuMemsetD8Async) \
	X(cuMemcpyDtoHAsync_v2) \
	X(cuLaunchKernel) \
	X(cuStreamCreateWithPriority) \
	X(cuStreamDestroy_v2) \
	X(cuStreamSynchronize)

/* The driver's own functions; the shim's would count the trial as the application's work. */
struct hb_mask_calls {
#define X(name) __typeof__(name) *name;
	HB_MASK_CALLS(X)
#undef X
};

/*
 * Tries masks in the current context; some 15 ms. Synchronizes only with its
 * own stream and must not run during a capture. Once it has said WORKS it costs
 * nothing and says so again; UNCLEAR may be tried again later.
 */
enum hb_mask_state hb_mask_probe(const struct hb_mask_calls *cuda);

/*
 * This thread's launches use at most `sms` SMs from now on; 0 = all. Without
 * effect unless masks work. Never less than half of the GPU: the blocks of a
 * cluster must fit into what is left of one GPC, else the launch never starts.
 */
void hb_mask_set(uint32_t sms);

/*
 * From now on masks leave out whole GPCs, as far as that goes (gpc_rank.h): group_of[bit] is the GPC of a TPC's bit,
 * counted from 1, and 0 for bits that are no TPC. NULL: spread over the GPU, as at first. False: the bits are not those
 * that were found here, or others than at an earlier call; then nothing changes. One caller at a time.
 */
bool hb_mask_use_gpcs(const uint8_t *group_of);

/* True: masks leave out whole GPCs now. */
bool hb_mask_uses_gpcs(void);

/* The bits that stand for a TPC: how many, in order; 0 = masks do not work. For the trial of GPCs (gpc_trial.h). */
uint32_t hb_mask_bits(uint8_t bits[HB_MASK_BITS]);

/* This thread's launches do without these bits from now on, whatever they are; NULL = nothing. For that trial only. */
void hb_mask_remove(const uint32_t removed[HB_MASK_BITS / 32]);

/* SMs of the GPU that was probed; 0 = masks do not work. */
uint32_t hb_mask_sms(void);

#endif
