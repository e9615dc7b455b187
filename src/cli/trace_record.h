/* SPDX-License-Identifier: Apache-2.0 */
/* Recording a live system and running it again: called by `hb trace` and `hb sim` (cmd_trace_record.c). */
#ifndef HB_CLI_TRACE_RECORD_H
#define HB_CLI_TRACE_RECORD_H

/* `hb trace record FILE [--seconds N] [--gpu sim]`; argv[0] is "record". An enum hb_exit. */
int hb_trace_record(int argc, char **argv);
/* `hb sim --replay FILE [--policy NAME] [--actions]`; argv[1] is "--replay". */
int hb_sim_replay(int argc, char **argv);

#endif
