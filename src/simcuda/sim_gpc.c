/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Maps the bits of TPC masks to GPCs, and runs the kernel with which a program
 * finds this map: blocks of clusters that record where they run
 * (nvidia/gpc_trial.h). The layout is the one found on an H200. The bits have gaps
 * (5 of the first 10 bits are TPCs, 11 of 16, 25 of 32, 54 of 64), and their order
 * does not follow the GPCs. One of eight GPCs has only four TPCs. Four more TPCs
 * belong to no GPC: they run clusters of at most two blocks, and each is a group
 * by itself. (The GPU model distributes all SMs evenly; its figures were
 * calibrated that way.) Under a mask SMs are numbered anew.
 *
 * HB_SIM_GPCS selects other layouts: even (GPCs as large as the model's), none (no
 * clusters), one (all SMs form one GPC), mixed (some clusters span two GPCs),
 * moving (bits change GPCs after MOVES_AFTER launches of that kernel), part (one
 * SM of a GPC gets no cluster), stuck (a launch of clusters never ends; a launch
 * without room for its clusters never ends in any layout), names (SMs keep their
 * numbers).
 */
#include "simcuda/sim_driver.h"

#include <stdlib.h>
#include <string.h>

enum { BITS = SIM_MASK_BITS, GPCS_MOST = 64, SMS_MOST = 256, SMS_PER_TPC = 2, MOVES_AFTER = 3000 };

/* For each bit: its GPC, counted from 1 (0 = no TPC), and the number of its first SM. */
static struct {
	uint8_t gpc_of[BITS], sm_of[BITS];
} layout;

static bool is_variant(const char *variant)
{
	const char *chosen = getenv("HB_SIM_GPCS");
	return chosen && strcmp(chosen, variant) == 0;
}

bool sim_gpc_refuses(uint32_t cluster)
{
	return cluster > 1 && is_variant("none");
}

static bool is_place(int bit)
{
	if (bit < 10)
		return bit % 2;
	return bit != 19 && bit != 28 && bit != 35 && bit != 46 && bit != 57;
}

static uint32_t draw(uint32_t *seed, uint32_t below)
{
	*seed = *seed * 1664525u + 1013904223u;
	return (uint32_t)((uint64_t)(*seed >> 8) * below >> 24);
}

static void shuffle_bytes(uint32_t *seed, uint8_t *things, uint32_t n)
{
	for (uint32_t i = n; i > 1; i--) {
		uint32_t other = draw(seed, i);
		uint8_t thing = things[i - 1];
		things[i - 1] = things[other];
		things[other] = thing;
	}
}

/* TPC counts of the H200 that was examined: TPCs without a GPC, and the size of its small GPC. */
enum { LONE = 4, CUT_TO = 4 };

/* Deals TPCs to the GPCs in turn; the last GPC is full early, and lone TPCs follow it. */
static void deal_tpcs(uint32_t n, uint32_t gpcs, uint8_t *gpc)
{
	bool even = gpcs < 2 || is_variant("even") || n <= LONE + gpcs * CUT_TO;
	uint32_t lone = even ? 0 : LONE, next = 0;
	for (uint32_t i = 0; i < n - lone; i++, next++) {
		if (!even && next % gpcs == gpcs - 1 && next / gpcs >= CUT_TO)
			next++;
		gpc[i] = (uint8_t)(next % gpcs + 1);
	}
	for (uint32_t i = 0; i < lone; i++)
		gpc[n - 1 - i] = (uint8_t)(gpcs + 1 + i);
}

static void make_layout(void)
{
	uint32_t n = (uint32_t)sim.info.spec.sm_count / SMS_PER_TPC, seed = 200, next = 0;
	uint8_t gpc[SMS_MOST / SMS_PER_TPC], tpc[SMS_MOST / SMS_PER_TPC];
	deal_tpcs(n, is_variant("one") ? 1 : (uint32_t)sim.info.spec.gpc_count, gpc);
	for (uint32_t i = 0; i < n; i++)
		tpc[i] = (uint8_t)i;
	shuffle_bytes(&seed, gpc, n);
	shuffle_bytes(&seed, tpc, n);
	for (int bit = 0; bit < BITS && next < n; bit++) {
		if (!is_place(bit))
			continue;
		layout.gpc_of[bit] = gpc[next];
		layout.sm_of[bit] = (uint8_t)(SMS_PER_TPC * tpc[next++]);
	}
}

static void need_layout(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	pthread_once(&once, make_layout);
}

static bool is_left(const uint32_t *mask, int bit)
{
	return layout.gpc_of[bit] && !(mask[bit / 32] >> bit % 32 & 1);
}

uint32_t sim_gpc_left(const uint32_t mask[SIM_MASK_WORDS], bool *whole)
{
	uint32_t left = 0, of_gpc[GPCS_MOST + 1] = {0}, all_of_gpc[GPCS_MOST + 1] = {0};
	need_layout();
	for (int bit = 0; bit < BITS; bit++) {
		all_of_gpc[layout.gpc_of[bit]]++;
		of_gpc[layout.gpc_of[bit]] += is_left(mask, bit);
		left += is_left(mask, bit) ? SMS_PER_TPC : 0;
	}
	uint32_t in_part = 0;
	for (int gpc = 1; gpc <= GPCS_MOST; gpc++)
		in_part += of_gpc[gpc] && of_gpc[gpc] < all_of_gpc[gpc];
	*whole = in_part <= 1;
	return left;
}

bool sim_gpc_is_stuck(const struct sim_kernel *kernel, uint32_t cluster, const uint32_t mask[SIM_MASK_WORDS])
{
	uint32_t of_gpc[GPCS_MOST + 1] = {0};
	if (kernel->host != sim_gpc_meet || cluster <= 1)
		return false;
	need_layout();
	for (int bit = 0; bit < BITS; bit++)
		of_gpc[layout.gpc_of[bit]] += is_left(mask, bit) ? SMS_PER_TPC : 0;
	for (int gpc = 1; gpc <= GPCS_MOST; gpc++)
		if (of_gpc[gpc] >= cluster)
			return is_variant("stuck");
	return true;
}

/* ---- the kernel ---- */

/* The SMs that a launch may use, for each GPC. */
struct unmasked_sms {
	uint32_t n[GPCS_MOST + 1]; /* SMs that remain in each GPC; [0]: in all GPCs */
	uint8_t sms[GPCS_MOST + 1][SMS_MOST];
};

static uint8_t find_gpc_of_bit(int bit, unsigned launches)
{
	int first = 1, second = 3;
	if (!is_variant("moving") || launches < MOVES_AFTER)
		return layout.gpc_of[bit];
	while (second < BITS - 1 && (layout.gpc_of[second] == layout.gpc_of[first] || !layout.gpc_of[second]))
		second++;
	if (bit != first && bit != second)
		return layout.gpc_of[bit];
	return layout.gpc_of[bit == first ? second : first];
}

/* Returns the number that a block on this SM reads, counted over the remaining SMs. */
static uint8_t find_sm_number(uint32_t sm, const bool left[SMS_MOST])
{
	uint8_t name = 0;
	if (is_variant("names"))
		return (uint8_t)sm;
	for (uint32_t i = 0; i < sm; i++)
		name = (uint8_t)(name + left[i]);
	return name;
}

static void list_unmasked_sms(const uint32_t *mask, unsigned launches, struct unmasked_sms *unmasked)
{
	bool left[SMS_MOST] = {false};
	memset(unmasked->n, 0, sizeof unmasked->n);
	for (int bit = 0; bit < BITS; bit++)
		if (is_left(mask, bit))
			left[layout.sm_of[bit]] = left[layout.sm_of[bit] + 1] = true;
	for (int bit = 0; bit < BITS; bit++) {
		uint8_t gpc = is_left(mask, bit) ? find_gpc_of_bit(bit, launches) : 0;
		for (uint32_t i = 0; gpc && i < SMS_PER_TPC; i++) {
			uint8_t name = find_sm_number(layout.sm_of[bit] + i, left);
			unmasked->sms[gpc][unmasked->n[gpc]++] = name;
			unmasked->sms[0][unmasked->n[0]++] = name;
		}
	}
}

/* Places a cluster on SMs of one GPC with room: the GPC of a random SM, or the next one. */
static void place_cluster(struct unmasked_sms *unmasked, uint32_t *seed, uint32_t first, uint32_t cluster,
			  uint32_t *records)
{
	uint32_t gpc = 1;
	for (uint32_t sm = draw(seed, unmasked->n[0]); gpc < GPCS_MOST && sm >= unmasked->n[gpc]; gpc++)
		sm -= unmasked->n[gpc];
	for (int tries = 0; unmasked->n[gpc] < cluster; tries++) {
		if (tries > GPCS_MOST)
			return; /* without room in any GPC the launch never ends (sim_gpc_is_stuck) */
		gpc = gpc % GPCS_MOST + 1;
	}
	uint8_t *sms = unmasked->sms[gpc];
	uint32_t n = unmasked->n[gpc] - (is_variant("part") && gpc == 1 && unmasked->n[gpc] > cluster ? 1 : 0);
	shuffle_bytes(seed, sms, n);
	for (uint32_t i = 0; i < cluster; i++)
		records[first + i] = (first / cluster) << 16 | (sms[i] + 1u);
	if (is_variant("mixed") && draw(seed, 20) == 0)
		records[first] = (first / cluster) << 16 | (unmasked->sms[0][draw(seed, unmasked->n[0])] + 1u);
}

void sim_gpc_meet(const struct hb_sim_launch *launch)
{
	static atomic_uint launches;
	static const uint32_t nothing[SIM_MASK_WORDS];
	struct unmasked_sms unmasked;
	uint64_t address;
	unsigned n = atomic_fetch_add(&launches, 1);
	uint32_t seed = n * 2654435769u, cluster = launch->cluster > 1 ? launch->cluster : 1;
	memcpy(&address, launch->args[0], sizeof address);
	uint32_t *records = (uint32_t *)(uintptr_t)
		address; /* NOLINT(performance-no-int-to-ptr): GPU addresses are ours */
	need_layout();
	list_unmasked_sms(launch->mask ? launch->mask : nothing, n, &unmasked);
	for (uint32_t i = 0; cluster > 1 && i + cluster <= launch->grid[0]; i += cluster)
		place_cluster(&unmasked, &seed, i, cluster, records);
	for (uint32_t i = 0; cluster == 1 && unmasked.n[0] && i < launch->grid[0]; i++)
		records[i] = i << 16 | (unmasked.sms[0][i % unmasked.n[0]] + 1u);
}
