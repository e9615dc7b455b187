/* SPDX-License-Identifier: Apache-2.0 */
/* Draws repeatable random numbers; see rng.h. */
#include "base/rng.h"

#include <math.h>

static uint64_t splitmix64(uint64_t *state)
{
	uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));
	z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
	return z ^ (z >> 31);
}

static uint64_t rotate_left(uint64_t value, int bits)
{
	return (value << bits) | (value >> (64 - bits));
}

void hb_rng_init(struct hb_rng *rng, uint64_t seed, uint64_t stream)
{
	/* Hashing the stream first keeps (seed, stream + 1) and (seed + 1, stream) apart. */
	uint64_t state = stream;
	state = splitmix64(&state) ^ seed;
	for (int i = 0; i < 4; i++)
		rng->state[i] = splitmix64(&state);
}

uint64_t hb_rng_u64(struct hb_rng *rng)
{
	uint64_t *s = rng->state;
	uint64_t result = rotate_left(s[1] * 5, 7) * 9;
	uint64_t t = s[1] << 17;
	s[2] ^= s[0];
	s[3] ^= s[1];
	s[1] ^= s[2];
	s[0] ^= s[3];
	s[2] ^= t;
	s[3] = rotate_left(s[3], 45);
	return result;
}

uint64_t hb_rng_below(struct hb_rng *rng, uint64_t bound)
{
	/* Draws below 2^64 mod bound would favour small results. */
	uint64_t reject_below = -bound % bound;
	uint64_t draw;
	do
		draw = hb_rng_u64(rng);
	while (draw < reject_below);
	return draw % bound;
}

double hb_rng_double(struct hb_rng *rng)
{
	return (double)(hb_rng_u64(rng) >> 11) * 0x1p-53;
}

/*
 * Natural logarithm of 0 < x < infinity, within 2 units in the last place:
 * x = m * 2^e with m around 1, ln m = 2 atanh((m-1)/(m+1)) as a series whose
 * terms shrink by at least 0.0295 each, so 12 of them reach double precision.
 */
static double compute_natural_log(double x)
{
	int exponent;
	double m = frexp(x, &exponent);
	if (m < 0.70710678118654752) {
		m *= 2;
		exponent--;
	}
	double s = (m - 1) / (m + 1);
	double square = s * s;
	double sum = 0;
	for (int k = 23; k >= 1; k -= 2)
		sum = sum * square + 1.0 / k;
	return 2 * s * sum + exponent * 0.69314718055994531;
}

double hb_rng_exponential(struct hb_rng *rng, double mean)
{
	/* (0, 1]: half a step up from [0, 1), so that the logarithm is finite and never 0. */
	double uniform = ((double)(hb_rng_u64(rng) >> 11) + 0.5) * 0x1p-53;
	return -mean * compute_natural_log(uniform);
}
