/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The images of the takeover kernel: a kernel of one thread that spins on a mapped
 * host word, so that the hardware switches to its context and stays there. The
 * driver compiles it when it is loaded; no toolkit is needed. Launched by
 * shim/takeover.c, which owns the word.
 *
 * One kernel is not enough. While it runs and nothing is queued behind it, the
 * hardware switches to the next context (an H200 then needs 377 us instead of 222,
 * two switches). With a second launch behind it in its stream the hardware stays,
 * because that launch waits in the channel, where the hardware looks for work. Two
 * kernels in one graph do not help: both leave the channel at once.
 */
#ifndef HB_GPU_HOLD_KERNEL_H
#define HB_GPU_HOLD_KERNEL_H

#include <stdint.h>

#define HB_TAKEOVER_KERNEL_NAME "hb_takeover"

/* The library with which the driver compiles PTX. */
#define HB_PTX_COMPILER "libnvidia-ptxjitcompiler.so.1"

/* Special values of the word. Each change to any other value restarts the linger time, after which the kernel ends. */
#define HB_TAKEOVER_KEEP 0u
#define HB_TAKEOVER_END UINT32_MAX

/* The host memory that `word` below points to. */
struct hb_takeover_page {
	_Atomic(uint32_t) word;
	uint32_t reserved;
	/* Times of the last takeover with a limit, by the GPU's clock (%globaltimer); the simulated driver never writes them. */
	_Atomic(uint64_t) began_ns, ended_ns;
};

/* The kernel's parameters, in this order. */
struct hb_takeover_params {
	uint64_t word;      /* device address of a struct hb_takeover_page */
	uint64_t limit_ns;  /* the kernel ends by itself after this time on the GPU's clock; 0 = at once */
	uint64_t linger_ns; /* time after the last change of the word at which the kernel ends */
};

/* For real GPUs. */
extern const char hb_takeover_ptx[];
/* For the simulated driver, which takes no PTX; its kernel only distinguishes 0 from other values of the word. */
extern const char hb_takeover_simulated[];

#endif
