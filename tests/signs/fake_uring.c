/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A fake liburing for test_signs.c: the functions that libhb-signs intercepts, with
 * the results that the test requests. Creates no ring and makes no system call.
 */
#include "fake_uring.h"

int fake_uring_result;
void *fake_uring_cqe;

int __io_uring_get_cqe(void *ring, void **cqe, unsigned int submit, unsigned int wait, void *mask)
{
	*cqe = fake_uring_cqe;
	return fake_uring_result;
}

int io_uring_wait_cqes(void *ring, void **cqe, unsigned int n, void *timeout, void *mask)
{
	return fake_uring_result;
}

int io_uring_wait_cqe_timeout(void *ring, void **cqe, void *timeout)
{
	return fake_uring_result;
}

int io_uring_peek_batch_cqe(void *ring, void **cqes, unsigned int n)
{
	return fake_uring_result;
}

int io_uring_submit_and_wait(void *ring, unsigned int n)
{
	return fake_uring_result;
}

int io_uring_submit_and_wait_timeout(void *ring, void **cqe, unsigned int n, void *timeout, void *mask)
{
	return fake_uring_result;
}
