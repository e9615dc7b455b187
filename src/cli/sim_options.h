/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parses and checks the command line of `hb sim`. The result has everything that cmd_sim.c needs to run and print. Texts
 * point into argv.
 */
#ifndef HB_CLI_SIM_OPTIONS_H
#define HB_CLI_SIM_OPTIONS_H

#include "report/output.h"
#include "sim/sim.h"

#define HB_SIM_TRACES_MAX 16

struct hb_sim_command {
	struct hb_trace_set traces; /* owned */
	struct hb_sim_options run;  /* all but `sharing` */
	const char *modes[HB_SIM_RESULTS_MAX];
	size_t n_modes;
	char *mode_list; /* owned; `modes` points into it */
	const char *trace_paths[HB_SIM_TRACES_MAX];
	size_t n_traces;
	const char *high_specs[HB_SIM_TENANTS_MAX], *low_specs[HB_SIM_TENANTS_MAX];
	char *phases[HB_SIM_TENANTS_MAX]; /* owned; texts of high_specs, cut into their parts */
	const char *report_path, *timeline_path;
	int64_t window_from_ns, window_to_ns; /* -1 = not given */
	unsigned jobs;
	bool json, latencies, progress, help;
};

/* Returns HB_EXIT_OK, or HB_EXIT_USAGE or HB_EXIT_FAILURE after a message on stderr. Release `command` with fini in every case. */
int hb_sim_command_parse(struct hb_sim_command *command, int argc, char **argv);
void hb_sim_command_fini(struct hb_sim_command *command);

#endif
