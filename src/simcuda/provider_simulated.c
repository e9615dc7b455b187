/* SPDX-License-Identifier: Apache-2.0 */
/* The provider of simulated GPUs for the daemon and hb: the simulated driver's library and its MPS control program. */
#include "base/clock.h"
#include "base/install_path.h"
#include "gpu/provider.h"
#include "simcuda/sim_folder.h"
#include "simcuda/sim_rm_abi.h"
#include "simcuda/sim_wire.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/socket.h>
#include <unistd.h>

static int mps_control(char *path, size_t size, const char **why)
{
	if (hb_install_program("hb-sim-mps-control", path, size) == 0)
		return 0;
	*why = "the simulated driver's hb-sim-mps-control is not installed";
	return -ENOENT;
}

/* The simulated driver behaves like this one. HB_SIM_DRIVER: another version. */
static void driver_version(char *version, size_t size)
{
	const char *chosen = getenv("HB_SIM_DRIVER");
	snprintf(version, size, "%s", chosen ? chosen : "580.159.04");
}

static int driver_library(char *path, size_t size)
{
	static const char name[] = "/libcuda.so.1";
	int result = size > sizeof name ? hb_install_simcuda_dir(path, size - sizeof name) : -ENAMETOOLONG;
	if (result == 0)
		strcat(path, name);
	return result;
}

/* Faults come from a file that every user can read. */
static void open_logs(void)
{
}

static int gpu_name(const unsigned char uuid[16], char *name, size_t size)
{
	snprintf(name, size, "simulated GPU");
	return 0;
}

/* --- processes on the GPU, as the broker reports them ------------------------------------------------ */

/* Connects to the broker. -ENOENT and -ECONNREFUSED mean that no broker runs, so no process uses the GPU. */
static int connect_broker(void)
{
	char path[PATH_MAX];
	const struct timeval limit = {.tv_usec = 500000};
	int result = sim_folder_path(path, sizeof path);
	int folder = result < 0 ? result : open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (folder < 0)
		return result < 0 ? result : -errno;
	int fd = sim_folder_connect(folder);
	close(folder);
	if (fd >= 0)
		setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
	return fd;
}

static int ask_broker(uint32_t gpu, struct sim_reply *reply)
{
	struct sim_request request = {.kind = SIM_REQ_USERS, .version = SIM_WIRE_VERSION, .gpu = gpu};
	int fd = connect_broker();
	if (fd < 0)
		return fd;
	ssize_t n = send(fd, &request, SIM_REQUEST_SHORT, MSG_NOSIGNAL);
	if (n > 0)
		n = recv(fd, reply, sizeof *reply, 0);
	int result = n == (ssize_t)sizeof *reply ? 0 : n < 0 ? -errno : -EPROTO;
	close(fd);
	return result;
}

static uint32_t gpu_number(const unsigned char uuid[16])
{
	unsigned char other[16];
	for (uint32_t i = 0; i < SIM_GPUS; i++) {
		sim_gpu_uuid(i, other);
		if (memcmp(other, uuid, sizeof other) == 0)
			return i;
	}
	return SIM_GPUS;
}

static int gpu_index(const unsigned char uuid[16])
{
	uint32_t number = gpu_number(uuid);
	return number < SIM_GPUS ? (int)number : -ENOENT;
}

/* As many as the broker makes if this process starts it. */
static int gpu_list(unsigned char (*uuids)[16], uint32_t most)
{
	const char *text = getenv("HB_SIM_GPUS");
	long gpus = text ? strtol(text, NULL, 10) : 1;
	uint32_t n = gpus >= 1 && gpus <= (long)SIM_GPUS ? (uint32_t)gpus : 1;
	if (getenv("HB_SIM_UNLISTED"))
		return -ENOTSUP;
	for (uint32_t i = 0; i < n && i < most; i++)
		sim_gpu_uuid(i, uuids[i]);
	return (int)(n < most ? n : most);
}

static atomic_uint lost_gpus; /* one bit for each GPU, set by gpu_event() */

static bool gpu_is_missing(const unsigned char uuid[16])
{
	/* HB_SIM_UNLISTED: as for a driver that does not list its GPUs. */
	return gpu_number(uuid) == SIM_GPUS && !getenv("HB_SIM_UNLISTED");
}

/*
 * Returns in which part of the last seconds the process's kernels ran. Only gpu_use() calls it, from one thread. A kernel counts
 * when it ends, so a part of a time shorter than a kernel would say little.
 */
static uint32_t measure_busy_ppm(uint32_t gpu, const struct sim_user *user)
{
	static struct {
		int32_t pid;
		uint32_t busy_ppm;
		int64_t at_ns, busy_ns;
	} known[SIM_GPUS][HB_GPU_USERS_MAX];
	int64_t now_ns = hb_clock_now_ns();
	uint32_t i = (uint32_t)user->pid % HB_GPU_USERS_MAX; /* another process may take the place */
	bool is_known = known[gpu][i].pid == user->pid && now_ns > known[gpu][i].at_ns;
	int64_t busy_ns = user->busy_ns - known[gpu][i].busy_ns, passed_ns = now_ns - known[gpu][i].at_ns;
	if (is_known && passed_ns < HB_NS_PER_S)
		return known[gpu][i].busy_ppm;
	known[gpu][i].pid = user->pid;
	known[gpu][i].at_ns = now_ns;
	known[gpu][i].busy_ns = user->busy_ns;
	known[gpu][i].busy_ppm = HB_GPU_BUSY_UNKNOWN;
	if (is_known && busy_ns >= 0)
		known[gpu][i].busy_ppm = busy_ns < passed_ns ? (uint32_t)((double)busy_ns * 1e6 / (double)passed_ns)
							     : 1000000;
	return known[gpu][i].busy_ppm;
}

static int gpu_use(const unsigned char uuid[16], struct hb_gpu_use *use)
{
	struct sim_reply reply;
	uint32_t number = gpu_number(uuid);
	memset(use, 0, sizeof *use);
	use->is_lost = number < SIM_GPUS && atomic_load(&lost_gpus) >> number & 1;
	int result = ask_broker(number, &reply);
	if (result == -ENOENT || result == -ECONNREFUSED)
		return 0;
	if (result < 0) {
		snprintf(use->why, sizeof use->why, "the simulated GPU's broker does not answer: %s",
			 strerror(-result));
		return result;
	}
	use->total_bytes = reply.memory_total;
	use->used_bytes = reply.memory_total - reply.memory_free;
	size_t bytes = reply.rm.params_size <= sizeof reply.rm.params ? reply.rm.params_size : 0;
	for (size_t at = 0; at + sizeof(struct sim_user) <= bytes && use->n_users < HB_GPU_USERS_MAX;
	     at += sizeof(struct sim_user)) {
		struct sim_user user;
		memcpy(&user, reply.rm.params + at, sizeof user);
		use->users[use->n_users++] = (struct hb_gpu_user){
			.pid = user.pid, .bytes = user.bytes, .busy_ppm = measure_busy_ppm(number, &user)};
	}
	return 0;
}

/* --- faults, as a test wrote them into the file "events" of the GPUs' folder ---------------------------- */

/* Reads "GPU xid NUMBER PID", "GPU ecc", "GPU lost" or "GPU back". False: the line says nothing of a fault. */
static bool read_fault(const char *line, struct hb_gpu_event *event)
{
	char kind[8];
	unsigned gpu, xid = 0;
	int pid = 0;
	if (sscanf(line, "%u %7s %u %d", &gpu, kind, &xid, &pid) < 2 || gpu >= SIM_GPUS)
		return false;
	if (strcmp(kind, "back") == 0)
		atomic_fetch_and(&lost_gpus, ~(1U << gpu));
	*event = (struct hb_gpu_event){.kind = HB_GPU_EVENT_XID, .xid = xid, .pid = pid};
	sim_gpu_uuid(gpu, event->uuid);
	if (strcmp(kind, "ecc") == 0)
		event->kind = HB_GPU_EVENT_ECC;
	if (strcmp(kind, "lost") == 0) {
		event->kind = HB_GPU_EVENT_LOST;
		atomic_fetch_or(&lost_gpus, 1U << gpu);
	}
	return strcmp(kind, "xid") == 0 || event->kind != HB_GPU_EVENT_XID;
}

/* Reads the next complete line of the file that reports a fault. */
static bool read_next_fault(struct hb_gpu_event *event)
{
	static long read_until; /* used by one thread */
	char path[PATH_MAX + sizeof "/events"], line[128];
	bool found = false;
	if (sim_folder_path(path, PATH_MAX) < 0)
		return false;
	strcat(path, "/events");
	FILE *file = fopen(path, "re");
	if (!file)
		return false;
	fseek(file, read_until, SEEK_SET);
	while (!found && fgets(line, sizeof line, file) && strchr(line, '\n')) {
		read_until = ftell(file);
		found = read_fault(line, event);
	}
	fclose(file);
	return found;
}

/* Waits until the folder of the GPUs changes. */
static void wait_for_change(int stop_fd, int timeout_ms)
{
	static int watch = -1; /* used by one thread */
	char path[PATH_MAX];
	if (watch < 0 && sim_folder_path(path, sizeof path) == 0) {
		watch = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
		if (watch >= 0 && inotify_add_watch(watch, path, IN_MODIFY) < 0) {
			close(watch);
			watch = -1;
		}
	}
	struct pollfd ends[] = {{.fd = stop_fd, .events = POLLIN}, {.fd = watch, .events = POLLIN}};
	char changes[4096];
	if (poll(ends, 2, timeout_ms) > 0 && ends[1].revents && read(watch, changes, sizeof changes) < 0)
		return;
}

static int gpu_event(const unsigned char (*uuids)[16], uint32_t n, int stop_fd, int timeout_ms,
		     struct hb_gpu_event *event, char why[HB_GPU_WHY_MAX])
{
	if (read_next_fault(event))
		return 1;
	wait_for_change(stop_fd, timeout_ms);
	return read_next_fault(event);
}

/* --- probes ------------------------------------------------------------------------------ */

static void probe_library(struct hb_probe *probe)
{
	char path[512];
	strcpy(probe->name, "simulated driver");
	probe->required = true;
	probe->works = driver_library(path, sizeof path) == 0 && access(path, R_OK) == 0;
	snprintf(probe->found, sizeof probe->found, "%.470s",
		 probe->works ? path : "libcuda.so.1 of the simulated driver is missing");
	if (!probe->works)
		strcpy(probe->remedy, "build or install it, or set HB_SIMCUDA_DIR to its folder");
}

static void probe_mps(struct hb_probe *probe)
{
	hb_probe_mps(probe, &hb_provider_simulated, "build or install it; until then low-priority tenants take turns");
}

static void (*const probes[])(struct hb_probe *probe) = {probe_library, probe_mps, NULL};

const struct hb_provider hb_provider_simulated = {
	.name = "simulated",
	.simulated = true,
	.mps_control = mps_control,
	.gpu_name = gpu_name,
	.gpu_index = gpu_index,
	.gpu_list = gpu_list,
	.gpu_is_missing = gpu_is_missing,
	.driver_version = driver_version,
	.driver_library = driver_library,
	.gpu_use = gpu_use,
	.gpu_event = gpu_event,
	.open_logs = open_logs,
	.probes = probes,
};
