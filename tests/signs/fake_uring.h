/* SPDX-License-Identifier: Apache-2.0 */
/* The fake liburing of fake_uring.c. The signatures are liburing's, except for the types of pointers that are never read. */
#ifndef HB_TESTS_FAKE_URING_H
#define HB_TESTS_FAKE_URING_H

#pragma GCC visibility push(default)
extern int fake_uring_result;
extern void *fake_uring_cqe;

int __io_uring_get_cqe(void *ring, void **cqe, unsigned int submit, unsigned int wait, void *mask);
int io_uring_wait_cqes(void *ring, void **cqe, unsigned int n, void *timeout, void *mask);
int io_uring_wait_cqe_timeout(void *ring, void **cqe, void *timeout);
int io_uring_peek_batch_cqe(void *ring, void **cqes, unsigned int n);
int io_uring_submit_and_wait(void *ring, unsigned int n);
int io_uring_submit_and_wait_timeout(void *ring, void **cqe, unsigned int n, void *timeout, void *mask);
#pragma GCC visibility pop

#endif
