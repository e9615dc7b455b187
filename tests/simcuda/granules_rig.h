/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For tests of granules (shim/granules.h) over the simulated driver: two simulated
 * GPUs and little host memory, a driver whose calls fail on demand, and allocations
 * whose contents are known.
 */
#ifndef HB_TESTS_GRANULES_RIG_H
#define HB_TESTS_GRANULES_RIG_H

#include "shim/granules.h"

#include "sim_test.h"

#include <stdatomic.h>

#define UNIT HB_GRANULE_UNIT
#define GRANULE (2 * UNIT)

extern const CUmemLocation local, peer, host;
extern const struct hb_granule_config granule_config;
extern atomic_long n_created_on_host; /* granules that the driver was asked to create on the host */

/* The calls number `after` to `after` + `times` - 1 fail from now on. */
void fail_calls(long after, long times);
void fail_none(void);
/* Whether the calls reached the first one that was to fail. */
bool failed_some(void);

struct allocation {
	CUdeviceptr base;
	size_t bytes;
	uint32_t seed; /* determines the contents */
};
uint32_t word_of(uint32_t seed, size_t i);
void fill(const struct allocation *allocation);
bool is_intact(const struct allocation *allocation);

/* Memory of this process as the simulated driver counts it, on one GPU and on both. */
uint64_t own_bytes(int gpu);
uint64_t all_own_bytes(void);
/* How many more units of host memory can be pinned. */
size_t count_host_room(void);
struct hb_granules_bytes count(struct hb_granules *granules);
/* Frees the granules. Checks that GPUs and host are as they were before. */
void finish(struct hb_granules *granules, uint64_t own_before, size_t host_before);
/* All steps of a move, up to the first that fails. A broken move is not ended if the caller wants it. */
CUresult move_granules(struct hb_granules *granules, const CUmemLocation *from, const CUmemLocation *to, size_t bytes,
		       struct hb_granule_move **broken_out);
/* Group set-up. */
int begin_granules(void **state);

#endif
