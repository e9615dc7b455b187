/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Launches in pieces. Stands between forward.c (which has counted the launch and
 * passed the gate for its first piece) and the driver, with the driver's
 * signatures. What cannot be cut goes on to the driver as it came.
 *
 * Each further piece passes the gate again and waits on the calling thread, so
 * the order of the program stays: until the one before is about to drain
 * (split_plan.h), or in the spatial engine until slack lets it go (shim_spatial.h).
 */
#include "base/clock.h"
#include "cubin/prologue.h"
#include "cubin/split_plan.h"
#include "shim/priority.h"
#include "shim/shim.h"
#include "shim/shim_spatial.h"
#include "shim/shim_tenant.h"
#include "shim/split.h"
#include "shim/takeover.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define ALLOWED_US_MAX 1000000
#define PARAMETERS_MAX 257
#define PARAMETER_BYTES_MAX 4104
/* One wait: never longer than this for a piece that should have drained. */
#define WAIT_MOST_NS (100 * HB_NS_PER_MS)

/* A launch in the driver's newest form. */
struct launch {
	CUlaunchConfig config;
	CUfunction function;
	void **parameters, **extra;
	bool is_per_thread; /* the entry's meaning of no stream */
};

static _Atomic(int64_t) allowed_ns;
static atomic_bool is_possible;
static uint32_t cost_percent = HB_SPLIT_COST_PERCENT;

int64_t hb_split_allowed_ns(void)
{
	return atomic_load_explicit(&allowed_ns, memory_order_relaxed);
}

bool hb_split_is_possible(void)
{
	return atomic_load_explicit(&is_possible, memory_order_relaxed);
}

/* ---- counting ---- */

static hb_page_u64 n_whole[HB_N_SLICE_REASONS]; /* launches, by reason */

static enum hb_page_counter counter_of(enum hb_split_reason reason)
{
	switch (reason) {
	case HB_SLICE_image:
	case HB_SLICE_driver:
		return HB_COUNT_whole_image;
	case HB_SLICE_launch:
		return HB_COUNT_whole_launch;
	case HB_SLICE_resident:
	case HB_SLICE_brief:
	case HB_SLICE_costly:
		return HB_COUNT_whole_gain;
	default:
		return HB_COUNT_whole_code;
	}
}

static void count_whole(enum hb_split_reason reason)
{
	hb_shim_count(HB_COUNT_whole, 1);
	hb_shim_count(counter_of(reason), 1);
	atomic_fetch_add_explicit(&n_whole[reason], 1, memory_order_relaxed);
}

/* HB_SPLIT_REPORT=FILE: what was left whole and why, written when the process ends. */
static void write_report(void)
{
	const char *path = getenv("HB_SPLIT_REPORT");
	FILE *out = path ? fopen(path, "a") : NULL;
	if (!out)
		return;
	const struct hb_page_process *process = hb_place()->process;
	fprintf(out, "{\"sliced\": %llu, \"pieces\": %llu",
		(unsigned long long)atomic_load(&process->counters[HB_COUNT_sliced]),
		(unsigned long long)atomic_load(&process->counters[HB_COUNT_pieces]));
	for (int i = 0; i < HB_N_SLICE_REASONS; i++)
		if (atomic_load(&n_whole[i]))
			fprintf(out, ", \"%s\": %llu", hb_split_reason_name((enum hb_split_reason)i),
				(unsigned long long)atomic_load(&n_whole[i]));
	fprintf(out, "}\n");
	fclose(out);
}

/* ---- parameters ---- */

/* The kernel's own parameters and the bounds, in either form that launches have. */
struct arguments {
	void *pointers[PARAMETERS_MAX];
	_Alignas(16) uint8_t packed[PARAMETER_BYTES_MAX];
	size_t n_packed;
	void *extra[5];
	struct hb_bounds bounds;
};

static bool take_packed(const struct hb_split_function *function, void *const *extra, struct arguments *out)
{
	const void *buffer = NULL;
	size_t size = 0;
	for (size_t i = 0; extra[i] != CU_LAUNCH_PARAM_END; i += 2) {
		if (extra[i] == CU_LAUNCH_PARAM_BUFFER_POINTER)
			buffer = extra[i + 1];
		else if (extra[i] == CU_LAUNCH_PARAM_BUFFER_SIZE)
			size = *(const size_t *)extra[i + 1];
		else
			return false;
	}
	if (!buffer || size > function->bounds_place || function->bounds_place + HB_BOUNDS_BYTES > sizeof out->packed)
		return false;
	memcpy(out->packed, buffer, size);
	memset(out->packed + size, 0, function->bounds_place - size);
	out->n_packed = function->bounds_place + HB_BOUNDS_BYTES;
	void *const form[5] = {CU_LAUNCH_PARAM_BUFFER_POINTER, out->packed, CU_LAUNCH_PARAM_BUFFER_SIZE, &out->n_packed,
			       CU_LAUNCH_PARAM_END};
	memcpy(out->extra, form, sizeof form);
	return true;
}

static bool take_arguments(const struct hb_split_function *function, const struct launch *launch, struct arguments *out)
{
	out->n_packed = 0;
	if (launch->extra && !launch->parameters)
		return take_packed(function, launch->extra, out);
	if (!launch->parameters || launch->extra || function->n_parameters + 1 > PARAMETERS_MAX)
		return false;
	memcpy(out->pointers, launch->parameters, function->n_parameters * sizeof *out->pointers);
	out->pointers[function->n_parameters] = &out->bounds;
	return true;
}

/* ---- what the launch says ---- */

/* Attributes that each piece may have as the whole. */
static bool are_plain(const CUlaunchConfig *config)
{
	for (unsigned i = 0; config->attrs && i < config->numAttrs; i++)
		switch (config->attrs[i].id) {
		case CU_LAUNCH_ATTRIBUTE_IGNORE:
		case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
		case CU_LAUNCH_ATTRIBUTE_PRIORITY:
		case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
		case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
		case CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
			break;
		default:
			return false;
		}
	return true;
}

static uint64_t blocks_of(const CUlaunchConfig *config)
{
	uint64_t row = (uint64_t)config->gridDimX * config->gridDimY;
	return row > UINT32_MAX ? row : row * config->gridDimZ;
}

static CUstream stream_of(const struct launch *launch)
{
	if (launch->config.hStream)
		return launch->config.hStream;
	return launch->is_per_thread ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY;
}

/* Settings that the application may have changed on the original since. */
static bool settings_follow(const struct hb_split_function *function)
{
	static const CUfunction_attribute settings[] = {CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
							CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT};
	int wanted, is;
	for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
		if (HB_REAL(cuFuncGetAttribute)(&wanted, settings[i], function->whole) != CUDA_SUCCESS ||
		    HB_REAL(cuFuncGetAttribute)(&is, settings[i], function->sliced) != CUDA_SUCCESS ||
		    (wanted != is &&
		     HB_REAL(cuFuncSetAttribute)(function->sliced, settings[i], wanted) != CUDA_SUCCESS))
			return false;
	return true;
}

/* ---- pieces ---- */

static CUresult launch_on(const struct launch *launch, CUfunction function, void **parameters, void **extra)
{
	CUlaunchConfig config = launch->config;
	config.hStream = stream_of(launch);
	return HB_REAL(cuLaunchKernelEx)(&config, function, parameters, extra);
}

/* Pieces of one thread follow one another; those of several streams are paced as one. */
static __thread struct hb_split_clock ticks __attribute__((tls_model("initial-exec")));

static void pass_gate(void)
{
	const struct hb_place *place = hb_place();
	enum hb_gate_answer answer = hb_gate_try(hb_tenant_gate(place));
	if (answer != HB_GATE_GO)
		hb_gate_block(place, hb_tenant_gate(place), answer);
}

static void wait_for_turn(void)
{
	int64_t wait_ns = hb_split_wait_ns(&ticks, hb_clock_now_ns());
	if (wait_ns > WAIT_MOST_NS)
		wait_ns = WAIT_MOST_NS;
	if (wait_ns > 0)
		nanosleep(&(struct timespec){.tv_nsec = wait_ns}, NULL);
	pass_gate();
}

static CUresult launch_piece(const struct launch *launch, const struct hb_split_function *function,
			     struct arguments *arguments, struct hb_bounds bounds)
{
	void **parameters = arguments->n_packed ? NULL : arguments->pointers;
	void **extra = arguments->n_packed ? arguments->extra : NULL;
	arguments->bounds = bounds;
	if (arguments->n_packed)
		memcpy(arguments->packed + function->bounds_place, &bounds, sizeof bounds);
	return launch_on(launch, function->sliced, parameters, extra);
}

static void count_pieces(uint32_t n)
{
	hb_shim_count(HB_COUNT_sliced, 1);
	hb_shim_count(HB_COUNT_pieces, n);
}

/* CUDA_SUCCESS; an error after the first piece; -1: nothing was launched, run it whole. */
static int launch_pieces(const struct launch *launch, const struct hb_split_function *function,
			 const struct hb_split_plan *plan, struct arguments *arguments)
{
	CUresult result = CUDA_SUCCESS;
	for (uint32_t i = 0; i < plan->n_pieces && result == CUDA_SUCCESS; i++) {
		if (i)
			wait_for_turn();
		result = launch_piece(launch, function, arguments,
				      (struct hb_bounds){i * plan->n_blocks_each, plan->n_blocks_each});
		if (result != CUDA_SUCCESS && i == 0)
			return -1;
		hb_split_issued(&ticks, hb_clock_now_ns(), plan->piece_ns);
	}
	count_pieces(plan->n_pieces);
	return (int)result;
}

/* The same where slack says how much goes, and when. What is to be done after a launch is left to the caller for the last. */
static int launch_as_told(const struct launch *launch, const struct hb_split_function *function,
			  struct arguments *arguments)
{
	uint32_t n_blocks = (uint32_t)blocks_of(&launch->config), n = 0;
	CUresult result = CUDA_SUCCESS;
	for (uint32_t first = 0, count; first < n_blocks && result == CUDA_SUCCESS; first += count, n++) {
		if (n) {
			pass_gate();
			hb_shim_spatial_next_piece(n_blocks - first, n_blocks);
		}
		count = hb_shim_spatial_piece(n_blocks - first, n_blocks);
		result = launch_piece(launch, function, arguments, (struct hb_bounds){first, count});
		if (result != CUDA_SUCCESS && n == 0)
			return -1;
	}
	count_pieces(n);
	return (int)result;
}

static enum hb_split_reason decide(const struct launch *launch, const struct hb_split_function *function,
				   const struct hb_split_known *known, struct hb_split_plan *plan)
{
	const CUlaunchConfig *config = &launch->config;
	struct hb_split_question question = {
		.duration_ns = known->duration_ns,
		.allowed_ns = hb_split_allowed_ns(),
		.n_blocks = (uint32_t)blocks_of(config),
		.n_threads = config->blockDimX * config->blockDimY * config->blockDimZ,
		.n_resident = known->n_resident,
		.cost_percent = cost_percent,
	};
	enum hb_split_reason reason = hb_split_plan(&question, plan);
	if (reason == HB_SLICE_none && !settings_follow(function))
		reason = HB_SLICE_driver;
	return reason;
}

/* What the launch and its code say: the function, or why it goes whole. */
static enum hb_split_reason find_function(const struct launch *launch, const struct hb_split_function **function)
{
	CUcontext context;
	if (!are_plain(&launch->config) || blocks_of(&launch->config) > UINT32_MAX / 2 || !launch->function)
		return HB_SLICE_launch;
	if (HB_REAL(cuCtxGetCurrent)(&context) != CUDA_SUCCESS)
		return HB_SLICE_driver;
	*function = hb_split_function_of(launch->function, context);
	if (!*function)
		return HB_SLICE_image;
	bool is_here = (*function)->reason != HB_SLICE_none || (*function)->context == context;
	return is_here ? (*function)->reason : HB_SLICE_driver;
}

/* Launches in pieces, or tells why not. */
static enum hb_split_reason try_pieces(const struct launch *launch, struct hb_split_known *known, CUresult *result)
{
	struct hb_split_plan plan;
	struct arguments arguments;
	const struct hb_split_function *function;
	enum hb_split_reason reason = find_function(launch, &function);
	if (reason != HB_SLICE_none)
		return reason;
	uint32_t n_threads = launch->config.blockDimX * launch->config.blockDimY * launch->config.blockDimZ;
	*known = hb_split_shape_of(function, (uint32_t)blocks_of(&launch->config), n_threads,
				   launch->config.sharedMemBytes);
	if (!known->shape)
		return HB_SLICE_brief;
	reason = decide(launch, function, known, &plan);
	if (reason != HB_SLICE_none)
		return reason;
	if (!take_arguments(function, launch, &arguments))
		return HB_SLICE_launch;
	int code = launch_pieces(launch, function, &plan, &arguments);
	if (code < 0)
		return HB_SLICE_driver;
	*result = (CUresult)code;
	return HB_SLICE_none;
}

/* Slack wants it in pieces; where that cannot be, it is asked again for the whole. */
static enum hb_split_reason try_as_told(const struct launch *launch, CUresult *result)
{
	struct arguments arguments;
	const struct hb_split_function *function;
	enum hb_split_reason reason = find_function(launch, &function);
	if (reason != HB_SLICE_none)
		return reason;
	if (!settings_follow(function))
		return HB_SLICE_driver;
	if (!take_arguments(function, launch, &arguments))
		return HB_SLICE_launch;
	int code = launch_as_told(launch, function, &arguments);
	if (code < 0)
		return HB_SLICE_driver;
	*result = (CUresult)code;
	return HB_SLICE_none;
}

/* True: done, with `result`. False: the caller goes on to the driver; `timed` is what to end after that, if it has a shape. */
static bool launched(const struct launch *launch, CUresult *result, struct hb_split_known *timed)
{
	struct hb_split_known known = {.shape = NULL};
	bool is_told = hb_shim_spatial_wants_pieces();
	enum hb_split_reason reason = is_told ? try_as_told(launch, result) : try_pieces(launch, &known, result);
	timed->shape = NULL;
	if (reason == HB_SLICE_none)
		return true;
	count_whole(reason);
	if (is_told)
		hb_shim_spatial_leave_whole();
	if (known.shape && known.n_resident < blocks_of(&launch->config) &&
	    hb_split_time_begin(&known, stream_of(launch)))
		*timed = known;
	return false;
}

static CUresult whole(const struct launch *launch, const struct hb_split_known *timed, CUresult result)
{
	if (timed->shape)
		hb_split_time_end(timed, stream_of(launch));
	return result;
}

/* ---- in front of the driver ---- */

#define PLAIN(name, per_thread) \
	static CUresult slice_##name(CUfunction function, unsigned int grid_x, unsigned int grid_y, \
				     unsigned int grid_z, unsigned int block_x, unsigned int block_y, \
				     unsigned int block_z, unsigned int shared_bytes, CUstream stream, \
				     void **parameters, void **extra) \
	{ \
		const struct launch launch = { \
			{grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream, NULL, 0}, \
			function, \
			parameters, \
			extra, \
			per_thread}; \
		struct hb_split_known timed; \
		CUresult result; \
		if (launched(&launch, &result, &timed)) \
			return result; \
		return whole(&launch, &timed, \
			     HB_REAL(name)(function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, \
					   stream, parameters, extra)); \
	}
#define CONFIG(name, per_thread) \
	static CUresult slice_##name(const CUlaunchConfig *config, CUfunction function, void **parameters, \
				     void **extra) \
	{ \
		struct launch launch = {.function = function, parameters, extra, per_thread}; \
		struct hb_priority_copy copy; \
		struct hb_split_known timed; \
		CUresult result; \
		if (!config) \
			return HB_REAL(name)(config, function, parameters, extra); \
		config = hb_priority_config(config, &copy); \
		launch.config = *config; \
		if (launched(&launch, &result, &timed)) \
			return result; \
		return whole(&launch, &timed, HB_REAL(name)(config, function, parameters, extra)); \
	}

PLAIN(cuLaunchKernel, false)
PLAIN(cuLaunchKernel_ptsz, true)
CONFIG(cuLaunchKernelEx, false)
CONFIG(cuLaunchKernelEx_ptsz, true)

void *hb_split_way(unsigned fn, void *target)
{
	if (!target)
		return NULL;
	switch (fn) {
	case HB_FN_cuLaunchKernel:
		return (void *)slice_cuLaunchKernel;
	case HB_FN_cuLaunchKernel_ptsz:
		return (void *)slice_cuLaunchKernel_ptsz;
	case HB_FN_cuLaunchKernelEx:
		return (void *)slice_cuLaunchKernelEx;
	case HB_FN_cuLaunchKernelEx_ptsz:
		return (void *)slice_cuLaunchKernelEx_ptsz;
	case HB_FN_cuLaunchCooperativeKernel:
	case HB_FN_cuLaunchCooperativeKernel_ptsz:
		count_whole(HB_SLICE_launch);
		return target;
	default:
		return target;
	}
}

/* ---- on and off ---- */

void hb_split_begin(void)
{
	const char *text = getenv("HB_SPLIT_US");
	long us = text ? strtol(text, NULL, 10) : 0;
	const struct hb_page *page = hb_place()->page;
	bool is_high = page && atomic_load_explicit(&page->priority, memory_order_relaxed) == HB_PAGE_HIGH;
	if (is_high || hb_split_is_possible())
		return;
	const char *switched = getenv("HB_SLICES");
	bool by_slack = hb_tenant_inside_mps() && !(switched && strcmp(switched, "0") == 0);
	bool by_time = us > 0 && us <= ALLOWED_US_MAX;
	atomic_store(&is_possible, by_slack || by_time);
	if (by_slack || by_time)
		atexit(write_report);
	if (!by_time)
		return;
	const char *cost = getenv("HB_SPLIT_COST_PERCENT");
	if (cost)
		cost_percent = (uint32_t)strtoul(cost, NULL, 10);
	atomic_store(&allowed_ns, us * 1000);
	atomic_fetch_or(&hb_shim_alert, HB_ALERT_SLICE);
}

void hb_split_leave_in_child(void)
{
	atomic_store(&allowed_ns, 0);
	atomic_store(&is_possible, false);
	atomic_fetch_and(&hb_shim_alert, ~(uint32_t)HB_ALERT_SLICE);
	hb_split_images_leave_in_child();
	hb_split_times_leave_in_child();
}
