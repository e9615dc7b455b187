/* SPDX-License-Identifier: Apache-2.0 */
/* Simulated GPUs as the daemon and `hb doctor` see them: the simulated driver's library and its MPS control program. */
#include "base/install_path.h"
#include "gpu/provider.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int mps_control(char *path, size_t size, const char **why)
{
	if (hb_install_program("hb-sim-mps-control", path, size) == 0)
		return 0;
	*why = "the simulated driver's hb-sim-mps-control is not installed";
	return -ENOENT;
}

static int driver_library(char *path, size_t size)
{
	static const char name[] = "/libcuda.so.1";
	int result = size > sizeof name ? hb_install_simcuda_dir(path, size - sizeof name) : -ENAMETOOLONG;
	if (result == 0)
		strcat(path, name);
	return result;
}

static int gpu_name(const unsigned char uuid[16], char *name, size_t size)
{
	snprintf(name, size, "simulated GPU");
	return 0;
}

static void probe_library(struct hb_probe *probe)
{
	char path[512];
	strcpy(probe->name, "simulated driver");
	probe->required = true;
	probe->works = driver_library(path, sizeof path) == 0 && access(path, R_OK) == 0;
	snprintf(probe->found, sizeof probe->found, "%.150s",
		 probe->works ? path : "libcuda.so.1 of the simulated driver is missing");
	if (!probe->works)
		strcpy(probe->remedy, "build or install it, or set HB_SIMCUDA_DIR to its folder");
}

static void probe_mps(struct hb_probe *probe)
{
	char path[512];
	const char *why = "";
	strcpy(probe->name, "MPS");
	probe->works = mps_control(path, sizeof path, &why) == 0;
	snprintf(probe->found, sizeof probe->found, "%.150s", probe->works ? path : why);
	if (!probe->works)
		strcpy(probe->remedy, "build or install it; until then low-priority tenants take turns");
}

static size_t probe(struct hb_probe *probes, size_t max)
{
	static void (*const all[])(struct hb_probe *) = {probe_library, probe_mps};
	size_t n = 0;
	for (; n < sizeof all / sizeof all[0] && n < max; n++) {
		memset(&probes[n], 0, sizeof probes[n]);
		all[n](&probes[n]);
	}
	return n;
}

const struct hb_provider hb_provider_simulated = {
	.name = "simulated",
	.simulated = true,
	.mps_control = mps_control,
	.gpu_name = gpu_name,
	.driver_library = driver_library,
	.probe = probe,
};
