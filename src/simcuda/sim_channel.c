/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernel with which a program finds the memory channels (nvidia/channel_trial.h): it reports that two addresses of one
 * channel take twice as long. The simulated GPU has 16 classes of channels; an H200 has 94. As on an H200 a unit of 1 KiB
 * alternates between two L2 slices every 256 bytes, and parts of the pages are equal after an exclusive-or of the unit's number.
 * HB_SIM_CHANNELS=flat simulates a GPU whose times tell nothing.
 */
#include "simcuda/sim_driver.h"

#include <stdlib.h>
#include <string.h>

enum { CLASSES = 16, PAGE_SHIFT = 21, UNIT_SHIFT = 10, PIECE_SHIFT = 8, PAGE_UNITS = 2048 };
/* Cycles of one block, as on an H200. */
enum { SAME_CYCLES = 22106, DIFFERENT_CYCLES = 11297 };

static uint64_t mix(uint64_t value)
{
	value = (value ^ value >> 31) * UINT64_C(0x9e3779b97f4a7c15);
	value = (value ^ value >> 29) * UINT64_C(0xbf58476d1ce4e5b9);
	return value ^ value >> 32;
}

/* Each half of a page (by the parity of some bits of the unit's number) has a relation of its own to all other pages. */
static uint64_t find_slice(uint64_t address)
{
	uint64_t unit = address >> UNIT_SHIFT & (PAGE_UNITS - 1), page = address >> PAGE_SHIFT;
	uint64_t with = mix(page * 2 + (uint64_t)__builtin_parityll(unit & 0x2d5)) % PAGE_UNITS;
	return mix(unit ^ with) % CLASSES * 2 + (address >> PIECE_SHIFT & 1);
}

void sim_channel_hammer(const struct hb_sim_launch *launch)
{
	uint64_t a, b, sum;
	const char *variant = getenv("HB_SIM_CHANNELS");
	memcpy(&a, launch->args[0], sizeof a);
	memcpy(&b, launch->args[1], sizeof b);
	memcpy(&sum, launch->args[2], sizeof sum);
	uint32_t *total = (uint32_t *)(uintptr_t)sum; /* NOLINT(performance-no-int-to-ptr): GPU addresses are ours */
	bool same = find_slice(a) == find_slice(b) && !(variant && strcmp(variant, "flat") == 0);
	*total += launch->grid[0] * (same ? SAME_CYCLES : DIFFERENT_CYCLES);
}
