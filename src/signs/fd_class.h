/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Classifies file descriptors by whether bytes on them may be the sign of a request.
 * The kernel is asked once per descriptor; the answer is stored in a table until the
 * descriptor is closed. No allocation, no lock, safe in signal handlers; errno is
 * preserved.
 */
#ifndef HB_SIGNS_FD_CLASS_H
#define HB_SIGNS_FD_CLASS_H

#include <stdint.h>

/* The upper byte of a class. Its lower 16 bits are a port, 0 if there is none. */
enum hb_fd_kind {
	HB_FD_UNKNOWN = 0,
	HB_FD_OTHER,    /* files, terminals, timers: never a sign */
	HB_FD_SERVED,   /* a connection from a client; the port is the listening port */
	HB_FD_LISTENER, /* a listening socket with its port */
	HB_FD_CALLED,   /* a connection opened by this process; the port is the other end's */
	HB_FD_DATAGRAM, /* a datagram socket with its port */
	HB_FD_LOCAL,    /* Unix sockets and other sockets without ports */
	HB_FD_PIPE,
	HB_FD_EVENT, /* eventfd */
};

/* Returns (kind << 24) | port; never 0. */
uint32_t hb_fd_class(int fd);
/* Forgets the class of a number, which is about to stand for another descriptor. */
void hb_fd_forget(int fd);
/* Records that accept() returned the descriptor. */
void hb_fd_served(int fd);

#endif
