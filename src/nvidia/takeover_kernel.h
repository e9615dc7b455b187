/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The hold kernel's images: a kernel of one thread that spins on a mapped host
 * word, so that the hardware switches to its context and stays there. Compiled
 * by the driver itself when it is loaded, no toolkit needed. Launched by
 * shim/takeover.c, which owns the word.
 *
 * One kernel is not enough: once it runs and nothing is queued behind it, the
 * hardware goes to the next context (an H200 then needs 377 us instead of 222,
 * two switches). With a second launch behind it in its stream it stays: that one
 * waits in the channel, where the hardware looks. Two kernels in one graph do
 * not: both leave the channel at once.
 */
#ifndef HB_GPU_HOLD_KERNEL_H
#define HB_GPU_HOLD_KERNEL_H

#include <stdint.h>

#define HB_TAKEOVER_KERNEL_NAME "hb_takeover"

/* Values of the word. Any other: each time it changes the linger time begins anew, after which the kernel ends. */
#define HB_TAKEOVER_KEEP 0u
#define HB_TAKEOVER_END UINT32_MAX

/* What `word` below points to. */
struct hb_takeover_page {
	_Atomic(uint32_t) word;
	uint32_t reserved;
	/* By the GPU's clock (%globaltimer), of the last hold with a limit; never written by the simulated driver. */
	_Atomic(uint64_t) began_ns, ended_ns;
};

/* The kernel's parameters, in this order. */
struct hb_takeover_params {
	uint64_t word;      /* device address of a struct hb_takeover_page */
	uint64_t limit_ns;  /* ends by itself after this long on the GPU's own clock; 0 = at once */
	uint64_t linger_ns; /* see above */
};

/* For real GPUs. */
extern const char hb_takeover_ptx[];
/* For the simulated driver, which takes no PTX; it knows only "0" and "not 0". */
extern const char hb_takeover_simulated[];

#endif
