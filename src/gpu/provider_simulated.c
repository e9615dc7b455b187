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

static size_t probe(struct hb_probe *probes, size_t max)
{
	char path[512];
	if (max == 0)
		return 0;
	struct hb_probe *library = &probes[0];
	memset(library, 0, sizeof *library);
	strcpy(library->name, "simulated driver");
	library->required = true;
	library->works = driver_library(path, sizeof path) == 0 && access(path, R_OK) == 0;
	snprintf(library->found, sizeof library->found, "%.150s",
		 library->works ? path : "libcuda.so.1 of the simulated driver is missing");
	if (!library->works)
		strcpy(library->remedy, "build or install it, or set HB_SIMCUDA_DIR to its folder");
	return 1;
}

const struct hb_provider hb_provider_simulated = {
	.name = "simulated",
	.simulated = true,
	.mps_control = mps_control,
	.gpu_name = gpu_name,
	.driver_library = driver_library,
	.probe = probe,
};
