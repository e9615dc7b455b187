/* SPDX-License-Identifier: Apache-2.0 */
/* XSched's server and environment; see bench_xsched.h. */
#include "bench/bench_xsched.h"

#include "base/clock.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define START_NS (15 * HB_NS_PER_S)

/* A port that nobody uses now. */
static int port_find(void)
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t size = sizeof address;
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int port = fd >= 0 && bind(fd, (struct sockaddr *)&address, size) == 0 &&
				   getsockname(fd, (struct sockaddr *)&address, &size) == 0
			   ? ntohs(address.sin_port)
			   : 50000;
	if (fd >= 0)
		close(fd);
	return port;
}

static bool answers(int port)
{
	struct sockaddr_in address = {
		.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons((uint16_t)port)};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	bool connected = fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof address) == 0;
	if (fd >= 0)
		close(fd);
	return connected;
}

static bool set_library_path(struct hb_bench_command *command, const char *dir, const char *driver)
{
	char path[2 * PATH_MAX];
	snprintf(path, sizeof path, "%.*s/lib%s%s", PATH_MAX - 8, dir, *driver ? ":" : "", driver);
	return hb_bench_command_set(command, "LD_LIBRARY_PATH", path);
}

int hb_bench_xsched_start(struct hb_bench_process *server, const char *dir, struct hb_bench_command *command,
			  const char *folder, struct hb_error *error)
{
	char path[PATH_MAX], port_text[16];
	int port = port_find();
	snprintf(path, sizeof path, "%.4000s/bin/xserver", dir);
	snprintf(port_text, sizeof port_text, "%d", port);
	if (!hb_bench_command_add(command, path) || !hb_bench_command_add(command, "HPF") ||
	    !hb_bench_command_add(command, port_text) || !set_library_path(command, dir, ""))
		return hb_error_set(error, -ENOMEM, "out of memory");
	int result = hb_bench_process_start(server, "xserver", command, folder, error);
	int64_t deadline_ns = hb_clock_now_ns() + START_NS;
	while (!result && !answers(port)) {
		result = hb_bench_process_check(server, error);
		if (!result && hb_clock_now_ns() > deadline_ns)
			result = hb_error_set(error, -ETIMEDOUT, "xserver does not listen on port %d", port);
		if (!result && !hb_bench_sleep_until(hb_clock_now_ns() + 10 * HB_NS_PER_MS))
			result = hb_bench_stopped(error);
	}
	return result;
}

/* XSched looks for the driver in a list of its own, which not every system keeps to. */
static void driver_find(const char *folder, char path[PATH_MAX])
{
	struct link_map *map = NULL;
	*path = '\0';
	if (*folder) {
		snprintf(path, PATH_MAX, "%.4000s/libcuda.so.1", folder);
		return;
	}
	void *library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
	if (library && dlinfo(library, RTLD_DI_LINKMAP, &map) == 0)
		snprintf(path, PATH_MAX, "%s", map->l_name);
}

bool hb_bench_xsched_place(struct hb_bench_command *command, const char *dir, const char *driver, bool high)
{
	char path[PATH_MAX];
	const struct {
		const char *name, *value;
	} variables[] = {
		{"XSCHED_SCHEDULER", "GLB"},
		{"XSCHED_AUTO_XQUEUE", "ON"},
		{"XSCHED_AUTO_XQUEUE_PRIORITY", high ? "1" : "0"},
		{"XSCHED_AUTO_XQUEUE_LEVEL", "1"},
		{"XSCHED_AUTO_XQUEUE_THRESHOLD", high ? "16" : "4"},
		{"XSCHED_AUTO_XQUEUE_BATCH_SIZE", high ? "8" : "2"},
	};
	bool whole = set_library_path(command, dir, driver);
	for (size_t i = 0; i < sizeof variables / sizeof *variables; i++)
		whole = whole && hb_bench_command_set(command, variables[i].name, variables[i].value);
	driver_find(driver, path);
	if (!*path)
		return whole;
	/* The second is for cuxtra, the part of XSched that comes without its source. */
	return whole && hb_bench_command_set(command, "XSCHED_CUDA_LIB", path) &&
	       hb_bench_command_set(command, "X_CUDA_DLL_PATH", path);
}
