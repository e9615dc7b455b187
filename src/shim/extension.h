/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Optional functions that another build of the shim adds at link time. The shim
 * that users load is linked with no_extension.c, in which every pointer is NULL.
 * The shim of the benchmarks (bench/shim) is linked with its own table; it adds
 * baselines and test levers that no user needs.
 *
 * The shim calls these functions out of line only, never on the common path of a
 * launch. Whether a pointer is NULL never changes while the process runs.
 */
#ifndef HB_SHIM_EXTENSION_H
#define HB_SHIM_EXTENSION_H

#include "decide/spatial_high.h"
#include "decide/spatial_low.h"
#include "shim/split.h"

struct hb_shim_extension {
	/* ---- spatial engine, HP (shim_spatial_high.c; one caller at a time) ---- */

	/* A request has begun. What LP may do beside the next request is computed when this one ends. */
	void (*high_begin)(struct hb_spatial_high *high);
	/* Before a launch inside a request; `function` NULL: a graph or another operation without a kernel. */
	void (*high_launch)(CUfunction function);

	/* ---- spatial engine, LP (shim_spatial_low.c, under its lock) ---- */

	/* Returns whether another rule than that of the spatial engine decides about launches beside a request. */
	bool (*replaces_low_rule)(void);
	/* That rule: may turn the answer into HB_SPATIAL_WAIT. */
	void (*apply_low_rule)(const struct hb_spatial_low *low, CUfunction function,
			       const struct hb_spatial_view *view, struct hb_spatial_answer *answer);

	/* ---- kernel splitting in an LP process (split_launch.c) ---- */

	/* Called once; returns whether split() wants to see every launch. It then also sets HB_ALERT_SPLIT. */
	bool (*start_split)(void);
	/* Launches in parts and sets *result, or returns why the launch is not split. */
	enum hb_split_reason (*split)(const struct hb_split_launch *launch, CUresult *result);
	/* After a launch that split() refused went to the driver. */
	void (*after_unsplit)(const struct hb_split_launch *launch);
	/* At each launch that is not split. */
	void (*note_unsplit)(enum hb_split_reason reason);
	/* Before the driver destroys a context. */
	void (*context_leaves)(CUcontext context);
	/* A capture begins. After this function returns, split() queries no event until the capture has ended. */
	void (*before_capture)(void);

	/* In a forked child, which has no other threads. */
	void (*leave_in_child)(void);
};

extern const struct hb_shim_extension hb_shim_extension;

static inline bool hb_extension_replaces_low_rule(void)
{
	return hb_shim_extension.replaces_low_rule && hb_shim_extension.replaces_low_rule();
}

#endif
