/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds the folder of the simulated GPUs' broker for clients and the daemon, and
 * connects to the broker. Starts nothing.
 */
#ifndef HB_SIMCUDA_SIM_FOLDER_H
#define HB_SIMCUDA_SIM_FOLDER_H

#include <stddef.h>

/* Returns $HB_SIM_GPU or the user's own folder, which may not exist yet. 0 or -ENAMETOOLONG. */
int sim_folder_path(char *path, size_t size);
/* Connects to the broker that serves this folder (an open descriptor). Returns a descriptor or a negative errno. */
int sim_folder_connect(int folder);

#endif
