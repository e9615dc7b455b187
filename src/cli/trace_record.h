/* SPDX-License-Identifier: Apache-2.0 */
/* Records a running daemon and replays recordings; called by `hb trace` and `hb sim`. */
#ifndef HB_CLI_TRACE_RECORD_H
#define HB_CLI_TRACE_RECORD_H

/* Runs `hb trace record FILE [--seconds N] [--gpu sim]`. argv[0] is "record"; --help prints `usage`. Returns an enum hb_exit. */
int hb_trace_record(int argc, char **argv, const char *usage);
/* Runs `hb sim --replay FILE [--policy NAME] [--actions]`; the options may have any order. Returns an enum hb_exit. */
int hb_sim_replay(int argc, char **argv);

#endif
