/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Chooses the GPUs of a program; see placement.h.
 *
 * A GPU suits if it answers, if the program may use it, and if its free memory is at
 * least what the program asked for. LP does not get the memory reserve. Memory that
 * placed programs may still allocate does not count as free. If the driver reports no
 * memory, the GPU suits.
 *
 * The table `rules` orders the GPUs that suit. The first rule by which two GPUs differ
 * decides. A program goes to the GPU
 *  1. with the fewest HP tenants (HP), because requests of two of them delay each other,
 *     or to one without HP (LP);
 *  2. on which HP's requests leave more time;
 *  3. on which HP's objectives have more slack, so that LP may delay them more
 *     (rules 2 and 3 compare tenths, because the measurements vary);
 *  4. with fewer gangs. A gang is a program on several GPUs; its collectives wait
 *     for the slowest of them, so a program on one of its GPUs slows all;
 *  5. with fewer LP tenants;
 *  6. with more free memory, in GiB;
 *  7. that comes first in the order of the bus.
 *
 * A gang gets the first GPUs of that order. But if one of them belongs to another gang
 * and the two would share only some of their GPUs, each would wait for what runs on the
 * GPUs of the other. The new gang then gets all GPUs of one other gang of its size, if
 * there is one that is not worse by the rules 1 to 3.
 */
#include "core/placement.h"

#include "base/units.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define TENTH_PPM 100000
#define HIGH_RULES 3 /* the first rules, which are about HP */

static uint64_t subtract_bytes(uint64_t from, uint64_t bytes)
{
	return from > bytes ? from - bytes : 0;
}

/* UINT64_MAX = not known. */
static uint64_t count_free(const struct hb_placement_gpu *gpu, bool is_high)
{
	uint64_t claimed = gpu->claimed_bytes + gpu->low_claimed_bytes;
	if (!gpu->total_bytes)
		return UINT64_MAX;
	uint64_t unused = subtract_bytes(subtract_bytes(gpu->total_bytes, gpu->used_bytes), claimed);
	uint64_t for_low = subtract_bytes(subtract_bytes(gpu->total_bytes, gpu->reserve_bytes),
					  gpu->low_used_bytes + gpu->low_claimed_bytes);
	return is_high || unused < for_low ? unused : for_low;
}

static uint64_t bit(uint32_t gpu)
{
	return UINT64_C(1) << gpu;
}

static uint32_t count_bits(uint64_t set)
{
	return (uint32_t)__builtin_popcountll(set);
}

static const char *find_obstacle(const struct hb_placement_facts *facts, uint32_t index,
				 const struct hb_placement_wish *wish)
{
	const struct hb_placement_gpu *gpu = &facts->gpus[index];
	if (gpu->is_lost)
		return "it does not answer the driver";
	if (gpu->is_hidden)
		return "the program may not use it";
	return count_free(gpu, wish->is_high) < wish->memory_bytes ? "too little free memory" : NULL;
}

/* --- the rules: the smaller value is better ---------------------------------------------------------- */

typedef uint64_t rate_gpu(const struct hb_placement_facts *facts, uint32_t gpu, bool is_high);

static uint64_t rate_high(const struct hb_placement_facts *facts, uint32_t gpu, bool is_high)
{
	uint32_t n = facts->gpus[gpu].n_high;
	return is_high ? n : n > 0;
}

static uint64_t rate_time(const struct hb_placement_facts *facts, uint32_t gpu, bool is_high)
{
	return facts->gpus[gpu].high_ppm / TENTH_PPM;
}

static uint64_t rate_slack(const struct hb_placement_facts *facts, uint32_t gpu, bool is_high)
{
	return subtract_bytes(1000000, facts->gpus[gpu].slack_ppm) / TENTH_PPM;
}

static uint64_t rate_gangs(const struct hb_placement_facts *facts, uint32_t gpu, bool is_high)
{
	uint64_t n = 0;
	for (uint32_t i = 0; i < facts->n_gangs; i++)
		n += (facts->gangs[i] & bit(gpu)) != 0;
	return n;
}

static uint64_t rate_low(const struct hb_placement_facts *facts, uint32_t gpu, bool is_high)
{
	return facts->gpus[gpu].n_low;
}

static uint64_t rate_memory(const struct hb_placement_facts *facts, uint32_t gpu, bool is_high)
{
	uint64_t bytes = count_free(&facts->gpus[gpu], is_high);
	return UINT64_MAX - (bytes == UINT64_MAX ? 0 : bytes >> 30);
}

static uint64_t rate_bus(const struct hb_placement_facts *facts, uint32_t gpu, bool is_high)
{
	return gpu;
}

static const struct {
	rate_gpu *rate;
	const char *words;
} rules[] = {
	{rate_high, "less high priority there"},
	{rate_time, "high priority leaves more time there"},
	{rate_slack, "objectives of high priority have more slack there"},
	{rate_gangs, "fewer programs over several GPUs there"},
	{rate_low, "fewer programs of low priority there"},
	{rate_memory, "more free memory there"},
	{rate_bus, "the first of equal GPUs"},
};
#define N_RULES ((int)(sizeof rules / sizeof rules[0]))

/* The rule by which a and b differ; `end` = they do not, by the first `end` rules. *a_is_better is then false. */
static int find_rule(const struct hb_placement_facts *facts, bool is_high, uint32_t a, uint32_t b, int end,
		     bool *a_is_better)
{
	*a_is_better = false;
	for (int i = 0; i < end; i++) {
		uint64_t of_a = rules[i].rate(facts, a, is_high), of_b = rules[i].rate(facts, b, is_high);
		*a_is_better = of_a < of_b;
		if (of_a != of_b)
			return i;
	}
	return end;
}

/* --- choosing --------------------------------------------------------------------------------------- */

static void order_gpus(const struct hb_placement_facts *facts, const struct hb_placement_wish *wish,
		       struct hb_placement_choice *choice)
{
	bool is_better;
	for (uint32_t gpu = 0; gpu < facts->n_gpus; gpu++) {
		if (find_obstacle(facts, gpu, wish))
			continue;
		uint32_t at = choice->n_order++;
		for (; at > 0; at--) {
			find_rule(facts, wish->is_high, gpu, choice->order[at - 1], N_RULES, &is_better);
			if (!is_better)
				break;
			choice->order[at] = choice->order[at - 1];
		}
		choice->order[at] = gpu;
	}
}

/* The place in the order of the worst GPU of the set; n_order = one of them does not suit. */
static uint32_t find_worst(const struct hb_placement_choice *choice, uint64_t set)
{
	uint32_t worst = 0;
	for (uint32_t i = 0; i < choice->n_order; i++)
		if (set & bit(choice->order[i])) {
			worst = i;
			set &= ~bit(choice->order[i]);
		}
	return set ? choice->n_order : worst;
}

static bool shares_some(const struct hb_placement_facts *facts, uint64_t set)
{
	for (uint32_t i = 0; i < facts->n_gangs; i++)
		if (facts->gangs[i] & set && facts->gangs[i] != set)
			return true;
	return false;
}

/* The GPUs of another gang, if they are better than `set`, which shares only some GPUs with a gang; else `set`. */
static uint64_t join_gang(const struct hb_placement_facts *facts, const struct hb_placement_wish *wish,
			  const struct hb_placement_choice *choice, uint64_t set)
{
	uint32_t best = choice->n_order, last = choice->order[wish->n_gpus - 1];
	uint64_t found = set;
	bool is_better;
	if (!shares_some(facts, set))
		return set;
	for (uint32_t i = 0; i < facts->n_gangs; i++) {
		uint32_t worst = find_worst(choice, facts->gangs[i]);
		if (count_bits(facts->gangs[i]) != wish->n_gpus || worst >= best || shares_some(facts, facts->gangs[i]))
			continue;
		find_rule(facts, wish->is_high, last, choice->order[worst], HIGH_RULES, &is_better);
		if (is_better)
			continue;
		best = worst;
		found = facts->gangs[i];
	}
	return found;
}

/* Why the worst chosen GPU was preferred to the best one that was not chosen. */
static const char *explain_choice(const struct hb_placement_facts *facts, const struct hb_placement_wish *wish,
				  const struct hb_placement_choice *choice)
{
	bool is_better;
	if (choice->joins_gang)
		return "another program uses the same GPUs, so their collectives wait for no further GPU";
	if (choice->n_order == wish->n_gpus)
		return "";
	return rules[find_rule(facts, wish->is_high, choice->order[wish->n_gpus - 1], choice->order[wish->n_gpus],
			       N_RULES, &is_better)]
		.words;
}

int hb_placement_choose(const struct hb_placement_facts *facts, const struct hb_placement_wish *wish,
			struct hb_placement_choice *choice)
{
	*choice = (struct hb_placement_choice){.rule = ""};
	order_gpus(facts, wish, choice);
	if (wish->n_gpus > choice->n_order || !wish->n_gpus)
		return wish->n_gpus > facts->n_gpus ? -ENODEV : -ENOSPC;
	uint64_t first = 0;
	for (uint32_t i = 0; i < wish->n_gpus; i++)
		first |= bit(choice->order[i]);
	choice->chosen = wish->n_gpus > 1 ? join_gang(facts, wish, choice, first) : first;
	choice->joins_gang = choice->chosen != first;
	choice->rule = explain_choice(facts, wish, choice);
	return 0;
}

void hb_placement_claim(struct hb_placement_facts *facts, uint32_t gpu, bool is_high, uint64_t bytes)
{
	struct hb_placement_gpu *on = &facts->gpus[gpu];
	*(is_high ? &on->n_high : &on->n_low) += 1;
	*(is_high ? &on->claimed_bytes : &on->low_claimed_bytes) += bytes;
}

void hb_placement_add_gang(struct hb_placement_facts *facts, uint64_t gpus)
{
	if (count_bits(gpus) > 1 && facts->n_gangs < HB_PLACEMENT_GANGS_MAX)
		facts->gangs[facts->n_gangs++] = gpus;
}

/* --- describing -------------------------------------------------------------------------------------- */

struct description {
	char *text;
	size_t size, used;
};

static void __attribute__((format(printf, 2, 3))) add_text(struct description *to, const char *format, ...)
{
	va_list arguments;
	va_start(arguments, format);
	if (to->used < to->size) {
		int n = vsnprintf(to->text + to->used, to->size - to->used, format, arguments);
		to->used += n > 0 ? (size_t)n : 0;
	}
	va_end(arguments);
}

static void describe_gpu(struct description *to, const struct hb_placement_facts *facts, uint32_t index, bool is_high)
{
	const struct hb_placement_gpu *gpu = &facts->gpus[index];
	char bytes[HB_UNITS_TEXT_MAX];
	uint64_t unused = count_free(gpu, is_high), gangs = rate_gangs(facts, index, is_high);
	add_text(to, "%s (%u high", gpu->label, gpu->n_high);
	if (gpu->n_high)
		add_text(to, " using %u %%", (gpu->high_ppm + 5000) / 10000);
	if (gpu->n_high && gpu->slack_ppm < 1000000)
		add_text(to, " with %u %% slack", (gpu->slack_ppm + 5000) / 10000);
	add_text(to, ", %u low", gpu->n_low);
	if (gangs)
		add_text(to, ", %llu over several GPUs", (unsigned long long)gangs);
	if (unused == UINT64_MAX)
		add_text(to, ", free memory not known)");
	else
		add_text(to, ", %s free)", hb_bytes_format(unused >> 20 << 20, bytes));
}

static void describe_set(struct description *to, const struct hb_placement_facts *facts, uint64_t set)
{
	const char *separator = "";
	for (uint32_t gpu = 0; gpu < facts->n_gpus; gpu++)
		if (set & bit(gpu)) {
			add_text(to, "%s%s", separator, facts->gpus[gpu].label);
			separator = ", ";
		}
}

const char *hb_placement_describe(const struct hb_placement_facts *facts, const struct hb_placement_wish *wish,
				  const struct hb_placement_choice *choice, char *text, size_t size)
{
	struct description to = {text, size, 0};
	const char *obstacle, *separator = "; not suited: ";
	add_text(&to, "%s", choice->chosen ? "" : "none");
	describe_set(&to, facts, choice->chosen);
	if (choice->rule[0])
		add_text(&to, "; why: %s", choice->rule);
	for (uint32_t i = 0; i < choice->n_order; i++) {
		add_text(&to, "%s", i ? ", " : "; order: ");
		describe_gpu(&to, facts, choice->order[i], wish->is_high);
	}
	for (uint32_t gpu = 0; gpu < facts->n_gpus; gpu++) {
		obstacle = find_obstacle(facts, gpu, wish);
		if (!obstacle)
			continue;
		add_text(&to, "%s%s (%s)", separator, facts->gpus[gpu].label, obstacle);
		separator = ", ";
	}
	return text;
}
