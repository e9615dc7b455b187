/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `hb doctor --channels`: maps which addresses share a memory channel (nvidia/channel_trial.h) and prints what it found. It
 * calls the driver directly, in a context of its own outside any MPS server, and needs no daemon and no root.
 */
#ifndef HB_CLI_DOCTOR_CHANNELS_H
#define HB_CLI_DOCTOR_CHANNELS_H

#include <stdbool.h>
#include <stdint.h>

/*
 * Prints sentences, or one JSON object, and returns an exit status: success if pages were mapped and the second look found
 * 99.9 % of the units in their class again. The keys of the object are in docs/channels.md.
 */
int hb_doctor_channels(bool simulated, bool json, uint32_t pages, int64_t limit_ns);

#endif
