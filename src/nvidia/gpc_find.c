/* SPDX-License-Identifier: Apache-2.0 */
/* Searches and proves groups of mask bits; see gpc_find.h. */
#include "nvidia/gpc_find.h"

#include "nvidia/gpc_mask_order.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

/* If other programs use the GPU, a look may miss SMs. It is repeated this often before its result counts. */
#define LOOKS_MOST 4

/* ---- sightings ---- */

static uint32_t find_first(const struct hb_gpc_sights *sights, uint32_t sm)
{
	while (sights->above[sm] != sm + 1)
		sm = sights->above[sm] - 1u;
	return sm;
}

static void note_sm(struct hb_gpc_sights *sights, uint32_t sm)
{
	if (!sights->above[sm])
		sights->above[sm] = (uint16_t)(sm + 1);
}

int hb_gpc_join(struct hb_gpc_sights *sights, const uint32_t *where, uint32_t n_blocks, uint32_t cluster)
{
	if (!cluster || n_blocks % cluster)
		return -EINVAL;
	for (uint32_t i = 0; i < n_blocks; i++) {
		if (where[i] >= HB_GPC_SMS_MAX)
			return -EINVAL;
		note_sm(sights, where[i]);
		uint32_t a = find_first(sights, where[i - i % cluster]), b = find_first(sights, where[i]);
		sights->above[a > b ? a : b] = (uint16_t)((a > b ? b : a) + 1);
	}
	return 0;
}

void hb_gpc_sizes_of(const struct hb_gpc_sights *sights, struct hb_gpc_sizes *sizes)
{
	uint16_t n[HB_GPC_SMS_MAX] = {0};
	memset(sizes, 0, sizeof *sizes);
	for (uint32_t sm = 0; sm < HB_GPC_SMS_MAX; sm++) {
		if (!sights->above[sm])
			continue;
		n[find_first(sights, sm)]++;
		sizes->n_sms++;
	}
	for (uint32_t sm = 0; sm < HB_GPC_SMS_MAX; sm++) {
		if (!n[sm])
			continue;
		sizes->n_groups++;
		sizes->with[n[sm]]++;
	}
}

/* ---- the search ---- */

struct gpc_search {
	hb_gpc_show *show;
	void *user;
	const uint8_t *bits;
	uint32_t n_bits;
	struct hb_gpc_sizes whole;
	struct hb_gpc_seen *seen;
	uint16_t class_of[HB_GPC_BITS]; /* size of the group of each of `bits` */
	uint8_t group_of[HB_GPC_BITS];  /* group of each of `bits`, from 1; 0 = unknown yet */
	uint16_t size_of[HB_GPC_MOST];
	uint32_t n_groups;
	enum hb_gpc_state failed; /* UNTRIED = the search has not failed */
};

struct tpc_removal {
	uint32_t word[HB_GPC_WORDS], n;
};

static void remove_bit(const struct gpc_search *search, struct tpc_removal *removal, uint32_t i)
{
	removal->word[search->bits[i] / 32] |= UINT32_C(1) << search->bits[i] % 32;
	removal->n++;
}

/* Shows the groups without these bits. False: the search has ended. */
static bool show_groups(struct gpc_search *search, const struct tpc_removal *removal, struct hb_gpc_sizes *sizes)
{
	uint32_t left = (search->n_bits - removal->n) * HB_GPC_SMS_PER_BIT;
	memset(sizes, 0, sizeof *sizes);
	int result = search->show(search->user, removal->word, left, sizes);
	search->seen->last = *sizes;
	memcpy(search->seen->removed, removal->word, sizeof removal->word);
	if (result < 0)
		search->failed = (enum hb_gpc_state) - result;
	return result >= 0;
}

/* Changes n groups of `from` SMs to groups of `to` SMs; a group of 0 SMs is gone. */
static void change_sizes(struct hb_gpc_sizes *sizes, uint32_t from, uint32_t to, uint32_t n)
{
	sizes->with[from] = (uint8_t)(sizes->with[from] - n);
	sizes->n_sms = (uint16_t)(sizes->n_sms - n * (from - to));
	if (to)
		sizes->with[to] = (uint8_t)(sizes->with[to] + n);
	else
		sizes->n_groups = (uint16_t)(sizes->n_groups - n);
}

bool hb_gpc_same_sizes(const struct hb_gpc_sizes *a, const struct hb_gpc_sizes *b)
{
	return a->n_groups == b->n_groups && a->n_sms == b->n_sms && memcmp(a->with, b->with, sizeof a->with) == 0;
}

/* Returns the only one of n expected lists that these sizes match; -1 = none, or more than one. */
static int find_match(const struct hb_gpc_sizes *sizes, const struct hb_gpc_sizes *expected, int n)
{
	int found = -1;
	for (int i = 0; i < n; i++) {
		if (!hb_gpc_same_sizes(sizes, &expected[i]))
			continue;
		if (found >= 0)
			return -1;
		found = i;
	}
	return found;
}

/* Looks and returns the i < n for which it sees expected[i]; -1: it repeatedly sees something else; ends the search then. */
static int look_and_match(struct gpc_search *search, const struct tpc_removal *removal,
			  const struct hb_gpc_sizes *expected, int n, enum hb_gpc_state otherwise)
{
	struct hb_gpc_sizes sizes;
	for (int again = 0; again < LOOKS_MOST; again++) {
		if (!show_groups(search, removal, &sizes))
			return -1;
		int found = find_match(&sizes, expected, n);
		if (found >= 0)
			return found;
	}
	search->failed = otherwise;
	return -1;
}

/* Whether each group consists of TPCs, and at least two groups have room for a cluster. */
static bool are_groups_sound(const struct gpc_search *search)
{
	const struct hb_gpc_sizes *whole = &search->whole;
	uint32_t n = 0, with_room = 0;
	for (uint32_t size = 1; size <= HB_GPC_SMS_MAX; size++) {
		if (whole->with[size] && size % HB_GPC_SMS_PER_BIT)
			return false;
		n += size * whole->with[size];
		with_room += size >= HB_GPC_ROOM_SMS ? whole->with[size] : 0;
	}
	return n == search->n_bits * HB_GPC_SMS_PER_BIT && whole->n_sms == n && with_room >= 2 &&
	       whole->n_groups <= HB_GPC_MOST;
}

static bool look_at_all(struct gpc_search *search)
{
	const struct tpc_removal nothing = {{0}, 0};
	for (int again = 0; again < LOOKS_MOST; again++) {
		bool looked = show_groups(search, &nothing, &search->whole);
		search->seen->whole = search->whole;
		if (!looked)
			return false;
		if (are_groups_sound(search))
			return true;
	}
	search->failed = HB_GPC_NO_GROUPS;
	return false;
}

/* Removes bit i to find the size of its group, which is the one that shrinks. */
static bool find_class(struct gpc_search *search, uint32_t i)
{
	struct hb_gpc_sizes expected[HB_GPC_MOST];
	uint16_t size_of[HB_GPC_MOST];
	struct tpc_removal removal = {{0}, 0};
	int n = 0;
	for (uint32_t size = HB_GPC_SMS_PER_BIT; size <= HB_GPC_SMS_MAX; size++) {
		if (!search->whole.with[size])
			continue;
		size_of[n] = (uint16_t)size;
		expected[n] = search->whole;
		change_sizes(&expected[n++], size, size - HB_GPC_SMS_PER_BIT, 1);
	}
	remove_bit(search, &removal, i);
	int found = look_and_match(search, &removal, expected, n, HB_GPC_UNCLEAR);
	if (found >= 0)
		search->class_of[i] = size_of[found];
	return found >= 0;
}

static bool find_classes(struct gpc_search *search)
{
	uint32_t n[HB_GPC_SMS_MAX + 1] = {0};
	for (uint32_t i = 0; i < search->n_bits; i++) {
		if (!find_class(search, i))
			return false;
		n[search->class_of[i]]++;
	}
	for (uint32_t size = 0; size <= HB_GPC_SMS_MAX; size++)
		if (n[size] * HB_GPC_SMS_PER_BIT != size * search->whole.with[size])
			search->failed = HB_GPC_UNCLEAR;
	return search->failed == HB_GPC_UNTRIED;
}

/* For two bits of groups of equal size and more than one bit: 1 = same group, 0 = different groups, -1 = unclear. */
static int are_together(struct gpc_search *search, uint32_t i, uint32_t j)
{
	struct tpc_removal removal = {{0}, 0};
	struct hb_gpc_sizes expected[2] = {search->whole, search->whole};
	uint32_t size = search->class_of[i];
	remove_bit(search, &removal, i);
	remove_bit(search, &removal, j);
	change_sizes(&expected[1], size, size - 2 * HB_GPC_SMS_PER_BIT, 1);
	if (search->whole.with[size] < 2)
		return look_and_match(search, &removal, &expected[1], 1, HB_GPC_UNCLEAR) == 0 ? 1 : -1;
	change_sizes(&expected[0], size, size - HB_GPC_SMS_PER_BIT, 2);
	return look_and_match(search, &removal, expected, 2, HB_GPC_UNCLEAR);
}

/* Finds the group whose first bit is i, by comparing i with each other bit of its class. */
static bool find_group(struct gpc_search *search, uint32_t i)
{
	uint32_t n = 1, size = search->class_of[i];
	if (search->n_groups == HB_GPC_MOST)
		return false;
	search->size_of[search->n_groups] = (uint16_t)size;
	search->group_of[i] = (uint8_t)++search->n_groups;
	for (uint32_t j = i + 1; size > HB_GPC_SMS_PER_BIT && j < search->n_bits; j++) {
		if (search->group_of[j] || search->class_of[j] != size)
			continue;
		int together = are_together(search, i, j);
		if (together < 0)
			return false;
		if (together)
			search->group_of[j] = search->group_of[i];
		n += (uint32_t)together;
	}
	if (n * HB_GPC_SMS_PER_BIT != size)
		search->failed = HB_GPC_UNCLEAR;
	return search->failed == HB_GPC_UNTRIED;
}

static bool find_groups(struct gpc_search *search)
{
	for (uint32_t i = 0; i < search->n_bits; i++)
		if (!search->group_of[i] && !find_group(search, i))
			return false;
	return search->n_groups == search->whole.n_groups;
}

/* ---- the proof ---- */

/* Removes as many bits as `group` has, from all groups in turn, but never a group's last bit. False: there are too few. */
static bool remove_in_turn(const struct gpc_search *search, uint32_t group, struct tpc_removal *removal,
			   uint32_t left[HB_GPC_MOST])
{
	uint32_t want = search->size_of[group] / HB_GPC_SMS_PER_BIT;
	for (uint32_t of = 0; of < search->n_groups; of++)
		left[of] = search->size_of[of];
	for (uint32_t round = 0; removal->n < want && round < want; round++)
		for (uint32_t i = 0; i < search->n_bits && removal->n < want; i++) {
			uint32_t of = search->group_of[i] - 1u, taken = search->size_of[of] - left[of];
			if (taken != round * HB_GPC_SMS_PER_BIT || left[of] == HB_GPC_SMS_PER_BIT ||
			    (removal->word[search->bits[i] / 32] >> search->bits[i] % 32 & 1))
				continue;
			remove_bit(search, removal, i);
			left[of] -= HB_GPC_SMS_PER_BIT;
		}
	return removal->n == want;
}

/* Computes what must remain after remove_in_turn(). */
static bool expect_spread(const struct gpc_search *search, uint32_t group, struct tpc_removal *removal,
			  struct hb_gpc_sizes *expected)
{
	uint32_t left[HB_GPC_MOST];
	memset(expected, 0, sizeof *expected);
	if (!remove_in_turn(search, group, removal, left))
		return false;
	for (uint32_t of = 0; of < search->n_groups; of++) {
		expected->with[left[of]]++;
		expected->n_sms = (uint16_t)(expected->n_sms + left[of]);
		expected->n_groups++;
	}
	return true;
}

static bool prove_group(struct gpc_search *search, uint32_t group)
{
	struct tpc_removal out = {{0}, 0}, only = {{0}, 0}, spread = {{0}, 0};
	struct hb_gpc_sizes without = search->whole, alone = {0}, others;
	uint32_t size = search->size_of[group];
	for (uint32_t i = 0; i < search->n_bits; i++)
		remove_bit(search, search->group_of[i] == group + 1 ? &out : &only, i);
	change_sizes(&without, size, 0, 1);
	alone.n_groups = alone.with[size] = 1;
	alone.n_sms = (uint16_t)size;
	if (look_and_match(search, &out, &without, 1, HB_GPC_NOT_PROVEN) < 0 ||
	    look_and_match(search, &only, &alone, 1, HB_GPC_NOT_PROVEN) < 0)
		return false;
	/* If the other groups are too small, this control cannot be done. */
	return !expect_spread(search, group, &spread, &others) ||
	       look_and_match(search, &spread, &others, 1, HB_GPC_NOT_PROVEN) == 0;
}

static void fill_layout(const struct gpc_search *search, struct hb_gpc_layout *layout)
{
	memset(layout, 0, sizeof *layout);
	for (uint32_t size = HB_GPC_SMS_MAX; size > 0; size--)
		for (uint32_t group = 0; group < search->n_groups; group++) {
			if (search->size_of[group] != size)
				continue;
			layout->sms[layout->n_groups++] = (uint8_t)size;
			for (uint32_t i = 0; i < search->n_bits; i++)
				if (search->group_of[i] == group + 1)
					layout->group_of[search->bits[i]] = layout->n_groups;
		}
}

enum hb_gpc_state hb_gpc_find(const uint8_t *bits, uint32_t n_bits, hb_gpc_show *show, void *user,
			      struct hb_gpc_layout *layout, struct hb_gpc_seen *seen)
{
	struct gpc_search search = {.show = show, .user = user, .bits = bits, .n_bits = n_bits, .seen = seen};
	memset(seen, 0, sizeof *seen);
	if (n_bits > HB_GPC_BITS || n_bits * HB_GPC_SMS_PER_BIT > HB_GPC_SMS_MAX)
		return HB_GPC_UNCLEAR;
	if (!look_at_all(&search) || !find_classes(&search))
		return search.failed;
	if (!find_groups(&search))
		return search.failed ? search.failed : HB_GPC_UNCLEAR;
	for (uint32_t group = 0; group < search.n_groups; group++)
		if (!prove_group(&search, group))
			return search.failed;
	fill_layout(&search, layout);
	return HB_GPC_KNOWN;
}
