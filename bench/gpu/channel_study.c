/* SPDX-License-Identifier: Apache-2.0 */
/*
 * channel-study: does it pay to keep HP and LP on separate memory channels? It maps its memory as `hb doctor --channels` does
 * (nvidia/channel_trial.h) and gives HP a third of the classes and LP the others ("apart"), or both any units ("anywhere";
 * no unit belongs to both). HP launches a kernel and waits, at the highest stream priority; a thread keeps LP's kernels queued.
 * Each round measures every pair in both ways, so that slow changes of the GPU affect both. docs/channels.md has the results.
 *
 *   channel-study [--pages 80] [--rounds 5] [--requests 400] [--limit SECONDS]
 *
 * It prints one JSON object. Exit status: 0 at least one round is complete, 1 otherwise, 2 bad command line.
 */
#include "base/clock.h"
#include "base/json.h"
#include "base/rng.h"
#include "nvidia/channel_trial.h"

#include <dlfcn.h>
#include <getopt.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS_MOST = 20, REQUESTS_MOST = 5000, LP_QUEUED = 8, CHECK_UNITS = 4096, WARM_REQUESTS = 20 };
enum touch_kind { READS, WRITES, ATOMICS, CHASES };
enum placement { ANYWHERE, APART, PLACEMENTS };

/* The kinds of work of HP, with the size of its launch. "half" needs about half of an H200's bandwidth. */
static const struct {
	const char *name;
	enum touch_kind kind;
	unsigned blocks, threads;
	uint64_t units;
} high[] = {
	{"read", READS, 32, 1024, 8192},
	{"half", READS, 66, 1024, 32768},
	{"chase", CHASES, 32, 32, 2048},
	{"atomics", ATOMICS, 32, 1024, 8192},
};
enum { HIGHS = sizeof high / sizeof high[0] };

/* LP fills 100 SMs; row 0 is HP alone. */
static const struct {
	const char *name;
	enum touch_kind kind;
} low[] = {{"none", READS}, {"read", READS}, {"write", WRITES}, {"atomics", ATOMICS}};
enum { LOWS = sizeof low / sizeof low[0], LP_BLOCKS = 100, LP_THREADS = 1024, LP_UNITS = 409600 };

#define STUDY_CALLS(X) \
	X(cuInit) \
	X(cuDevicePrimaryCtxRetain) \
	X(cuCtxSetCurrent) \
	X(cuDeviceGetName) \
	X(cuDriverGetVersion) \
	X(cuModuleLoadData) \
	X(cuModuleGetFunction) \
	X(cuMemAlloc_v2) \
	X(cuMemcpyHtoD_v2) \
	X(cuLaunchKernel) \
	X(cuCtxGetStreamPriorityRange) \
	X(cuStreamCreateWithPriority) \
	X(cuStreamSynchronize) \
	X(cuEventCreate) \
	X(cuEventDestroy_v2) \
	X(cuEventRecord) \
	X(cuEventSynchronize) \
	X(cuEventElapsedTime_v2)

static struct {
#define X(name) __typeof__(name) *name;
	STUDY_CALLS(X)
#undef X
	struct hb_channel_calls trial;
} cu;

/* channel_touch.cu, compiled; the driver compiles it on for its GPU. */
__asm__(".section .rodata\n.global touch_ptx\ntouch_ptx:\n.incbin \"" CHANNEL_TOUCH_PTX "\"\n.byte 0\n.previous\n");
extern const char touch_ptx[];
static const char touch_simulated[] = "HBSIM1\nkernel hb_link params=8,8,8\n"
				      "kernel hb_touch ns=20000 params=8,8,8,8,8,8,8\n";

struct unit_set {
	CUdeviceptr units; /* uint32_t numbers, in random order */
	uint64_t n;
};

struct study_cell {
	double p50_us[ROUNDS_MOST], p99_us[ROUNDS_MOST], low_bytes_per_s[ROUNDS_MOST];
};

static struct {
	CUcontext context;
	CUdeviceptr memory, sink;
	CUfunction link, touch;
	CUstream high, low;
	CUevent begin, end;
	struct unit_set high_units[PLACEMENTS], low_units[PLACEMENTS];
	struct study_cell cells[HIGHS][LOWS][PLACEMENTS];
	double low_alone[LOWS][PLACEMENTS];
	unsigned pages, rounds, requests, rounds_done;
	int64_t until_ns;
	struct hb_rng rng;
} study = {.pages = 80, .rounds = 5, .requests = 400};

static void need(const char *what, CUresult code)
{
	if (code == CUDA_SUCCESS)
		return;
	fprintf(stderr, "channel-study: %s failed with CUDA error %d\n", what, (int)code);
	exit(1);
}

#define NEED(name, ...) need(#name, cu.name(__VA_ARGS__))

static void find_calls(void)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW);
	const char *missing = library ? NULL : "libcuda.so.1";
#define X(name) \
	if (!missing && !(cu.name = (__typeof__(cu.name))dlsym(library, #name))) \
		missing = #name;
	STUDY_CALLS(X)
#undef X
#define X(name) \
	if (!missing && !(cu.trial.name = (__typeof__(cu.trial.name))dlsym(library, #name))) \
		missing = #name;
	HB_CHANNEL_CALLS(X)
#undef X
	if (!missing)
		return;
	fprintf(stderr, "channel-study: the driver has no %s\n", missing);
	exit(1);
}

static CUevent make_event(void)
{
	CUevent event;
	NEED(cuEventCreate, &event, CU_EVENT_DEFAULT);
	return event;
}

static void open_gpu(void)
{
	CUmodule module;
	int least, greatest;
	find_calls();
	NEED(cuInit, 0);
	NEED(cuDevicePrimaryCtxRetain, &study.context, 0);
	NEED(cuCtxSetCurrent, study.context);
	if (cu.cuModuleLoadData(&module, touch_ptx) != CUDA_SUCCESS)
		NEED(cuModuleLoadData, &module, touch_simulated);
	NEED(cuModuleGetFunction, &study.link, module, "hb_link");
	NEED(cuModuleGetFunction, &study.touch, module, "hb_touch");
	NEED(cuCtxGetStreamPriorityRange, &least, &greatest);
	NEED(cuStreamCreateWithPriority, &study.high, CU_STREAM_NON_BLOCKING, greatest);
	NEED(cuStreamCreateWithPriority, &study.low, CU_STREAM_NON_BLOCKING, least);
	study.begin = make_event();
	study.end = make_event();
	NEED(cuMemAlloc_v2, &study.sink, 64);
	NEED(cuMemAlloc_v2, &study.memory, (size_t)(study.pages + 1) * HB_CHANNEL_PAGE_BYTES);
	study.memory = (study.memory + HB_CHANNEL_PAGE_BYTES - 1) / HB_CHANNEL_PAGE_BYTES * HB_CHANNEL_PAGE_BYTES;
}

/* --- sets of units ------------------------------------------------------------------------------ */

static void shuffle_units(uint32_t *units, uint64_t n)
{
	for (uint64_t i = n; i > 1; i--) {
		uint64_t other = hb_rng_below(&study.rng, i);
		uint32_t unit = units[i - 1];
		units[i - 1] = units[other];
		units[other] = unit;
	}
}

static struct unit_set upload_units(const uint32_t *units, uint64_t n)
{
	struct unit_set set = {.n = n};
	NEED(cuMemAlloc_v2, &set.units, n * sizeof *units);
	NEED(cuMemcpyHtoD_v2, set.units, units, n * sizeof *units);
	return set;
}

static void make_sets(const struct hb_channel_map *map)
{
	uint32_t n = map->n_pages * HB_CHANNEL_PAGE_UNITS, n_high = 0, at_high = 0;
	uint32_t *units = calloc(n, sizeof *units);
	if (!units)
		need("calloc", CUDA_ERROR_OUT_OF_MEMORY);
	for (uint32_t i = 0; i < n; i++)
		n_high += map->class_of[i] < map->n_classes / 3;
	uint32_t at_low = n_high;
	for (uint32_t i = 0; i < n; i++)
		units[map->class_of[i] < map->n_classes / 3 ? at_high++ : at_low++] = i;
	shuffle_units(units, n_high);
	shuffle_units(units + n_high, n - n_high);
	study.high_units[APART] = upload_units(units, n_high);
	study.low_units[APART] = upload_units(units + n_high, n - n_high);
	shuffle_units(units, n);
	study.high_units[ANYWHERE] = upload_units(units, n_high);
	study.low_units[ANYWHERE] = upload_units(units + n_high, n - n_high);
	free(units);
}

/* --- runs ------------------------------------------------------------------------------------ */

static void launch_touch(CUstream stream, const struct unit_set *set, unsigned blocks, unsigned threads,
			 enum touch_kind kind_of, uint64_t first, uint64_t count)
{
	uint64_t kind = kind_of, n = set->n;
	CUdeviceptr units = set->units;
	void *arguments[] = {&study.memory, &units, &n, &first, &count, &kind, &study.sink};
	NEED(cuLaunchKernel, study.touch, blocks, 1, 1, threads, 1, 1, 0, stream, arguments, NULL);
}

/* LP's thread: keeps LP_QUEUED kernels queued and counts those that ended. */
struct low_run {
	pthread_t thread;
	int row;
	enum placement placement;
	atomic_bool stop;
	atomic_uint_fast64_t ended;
};

static void *run_low(void *argument)
{
	struct low_run *run = argument;
	CUevent events[LP_QUEUED];
	uint64_t launched = 0, first = 0;
	NEED(cuCtxSetCurrent, study.context);
	for (int i = 0; i < LP_QUEUED; i++)
		events[i] = make_event();
	while (!run->stop) {
		if (launched >= LP_QUEUED) {
			NEED(cuEventSynchronize, events[launched % LP_QUEUED]);
			atomic_fetch_add(&run->ended, 1);
		}
		launch_touch(study.low, &study.low_units[run->placement], LP_BLOCKS, LP_THREADS, low[run->row].kind,
			     first, LP_UNITS);
		NEED(cuEventRecord, events[launched++ % LP_QUEUED], study.low);
		first += LP_UNITS;
	}
	NEED(cuStreamSynchronize, study.low);
	for (int i = 0; i < LP_QUEUED; i++)
		NEED(cuEventDestroy_v2, events[i]);
	return NULL;
}

static void start_low(struct low_run *run, int row, enum placement placement)
{
	*run = (struct low_run){.row = row, .placement = placement};
	if (pthread_create(&run->thread, NULL, run_low, run) != 0)
		need("pthread_create", CUDA_ERROR_OPERATING_SYSTEM);
	while (atomic_load(&run->ended) < LP_QUEUED)
		;
}

static void stop_low(struct low_run *run)
{
	atomic_store(&run->stop, true);
	pthread_join(run->thread, NULL);
}

/* Returns the time of one request in us. */
static double run_request(int row, const struct unit_set *set, uint64_t *first)
{
	float ms = 0;
	NEED(cuEventRecord, study.begin, study.high);
	launch_touch(study.high, set, high[row].blocks, high[row].threads, high[row].kind, *first, high[row].units);
	NEED(cuEventRecord, study.end, study.high);
	NEED(cuEventSynchronize, study.end);
	NEED(cuEventElapsedTime_v2, &ms, study.begin, study.end);
	*first = (*first + high[row].units) % set->n;
	return 1000.0 * ms;
}

static int compare_times(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return x < y ? -1 : x > y;
}

static void run_cell(int row, int low_row, enum placement placement, unsigned round)
{
	static double times[REQUESTS_MOST];
	const struct unit_set *set = &study.high_units[placement];
	struct study_cell *cell = &study.cells[row][low_row][placement];
	struct low_run run;
	uint64_t first = 0, n = set->n;
	CUdeviceptr units = set->units;
	void *arguments[] = {&study.memory, &units, &n};
	NEED(cuLaunchKernel, study.link, 64, 1, 1, 256, 1, 1, 0, study.high, arguments, NULL);
	NEED(cuStreamSynchronize, study.high);
	if (low_row)
		start_low(&run, low_row, placement);
	for (unsigned i = 0; i < WARM_REQUESTS; i++)
		run_request(row, set, &first);
	int64_t began_ns = hb_clock_now_ns();
	uint64_t ended = low_row ? atomic_load(&run.ended) : 0;
	for (unsigned i = 0; i < study.requests; i++)
		times[i] = run_request(row, set, &first);
	double took_s = (double)(hb_clock_now_ns() - began_ns) / HB_NS_PER_S;
	ended = low_row ? atomic_load(&run.ended) - ended : 0;
	if (low_row)
		stop_low(&run);
	qsort(times, study.requests, sizeof *times, compare_times);
	cell->p50_us[round] = times[study.requests / 2];
	cell->p99_us[round] = times[study.requests * 99 / 100];
	cell->low_bytes_per_s[round] = (double)(ended * LP_UNITS * HB_CHANNEL_UNIT_BYTES) / took_s;
}

/* Returns LP's bytes per second without HP. */
static double run_low_alone(int row, enum placement placement)
{
	struct low_run run;
	start_low(&run, row, placement);
	int64_t began_ns = hb_clock_now_ns();
	uint64_t ended = atomic_load(&run.ended), now;
	while ((now = atomic_load(&run.ended)) < ended + 200 && hb_clock_now_ns() < study.until_ns)
		;
	double took_s = (double)(hb_clock_now_ns() - began_ns) / HB_NS_PER_S;
	stop_low(&run);
	return (double)((now - ended) * LP_UNITS * HB_CHANNEL_UNIT_BYTES) / took_s;
}

/* Returns false if the time was over before the round's end. */
static bool run_round(unsigned round)
{
	for (int row = 0; row < HIGHS; row++) {
		for (int low_row = 0; low_row < LOWS; low_row++) {
			if (hb_clock_now_ns() > study.until_ns)
				return false;
			/* The order alternates, so that no placement is always the first. */
			run_cell(row, low_row, round % 2 ? APART : ANYWHERE, round);
			run_cell(row, low_row, round % 2 ? ANYWHERE : APART, round);
		}
	}
	return true;
}

/* --- results --------------------------------------------------------------------------------- */

static double find_median(const double *values)
{
	double sorted[ROUNDS_MOST];
	memcpy(sorted, values, study.rounds_done * sizeof *values);
	qsort(sorted, study.rounds_done, sizeof *sorted, compare_times);
	return sorted[study.rounds_done / 2];
}

static json_t *list_rounds(const double *values)
{
	json_t *list = json_array();
	for (unsigned i = 0; i < study.rounds_done; i++)
		json_array_append_new(list, json_real(values[i]));
	return list;
}

static json_t *describe_cell(const struct study_cell *cell)
{
	return hb_json_pack(NULL, "{s:f, s:f, s:f, s:o}", "p50_us", find_median(cell->p50_us), "p99_us",
			    find_median(cell->p99_us), "low_bytes_per_s", find_median(cell->low_bytes_per_s),
			    "p99_us_of_rounds", list_rounds(cell->p99_us));
}

/* Separate channels pay if HP's p99 falls by 10 %, or LP gains 3 points of its speed alone while HP's p99 stays within 2 %. */
static json_t *describe_pair(int row, int low_row)
{
	const struct study_cell *cells = study.cells[row][low_row];
	double before = find_median(cells[ANYWHERE].p99_us), after = find_median(cells[APART].p99_us);
	double low_alone = study.low_alone[low_row][ANYWHERE];
	double gain = low_alone > 0 ? 100 *
					      (find_median(cells[APART].low_bytes_per_s) -
					       find_median(cells[ANYWHERE].low_bytes_per_s)) /
					      low_alone
				    : 0;
	bool pays = low_row && (after <= 0.9 * before || (gain >= 3 && after <= 1.02 * before));
	return hb_json_pack(NULL, "{s:s, s:s, s:o, s:o, s:f, s:f, s:b}", "high", high[row].name, "low",
			    low[low_row].name, "anywhere", describe_cell(&cells[ANYWHERE]), "apart",
			    describe_cell(&cells[APART]), "p99_change_percent",
			    before > 0 ? 100 * (after / before - 1) : 0.0, "low_gain_points", gain, "pays", (int)pays);
}

static int print_results(const struct hb_channel_finding *finding)
{
	const struct hb_channel_map *map = hb_channel_map_of(finding->finder);
	char name[128] = "";
	int driver = 0;
	NEED(cuDeviceGetName, name, sizeof name, 0);
	NEED(cuDriverGetVersion, &driver);
	json_t *pairs = json_array(), *lows = json_object();
	for (int row = 0; row < HIGHS; row++)
		for (int low_row = 0; low_row < LOWS; low_row++)
			json_array_append_new(pairs, describe_pair(row, low_row));
	for (int low_row = 1; low_row < LOWS; low_row++)
		json_object_set_new(lows, low[low_row].name,
				    hb_json_pack(NULL, "{s:f, s:f}", "anywhere", study.low_alone[low_row][ANYWHERE],
						 "apart", study.low_alone[low_row][APART]));
	json_t *root = hb_json_pack(
		NULL, "{s:i, s:s, s:i, s:i, s:i, s:f, s:f, s:i, s:i, s:o, s:o}", "version", 1, "gpu", name, "cuda",
		driver, "pages", (int)map->n_pages, "classes", (int)map->n_classes, "repeated",
		(double)finding->check.repeated / (finding->check.units ? finding->check.units : 1), "map_seconds",
		(double)finding->map_ns / HB_NS_PER_S, "rounds", (int)study.rounds_done, "requests_a_round",
		(int)study.requests, "low_alone_bytes_per_s", lows, "pairs", pairs);
	int result = hb_json_write(root, stdout, NULL);
	json_decref(root);
	return result;
}

/* --- command ----------------------------------------------------------------------------------- */

static unsigned read_count(const char *option, const char *text, unsigned most)
{
	char *end;
	unsigned long value = strtoul(text, &end, 10);
	if (*text >= '0' && *text <= '9' && !*end && value >= 1 && value <= most)
		return (unsigned)value;
	fprintf(stderr, "channel-study: --%s: '%s' is not a number from 1 to %u\n", option, text, most);
	exit(2);
}

static int64_t read_command_line(int argc, char **argv)
{
	static const struct option options[] = {{"pages", required_argument, NULL, 'p'},
						{"rounds", required_argument, NULL, 'r'},
						{"requests", required_argument, NULL, 'q'},
						{"limit", required_argument, NULL, 'l'},
						{NULL, 0, NULL, 0}};
	unsigned limit_s = 120;
	for (int code, at = 0; (code = getopt_long(argc, argv, "", options, &at)) != -1;) {
		if (code == 'p')
			study.pages = read_count("pages", optarg, HB_CHANNEL_PAGES_MOST);
		else if (code == 'r')
			study.rounds = read_count("rounds", optarg, ROUNDS_MOST);
		else if (code == 'q')
			study.requests = read_count("requests", optarg, REQUESTS_MOST);
		else if (code == 'l')
			limit_s = read_count("limit", optarg, 3600);
		else
			exit(2);
	}
	return limit_s * HB_NS_PER_S;
}

int main(int argc, char **argv)
{
	int64_t limit_ns = read_command_line(argc, argv), began_ns = hb_clock_now_ns();
	struct hb_channel_finding finding;
	hb_rng_init(&study.rng, 1, 0);
	open_gpu();
	/* Most of the time is for the map; the pairs need about 10 s on an H200. */
	const struct hb_channel_request request = {study.pages, study.memory, CHECK_UNITS, limit_ns / 10 * 7};
	int result = hb_channel_trial(&cu.trial, &request, &finding);
	if (result < 0) {
		fprintf(stderr, "channel-study: no map: %s; `hb doctor --channels` says more\n", strerror(-result));
		return 1;
	}
	make_sets(hb_channel_map_of(finding.finder));
	study.until_ns = began_ns + limit_ns;
	for (int row = 1; row < LOWS; row++)
		for (int placement = 0; placement < PLACEMENTS; placement++)
			study.low_alone[row][placement] = run_low_alone(row, placement);
	while (study.rounds_done < study.rounds && run_round(study.rounds_done))
		study.rounds_done++;
	if (study.rounds_done)
		result = print_results(&finding);
	else
		fprintf(stderr, "channel-study: no round was complete within the limit; give more time with --limit\n");
	hb_channel_finder_free(finding.finder);
	return result == 0 && study.rounds_done ? 0 : 1;
}
