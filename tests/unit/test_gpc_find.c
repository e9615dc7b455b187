/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which mask bits are of one GPC is found by what clusters show, on GPUs with
 * groups of all kinds, whatever the SMs are called; and a GPU that does not
 * behave like one is refused. The GPU here places clusters as a real one does:
 * anywhere in one group.
 */
#include "nvidia/gpc_find.h"
#include "nvidia/gpc_mask_order.h"
#include "unit.h"

#include <errno.h>
#include <string.h>

enum { LAUNCHES = 10, CLUSTERS = 80 };

enum lie {
	HONEST,
	BETWEEN_GROUPS, /* now and then a cluster has a block in another group */
	ONE_TOO_FEW,    /* an SM is never used */
	BUSY,           /* every third look misses an SM */
	CHANGES,        /* bits 0 and 1 change places after the first looks */
	MASKS_TWO,      /* taking bit 3 away takes bit 4, too */
	LEAVES_ONE,     /* a mask without a whole group leaves one TPC of it */
	APART,          /* no cluster comes to TPCs that are a group by themselves */
	LONE_TOGETHER,  /* as long as no bit is taken away some of those are one group */
	FAILS,
};

struct gpu {
	uint8_t group_of[HB_GPC_BITS]; /* 0 = no TPC; 255 = no group at all: of none */
	enum lie lie;
	uint32_t looks, fails_at, next;
	uint8_t bits[HB_GPC_BITS];
	uint32_t n_bits;
	uint32_t n_groups, tpcs[17]; /* of group 1 and so on */
	struct hb_gpc_seen seen;
};

static uint32_t draw(struct gpu *gpu, uint32_t below)
{
	gpu->next = gpu->next * 1664525u + 1013904223u;
	return (uint32_t)((uint64_t)(gpu->next >> 8) * below >> 24);
}

/* Groups of so many TPCs, ended by 0, over bits in no order, with gaps. */
static void make(struct gpu *gpu, const uint8_t *tpcs, enum lie lie)
{
	uint8_t places[HB_GPC_BITS];
	uint32_t n = 0;
	memset(gpu, 0, sizeof *gpu);
	gpu->lie = lie;
	gpu->next = 7;
	for (uint32_t bit = 0; bit < HB_GPC_BITS; bit++)
		places[bit] = (uint8_t)bit;
	for (uint32_t bit = HB_GPC_BITS - 1; bit > 0; bit--) {
		uint32_t other = draw(gpu, bit + 1);
		uint8_t place = places[bit];
		places[bit] = places[other];
		places[other] = place;
	}
	for (uint8_t group = 0; tpcs[group]; group++) {
		gpu->tpcs[++gpu->n_groups] = tpcs[group];
		for (uint32_t i = 0; i < tpcs[group]; i++)
			gpu->group_of[places[n++]] = (uint8_t)gpu->n_groups;
	}
	for (uint32_t bit = 0; bit < HB_GPC_BITS; bit++)
		if (gpu->group_of[bit])
			gpu->bits[gpu->n_bits++] = (uint8_t)bit;
}

static bool is_removed(const struct gpu *gpu, const uint32_t *removed, uint32_t i)
{
	const uint8_t *bits = gpu->bits;
	uint32_t as = i;
	if (gpu->lie == CHANGES && gpu->looks > gpu->fails_at && i < 2)
		as = 1 - i;
	if (gpu->lie == MASKS_TWO && i == 4 && (removed[bits[3] / 32] >> bits[3] % 32 & 1))
		return true;
	return removed[bits[as] / 32] >> bits[as] % 32 & 1;
}

/* The SMs of each group that are left, under names that mean nothing. */
static uint32_t place(struct gpu *gpu, const uint32_t *removed, uint8_t group, uint8_t sms[HB_GPC_SMS_MAX],
		      const uint8_t *names)
{
	uint32_t n = 0, tpcs = 0;
	for (uint32_t i = 0; i < gpu->n_bits; i++) {
		if (gpu->group_of[gpu->bits[i]] != group)
			continue;
		bool last = gpu->lie == LEAVES_ONE && n == 0 && tpcs > 4;
		tpcs++;
		if (is_removed(gpu, removed, i) && !(last && tpcs == 8))
			continue;
		sms[n++] = names[2 * i];
		sms[n++] = names[2 * i + 1];
	}
	return n;
}

static void shuffle(struct gpu *gpu, uint8_t *names, uint32_t n)
{
	for (uint32_t i = n - 1; i > 0; i--) {
		uint32_t other = draw(gpu, i + 1);
		uint8_t name = names[i];
		names[i] = names[other];
		names[other] = name;
	}
}

static int run_clusters(struct gpu *gpu, uint8_t sms[16][HB_GPC_SMS_MAX], const uint32_t n[16], uint32_t size,
			struct hb_gpc_sights *sights)
{
	uint32_t where[CLUSTERS * 8], blocks = 0;
	for (uint32_t i = 0; i < CLUSTERS; i++) {
		uint32_t group = draw(gpu, 16), other = draw(gpu, 16);
		if (n[group] < size || (size > 1 && gpu->lie == APART && gpu->tpcs[group + 1] == 1))
			continue;
		shuffle(gpu, sms[group], n[group]);
		for (uint32_t k = 0; k < size; k++)
			where[blocks + k] = sms[group][k];
		if (gpu->lie == BETWEEN_GROUPS && i % 50 == 49 && n[other])
			where[blocks] = sms[other][0];
		blocks += size;
	}
	return hb_gpc_join(sights, where, blocks, size);
}

static int show(void *user, const uint32_t *removed, uint32_t n_sms, struct hb_gpc_sizes *sizes)
{
	static const uint32_t cluster_sizes[] = {2, 8, 3, 5, 1};
	struct gpu *gpu = user;
	uint8_t names[HB_GPC_SMS_MAX], sms[16][HB_GPC_SMS_MAX];
	uint32_t n[16] = {0};
	struct hb_gpc_sights sights = {{0}};
	if (gpu->lie == FAILS && gpu->looks == gpu->fails_at)
		return -HB_GPC_TOO_LONG;
	gpu->looks++;
	for (uint32_t i = 0; i < HB_GPC_SMS_MAX; i++)
		names[i] = (uint8_t)i;
	shuffle(gpu, names, 2 * gpu->n_bits);
	for (uint8_t group = 0; group < 16; group++) {
		n[group] = place(gpu, removed, (uint8_t)(group + 1), sms[group], names);
		if (group == 0 && (gpu->lie == ONE_TOO_FEW || (gpu->lie == BUSY && gpu->looks % 3 == 0)) && n[0])
			n[0]--;
	}
	bool all = n_sms == gpu->n_bits * HB_GPC_SMS_PER_BIT;
	for (uint8_t group = 1; all && gpu->lie == LONE_TOGETHER && group < 16; group++)
		if (gpu->tpcs[group + 1] == 1 && gpu->tpcs[group] == 1) {
			memcpy(&sms[group][n[group]], sms[group - 1], n[group - 1]);
			n[group] += n[group - 1];
			n[group - 1] = 0;
		}
	for (int launch = 0; launch < LAUNCHES; launch++)
		if (run_clusters(gpu, sms, n, cluster_sizes[launch % 5], &sights) < 0)
			return -HB_GPC_CALL_FAILED;
	hb_gpc_sizes_of(&sights, sizes);
	return 0;
}

static enum hb_gpc_state find(struct gpu *gpu, struct hb_gpc_layout *layout)
{
	memset(layout, 0, sizeof *layout);
	return hb_gpc_find(gpu->bits, gpu->n_bits, show, gpu, layout, &gpu->seen);
}

/* The same partition, and nothing about bits that are no TPC. */
static void check_layout(const struct gpu *gpu, const struct hb_gpc_layout *layout, uint32_t n_groups)
{
	uint32_t sms[HB_GPC_MOST] = {0};
	assert_int_equal(layout->n_groups, n_groups);
	for (uint32_t a = 0; a < HB_GPC_BITS; a++) {
		assert_int_equal(layout->group_of[a] != 0, gpu->group_of[a] != 0);
		if (layout->group_of[a])
			sms[layout->group_of[a] - 1] += HB_GPC_SMS_PER_BIT;
		for (uint32_t b = 0; b < a; b++)
			assert_int_equal(layout->group_of[a] == layout->group_of[b],
					 gpu->group_of[a] == gpu->group_of[b]);
	}
	for (uint32_t group = 0; group < n_groups; group++) {
		assert_int_equal(layout->sms[group], sms[group]);
		if (group)
			assert_true(layout->sms[group] <= layout->sms[group - 1]);
	}
}

static const uint8_t even[] = {8, 9, 8, 8, 9, 8, 8, 8, 0};
/* As seen on one: four TPCs are groups by themselves. */
static const uint8_t h200[] = {8, 1, 9, 8, 1, 1, 8, 4, 8, 9, 8, 1, 0};

static void test_groups_of_all_kinds_are_found(void **state)
{
	static const uint8_t kinds[][14] = {
		{8, 1, 9, 8, 1, 1, 8, 4, 8, 9, 8, 1, 0}, /* 132 SMs */
		{8, 9, 8, 8, 9, 8, 8, 8, 0},             /* evenly */
		{9, 9, 9, 9, 7, 8, 7, 8, 0},             /* odd numbers of TPCs, three sizes */
		{8, 8, 8, 8, 8, 8, 8, 8, 0},             /* all alike */
		{4, 5, 0},                               /* as small as can be */
		{4, 6, 8, 10, 12, 0},                    /* each one as large as another one less two TPCs */
		{8, 8, 7, 7, 6, 6, 1, 2, 0},             /* a bit less makes one as large as others */
		{4, 4, 1, 1, 1, 1, 1, 1, 1, 0},
		{4, 4, 3, 3, 2, 2, 1, 1, 0},
		{9, 8, 9, 9, 9, 9, 9, 0},
	};
	(void)state;
	for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
		struct gpu gpu;
		struct hb_gpc_layout layout;
		make(&gpu, kinds[i], HONEST);
		assert_int_equal(find(&gpu, &layout), HB_GPC_KNOWN);
		check_layout(&gpu, &layout, (uint32_t)strlen((const char *)kinds[i]));
		assert_true(gpu.looks < 8 * gpu.n_bits);
	}
}

/* Any groups at all, as long as two of them have room for a cluster of eight. */
static void test_drawn_groups_are_found(void **state)
{
	struct gpu dice = {.next = 3};
	(void)state;
	for (int i = 0; i < 60; i++) {
		uint8_t tpcs[17] = {4, 4};
		uint32_t n_groups = 2 + draw(&dice, 13), n = 8;
		for (uint32_t group = 0; group < n_groups; group++)
			if (n < 80) {
				uint8_t more = (uint8_t)(1 + draw(&dice, draw(&dice, 2) ? 10 : 2));
				tpcs[group] = (uint8_t)(tpcs[group] + more);
				n += more;
			} else {
				n_groups = group;
			}
		struct gpu gpu;
		struct hb_gpc_layout layout;
		make(&gpu, tpcs, HONEST);
		assert_int_equal(find(&gpu, &layout), HB_GPC_KNOWN);
		check_layout(&gpu, &layout, gpu.n_groups);
	}
}

static void test_an_h200_takes_few_looks(void **state)
{
	struct gpu gpu;
	struct hb_gpc_layout layout;
	(void)state;
	make(&gpu, h200, HONEST);
	assert_int_equal(find(&gpu, &layout), HB_GPC_KNOWN);
	check_layout(&gpu, &layout, 12);
	assert_true(gpu.looks < 300);
	assert_int_equal(layout.sms[1], 18);
	assert_int_equal(layout.sms[7], 8);
	assert_int_equal(layout.sms[8], 2);
}

static void test_what_is_no_gpu_of_groups_is_refused(void **state)
{
	static const struct {
		uint8_t tpcs[14];
		enum lie lie;
		enum hb_gpc_state expected;
	} cases[] = {
		{{66, 0}, HONEST, HB_GPC_NO_GROUPS},
		{{8, 3, 3, 2, 1, 0}, HONEST, HB_GPC_NO_GROUPS},
		{{1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0}, HONEST, HB_GPC_NO_GROUPS},
		{{8, 9, 8, 8, 9, 8, 8, 8, 0}, BETWEEN_GROUPS, HB_GPC_UNCLEAR},
		{{8, 9, 8, 8, 9, 8, 8, 8, 0}, ONE_TOO_FEW, HB_GPC_NO_GROUPS},
		{{8, 9, 8, 8, 9, 8, 8, 8, 0}, MASKS_TWO, HB_GPC_UNCLEAR},
		{{8, 8, 8, 8, 8, 0}, LEAVES_ONE, HB_GPC_NOT_PROVEN},
		{{8, 9, 1, 8, 4, 1, 8, 1, 0}, BETWEEN_GROUPS, HB_GPC_UNCLEAR},
		{{4, 8, 9, 1, 8, 1, 8, 1, 0}, ONE_TOO_FEW, HB_GPC_NO_GROUPS},
		{{8, 9, 1, 8, 4, 1, 8, 1, 0}, MASKS_TWO, HB_GPC_UNCLEAR},
		{{8, 9, 1, 8, 4, 1, 8, 1, 0}, LEAVES_ONE, HB_GPC_NOT_PROVEN},
		{{8, 9, 1, 8, 4, 1, 8, 1, 0}, APART, HB_GPC_NO_GROUPS},
		{{8, 9, 8, 8, 4, 1, 1, 0}, LONE_TOGETHER, HB_GPC_UNCLEAR},
	};
	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct gpu gpu;
		struct hb_gpc_layout layout, nothing = {0};
		make(&gpu, cases[i].tpcs, cases[i].lie);
		assert_int_equal(find(&gpu, &layout), cases[i].expected);
		assert_memory_equal(&layout, &nothing, sizeof layout);
	}
}

static void test_what_was_seen_is_told(void **state)
{
	static const uint8_t tpcs[] = {8, 9, 1, 8, 4, 1, 8, 1, 0};
	struct gpu gpu;
	struct hb_gpc_layout layout;
	(void)state;
	make(&gpu, tpcs, APART);
	assert_int_equal(find(&gpu, &layout), HB_GPC_NO_GROUPS);
	assert_int_equal(gpu.seen.whole.with[16], 3);
	assert_int_equal(gpu.seen.whole.with[8], 1);
	assert_int_equal(gpu.seen.whole.with[1], 6);
	make(&gpu, tpcs, MASKS_TWO);
	assert_int_equal(find(&gpu, &layout), HB_GPC_UNCLEAR);
	assert_int_equal(gpu.seen.whole.n_sms, 2 * gpu.n_bits);
	assert_int_equal(gpu.seen.last.n_sms, 2 * gpu.n_bits - 4);
	assert_true(gpu.seen.removed[gpu.bits[3] / 32] == UINT32_C(1) << gpu.bits[3] % 32);
}

static bool is_lone(const struct gpu *gpu, uint32_t i)
{
	return gpu->tpcs[gpu->group_of[gpu->bits[i]]] == 1;
}

/* Whenever it happens, what was found before does not make it through the proof. */
static void refuse_changes(const uint8_t *tpcs)
{
	uint32_t refused = 0, unproven = 0, looks;
	struct gpu gpu;
	struct hb_gpc_layout layout;
	make(&gpu, tpcs, HONEST);
	assert_int_equal(find(&gpu, &layout), HB_GPC_KNOWN);
	looks = gpu.looks;
	/* Before the first pair of bits nothing is known of them; after that the proof at the latest must tell. */
	for (uint32_t at = gpu.n_bits + 70; at + 40 < looks; at += 17) {
		make(&gpu, tpcs, CHANGES);
		gpu.fails_at = at;
		assert_true(gpu.group_of[gpu.bits[0]] != gpu.group_of[gpu.bits[1]] &&
			    !(is_lone(&gpu, 0) && is_lone(&gpu, 1)));
		enum hb_gpc_state state = find(&gpu, &layout);
		assert_true(state == HB_GPC_UNCLEAR || state == HB_GPC_NOT_PROVEN);
		refused++;
		unproven += state == HB_GPC_NOT_PROVEN;
	}
	assert_true(refused > 3 && unproven > 0);
}

static void test_bits_that_change_places_are_refused(void **state)
{
	(void)state;
	refuse_changes(even);
	refuse_changes(h200);
}

static void test_a_busy_gpu_is_looked_at_again(void **state)
{
	struct gpu gpu;
	struct hb_gpc_layout layout;
	(void)state;
	make(&gpu, h200, BUSY);
	assert_int_equal(find(&gpu, &layout), HB_GPC_KNOWN);
	check_layout(&gpu, &layout, 12);
}

static void test_what_ends_a_look_ends_the_search(void **state)
{
	struct gpu gpu;
	struct hb_gpc_layout layout, nothing = {0};
	(void)state;
	make(&gpu, h200, HONEST);
	assert_int_equal(find(&gpu, &layout), HB_GPC_KNOWN);
	for (uint32_t at = 0, all = gpu.looks; at < all; at += 23) {
		make(&gpu, h200, FAILS);
		gpu.fails_at = at;
		assert_int_equal(find(&gpu, &layout), HB_GPC_TOO_LONG);
		assert_int_equal(gpu.looks, at);
		assert_memory_equal(&layout, &nothing, sizeof layout);
	}
}

static void test_sights_that_cannot_be(void **state)
{
	struct hb_gpc_sights sights = {{0}};
	struct hb_gpc_sizes sizes;
	(void)state;
	assert_int_equal(hb_gpc_join(&sights, (const uint32_t[]){0, HB_GPC_SMS_MAX}, 2, 2), -EINVAL);
	assert_int_equal(hb_gpc_join(&sights, (const uint32_t[]){0, 1, 2}, 3, 2), -EINVAL);
	assert_int_equal(hb_gpc_join(&sights, (const uint32_t[]){0, 1, 2}, 3, 0), -EINVAL);
	memset(&sights, 0, sizeof sights);
	assert_int_equal(hb_gpc_join(&sights, (const uint32_t[]){5, 9, 7, 3, 255, 9}, 6, 2), 0);
	hb_gpc_sizes_of(&sights, &sizes);
	assert_int_equal(sizes.n_sms, 5);
	assert_int_equal(sizes.n_groups, 2);
	assert_int_equal(sizes.with[3], 1);
	assert_int_equal(sizes.with[2], 1);
}

/* ---- what is left out ---- */

enum { ROOM = HB_GPC_ROOM_SMS / HB_GPC_SMS_PER_BIT };

struct split {
	uint32_t n, in_part, n_groups;
	uint32_t high[17], low[17]; /* TPCs of each group that are left out, and that stay */
};

static void split(const struct gpu *gpu, uint32_t reserve, struct split *split)
{
	uint8_t groups[HB_GPC_BITS], rank[HB_GPC_BITS];
	for (uint32_t i = 0; i < gpu->n_bits; i++)
		groups[i] = gpu->group_of[gpu->bits[i]];
	memset(split, 0, sizeof *split);
	memset(rank, 0xff, sizeof rank);
	hb_gpc_mask_order(groups, gpu->n_bits, ROOM, reserve % ROOM, rank);
	for (uint32_t i = 0; i < gpu->n_bits; i++) {
		bool stays = rank[i] < gpu->n_bits - reserve;
		(stays ? split->low : split->high)[groups[i]]++;
		split->n += !stays;
	}
	for (uint32_t group = 1; group <= gpu->n_groups; group++)
		split->in_part += split->high[group] && split->low[group];
}

static uint32_t rooms(const uint32_t tpcs[17])
{
	uint32_t n = 0;
	for (uint32_t group = 1; group < 17; group++)
		n += tpcs[group] / ROOM;
	return n;
}

/* As many rooms for clusters of eight as the reserve can hold, all others stay, and one group at most is in two parts. */
static void test_h200_loses_no_room(void **state)
{
	struct gpu gpu;
	struct split is;
	(void)state;
	make(&gpu, h200, HONEST);
	for (uint32_t reserve = 0; reserve <= gpu.n_bits / 2; reserve++) {
		split(&gpu, reserve, &is);
		assert_int_equal(is.n, reserve);
		assert_int_equal(rooms(is.high), reserve / ROOM);
		assert_int_equal(rooms(is.high) + rooms(is.low), 15);
		assert_true(is.in_part <= 1);
	}
}

/* 32 SMs, which slack reserves at first, are two groups of 16; 30 are one, half of another and three lone TPCs. */
static void test_h200_at_the_first_reserve(void **state)
{
	struct gpu gpu;
	struct split is;
	(void)state;
	make(&gpu, h200, HONEST);
	split(&gpu, 16, &is);
	assert_int_equal(is.in_part, 0);
	for (uint32_t group = 1; group <= gpu.n_groups; group++)
		assert_true(is.high[group] == 0 || is.high[group] == 8);
	split(&gpu, 15, &is);
	uint32_t of[10] = {0};
	for (uint32_t group = 1; group <= gpu.n_groups; group++)
		of[is.high[group]]++;
	assert_true(of[8] == 1 && of[4] == 1 && of[1] == 3);
}

/* Whatever the groups, a mask that leaves half of the TPCs leaves room for a cluster, and all larger ones of its kind hold it. */
static void test_drawn_groups_keep_room(void **state)
{
	struct gpu dice = {.next = 11}, gpu;
	(void)state;
	for (int i = 0; i < 200; i++) {
		uint8_t tpcs[17] = {ROOM, ROOM};
		uint32_t n_groups = 2 + draw(&dice, 15);
		for (uint32_t group = 0; group < n_groups; group++)
			tpcs[group] = (uint8_t)(tpcs[group] + draw(&dice, 3) + (group > 1));
		tpcs[1] = (uint8_t)(tpcs[1] + draw(&dice, 2) * 20);
		for (uint32_t group = n_groups; group < 17; group++)
			tpcs[group] = 0;
		make(&gpu, tpcs, HONEST);
		struct split less = {0}, is;
		for (uint32_t beyond = 0; beyond < ROOM; beyond++, memset(&less, 0, sizeof less))
			for (uint32_t reserve = beyond; reserve <= gpu.n_bits / 2; reserve += ROOM, less = is) {
				split(&gpu, reserve, &is);
				assert_int_equal(is.n, reserve);
				assert_true(rooms(is.low) > 0 && is.in_part <= 1);
				for (uint32_t group = 1; group <= gpu.n_groups; group++)
					assert_true(is.high[group] >= less.high[group]);
			}
	}
}

static void test_states_are_told_by_their_word(void **unused)
{
	(void)unused;
	for (int i = 0; i < HB_N_GPC_STATES; i++) {
		enum hb_gpc_state state = HB_N_GPC_STATES;
		assert_true(hb_gpc_state_parse(hb_gpc_state_word((enum hb_gpc_state)i), &state));
		assert_int_equal(state, i);
		assert_string_not_equal(hb_gpc_state_text(state), "?");
	}
	enum hb_gpc_state state = HB_GPC_UNCLEAR;
	assert_false(hb_gpc_state_parse("known", &state));
	assert_false(hb_gpc_state_parse(NULL, &state));
	assert_int_equal(state, HB_GPC_UNCLEAR);
	assert_string_equal(hb_gpc_state_word(HB_N_GPC_STATES), "?");
	assert_string_equal(hb_gpc_state_text(HB_N_GPC_STATES), "?");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_groups_of_all_kinds_are_found),
		cmocka_unit_test(test_drawn_groups_are_found),
		cmocka_unit_test(test_an_h200_takes_few_looks),
		cmocka_unit_test(test_what_was_seen_is_told),
		cmocka_unit_test(test_what_is_no_gpu_of_groups_is_refused),
		cmocka_unit_test(test_bits_that_change_places_are_refused),
		cmocka_unit_test(test_a_busy_gpu_is_looked_at_again),
		cmocka_unit_test(test_what_ends_a_look_ends_the_search),
		cmocka_unit_test(test_sights_that_cannot_be),
		cmocka_unit_test(test_h200_loses_no_room),
		cmocka_unit_test(test_h200_at_the_first_reserve),
		cmocka_unit_test(test_drawn_groups_keep_room),
		cmocka_unit_test(test_states_are_told_by_their_word),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
