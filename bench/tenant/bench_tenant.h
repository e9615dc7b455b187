/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the modes of cuda-tenant: one context, one kernel, and lines to the process that started the program. */
#ifndef HB_BENCH_TENANT_TENANT_H
#define HB_BENCH_TENANT_TENANT_H

#include "driver.h"

/* On the current thread: the first device's primary context and the kernels; once a process. */
void tenant_begin(void);
void tenant_end(void);

/* Takes ns, then adds `value` to the 64-bit word (0: to none). Fills an H200. */
void tenant_step(CUstream stream, uint64_t ns, CUdeviceptr word, uint64_t value);
/* Doubles the word: with tenant_step() what comes out tells the order. */
void tenant_twice(CUstream stream, CUdeviceptr word);
CUdeviceptr tenant_word(void);
uint64_t tenant_read(CUdeviceptr word);

/* Prints the line at once, for a process that waits for it. */
void tenant_say(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Says the word and waits for a line on standard input; its end counts as one. */
void tenant_pause(const char *word);

/* Modes; see tenant.c. */
int tenant_work(int rounds);
int tenant_bench(int argc, char **argv);
int tenant_infer(int argc, char **argv);
int tenant_gang(const char *shape, double kernel_us, uint64_t steps, uint64_t pause_us);
int tenant_memory(size_t chunk, int threads, int processes);
int tenant_cost(unsigned calls, unsigned idle_ms, unsigned busy_ms);
int tenant_hold(size_t chunk, size_t n, bool segments);

#endif
