/* SPDX-License-Identifier: Apache-2.0 */
/* Maps memory channels; see doctor_channels.h. */
#include "cli/doctor_channels.h"

#include "base/clock.h"
#include "base/json.h"
#include "cli/cli.h"
#include "cli/doctor_slice.h"
#include "cli/trial_calls.h"
#include "nvidia/channel_trial.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A second look at this many units shows a share of 99.9 % to within 0.1 points. */
#define CHECK_UNITS 4096u
#define REPEATED_LEAST 0.999

struct channel_outcome {
	struct hb_channel_finding finding;
	struct hb_channel_map map;  /* zero without a map */
	uint32_t smallest, largest; /* units of a class in one page */
	double repeated;            /* share */
	bool works;
	char found[300];
};

static const char *find_calls(void *library, struct hb_channel_calls *calls)
{
#define X(name) \
	calls->name = (__typeof__(calls->name))dlsym(library, #name); \
	if (!calls->name) \
		return #name;
	HB_CHANNEL_CALLS(X)
#undef X
	return NULL;
}

static void measure_classes(struct channel_outcome *outcome)
{
	const struct hb_channel_map *map = &outcome->map;
	outcome->smallest = HB_CHANNEL_PAGE_UNITS;
	for (uint32_t page = 0; page < map->n_pages; page++) {
		uint32_t size[HB_CHANNEL_CLASSES_MOST] = {0};
		for (uint32_t unit = 0; unit < HB_CHANNEL_PAGE_UNITS; unit++)
			size[map->class_of[page * HB_CHANNEL_PAGE_UNITS + unit]]++;
		for (uint32_t class = 0; class < map->n_classes; class ++) {
			outcome->smallest = size[class] < outcome->smallest ? size[class] : outcome->smallest;
			outcome->largest = size[class] > outcome->largest ? size[class] : outcome->largest;
		}
	}
}

static void describe_failure(struct channel_outcome *outcome, int result)
{
	const struct hb_channel_finding *finding = &outcome->finding;
	if (finding->failed)
		snprintf(outcome->found, sizeof outcome->found, "%s failed with CUDA error %d", finding->failed,
			 (int)finding->code);
	else if (result == -ENOTSUP)
		snprintf(outcome->found, sizeof outcome->found,
			 "one address takes %u cycles and two addresses take %u, so times do not tell channels apart",
			 outcome->map.same_cycles, outcome->map.different_cycles);
	else if (result == -E2BIG)
		snprintf(outcome->found, sizeof outcome->found,
			 "more than %u classes appeared; other programs may disturb the times",
			 HB_CHANNEL_CLASSES_MOST);
	else if (result == -ETIME)
		snprintf(outcome->found, sizeof outcome->found,
			 "no page was mapped within the limit; give more time with --limit");
	else
		snprintf(outcome->found, sizeof outcome->found, "the map was not made: %s", strerror(-result));
}

static void describe_map(struct channel_outcome *outcome, uint32_t pages)
{
	const struct hb_channel_map *map = &outcome->map;
	int length = snprintf(outcome->found, sizeof outcome->found,
			      "%u classes of 1 KiB units in %u pages of 2 MiB (%u to %u units of a class in a page); "
			      "a second look at %u units agrees with %.2f %%",
			      map->n_classes, map->n_pages, outcome->smallest, outcome->largest,
			      outcome->finding.check.units, 100 * outcome->repeated);
	if (map->n_pages < pages)
		snprintf(outcome->found + length, sizeof outcome->found - (size_t)length,
			 "; the limit did not suffice for all %u pages", pages);
}

static void try_channels(void *library, struct channel_outcome *outcome, uint32_t pages, int64_t limit_ns)
{
	struct hb_trial_calls begin;
	struct hb_channel_calls calls;
	int code = 0;
	const char *failed = find_calls(library, &calls);
	if (!failed)
		failed = hb_trial_begin(library, &begin, &code);
	if (failed) {
		snprintf(outcome->found, sizeof outcome->found, "%s is missing or failed (CUDA error %d)", failed,
			 code);
		return;
	}
	const struct hb_channel_request request = {.pages = pages, .check_units = CHECK_UNITS, .limit_ns = limit_ns};
	int result = hb_channel_trial(&calls, &request, &outcome->finding);
	if (outcome->finding.finder)
		outcome->map = *hb_channel_map_of(outcome->finding.finder);
	if (result < 0) {
		describe_failure(outcome, result);
		return;
	}
	const struct hb_channel_check *check = &outcome->finding.check;
	outcome->repeated = check->units ? (double)check->repeated / check->units : 0;
	outcome->works = outcome->repeated >= REPEATED_LEAST;
	measure_classes(outcome);
	describe_map(outcome, pages);
}

/* The share of units whose piece at 256, 512 or 768 bytes has the class of the unit's first bytes. */
static double get_piece_share(const struct channel_outcome *outcome, int piece)
{
	const struct hb_channel_check *check = &outcome->finding.check;
	return check->units ? (double)check->pieces[piece] / check->units : 0;
}

static json_t *describe_outcome(const struct channel_outcome *outcome)
{
	const struct hb_channel_map *map = &outcome->map;
	const struct hb_channel_finding *finding = &outcome->finding;
	json_t *answer = hb_json_pack(NULL, "{s:i, s:b, s:s, s:i, s:i, s:i, s:i}", "version", 1, "works",
				      (int)outcome->works, "found", outcome->found, "pages", (int)map->n_pages,
				      "classes", (int)map->n_classes, "smallest", (int)outcome->smallest, "largest",
				      (int)outcome->largest);
	json_t *more = hb_json_pack(
		NULL, "{s:i, s:i, s:f, s:I, s:f, s:f, s:i, s:i, s:[f,f,f]}", "related_pages", (int)map->related,
		"guessed_units", (int)map->guessed, "repeated", outcome->repeated, "tests", (json_int_t)map->tests,
		"map_seconds", (double)finding->map_ns / HB_NS_PER_S, "check_seconds",
		(double)finding->check_ns / HB_NS_PER_S, "same_cycles", (int)map->same_cycles, "different_cycles",
		(int)map->different_cycles, "same_inside", get_piece_share(outcome, 0), get_piece_share(outcome, 1),
		get_piece_share(outcome, 2));
	json_object_update(answer, more);
	json_decref(more);
	return answer;
}

static void print_outcome(const struct channel_outcome *outcome)
{
	const struct hb_channel_map *map = &outcome->map;
	printf("%s  memory channels: %s\n", outcome->works ? "ok     " : "without", outcome->found);
	if (!map->n_pages)
		return;
	printf("         %llu tests in %.1f s; two addresses take %u cycles in one class and %u in two\n",
	       (unsigned long long)map->tests, (double)outcome->finding.map_ns / HB_NS_PER_S, map->same_cycles,
	       map->different_cycles);
	printf("         related to an earlier page: %u pages, which told the class of %u units\n", map->related,
	       map->guessed);
}

int hb_doctor_channels(bool simulated, bool json, uint32_t pages, int64_t limit_ns)
{
	struct channel_outcome outcome = {.works = false};
	setenv("CUDA_MPS_PIPE_DIRECTORY", "/nonexistent/mps", 1); /* so that the context is outside any MPS server */
	void *library = hb_doctor_open_driver(simulated);
	int result = 0;
	if (library)
		try_channels(library, &outcome, pages, limit_ns);
	else
		snprintf(outcome.found, sizeof outcome.found, "%.290s", dlerror());
	if (json) {
		json_t *answer = describe_outcome(&outcome);
		result = hb_json_write(answer, stdout, NULL);
		json_decref(answer);
	} else {
		print_outcome(&outcome);
	}
	hb_channel_finder_free(outcome.finding.finder);
	return result == 0 && outcome.works ? HB_EXIT_OK : HB_EXIT_FAILURE;
}
