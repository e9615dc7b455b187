/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The command line of `hb sim`, parsed and checked: everything the run needs,
 * so that cmd_sim.c only runs and prints. Texts point into argv.
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
	char *mode_list; /* owned: what `modes` point into */
	const char *trace_paths[HB_SIM_TRACES_MAX];
	size_t n_traces;
	const char *high_specs[HB_SIM_TENANTS_MAX], *low_specs[HB_SIM_TENANTS_MAX];
	char *arrivals[HB_SIM_TENANTS_MAX]; /* owned */
	const char *report_path, *timeline_path;
	int64_t window_from_ns, window_to_ns; /* -1 = choose */
	unsigned jobs;
	bool json, latencies, progress, help;
};

/* HB_EXIT_OK or, with the error told on stderr, HB_EXIT_USAGE or HB_EXIT_FAILURE; release with fini either way. */
int hb_sim_command_parse(struct hb_sim_command *command, int argc, char **argv);
void hb_sim_command_fini(struct hb_sim_command *command);

#endif
