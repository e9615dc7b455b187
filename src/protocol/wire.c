/* SPDX-License-Identifier: Apache-2.0 */
/* Sends and receives messages; see wire.h. */
#include "protocol/wire.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

union sent_control {
	struct cmsghdr align;
	char bytes[CMSG_SPACE(HB_MSG_FDS_MAX * sizeof(int))];
};

union received_control {
	struct cmsghdr align;
	char bytes[CMSG_SPACE(HB_WIRE_FDS_MAX * sizeof(int))];
};

int hb_wire_send(int socket, const union hb_msg *message, const int *fds, size_t n_fds)
{
	union sent_control control;
	struct iovec part = {.iov_base = (void *)(uintptr_t)message->bytes, .iov_len = message->header.size};
	struct msghdr packet = {.msg_iov = &part, .msg_iovlen = 1};
	if (n_fds > HB_MSG_FDS_MAX)
		return -EINVAL;
	if (n_fds) {
		memset(&control, 0, sizeof control);
		packet.msg_control = &control;
		packet.msg_controllen = CMSG_SPACE(n_fds * sizeof(int));
		struct cmsghdr *head = CMSG_FIRSTHDR(&packet);
		head->cmsg_level = SOL_SOCKET;
		head->cmsg_type = SCM_RIGHTS;
		head->cmsg_len = CMSG_LEN(n_fds * sizeof(int));
		memcpy(CMSG_DATA(head), fds, n_fds * sizeof(int));
	}
	ssize_t sent;
	do
		sent = sendmsg(socket, &packet, MSG_NOSIGNAL);
	while (sent < 0 && errno == EINTR);
	return sent < 0 ? -errno : 0;
}

/* The kernel may deliver descriptors even with a truncated packet: collect every one so that it can be closed. */
static void collect_fds(struct msghdr *packet, struct hb_wire_fds *fds)
{
	fds->n = 0;
	for (struct cmsghdr *head = CMSG_FIRSTHDR(packet); head; head = CMSG_NXTHDR(packet, head)) {
		if (head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS)
			continue;
		size_t n = (head->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		for (size_t i = 0; i < n && fds->n < HB_WIRE_FDS_MAX; i++)
			memcpy(&fds->fd[fds->n++], CMSG_DATA(head) + i * sizeof(int), sizeof(int));
	}
}

void hb_wire_close_fds(struct hb_wire_fds *fds)
{
	for (size_t i = 0; i < fds->n; i++)
		close(fds->fd[i]);
	fds->n = 0;
}

int hb_wire_receive(int socket, enum hb_msg_sender sender, union hb_msg *message, struct hb_wire_fds *fds,
		    const char **why)
{
	union received_control control;
	struct iovec part = {.iov_base = message->bytes, .iov_len = sizeof message->bytes};
	struct msghdr packet = {
		.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
	ssize_t n;
	fds->n = 0;
	do
		n = recvmsg(socket, &packet, MSG_CMSG_CLOEXEC);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;
	collect_fds(&packet, fds);
	if (n == 0 && fds->n == 0)
		return -ENOTCONN;
	if (packet.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) {
		*why = "packet too long";
		return -EPROTO;
	}
	return hb_msg_check(message, (size_t)n, fds->n, sender, why);
}
