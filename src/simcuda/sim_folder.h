/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the broker of the simulated GPUs is: the folder that its clients and
 * the daemon look in, and a connection to it. Starts nothing.
 */
#ifndef HB_SIMCUDA_SIM_FOLDER_H
#define HB_SIMCUDA_SIM_FOLDER_H

#include <stddef.h>

/* $HB_SIM_GPU, or the user's own. 0, -ENAMETOOLONG. The folder may not exist yet. */
int sim_folder_path(char *path, size_t size);
/* A connection to the broker that serves this folder (a descriptor of it), or negative errno. */
int sim_folder_connect(int folder);

#endif
