/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The hold kernel's images: a kernel of one thread that spins on a mapped host
 * word, so that the hardware switches to its context and stays there. Compiled
 * by the driver itself when it is loaded, no toolkit needed. Launched by
 * shim/hold.c, which owns the word.
 *
 * One kernel is not enough: once it runs and nothing is queued behind it, the
 * hardware goes to the next context (an H200 then needs 377 us instead of 222,
 * two switches). With a second one queued behind it in its stream it stays.
 */
#ifndef HB_GPU_HOLD_KERNEL_H
#define HB_GPU_HOLD_KERNEL_H

#include <stdint.h>

#define HB_HOLD_KERNEL_NAME "hb_hold"

/* Values of the word. */
enum hb_hold_word {
	HB_HOLD_KEEP = 0,
	HB_HOLD_SOON = 1, /* a launch has begun: end after the linger time, should it not return by then */
	HB_HOLD_END = 2,
};

/* The kernel's parameters, in this order. */
struct hb_hold_params {
	uint64_t word;      /* device address of the 32-bit word */
	uint64_t limit_ns;  /* ends by itself after this long on the GPU's own clock; 0 = at once */
	uint64_t linger_ns; /* see HB_HOLD_SOON */
};

/* For real GPUs. */
extern const char hb_hold_ptx[];
/* For the simulated driver, which takes no PTX; it knows only "0" and "not 0". */
extern const char hb_hold_simulated[];

#endif
