/* SPDX-License-Identifier: Apache-2.0 */
/*
 * REEF-like sharing (after Han et al., OSDI 2022), a baseline: HP and LP never have
 * work on the GPU at the same time. REEF resets running LP kernels, which no NVIDIA
 * GPU can do; its re-creations on NVIDIA do what is done here: LP has a short
 * device queue, and HP's first launch waits until the queue is empty. Used by the
 * simulator. Pure: no clock, no allocation, no CUDA.
 *
 * Idea: nothing runs beside HP, so HP runs as if alone once it runs, in any kind of
 * context.
 *
 * Example: LP kernels of 100 us, two in flight. A request begins while one runs and
 * one is queued. LP may not launch, and after 150 us on average HP may. HP's p50 is
 * alone + 150 us, its worst case alone + 200 us.
 *
 * Bad at: long LP kernels (of 1.4 ms each: HP waits up to 2.8 ms) and LP's
 * throughput. Two HP tenants are not kept apart from each other.
 */
#ifndef HB_DECIDE_BASELINE_REEF_H
#define HB_DECIDE_BASELINE_REEF_H

#include <stdbool.h>
#include <stdint.h>

/* LP launches in flight. */
#define HB_REEF_DEPTH 2

struct hb_reef {
	bool serving; /* HP may launch; remains true until no HP tenant has a request */
};

/* The state of the GPU has changed: an HP tenant has a request, an LP tenant has work in flight. */
void hb_reef_update(struct hb_reef *reef, bool high_present, bool low_in_flight);
/* May the HP tenant launch now? */
bool hb_reef_high_may_start(const struct hb_reef *reef);
/* May an LP tenant with `in_flight` launches launch now? */
bool hb_reef_low_may_start(bool high_present, uint64_t in_flight);

#endif
