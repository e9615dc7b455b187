/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sharing modes by name: `exclusive`, `timeslice`, `tsN` (N us), `mps`,
 * `mps_prio`, `mps_N` (SM limit in percent), `mps_gateD`, `mps_gateD_N`,
 * `reef`, `orion`, `spatial[:masks=gpcs|spread][:window=TIME][:reserve=SMS][:gaps=N]
 * [:without=masks|splitting|beside|foresight|following][:hints=QUALITY as below]`, `auto`,
 * `temporal[:minimum=PERCENT][:without=foresight|:hints=perfect|late|early|missing|wrong|learned]`.
 * A mode is a set-up of the GPU, a policy of the core, and the rule of the programs'
 * launch path. Only this file knows the names.
 */
#ifndef HB_SIM_MODES_H
#define HB_SIM_MODES_H

#include "trace/trace.h"

#include <stdbool.h>
#include <stdint.h>

enum hb_hint_quality {
	HB_HINTS_NONE,
	HB_HINTS_PERFECT,
	HB_HINTS_LATE,
	HB_HINTS_EARLY,
	HB_HINTS_MISSING,
	HB_HINTS_WRONG,
	HB_HINTS_LEARNED /* signs in place of hints, see simulation_hints.c */
};

struct hb_mode {
	char name[64];
	bool exclusive;            /* every tenant has a GPU of its own */
	bool mps;                  /* one context for all tenants; else one for each */
	bool mps_low;              /* one MPS context for all LP tenants; HP tenants have contexts of their own */
	bool priorities;           /* HP streams have the highest priority */
	uint32_t sm_limit_percent; /* of LP clients; 100 = no limit */
	int64_t low_slice_ns, high_slice_ns; /* 0 = the GPU's default */
	const char *policy;                  /* name of the policy in the core */
	uint32_t gate_depth;                 /* LP launches in flight while the gate is open; 0 = unbounded */
	bool foresight; /* HP programs take the GPU over before their requests (simulation_takeover.c) */
	enum hb_hint_quality hints;
	bool reef;          /* baseline: decide/baseline_reef.h decides about each launch */
	bool orion;         /* baseline: decide/baseline_orion.h decides about each LP launch */
	bool spatial;       /* the spatial engine decides about each LP launch (simulation_spatial.c) */
	bool masks_gpcs;    /* masks leave out complete GPCs; else they are spread over all of them */
	bool without_masks; /* parts of the spatial engine left out by `spatial:without=...` */
	bool without_slices;
	bool without_beside;    /* the allowance stays 0 */
	bool without_following; /* the reserve does not follow HP's next launches */
	bool expects;           /* HP programs announce their next requests (simulation_spatial.c) */
	uint32_t window_ns;     /* predicted LP time in flight (`spatial:window=TIME`) */
	/* State that HP's side of the spatial engine starts with (`spatial:reserve=SMS:gaps=N`). */
	uint32_t reserve_sms; /* 0 = HB_DEFAULT_RESERVE_PPM */
	uint32_t gaps;
	uint32_t low_minimum_ppm; /* LP's guaranteed share (`temporal:minimum=PERCENT`) */
	bool automatic;           /* temporal or spatial, the better one in a trial of each */
};

/* 0, -EINVAL (error lists the modes). */
int hb_mode_parse(const char *text, struct hb_mode *mode, struct hb_error *error);
/* The modes `--sharing all` runs, NULL-terminated. */
extern const char *const hb_modes_all[];

#endif
