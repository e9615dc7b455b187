/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Launches kernels in parts. These functions have the driver's signatures and sit
 * between forward.c, which has counted the launch and passed the gate for the
 * first part, and the driver. A launch that cannot be split continues to the
 * driver unchanged.
 *
 * Each further part passes the gate again and waits on the calling thread until
 * the spatial engine lets it go (shim_spatial.h), so the order of the program's
 * work stays the same.
 */
#include "shim/extension.h"
#include "shim/priority.h"
#include "shim/shim.h"
#include "shim/shim_spatial.h"
#include "shim/shim_tenant.h"
#include "shim/split.h"
#include "shim/takeover.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static atomic_bool is_possible;

bool hb_split_is_possible(void)
{
	return atomic_load_explicit(&is_possible, memory_order_relaxed);
}

/* ---- counting ---- */

static enum hb_page_counter counter_of(enum hb_split_reason reason)
{
	switch (reason) {
	case HB_SPLIT_image:
	case HB_SPLIT_driver:
		return HB_COUNT_unsplit_image;
	case HB_SPLIT_launch:
		return HB_COUNT_unsplit_launch;
	case HB_SPLIT_resident:
	case HB_SPLIT_brief:
	case HB_SPLIT_costly:
		return HB_COUNT_unsplit_gain;
	default:
		return HB_COUNT_unsplit_code;
	}
}

static void count_unsplit(enum hb_split_reason reason)
{
	hb_shim_count(HB_COUNT_unsplit, 1);
	hb_shim_count(counter_of(reason), 1);
	if (hb_shim_extension.note_unsplit)
		hb_shim_extension.note_unsplit(reason);
}

void hb_split_count_parts(uint32_t n)
{
	hb_shim_count(HB_COUNT_split, 1);
	hb_shim_count(HB_COUNT_parts, n);
}

/* ---- arguments ---- */

static bool take_packed(const struct hb_split_function *function, void *const *extra, struct hb_split_arguments *out)
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

bool hb_split_take_arguments(const struct hb_split_function *function, const struct hb_split_launch *launch,
			     struct hb_split_arguments *out)
{
	out->n_packed = 0;
	if (launch->extra && !launch->parameters)
		return take_packed(function, launch->extra, out);
	if (!launch->parameters || launch->extra || function->n_parameters + 1 > HB_SPLIT_PARAMETERS_MAX)
		return false;
	memcpy(out->pointers, launch->parameters, function->n_parameters * sizeof *out->pointers);
	out->pointers[function->n_parameters] = &out->bounds;
	return true;
}

/* ---- which launches can be split ---- */

/* Whether the launch has only attributes that hold for each part as for the original. */
static bool has_plain_attributes(const CUlaunchConfig *config)
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

uint64_t hb_split_count_blocks(const CUlaunchConfig *config)
{
	uint64_t row = (uint64_t)config->gridDimX * config->gridDimY;
	return row > UINT32_MAX ? row : row * config->gridDimZ;
}

CUstream hb_split_stream(const struct hb_split_launch *launch)
{
	if (launch->config.hStream)
		return launch->config.hStream;
	return launch->is_per_thread ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY;
}

bool hb_split_copy_settings(const struct hb_split_function *function)
{
	static const CUfunction_attribute settings[] = {CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
							CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT};
	int wanted, is;
	for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
		if (HB_REAL(cuFuncGetAttribute)(&wanted, settings[i], function->original) != CUDA_SUCCESS ||
		    HB_REAL(cuFuncGetAttribute)(&is, settings[i], function->copy) != CUDA_SUCCESS ||
		    (wanted != is && HB_REAL(cuFuncSetAttribute)(function->copy, settings[i], wanted) != CUDA_SUCCESS))
			return false;
	return true;
}

enum hb_split_reason hb_split_find(const struct hb_split_launch *launch, struct hb_split_function *function)
{
	CUcontext context;
	if (!has_plain_attributes(&launch->config) || hb_split_count_blocks(&launch->config) > UINT32_MAX / 2 ||
	    !launch->function)
		return HB_SPLIT_launch;
	if (HB_REAL(cuCtxGetCurrent)(&context) != CUDA_SUCCESS)
		return HB_SPLIT_driver;
	if (!hb_split_function_of(launch->function, context, function))
		return HB_SPLIT_image;
	bool is_usable = function->reason != HB_SPLIT_none || function->context == context;
	return is_usable ? function->reason : HB_SPLIT_driver;
}

/* ---- parts ---- */

void hb_split_pass_gate(void)
{
	const struct hb_place *place = hb_place();
	if (hb_gate_try(hb_tenant_gate(place)) != HB_GATE_GO)
		hb_gate_block(place, hb_tenant_gate(place));
}

CUresult hb_split_launch_part(const struct hb_split_launch *launch, const struct hb_split_function *function,
			      struct hb_split_arguments *arguments, struct hb_bounds bounds)
{
	CUlaunchConfig config = launch->config;
	config.hStream = hb_split_stream(launch);
	arguments->bounds = bounds;
	if (!arguments->n_packed)
		return HB_REAL(cuLaunchKernelEx)(&config, function->copy, arguments->pointers, NULL);
	memcpy(arguments->packed + function->bounds_place, &bounds, sizeof bounds);
	return HB_REAL(cuLaunchKernelEx)(&config, function->copy, NULL, arguments->extra);
}

/*
 * Launches the parts when the spatial engine lets them go. Returns the driver's result, or -1 if the first part failed and
 * nothing was launched. forward.c calls what must follow the launch of the last part.
 */
static int launch_parts(const struct hb_split_launch *launch, const struct hb_split_function *function,
			struct hb_split_arguments *arguments)
{
	uint32_t n_blocks = (uint32_t)hb_split_count_blocks(&launch->config), n = 0;
	CUresult result = CUDA_SUCCESS;
	for (uint32_t first = 0, count; first < n_blocks && result == CUDA_SUCCESS; first += count, n++) {
		if (n) {
			hb_split_pass_gate();
			hb_shim_spatial_wait_for_next_part(n_blocks - first, n_blocks);
		}
		count = hb_shim_spatial_count_part_blocks(n_blocks - first, n_blocks);
		result = hb_split_launch_part(launch, function, arguments, (struct hb_bounds){first, count});
		if (result != CUDA_SUCCESS && n == 0)
			return -1;
	}
	hb_split_count_parts(n);
	return (int)result;
}

static enum hb_split_reason try_split(const struct hb_split_launch *launch, CUresult *result)
{
	struct hb_split_arguments arguments;
	struct hb_split_function function;
	enum hb_split_reason reason = hb_split_find(launch, &function);
	if (reason != HB_SPLIT_none)
		return reason;
	if (!hb_split_copy_settings(&function))
		return HB_SPLIT_driver;
	if (!hb_split_take_arguments(&function, launch, &arguments))
		return HB_SPLIT_launch;
	int code = launch_parts(launch, &function, &arguments);
	if (code < 0)
		return HB_SPLIT_driver;
	*result = (CUresult)code;
	return HB_SPLIT_none;
}

/* True: the kernel was launched in parts, with `result`. False: the caller launches it unsplit, then calls end_unsplit(). */
static bool launch_split(const struct hb_split_launch *launch, CUresult *result)
{
	bool is_spatial = hb_shim_spatial_wants_split();
	if (!is_spatial && !hb_shim_extension.split)
		return false;
	enum hb_split_reason reason = is_spatial ? try_split(launch, result) : hb_shim_extension.split(launch, result);
	if (reason == HB_SPLIT_none)
		return true;
	count_unsplit(reason);
	if (is_spatial)
		hb_shim_spatial_give_up_split();
	return false;
}

static CUresult end_unsplit(const struct hb_split_launch *launch, CUresult result)
{
	if (hb_shim_extension.after_unsplit)
		hb_shim_extension.after_unsplit(launch);
	return result;
}

/* ---- the driver's launch functions ---- */

#define PLAIN(name, per_thread) \
	static CUresult split_##name(CUfunction function, unsigned int grid_x, unsigned int grid_y, \
				     unsigned int grid_z, unsigned int block_x, unsigned int block_y, \
				     unsigned int block_z, unsigned int shared_bytes, CUstream stream, \
				     void **parameters, void **extra) \
	{ \
		const struct hb_split_launch launch = { \
			{grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream, NULL, 0}, \
			function, \
			parameters, \
			extra, \
			per_thread}; \
		CUresult result; \
		if (launch_split(&launch, &result)) \
			return result; \
		return end_unsplit(&launch, HB_REAL(name)(function, grid_x, grid_y, grid_z, block_x, block_y, block_z, \
							  shared_bytes, stream, parameters, extra)); \
	}
#define CONFIG(name, per_thread) \
	static CUresult split_##name(const CUlaunchConfig *config, CUfunction function, void **parameters, \
				     void **extra) \
	{ \
		struct hb_split_launch launch = {.function = function, parameters, extra, per_thread}; \
		struct hb_priority_copy copy; \
		CUresult result; \
		if (!config) \
			return HB_REAL(name)(config, function, parameters, extra); \
		config = hb_priority_config(config, &copy); \
		launch.config = *config; \
		if (launch_split(&launch, &result)) \
			return result; \
		return end_unsplit(&launch, HB_REAL(name)(config, function, parameters, extra)); \
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
		return (void *)split_cuLaunchKernel;
	case HB_FN_cuLaunchKernel_ptsz:
		return (void *)split_cuLaunchKernel_ptsz;
	case HB_FN_cuLaunchKernelEx:
		return (void *)split_cuLaunchKernelEx;
	case HB_FN_cuLaunchKernelEx_ptsz:
		return (void *)split_cuLaunchKernelEx_ptsz;
	case HB_FN_cuLaunchCooperativeKernel:
	case HB_FN_cuLaunchCooperativeKernel_ptsz:
		count_unsplit(HB_SPLIT_launch);
		return target;
	default:
		return target;
	}
}

/* ---- on and off ---- */

void hb_split_start(void)
{
	const struct hb_page *page = hb_place()->page;
	bool is_high = page && atomic_load_explicit(&page->priority, memory_order_relaxed) == HB_PAGE_HIGH;
	if (is_high || hb_split_is_possible())
		return;
	const char *setting = getenv("HB_SPLIT");
	bool for_spatial = hb_tenant_inside_mps() && !(setting && strcmp(setting, "0") == 0);
	bool for_extension = hb_shim_extension.start_split && hb_shim_extension.start_split();
	atomic_store(&is_possible, for_spatial || for_extension);
}

void hb_split_leave_in_child(void)
{
	atomic_store(&is_possible, false);
	atomic_fetch_and(&hb_shim_alert, ~(uint32_t)HB_ALERT_SPLIT);
	hb_split_images_leave_in_child();
	if (hb_shim_extension.leave_in_child)
		hb_shim_extension.leave_in_child();
}
