/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The part of `hb doctor` that finds which bits of SM masks are of one GPC
 * (nvidia/gpc_trial.h): in a context of its own, outside any MPS server, on the
 * driver itself. `hb doctor --gpcs`, run as a child with a time limit by the
 * doctor and by the daemon; by hand it shows the groups.
 */
#ifndef HB_CLI_DOCTOR_GPCS_H
#define HB_CLI_DOCTOR_GPCS_H

#include <stdbool.h>

/*
 * Prints one JSON object: works, state (a word of nvidia/gpc_states.def), found, gpu (its UUID), looks, launches, took_ms,
 * groups: [{sms, bits: hexadecimal, the highest bit first}], largest first. Where it failed also what was seen: seen, of
 * the whole GPU: [{groups: how many, sms: of each}], and seen_last: {without: bits, sizes: like seen,
 * cluster: blocks, of the last launch, hangs: whether it never ended}. An exit status.
 */
int hb_doctor_gpcs(bool simulated);

#endif
