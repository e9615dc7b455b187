/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Splits the text of `hb sim --high` into its phases, NAME[:graph][:tokens=N]@ARRIVALS[,from=TIME],
 * separated by ';'. Called by sim_options.c, which finds the workloads.
 */
#ifndef HB_CLI_SIM_PHASES_H
#define HB_CLI_SIM_PHASES_H

#include "base/error.h"
#include "sim/sim.h"

struct hb_sim_phase_text {
	char *name, *arrivals;
	bool graph;
	uint32_t tokens;
	int64_t from_ns;
};

/* Cuts `text` in place; the results point into it. Returns the number of phases, or -EINVAL with *error set. */
int hb_sim_phases_parse(char *text, struct hb_sim_phase_text phases[HB_SIM_PHASES_MAX], struct hb_error *error);
/* Cuts NAME[:graph][:tokens=N] in place. 0 or -EINVAL. */
int hb_sim_name_parse(char *text, struct hb_sim_phase_text *phase, struct hb_error *error);

#endif
