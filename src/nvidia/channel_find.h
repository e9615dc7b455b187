/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds which addresses of GPU memory share a memory channel, from times alone. The GPU's memory consists of units of 1 KiB;
 * all units of a class are served by the same part of the L2 cache and the same channel. Two units hammered with reductions
 * at the same time take about twice as long if they have the same class.
 *
 * A page of 2 MiB has 2048 units. Trying each unit against one unit of each class costs about 47 tests a unit on a GPU with
 * 94 classes. Pages are related: large parts of a page have the same classes as another page after an exclusive-or of the
 * unit's number. So a page is tried at random places first; relations to earlier pages that explain these places are
 * searched, and the classes that the relations predict are tried first.
 *
 * Called by channel_trial.c and by a unit test with a synthetic GPU. Pure: it neither calls the driver nor reads a clock.
 */
#ifndef HB_NVIDIA_CHANNEL_FIND_H
#define HB_NVIDIA_CHANNEL_FIND_H

#include "base/rng.h"

#include <stdbool.h>
#include <stdint.h>

#define HB_CHANNEL_UNIT_BYTES 1024u
#define HB_CHANNEL_PAGE_UNITS 2048u
#define HB_CHANNEL_PAGE_BYTES (HB_CHANNEL_UNIT_BYTES * HB_CHANNEL_PAGE_UNITS)
#define HB_CHANNEL_CLASSES_MOST 512u
#define HB_CHANNEL_PAGES_MOST 4096u
#define HB_CHANNEL_TESTS_MOST 4096u /* pairs in one call of the measurement */

/* Two byte offsets in the examined memory. */
struct hb_channel_pair {
	uint64_t a, b;
};

/*
 * Hammers each pair for itself; cycles[i] is the time of pair i in any unit. Returns 0 or a negative errno. -ETIME means that
 * the time is over.
 */
typedef int hb_channel_measure(void *user, const struct hb_channel_pair *pairs, uint32_t n, uint32_t *cycles);

struct hb_channel_map {
	uint32_t n_pages;                       /* pages that were mapped completely */
	uint32_t n_classes;                     /* classes that were found */
	uint32_t guessed;                       /* units whose class a relation predicted */
	uint32_t related;                       /* pages of which a relation was found */
	uint64_t tests;                         /* pairs that were measured, those of the second look not included */
	uint32_t same_cycles, different_cycles; /* medians of the last calibration */
	uint16_t *class_of;                     /* of each unit */
};

/* How well a second look agrees that knows the classes, but not the class of any unit. */
struct hb_channel_check {
	uint32_t units, repeated;
	uint32_t
		pieces[3]; /* of these units: the bytes at 256, 512 and 768 share the class of the unit's first bytes */
};

struct hb_channel_finder;

/* Returns NULL without memory. The map and the finder are freed together. */
struct hb_channel_finder *hb_channel_finder_new(hb_channel_measure *measure, void *user, uint64_t seed);
void hb_channel_finder_free(struct hb_channel_finder *finder);
const struct hb_channel_map *hb_channel_map_of(const struct hb_channel_finder *finder);

/*
 * Maps the next n_pages pages. Returns 0, or: -ETIME from the measurement (complete pages are kept), -ENOTSUP if times
 * do not tell classes apart, -E2BIG with more than HB_CHANNEL_CLASSES_MOST classes, -ENOMEM, or another error of the measurement.
 */
int hb_channel_find(struct hb_channel_finder *finder, uint32_t n_pages);

/* Classifies n_units units of the mapped pages again, chosen at random. Needs a mapped page. Returns as hb_channel_find(). */
int hb_channel_check_units(struct hb_channel_finder *finder, uint32_t n_units, struct hb_channel_check *check);

#endif
