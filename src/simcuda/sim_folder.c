/* SPDX-License-Identifier: Apache-2.0 */
/* See sim_folder.h. Compiled into the simulated driver and into the daemon. */
#include "simcuda/sim_folder.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

int sim_folder_path(char *path, size_t size)
{
	const char *given = getenv("HB_SIM_GPU"), *runtime = getenv("XDG_RUNTIME_DIR");
	int n;
	if (given && *given)
		n = snprintf(path, size, "%s", given);
	else if (runtime && *runtime)
		n = snprintf(path, size, "%s/hummingbird-sim", runtime);
	else
		n = snprintf(path, size, "/tmp/hummingbird-sim-%u", (unsigned)getuid());
	return n < 0 || (size_t)n >= size ? -ENAMETOOLONG : 0;
}

/* The folder's path may be longer than a socket address, so this connects relative to it. */
int sim_folder_connect(int folder)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	snprintf(address.sun_path, sizeof address.sun_path, "/proc/self/fd/%d/broker.sock", folder);
	if (connect(fd, (struct sockaddr *)&address, sizeof address) < 0) {
		int result = -errno;
		close(fd);
		return result;
	}
	return fd;
}
