/* SPDX-License-Identifier: Apache-2.0 */
/* A library that uses liburing and that the program opens with dlopen(), like an extension module of Python. */
#include "fake_uring.h"

#include <stddef.h>

__attribute__((visibility("default"))) int wait_in_plugin(int result);
int wait_in_plugin(int result)
{
	void *cqe = NULL;
	fake_uring_result = result;
	return io_uring_wait_cqe_timeout(NULL, &cqe, NULL);
}
