/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sends and receives one message with its descriptors on a SOCK_SEQPACKET
 * socket, blocking or not. Allocates and logs nothing. Used by daemon, command
 * line and shim.
 */
#ifndef HB_PROTOCOL_WIRE_H
#define HB_PROTOCOL_WIRE_H

#include "protocol/protocol.h"

/*
 * The most descriptors that Linux passes with a packet (SCM_MAX_FD). There is room for all of them: the kernel would
 * close those that do not fit in the middle of the call, and closing a file may wait for its file system.
 */
#define HB_WIRE_FDS_MAX 253

/* Descriptors that were received with a packet. The receiver closes those that it does not keep. */
struct hb_wire_fds {
	size_t n;
	int fd[HB_WIRE_FDS_MAX];
};

/* 0, or negative errno (-EAGAIN: non-blocking and full, or timed out). The caller keeps the descriptors. */
int hb_wire_send(int socket, const union hb_msg *message, const int *fds, size_t n_fds);

/*
 * Receives and checks one message of `sender`. 0; -ENOTCONN when the peer
 * closed the connection; -EPROTO (why set) for a bad message; other negative errno. Descriptors may have come with a bad
 * message, too: *fds is valid in every case, and the caller closes them.
 */
int hb_wire_receive(int socket, enum hb_msg_sender sender, union hb_msg *message, struct hb_wire_fds *fds,
		    const char **why);

void hb_wire_close_fds(struct hb_wire_fds *fds);

#endif
