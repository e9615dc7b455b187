/* SPDX-License-Identifier: Apache-2.0 */
/* Interface between sim_queue.c (submission, completion, waiting) and sim_helper.c (the helper thread). */
#ifndef HB_SIMCUDA_SIM_QUEUE_H
#define HB_SIMCUDA_SIM_QUEUE_H

#include "base/clock.h"
#include "simcuda/sim_driver.h"

#define CHECK_NS (100 * HB_NS_PER_MS) /* how often a waiter checks that the broker lives */

/* The item that occupies a slot until its completion. */
struct sim_item {
	CUstream stream;
	uint64_t seq;
	struct sim_task *task;
};

/* Writes an entry for the broker. Takes sim.submit. */
void sim_push(struct sim_entry *entry);
/* Counts the item as done and frees its slot; under sim.drain. */
void sim_item_done(const struct sim_item *item, uint32_t slot);
void sim_stream_unuse(CUstream stream);
/* Returns whether completions arrived that no thread has drained. */
bool sim_something_done(void);
/* `self`: 1 when the caller counts among the waiters. */
void sim_wake_waiters(uint32_t self);

int sim_helper_start(void);
/* Passes an item to the helper thread; `stop_word`: the word on which a takeover kernel waits. */
void sim_hand_add(const struct sim_item *item, uint32_t slot, const volatile uint32_t *stop_word);

#endif
