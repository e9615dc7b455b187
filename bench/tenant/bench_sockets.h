/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The service's end of the sockets over which its requests come. The clients are a
 * process of their own, bench/request_load.py, whose path the harness gives in
 * HB_BENCH_LOAD. Every error ends the program with a message. One thread.
 */
#ifndef HB_BENCH_TENANT_BENCH_SOCKETS_H
#define HB_BENCH_TENANT_BENCH_SOCKETS_H

#include <stddef.h>
#include <stdint.h>

/* Starts the clients and waits until they are connected; once a process. Each request has `halves` numbers of 2 bytes. */
void bench_sockets_open(size_t halves);
/* Orders the requests of a window; due_ns: when, CLOCK_MONOTONIC. */
void bench_sockets_order(const int64_t *due_ns, size_t n);
/* Waits for the request of this number in its window and receives its `bytes`; returns its connection. */
int bench_sockets_receive(size_t number, void *request, size_t bytes);
void bench_sockets_answer(int connection, const void *answer, size_t bytes);

#endif
