/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sends and receives one message with its descriptors on a SOCK_SEQPACKET
 * socket, blocking or not. Allocates and logs nothing. Used by daemon, command
 * line and shim.
 */
#ifndef HB_PROTOCOL_WIRE_H
#define HB_PROTOCOL_WIRE_H

#include "protocol/protocol.h"

/* Descriptors that were received with a message. The receiver closes those that it does not keep. */
struct hb_wire_fds {
	size_t n;
	int fd[HB_MSG_FDS_MAX];
};

/* 0, or negative errno (-EAGAIN: non-blocking and full, or timed out). The caller keeps the descriptors. */
int hb_wire_send(int socket, const union hb_msg *message, const int *fds, size_t n_fds);

/*
 * Receives and checks one message of `sender`. 0; -ENOTCONN when the peer
 * closed the connection; -EPROTO (why set) for a bad message; other negative errno. On
 * failure no descriptor is left open.
 */
int hb_wire_receive(int socket, enum hb_msg_sender sender, union hb_msg *message, struct hb_wire_fds *fds,
		    const char **why);

void hb_wire_close_fds(struct hb_wire_fds *fds);

#endif
