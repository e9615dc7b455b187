/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared by the two sample programs of the simulated driver: a service
 * (sim_infer) and a training job (sim_train). They are ordinary CUDA driver
 * programs, linked against libcuda.so.1; what LD_LIBRARY_PATH holds (the shim)
 * comes first. Times are GPU time, so they mean the same at any HB_SIM_SCALE.
 */
#ifndef HB_BENCH_SIM_WORKLOAD_H
#define HB_BENCH_SIM_WORKLOAD_H

#include "simcuda/simcuda.h"

#include <stdbool.h>

/* Ends the program, naming the call and the error. */
#define MUST(call) sim_workload_must(call, #call)
void sim_workload_must(CUresult result, const char *call);

/* cuInit, the primary context of device 0, the image below. */
void sim_workload_open(void);
void sim_workload_close(void);
/*
 * Kernels: "work" (time in ns is its one parameter) and "add", whose host
 * function adds its second parameter to the 64-bit word at its first.
 */
CUfunction sim_workload_kernel(const char *name);

int64_t sim_workload_now_ns(void);
void sim_workload_sleep_until(int64_t at_ns);

/* The word that "add" adds to, and its value after all work is done. */
CUdeviceptr sim_workload_sum(void);
uint64_t sim_workload_read_sum(void);

/* Text of an option "--name=VALUE" or "--name VALUE" as a number in a range, or the end of the program with a message. */
double sim_workload_number(const char *name, const char *text, double low, double high);

#endif
