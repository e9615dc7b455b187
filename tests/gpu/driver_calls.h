/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For programs of this folder, which look the driver's functions up themselves. Before this header a program defines PROGRAM
 * (its name in messages) and CALLS(X), its list of functions; a function is then called as p_NAME.
 */
#ifndef HB_TEST_DRIVER_CALLS_H
#define HB_TEST_DRIVER_CALLS_H

#include <stdio.h>
#include <stdlib.h>

#define DECLARE(name) static __typeof__(&name) p_##name;
CALLS(DECLARE)

#define CHECK(call) \
	do { \
		CUresult result_ = (call); \
		if (result_ != CUDA_SUCCESS) { \
			fprintf(stderr, PROGRAM ": line %d: %s: error %d\n", __LINE__, #call, (int)result_); \
			exit(1); \
		} \
	} while (0)

#endif
