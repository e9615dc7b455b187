/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Scenarios of placement: facts about GPUs, programs to be placed, and the exact text of
 * the choice. A placed program counts for the next ones.
 *
 *	placement_scenario [--check | --refresh] FILE.txt|FOLDER... (golden/golden_main.h)
 *
 * tests/placement/README.md explains the language.
 */
#include "base/units.h"
#include "core/placement.h"
#include "golden/golden_main.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t read_bytes(char **words, uint32_t n, const char *key)
{
	const char *value = hb_golden_value(words, n, key);
	struct hb_error error;
	uint64_t bytes = 0;
	if (value && hb_bytes_parse(value, &bytes, &error) < 0)
		printf("%s: %s\n", key, error.text);
	return bytes;
}

static uint32_t read_number(char **words, uint32_t n, const char *key, uint32_t otherwise)
{
	const char *value = hb_golden_value(words, n, key);
	return value ? (uint32_t)strtoul(value, NULL, 10) : otherwise;
}

static bool has_word(char **words, uint32_t n, const char *word)
{
	for (uint32_t i = 0; i < n; i++)
		if (strcmp(words[i], word) == 0)
			return true;
	return false;
}

static void set_gpu(struct hb_placement_facts *facts, char **words, uint32_t n)
{
	uint32_t number = (uint32_t)strtoul(words[1], NULL, 10);
	struct hb_placement_gpu *gpu = &facts->gpus[number];
	if (number >= facts->n_gpus)
		facts->n_gpus = number + 1;
	*gpu = (struct hb_placement_gpu){
		.is_lost = has_word(words, n, "lost"),
		.is_hidden = has_word(words, n, "hidden"),
		.total_bytes = read_bytes(words, n, "total"),
		.used_bytes = read_bytes(words, n, "used"),
		.reserve_bytes = read_bytes(words, n, "reserve"),
		.low_used_bytes = read_bytes(words, n, "low_used"),
		.n_high = read_number(words, n, "high", 0),
		.n_low = read_number(words, n, "low", 0),
		.high_ppm = read_number(words, n, "busy", 0) * 10000,
		.slack_ppm = read_number(words, n, "slack", 100) * 10000,
	};
	snprintf(gpu->label, sizeof gpu->label, "GPU %u", number);
}

static void add_gang(struct hb_placement_facts *facts, char **words, uint32_t n)
{
	uint64_t set = 0;
	for (uint32_t i = 1; i < n; i++)
		set |= UINT64_C(1) << strtoul(words[i], NULL, 10);
	hb_placement_add_gang(facts, set);
}

static void place_program(struct hb_placement_facts *facts, char **words, uint32_t n, FILE *out)
{
	struct hb_placement_wish wish = {.is_high = strcmp(words[1], "high") == 0,
					 .n_gpus = (uint32_t)strtoul(words[2], NULL, 10),
					 .memory_bytes = read_bytes(words, n, "memory")};
	struct hb_placement_choice choice;
	char text[HB_PLACEMENT_TEXT_MAX];
	int result = hb_placement_choose(facts, &wish, &choice);
	hb_placement_describe(facts, &wish, &choice, text, sizeof text);
	fprintf(out, "%s %s: %s%s\n", words[1], words[2], result ? strerror(-result) : "", result ? "" : text);
	if (result)
		fprintf(out, "  %s\n", text);
	for (uint32_t gpu = 0; gpu < facts->n_gpus; gpu++)
		if (choice.chosen >> gpu & 1)
			hb_placement_claim(facts, gpu, wish.is_high, wish.memory_bytes);
	hb_placement_add_gang(facts, choice.chosen);
}

static void run_scenario(const char *name, FILE *in, FILE *out)
{
	struct hb_placement_facts *facts = calloc(1, sizeof *facts);
	char *line = NULL;
	size_t room = 0;
	for (int number = 1; getline(&line, &room, in) > 0; number++) {
		char *words[HB_GOLDEN_WORDS];
		uint32_t n = hb_golden_split(line, words);
		if (!n || words[0][0] == '#')
			continue;
		if (strcmp(words[0], "gpu") == 0 && n > 1 && strtoul(words[1], NULL, 10) < HB_PLACEMENT_GPUS_MAX)
			set_gpu(facts, words, n);
		else if (strcmp(words[0], "gang") == 0)
			add_gang(facts, words, n);
		else if (strcmp(words[0], "place") == 0 && n > 2)
			place_program(facts, words, n, out);
		else
			fprintf(out, "%s:%d: %s: no such command\n", name, number, words[0]);
	}
	free(line);
	free(facts);
}

int main(int argc, char **argv)
{
	return hb_golden_main(argc, argv, run_scenario);
}
