/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The provider of NVIDIA GPUs for the daemon and `hb doctor`: files of the kernel
 * module, the driver's library, the MPS control program, NVML.
 */
#include "base/install_path.h"
#include "base/uuid.h"
#include "gpu/provider.h"
#include "nvidia/mask_states.h"
#include "nvidia/nvml.h"
#include "nvidia/xid_log.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PROC "/proc/driver/nvidia"
#define CONTROL_NODE "/dev/nvidiactl"
#define OLDEST_DRIVER 535

static int mps_control(char *path, size_t size, const char **why)
{
	if (hb_install_program("nvidia-cuda-mps-control", path, size) == 0)
		return 0;
	*why = "nvidia-cuda-mps-control is not on PATH";
	return -ENOENT;
}

static int driver_library(char *path, size_t size)
{
	return -ENOENT;
}

/* Reads the value of a line "Key: value" in a small file. False: there is no such file or key. */
static bool read_value(const char *file, const char *key, char *value, size_t size)
{
	char line[256];
	bool found = false;
	FILE *stream = fopen(file, "re");
	while (stream && !found && fgets(line, sizeof line, stream)) {
		if (strncmp(line, key, strlen(key)) != 0)
			continue;
		char *text = line + strlen(key);
		text += strspn(text, ": \t");
		text[strcspn(text, "\n")] = '\0';
		snprintf(value, size, "%s", text);
		found = true;
	}
	if (stream)
		fclose(stream);
	return found;
}

/*
 * Finds the folder of a GPU, which is named by its bus address. Returns how many GPUs come before it, or -ENOENT.
 */
static int find_folder(const unsigned char uuid[16], char bus[32])
{
	char wanted[HB_UUID_TEXT_SIZE], found[64], file[320];
	struct dirent **entries;
	int index = -ENOENT, before = 0, n = scandir(PROC "/gpus", &entries, NULL, alphasort);
	hb_uuid_format(uuid, wanted);
	for (int i = 0; i < n; i++) {
		snprintf(file, sizeof file, PROC "/gpus/%s/information", entries[i]->d_name);
		bool is_gpu = read_value(file, "GPU UUID", found, sizeof found);
		if (is_gpu && strcmp(found, wanted) == 0) {
			index = before;
			snprintf(bus, 32, "%.31s", entries[i]->d_name);
		}
		before += is_gpu;
		free(entries[i]);
	}
	if (n >= 0)
		free(entries);
	return index;
}

static int gpu_name(const unsigned char uuid[16], char *name, size_t size)
{
	char bus[32], file[320];
	if (find_folder(uuid, bus) < 0)
		return -ENOENT;
	snprintf(file, sizeof file, PROC "/gpus/%s/information", bus);
	return read_value(file, "Model", name, size) ? 0 : -ENOENT;
}

static int gpu_index(const unsigned char uuid[16])
{
	char bus[32];
	return find_folder(uuid, bus);
}

static int kernel_log = -1;

static void open_logs(void)
{
	if (kernel_log < 0)
		kernel_log = hb_xid_log_open(HB_XID_LOG);
}

/* NVML does not wait for a descriptor: the caller gets the answer when the time is over. */
static int gpu_event(const unsigned char (*uuids)[16], uint32_t n, int stop_fd, int timeout_ms,
		     struct hb_gpu_event *event, char why[HB_GPU_WHY_MAX])
{
	char bus[32];
	int result = hb_nvml_event(uuids, n, timeout_ms, event, why);
	if (result > 0 && event->kind == HB_GPU_EVENT_XID && find_folder(event->uuid, bus) >= 0)
		event->pid = hb_xid_log_find(kernel_log, bus, event->xid, event->process);
	return result;
}

static bool has_mig_instances(void)
{
	glob_t found = {0};
	bool has = glob(PROC "/capabilities/gpu*/mig/gi*", 0, NULL, &found) == 0;
	globfree(&found);
	return has;
}

static int gpu_list(unsigned char (*uuids)[16], uint32_t most)
{
	struct dirent **entries;
	char text[64], file[320];
	int n = has_mig_instances() ? -1 : scandir(PROC "/gpus", &entries, NULL, alphasort);
	uint32_t found = 0;
	for (int i = 0; i < n; i++) {
		snprintf(file, sizeof file, PROC "/gpus/%s/information", entries[i]->d_name);
		if (found < most && read_value(file, "GPU UUID", text, sizeof text))
			found += hb_uuid_parse(text, uuids[found]) == 0;
		free(entries[i]);
	}
	if (n >= 0)
		free(entries);
	return found ? (int)found : -ENOTSUP;
}

static bool gpu_is_missing(const unsigned char uuid[16])
{
	struct dirent **entries;
	int n = scandir(PROC "/gpus", &entries, NULL, alphasort);
	bool lists = n > 2; /* beside "." and ".." */
	for (int i = 0; i < n; i++)
		free(entries[i]);
	if (n >= 0)
		free(entries);
	return lists && gpu_index(uuid) < 0 && !has_mig_instances();
}

static int gpu_use(const unsigned char uuid[16], struct hb_gpu_use *use)
{
	char text[HB_UUID_TEXT_SIZE];
	return hb_nvml_use(hb_uuid_format(uuid, text), use);
}

static void driver_version(char *version, size_t size)
{
	char line[128] = "";
	read_value(PROC "/version", "NVRM version", line, sizeof line);
	hb_mask_driver_number(line, version, size);
}

/* --- probes --------------------------------------------------------------------- */

static void probe_module(struct hb_probe *probe)
{
	char version[128], number[32];
	strcpy(probe->name, "kernel module");
	probe->required = true;
	if (!read_value(PROC "/version", "NVRM version", version, sizeof version)) {
		strcpy(probe->found, PROC "/version does not exist");
		strcpy(probe->remedy,
		       "install and load NVIDIA's driver (modprobe nvidia); in a container, give it the GPU; "
		       "without a GPU use --gpu sim");
		return;
	}
	hb_mask_driver_number(version, number, sizeof number);
	snprintf(probe->found, sizeof probe->found, "%.150s", version);
	probe->works = strtol(number, NULL, 10) >= OLDEST_DRIVER;
	if (!probe->works)
		snprintf(probe->remedy, sizeof probe->remedy, "driver %d or newer is needed", OLDEST_DRIVER);
}

static void probe_node(struct hb_probe *probe)
{
	strcpy(probe->name, "device node");
	probe->required = true;
	probe->works = access(CONTROL_NODE, R_OK | W_OK) == 0;
	snprintf(probe->found, sizeof probe->found, CONTROL_NODE ": %s", probe->works ? "usable" : strerror(errno));
	if (!probe->works)
		strcpy(probe->remedy, "give this user or container access to /dev/nvidiactl and /dev/nvidia*");
}

static void probe_library(struct hb_probe *probe)
{
	strcpy(probe->name, "driver library");
	probe->required = true;
	void *library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
	probe->works = library && dlsym(library, "cuGetProcAddress");
	if (probe->works)
		strcpy(probe->found, "libcuda.so.1 loads and has cuGetProcAddress");
	else if (library)
		strcpy(probe->found, "libcuda.so.1 is older than CUDA 11.3");
	else
		snprintf(probe->found, sizeof probe->found, "%.150s", dlerror());
	if (!probe->works)
		strcpy(probe->remedy,
		       "install the driver's user-space libraries of the same version as the kernel module");
}

static void probe_mps(struct hb_probe *probe)
{
	hb_probe_mps(probe, &hb_provider_nvidia,
		     "install nvidia-cuda-mps-control; until then low-priority tenants take turns");
}

/* Not a fault, but users should know these limits before they run several low-priority programs. */
static void probe_mps_limits(struct hb_probe *probe)
{
	strcpy(probe->name, "MPS limits");
	probe->works = true;
	strcpy(probe->found,
	       "one user at a time, about 48 processes per GPU; if one low-priority program crashes on the GPU, "
	       "the other low-priority programs end, too");
}

static void probe_mps_elsewhere(struct hb_probe *probe)
{
	const char *folder = getenv("CUDA_MPS_PIPE_DIRECTORY");
	char file[300];
	snprintf(file, sizeof file, "%.200s/control", folder ? folder : "/tmp/nvidia-mps");
	strcpy(probe->name, "no other MPS");
	probe->works = access(file, F_OK) != 0;
	snprintf(probe->found, sizeof probe->found, "%.120s %s", file, probe->works ? "does not exist" : "exists");
	if (!probe->works)
		strcpy(probe->remedy,
		       "another MPS control daemon is running: programs started without `hb run` share its "
		       "server, which Hummingbird cannot schedule; stop it with "
		       "`echo quit | nvidia-cuda-mps-control`");
}

static void (*const probes[])(struct hb_probe *probe) = {
	probe_module, probe_node, probe_library, probe_mps, probe_mps_limits, probe_mps_elsewhere, NULL};

const struct hb_provider hb_provider_nvidia = {
	.name = "nvidia",
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
