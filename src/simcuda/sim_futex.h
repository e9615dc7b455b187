/* SPDX-License-Identifier: Apache-2.0 */
/* Futexes on words in memory shared between processes: for the simulated driver and its broker. */
#ifndef HB_SIMCUDA_SIM_FUTEX_H
#define HB_SIMCUDA_SIM_FUTEX_H

#include <limits.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static inline void sim_futex_wake(_Atomic uint32_t *word, int n)
{
	syscall(SYS_futex, (uint32_t *)word, FUTEX_WAKE, n, NULL, NULL, 0);
}

/* Returns when woken, when *word differs from `seen`, on a signal, or after timeout_ns. */
static inline void sim_futex_wait(_Atomic uint32_t *word, uint32_t seen, int64_t timeout_ns)
{
	struct timespec timeout = {timeout_ns / 1000000000, timeout_ns % 1000000000};
	syscall(SYS_futex, (uint32_t *)word, FUTEX_WAIT, seen, &timeout, NULL, 0);
}

#endif
