/* SPDX-License-Identifier: Apache-2.0 */
/* Maps memory units to classes; see channel_find.h. */
#include "nvidia/channel_find.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Tests of a calibration. A quarter of random pairs must differ, so the lower quartile is a time of different classes. */
#define CALIBRATION 64u
/* Same pairs must take this much longer (percent), else times tell nothing; an H200 shows 196. */
#define APART_PERCENT 130u
/* Units that are tried against all classes before relations are searched, and again while a page has many units left. */
#define SAMPLE 48u
#define FEW_UNITS 128u
/* Relations are searched in this many pages at most: page 0 and the latest. */
#define PAGES_SEARCHED 64u
#define RELATIONS_MOST 8u
/* Relations that exist only by chance are expected in fewer than one of ten searches. */
#define CHANCE 0.1
/* A new class is compared with the known ones this often; the middle result counts. */
#define VOTES 3u
#define UNKNOWN UINT16_MAX
#define CLASS_WORDS (HB_CHANNEL_CLASSES_MOST / 64u)

/* One unit whose class is searched. */
struct channel_search {
	uint64_t unit;   /* number in the examined memory */
	uint16_t class;  /* UNKNOWN until found */
	uint16_t next;   /* the next class in turn */
	uint16_t trying; /* the class of the pending test */
	uint64_t tried[CLASS_WORDS];
};

struct channel_relation {
	uint32_t page, with; /* unit u has the class of unit u ^ with of this page */
};

struct hb_channel_finder {
	hb_channel_measure *measure;
	void *user;
	struct hb_rng rng;
	struct hb_channel_map map;
	uint32_t pages_room;
	uint32_t threshold;
	uint64_t rep[HB_CHANNEL_CLASSES_MOST]; /* a unit of each class */
	struct channel_search search[HB_CHANNEL_PAGE_UNITS];
	/* Of the pending tests. */
	uint32_t n, chosen[HB_CHANNEL_PAGE_UNITS];
	struct hb_channel_pair pairs[HB_CHANNEL_TESTS_MOST];
	uint32_t cycles[HB_CHANNEL_TESTS_MOST];
};

struct hb_channel_finder *hb_channel_finder_new(hb_channel_measure *measure, void *user, uint64_t seed)
{
	struct hb_channel_finder *finder = calloc(1, sizeof *finder);
	if (!finder)
		return NULL;
	finder->measure = measure;
	finder->user = user;
	hb_rng_init(&finder->rng, seed, 0);
	return finder;
}

void hb_channel_finder_free(struct hb_channel_finder *finder)
{
	if (!finder)
		return;
	free(finder->map.class_of);
	free(finder);
}

const struct hb_channel_map *hb_channel_map_of(const struct hb_channel_finder *finder)
{
	return &finder->map;
}

/* --- tests --------------------------------------------------------------------------------- */

static void add_pair(struct hb_channel_finder *finder, uint64_t unit, uint64_t other)
{
	finder->pairs[finder->n++] = (struct hb_channel_pair){unit * HB_CHANNEL_UNIT_BYTES,
							      other * HB_CHANNEL_UNIT_BYTES};
}

static int measure_pairs(struct hb_channel_finder *finder)
{
	finder->map.tests += finder->n;
	return finder->n ? finder->measure(finder->user, finder->pairs, finder->n, finder->cycles) : 0;
}

static int compare_cycles(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
	return x < y ? -1 : x > y;
}

/* Measures pairs that are the same and pairs at random, and sets the threshold between them. */
static int calibrate(struct hb_channel_finder *finder, uint64_t n_units)
{
	uint32_t *cycles = finder->cycles;
	finder->n = 0;
	for (uint32_t i = 0; i < CALIBRATION; i++) {
		uint64_t unit = hb_rng_below(&finder->rng, n_units);
		add_pair(finder, unit, unit);
	}
	for (uint32_t i = 0; i < CALIBRATION; i++)
		add_pair(finder, hb_rng_below(&finder->rng, n_units), hb_rng_below(&finder->rng, n_units));
	int result = measure_pairs(finder);
	if (result < 0)
		return result;
	qsort(cycles, CALIBRATION, sizeof *cycles, compare_cycles);
	qsort(cycles + CALIBRATION, CALIBRATION, sizeof *cycles, compare_cycles);
	finder->map.same_cycles = cycles[CALIBRATION / 2];
	finder->map.different_cycles = cycles[CALIBRATION + CALIBRATION / 4];
	finder->threshold = finder->map.same_cycles / 2 + finder->map.different_cycles / 2;
	return (uint64_t)finder->map.same_cycles * 100 < (uint64_t)finder->map.different_cycles * APART_PERCENT
		       ? -ENOTSUP
		       : 0;
}

static bool is_same(const struct hb_channel_finder *finder, uint32_t test)
{
	return finder->cycles[test] > finder->threshold;
}

/* --- the search for one unit's class ---------------------------------------------------------------- */

static void begin_search(struct hb_channel_finder *finder, uint32_t index, uint64_t unit)
{
	uint32_t n_classes = finder->map.n_classes;
	finder->search[index] = (struct channel_search){.unit = unit, .class = UNKNOWN};
	if (n_classes)
		finder->search[index].next = (uint16_t)hb_rng_below(&finder->rng, n_classes);
}

static bool has_tried(const struct channel_search *search, uint32_t class)
{
	return search->tried[class / 64] >> class % 64 & 1;
}

static void note_tried(struct channel_search *search, uint32_t class)
{
	search->tried[class / 64] |= UINT64_C(1) << class % 64;
}

/* Returns the next class in turn that was not tried, or UNKNOWN. */
static uint16_t find_untried(struct channel_search *search, uint32_t n_classes)
{
	for (uint32_t i = 0; i < n_classes; i++) {
		uint16_t class = search->next;
		search->next = (uint16_t)((class + 1u) % n_classes);
		if (!has_tried(search, class))
			return class;
	}
	return UNKNOWN;
}

static void add_search(struct hb_channel_finder *finder, uint32_t index, uint16_t class)
{
	struct channel_search *search = &finder->search[index];
	search->trying = class;
	note_tried(search, class);
	finder->chosen[finder->n] = index;
	add_pair(finder, search->unit, finder->rep[class]);
}

/*
 * Measures the pending tests. A slow test may be an interruption by another program, so it is measured again; it counts if
 * both are slow. A fast test is never the result of an interruption.
 */
static int run_searches(struct hb_channel_finder *finder)
{
	uint32_t again = 0;
	int result = measure_pairs(finder);
	for (uint32_t i = 0; result == 0 && i < finder->n; i++) {
		if (!is_same(finder, i))
			continue;
		finder->chosen[again] = finder->chosen[i];
		finder->pairs[again++] = finder->pairs[i];
	}
	finder->n = again;
	if (result == 0)
		result = measure_pairs(finder);
	for (uint32_t i = 0; result == 0 && i < again; i++) {
		struct channel_search *search = &finder->search[finder->chosen[i]];
		if (is_same(finder, i))
			search->class = search->trying;
	}
	return result;
}

/* Tries the listed units against all classes until each has a class or all were tried. */
static int search_all(struct hb_channel_finder *finder, const uint16_t *list, uint32_t n)
{
	for (;;) {
		finder->n = 0;
		for (uint32_t i = 0; i < n; i++) {
			struct channel_search *search = &finder->search[list[i]];
			uint16_t class = search->class == UNKNOWN ? find_untried(search, finder->map.n_classes)
								  : UNKNOWN;
			if (class != UNKNOWN)
				add_search(finder, list[i], class);
		}
		if (!finder->n)
			return 0;
		int result = run_searches(finder);
		if (result < 0)
			return result;
	}
}

/* --- relations between pages ---------------------------------------------------------------------- */

/* The classes of the page that is being mapped come from the searches, those of earlier pages from the map. */
static uint16_t get_related_class(const struct hb_channel_finder *finder, const struct channel_relation *relation,
				  uint32_t unit)
{
	return finder->map.class_of[(size_t)relation->page * HB_CHANNEL_PAGE_UNITS + (unit ^ relation->with)];
}

/*
 * Returns how many of n places a relation must explain, so that among `relations` false ones fewer than CHANCE explain as many.
 * A false relation explains a place with probability 1 / n_classes.
 */
static uint32_t find_least_score(uint32_t n, uint32_t n_classes, double relations)
{
	double p = 1.0 / (n_classes > 1 ? n_classes : 1), term = 1, sum = 0, tail[SAMPLE + 2] = {0}, terms[SAMPLE + 1];
	for (uint32_t k = 0; k < n; k++)
		term *= 1 - p;
	for (uint32_t k = 0; k <= n; k++) {
		terms[k] = term;
		term *= p < 1 ? (double)(n - k) / (k + 1) * p / (1 - p) : 0;
	}
	for (uint32_t k = n + 1; k-- > 0;) {
		sum += terms[k];
		tail[k] = sum;
	}
	uint32_t least = 1;
	while (least <= n && tail[least] * relations > CHANCE)
		least++;
	return least;
}

/* Counts for every exclusive-or how many of the listed units it explains through this page, and keeps the best relation. */
static void score_page(const struct hb_channel_finder *finder, uint32_t page, const uint16_t *list, uint32_t n,
		       struct channel_relation *best, uint32_t *best_score)
{
	const uint16_t *class_of = finder->map.class_of + (size_t)page * HB_CHANNEL_PAGE_UNITS;
	for (uint32_t with = 0; with < HB_CHANNEL_PAGE_UNITS; with++) {
		uint32_t score = 0;
		for (uint32_t i = 0; i < n; i++)
			score += class_of[list[i] ^ with] == finder->search[list[i]].class;
		if (score > *best_score) {
			*best_score = score;
			*best = (struct channel_relation){page, with};
		}
	}
}

/* Finds relations to earlier pages that explain the listed units, the best first. Changes the list. Returns their number. */
static uint32_t find_relations(const struct hb_channel_finder *finder, uint16_t *list, uint32_t n,
			       struct channel_relation *relations)
{
	uint32_t n_pages = finder->map.n_pages, found = 0;
	uint32_t n_searched = n_pages < PAGES_SEARCHED ? n_pages : PAGES_SEARCHED;
	while (found < RELATIONS_MOST && n) {
		uint32_t score = 0, left = 0;
		uint32_t least = find_least_score(n, finder->map.n_classes, (double)n_searched * HB_CHANNEL_PAGE_UNITS);
		for (uint32_t i = 0; i < n_searched; i++)
			score_page(finder, i ? n_pages - i : 0, list, n, &relations[found], &score);
		if (score < least)
			break;
		for (uint32_t i = 0; i < n; i++)
			if (get_related_class(finder, &relations[found], list[i]) != finder->search[list[i]].class)
				list[left++] = list[i];
		n = left;
		found++;
	}
	return found;
}

/* Tries all units of the page that have no class yet against the class that the relation predicts. */
static int try_relation(struct hb_channel_finder *finder, const struct channel_relation *relation)
{
	finder->n = 0;
	for (uint32_t unit = 0; unit < HB_CHANNEL_PAGE_UNITS; unit++) {
		struct channel_search *search = &finder->search[unit];
		uint16_t class = get_related_class(finder, relation, unit);
		if (search->class == UNKNOWN && !has_tried(search, class))
			add_search(finder, unit, class);
	}
	return run_searches(finder);
}

/* Lists the units without a class. Returns their number. */
static uint32_t list_open(const struct hb_channel_finder *finder, uint16_t list[static HB_CHANNEL_PAGE_UNITS])
{
	uint32_t n = 0;
	for (uint32_t unit = 0; unit < HB_CHANNEL_PAGE_UNITS; unit++)
		if (finder->search[unit].class == UNKNOWN)
			list[n++] = (uint16_t)unit;
	return n;
}

/* Moves `wanted` entries, drawn at random, to the front of the list. */
static void draw_front(struct hb_channel_finder *finder, uint16_t *list, uint32_t n, uint32_t wanted)
{
	for (uint32_t i = 0; i < wanted; i++) {
		uint32_t other = i + (uint32_t)hb_rng_below(&finder->rng, n - i);
		uint16_t unit = list[i];
		list[i] = list[other];
		list[other] = unit;
	}
}

/* Searches classes through relations, as long as relations are found for the units that are left. */
static int search_by_relations(struct hb_channel_finder *finder)
{
	uint16_t list[HB_CHANNEL_PAGE_UNITS];
	struct channel_relation relations[RELATIONS_MOST];
	bool related = false;
	for (;;) {
		uint32_t n = list_open(finder, list), classified = 0;
		if (n <= FEW_UNITS)
			return 0;
		draw_front(finder, list, n, SAMPLE);
		int result = search_all(finder, list, SAMPLE);
		if (result < 0)
			return result;
		for (uint32_t i = 0; i < SAMPLE; i++)
			if (finder->search[list[i]].class != UNKNOWN)
				list[classified++] = list[i];
		n = find_relations(finder, list, classified, relations);
		if (!n)
			return 0;
		finder->map.related += !related;
		related = true;
		uint32_t before = list_open(finder, list);
		for (uint32_t i = 0; i < n; i++)
			if ((result = try_relation(finder, &relations[i])) < 0)
				return result;
		finder->map.guessed += before - list_open(finder, list);
	}
}

/* --- new classes -------------------------------------------------------------------------------- */

/* Returns in *class the known class of the unit, by a vote of several tests, or UNKNOWN. */
static int find_by_vote(struct hb_channel_finder *finder, uint64_t unit, uint16_t *class)
{
	finder->n = 0;
	for (uint32_t i = 0; i < finder->map.n_classes * VOTES; i++)
		add_pair(finder, unit, finder->rep[i / VOTES]);
	int result = measure_pairs(finder);
	uint32_t most = VOTES / 2;
	*class = UNKNOWN;
	for (uint32_t i = 0; result == 0 && i < finder->map.n_classes; i++) {
		uint32_t votes = 0;
		for (uint32_t k = 0; k < VOTES; k++)
			votes += is_same(finder, i * VOTES + k);
		if (votes > most) {
			most = votes;
			*class = (uint16_t)i;
		}
	}
	return result;
}

/* Makes the unit stand for a class: a known one that a search missed, or a new one. */
static int take_class(struct hb_channel_finder *finder, uint32_t index)
{
	struct channel_search *search = &finder->search[index];
	int result = find_by_vote(finder, search->unit, &search->class);
	if (result < 0 || search->class != UNKNOWN)
		return result;
	if (finder->map.n_classes == HB_CHANNEL_CLASSES_MOST)
		return -E2BIG;
	finder->rep[finder->map.n_classes] = search->unit;
	search->class = (uint16_t)finder->map.n_classes++;
	return 0;
}

/* Gives units that match no known class new classes, and tries the others of them against each new class. */
static int add_classes(struct hb_channel_finder *finder)
{
	uint16_t list[HB_CHANNEL_PAGE_UNITS];
	uint32_t n;
	while ((n = list_open(finder, list)) > 0) {
		uint32_t classes = finder->map.n_classes;
		int result = take_class(finder, list[0]);
		finder->n = 0;
		for (uint32_t i = 1; result == 0 && finder->map.n_classes > classes && i < n; i++)
			add_search(finder, list[i], (uint16_t)classes);
		if (result == 0)
			result = run_searches(finder);
		if (result < 0)
			return result;
	}
	return 0;
}

/* --- pages ---------------------------------------------------------------------------------------- */

static int need_page_room(struct hb_channel_finder *finder)
{
	if (finder->map.n_pages < finder->pages_room)
		return 0;
	if (finder->pages_room >= HB_CHANNEL_PAGES_MOST)
		return -E2BIG;
	uint32_t room = finder->pages_room ? finder->pages_room * 2 : 16;
	uint16_t *bigger = realloc(finder->map.class_of, (size_t)room * HB_CHANNEL_PAGE_UNITS * sizeof *bigger);
	if (!bigger)
		return -ENOMEM;
	finder->map.class_of = bigger;
	finder->pages_room = room;
	return 0;
}

static int search_page(struct hb_channel_finder *finder)
{
	uint16_t list[HB_CHANNEL_PAGE_UNITS];
	uint64_t first = (uint64_t)finder->map.n_pages * HB_CHANNEL_PAGE_UNITS;
	for (uint32_t unit = 0; unit < HB_CHANNEL_PAGE_UNITS; unit++)
		begin_search(finder, unit, first + unit);
	int result = finder->map.n_pages ? search_by_relations(finder) : 0;
	if (result == 0)
		result = search_all(finder, list, list_open(finder, list));
	return result < 0 ? result : add_classes(finder);
}

int hb_channel_find(struct hb_channel_finder *finder, uint32_t n_pages)
{
	for (uint32_t i = 0; i < n_pages; i++) {
		uint64_t n_units = (uint64_t)(finder->map.n_pages + 1) * HB_CHANNEL_PAGE_UNITS;
		uint32_t guessed = finder->map.guessed, related = finder->map.related;
		int result = need_page_room(finder);
		if (result == 0)
			result = calibrate(finder, n_units);
		if (result == 0)
			result = search_page(finder);
		if (result < 0) {
			finder->map.guessed = guessed;
			finder->map.related = related;
			return result;
		}
		uint16_t *class_of = finder->map.class_of + (n_units - HB_CHANNEL_PAGE_UNITS);
		for (uint32_t unit = 0; unit < HB_CHANNEL_PAGE_UNITS; unit++)
			class_of[unit] = finder->search[unit].class;
		finder->map.n_pages++;
	}
	return 0;
}

/* --- the second look -------------------------------------------------------------------------- */

/* Compares the pieces of the searched units with their first bytes. */
static int compare_pieces(struct hb_channel_finder *finder, uint32_t n, struct hb_channel_check *check)
{
	finder->n = 0;
	for (uint32_t piece = 0; piece < 3; piece++) {
		for (uint32_t i = 0; i < n; i++) {
			add_pair(finder, finder->search[i].unit, finder->search[i].unit);
			finder->pairs[finder->n - 1].b += (piece + 1) * (HB_CHANNEL_UNIT_BYTES / 4);
		}
	}
	int result = measure_pairs(finder);
	for (uint32_t i = 0; result == 0 && i < finder->n; i++)
		check->pieces[i / n] += is_same(finder, i);
	return result;
}

static int check_some(struct hb_channel_finder *finder, uint32_t n, struct hb_channel_check *check)
{
	uint16_t list[HB_CHANNEL_PAGE_UNITS];
	uint64_t n_units = (uint64_t)finder->map.n_pages * HB_CHANNEL_PAGE_UNITS;
	for (uint32_t i = 0; i < n; i++) {
		begin_search(finder, i, hb_rng_below(&finder->rng, n_units));
		list[i] = (uint16_t)i;
	}
	int result = search_all(finder, list, n);
	if (result == 0)
		result = compare_pieces(finder, n, check);
	for (uint32_t i = 0; result == 0 && i < n; i++)
		check->repeated += finder->search[i].class == finder->map.class_of[finder->search[i].unit];
	check->units += result == 0 ? n : 0;
	return result;
}

int hb_channel_check_units(struct hb_channel_finder *finder, uint32_t n_units, struct hb_channel_check *check)
{
	uint64_t tests = finder->map.tests;
	int result = finder->map.n_pages ? 0 : -EINVAL;
	memset(check, 0, sizeof *check);
	while (result == 0 && check->units < n_units) {
		uint32_t n = n_units - check->units < 1024 ? n_units - check->units : 1024;
		result = calibrate(finder, (uint64_t)finder->map.n_pages * HB_CHANNEL_PAGE_UNITS);
		if (result == 0)
			result = check_some(finder, n, check);
	}
	finder->map.tests = tests;
	return result;
}
