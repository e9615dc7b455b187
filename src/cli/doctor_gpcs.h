/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `hb doctor --gpcs`: finds which bits of SM masks belong to one GPC (nvidia/gpc_trial.h). It calls the driver directly, in
 * a context of its own outside any MPS server. `hb doctor` and the daemon run it as a child process with a time limit; on
 * the command line it prints the groups.
 */
#ifndef HB_CLI_DOCTOR_GPCS_H
#define HB_CLI_DOCTOR_GPCS_H

#include <stdbool.h>

/*
 * Prints one JSON object and returns an exit status. The keys:
 *   works, state (a word of nvidia/gpc_states.def), found (a sentence), gpu (UUID), looks (measurements), launches, took_ms;
 *   groups: [{sms, bits: hexadecimal, the highest bit first}], largest group first;
 *   after a failure also seen: [{groups: number, sms: of each}] of the full GPU, and seen_last, of the last measurement:
 *   {without: masked bits, sizes: like seen, cluster: blocks of the last launch, hangs: whether that launch never ended}.
 */
int hb_doctor_gpcs(bool simulated);

#endif
