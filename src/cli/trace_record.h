/* SPDX-License-Identifier: Apache-2.0 */
/* Recording a live system and running it again: called by `hb trace` and `hb sim` (cmd_trace_record.c). */
#ifndef HB_CLI_TRACE_RECORD_H
#define HB_CLI_TRACE_RECORD_H

/* `hb trace record FILE [--seconds N] [--gpu sim]`; argv[0] is "record", `usage` what --help prints. An enum hb_exit. */
int hb_trace_record(int argc, char **argv, const char *usage);
/* `hb sim --replay FILE [--policy NAME] [--actions]`, in any order. */
int hb_sim_replay(int argc, char **argv);

#endif
