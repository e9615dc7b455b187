/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Seeded random numbers that are the same on every machine and from every
 * compiler: xoshiro256** (Blackman and Vigna) seeded through splitmix64, and a
 * logarithm made of IEEE additions, multiplications and divisions only (libm's
 * picks another code path on processors with fused multiply-add). Not for
 * secrets.
 */
#ifndef HB_BASE_RNG_H
#define HB_BASE_RNG_H

#include <stdint.h>

struct hb_rng {
	uint64_t state[4];
};

/* Seeds a generator. Generators of one seed and different streams are independent; use a stream for each purpose. */
void hb_rng_init(struct hb_rng *rng, uint64_t seed, uint64_t stream);
uint64_t hb_rng_u64(struct hb_rng *rng);
/* Draws a number from 0 to bound - 1 without bias; bound >= 1. */
uint64_t hb_rng_below(struct hb_rng *rng, uint64_t bound);
/* Draws a number from [0, 1) with 53 random bits. */
double hb_rng_double(struct hb_rng *rng);
/* Draws from the exponential distribution with this mean; the result is > 0 and at most about 37 means. */
double hb_rng_exponential(struct hb_rng *rng, double mean);

#endif
