/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a file descriptor is, as far as bytes on it may be the sign of a
 * request: asked of the kernel once, kept in a table until it is closed.
 * No allocation, no lock, safe in signal handlers; errno is left alone.
 */
#ifndef HB_SIGNS_FD_CLASS_H
#define HB_SIGNS_FD_CLASS_H

#include <stdint.h>

/* In the upper byte of an identity; the lower 16 bits are a port, 0 where there is none. */
enum hb_fd_kind {
	HB_FD_UNKNOWN = 0,
	HB_FD_OTHER,    /* files, terminals, timers: no sign */
	HB_FD_SERVED,   /* a connection that came in; the port is the listening one */
	HB_FD_LISTENER, /* the port is its own */
	HB_FD_CALLED,   /* a connection that this process made; the port is the other side's */
	HB_FD_DATAGRAM, /* the port is its own */
	HB_FD_LOCAL,    /* Unix sockets and others without ports */
	HB_FD_PIPE,
	HB_FD_EVENT, /* eventfd */
};

/* (kind << 24) | port, never 0. */
uint32_t hb_fd_class(int fd);
/* It is another one from now on. */
void hb_fd_forget(int fd);
/* It is a connection that came in. */
void hb_fd_served(int fd);

#endif
