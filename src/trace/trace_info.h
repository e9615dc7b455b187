/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Describes a recorded workload in numbers, for `hb trace info`. Counts
 * and times are means over the iterations, percentiles are over all ops.
 */
#ifndef HB_SIM_TRACE_INFO_H
#define HB_SIM_TRACE_INFO_H

#include "gpumodel/spec.h"
#include "trace/trace.h"

enum hb_wave_class {
#define HB_WAVE_CLASS(id, key, waves, text) HB_WAVE_##id,
#include "trace/wave_classes.def"
#undef HB_WAVE_CLASS
	HB_WAVE_CLASSES
};

#define HB_SHAPES_SHOWN 5

/* Kernels of one launch shape. */
struct hb_shape {
	uint32_t grid[3];
	uint16_t block[3];
	uint32_t count; /* number of kernels in all iterations */
	double waves;
	double share; /* share of the time in kernels */
};

struct hb_workload_info {
	double ops, kernels, memsets, copies;  /* mean numbers per iteration */
	double span_us;                        /* recorded time from the first op's start to the last op's end */
	double busy_us;                        /* time within span_us in which at least one op ran */
	double p50_us, p90_us, p99_us, max_us; /* durations of ops */
	double wave_share[HB_WAVE_CLASSES];    /* share of the time in kernels */
	uint32_t n_shapes;                     /* number of different launch shapes (grid and block) */
	uint32_t n_shown;
	struct hb_shape shapes[HB_SHAPES_SHOWN]; /* the shapes with the most time, in this order */
};

/* Returns one entry for each workload of the set, in its order; free() it. Returns NULL without memory. */
struct hb_workload_info *hb_trace_info_new(const struct hb_trace_set *set, const struct hb_gpu_spec *gpu);

/* Names of the classes: for people and as JSON keys. */
extern const char *const hb_wave_texts[HB_WAVE_CLASSES];
extern const char *const hb_wave_keys[HB_WAVE_CLASSES];

#endif
