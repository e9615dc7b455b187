/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages of the simulated MPS over DIR/hb-sim-control (SOCK_SEQPACKET), where
 * DIR is CUDA_MPS_PIPE_DIRECTORY. Each message is one short line of text. The
 * real MPS uses other names in that folder, so the two cannot be confused.
 *
 *   client    "join GPU"       -> "token N LIMIT" (LIMIT: default SM percentage) or "error TEXT"
 *   tool      "command TEXT"   -> the text to print
 *   server    "gpu GPU"        <- from the control daemon; answers "token N"
 *             "terminate PID"  <- answers "ended" or "error"
 */
#ifndef HB_SIMCUDA_MPS_WIRE_H
#define HB_SIMCUDA_MPS_WIRE_H

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define MPS_SOCKET "hb-sim-control"
#define MPS_TEXT 4096
#define MPS_CLIENTS 60 /* the limit of the real server on this architecture */

static inline const char *mps_folder(void)
{
	const char *given = getenv("CUDA_MPS_PIPE_DIRECTORY");
	return given && *given ? given : "/tmp/nvidia-mps";
}

/* A folder's path may be too long for a socket address, so the address uses the open folder. */
static inline int mps_address(int folder, struct sockaddr_un *address)
{
	address->sun_family = AF_UNIX;
	int n = snprintf(address->sun_path, sizeof address->sun_path, "/proc/self/fd/%d/" MPS_SOCKET, folder);
	return n > 0 && (size_t)n < sizeof address->sun_path ? 0 : -ENAMETOOLONG;
}

/* Connects to the control daemon. Returns a descriptor or a negative errno. */
static inline int mps_connect(void)
{
	struct sockaddr_un address;
	int folder = open(mps_folder(), O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (folder < 0)
		return -errno;
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	int result = fd < 0 ? -errno : mps_address(folder, &address);
	if (result == 0 && connect(fd, (struct sockaddr *)&address, sizeof address) < 0)
		result = -errno;
	close(folder);
	if (result < 0 && fd >= 0)
		close(fd);
	return result < 0 ? result : fd;
}

/* Sends a text with its NUL, so that an empty text does not look like the end of the connection. */
static inline ssize_t mps_send(int fd, const char *text)
{
	return send(fd, text, strlen(text) + 1, MSG_NOSIGNAL);
}

/* Receives a NUL-terminated text. Returns its bytes, or 0 when the peer has closed the connection. */
static inline ssize_t mps_receive(int fd, char *text)
{
	ssize_t n;
	do
		n = recv(fd, text, MPS_TEXT - 1, 0);
	while (n < 0 && errno == EINTR);
	text[n > 0 ? n : 0] = '\0';
	return n > 0 ? n : 0;
}

#endif
