/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For tests of the simulated driver: a simulated GPU of the test's own, ten
 * times faster than real, and the kernels below, whose host functions do on the
 * CPU what kernels of their names would do.
 */
#ifndef HB_TESTS_SIM_TEST_H
#define HB_TESTS_SIM_TEST_H

#include "simcuda/simcuda.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

/* Fails the test with the error's name. */
#define CU(call) assert_string_equal(sim_test_name(call), "CUDA_SUCCESS")
#define CU_FAILS(call, error) assert_string_equal(sim_test_name(call), #error)

const char *sim_test_name(CUresult result);

/* An image with the kernels that the functions below give their effect. */
extern const char sim_test_image[];

/* Group set-up and tear-down: environment, cuInit, one context; ends by checking that nothing is left on the GPU. */
int sim_test_begin(void **state);
int sim_test_end(void **state);
/* Only the environment: for tests that start processes or call cuInit themselves. */
void sim_test_environment(void);
void sim_test_clean(void);

CUcontext sim_test_context(void);
CUfunction sim_test_function(const char *name);
const struct hb_sim_table *sim_test_table(void);

/* Launches on a stream with one block of 32 threads. */
#define LAUNCH(stream, name, ...) \
	CU(cuLaunchKernel(sim_test_function(name), 1, 1, 1, 32, 1, 1, 0, stream, (void *[]){__VA_ARGS__}, NULL))

#endif
