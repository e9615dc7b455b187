/* SPDX-License-Identifier: Apache-2.0 */
/*
 * On which GPUs a program runs that may run anywhere (`hb run --gpus N`). placement.c has the rules. Pure: the daemon
 * (daemon/placements.c) and the scenarios in tests/placement fill the same facts. Memory is fixed, sizes are in bytes,
 * one thread at a time.
 */
#ifndef HB_CORE_PLACEMENT_H
#define HB_CORE_PLACEMENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HB_PLACEMENT_GPUS_MAX 64
#define HB_PLACEMENT_GANGS_MAX 512
#define HB_PLACEMENT_TEXT_MAX 2048 /* of a description; a longer one is cut */

/* The facts about one GPU. In the fields of memory, 0 means that the driver does not report it. */
struct hb_placement_gpu {
	char label[24];                         /* for people, such as "GPU 3" */
	bool is_lost;                           /* it does not answer the driver */
	bool is_hidden;                         /* the program may not use it */
	uint64_t total_bytes, used_bytes;       /* of all programs */
	uint64_t reserve_bytes, low_used_bytes; /* what LP may not use, and what it uses */
	uint64_t claimed_bytes;     /* what placed programs may still allocate beyond what they use: HP's part, */
	uint64_t low_claimed_bytes; /* and LP's */
	uint32_t n_high, n_low;     /* programs, also placed ones that have not registered yet */
	uint32_t high_ppm;          /* share of the last seconds in which HP's requests ran */
	uint32_t slack_ppm;         /* slack of HP's tightest objective, relative to it; 1000000 = there is none */
};

struct hb_placement_facts {
	uint32_t n_gpus; /* in the order of the bus */
	struct hb_placement_gpu gpus[HB_PLACEMENT_GPUS_MAX];
	uint32_t n_gangs;
	uint64_t gangs[HB_PLACEMENT_GANGS_MAX]; /* one bit for each GPU that the gang uses */
};

struct hb_placement_wish {
	bool is_high;
	uint32_t n_gpus;       /* at least 1 */
	uint64_t memory_bytes; /* on each GPU; 0 = not known */
};

struct hb_placement_choice {
	uint32_t n_order;                      /* GPUs that suit the program */
	uint32_t order[HB_PLACEMENT_GPUS_MAX]; /* best first */
	uint64_t chosen;                       /* one bit for each GPU; 0 = not enough suit */
	bool joins_gang; /* the GPUs of another gang were preferred to the first ones of the order */
	const char
		*rule; /* the rule that preferred the last chosen GPU to the first other one; "" = there is no other */
};

/* Chooses. 0; -ENODEV: there are fewer GPUs than wished; -ENOSPC: fewer suit. The order is filled in any case. */
int hb_placement_choose(const struct hb_placement_facts *facts, const struct hb_placement_wish *wish,
			struct hb_placement_choice *choice);

/* A program is on this GPU, or was placed there: counts it, and the memory that it may still allocate. `gpu` below n_gpus. */
void hb_placement_claim(struct hb_placement_facts *facts, uint32_t gpu, bool is_high, uint64_t bytes);
/* A program uses these GPUs. One GPU is no gang; a gang beyond HB_PLACEMENT_GANGS_MAX is not counted. */
void hb_placement_add_gang(struct hb_placement_facts *facts, uint64_t gpus);

/* "GPU 1; why: ...; order: GPU 1 (...), GPU 0 (...); not suited: GPU 2 (...)". Returns `text`. */
const char *hb_placement_describe(const struct hb_placement_facts *facts, const struct hb_placement_wish *wish,
				  const struct hb_placement_choice *choice, char *text, size_t size);

#endif
