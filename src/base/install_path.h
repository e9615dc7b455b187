/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds the project's own programs and libraries relative to the running program:
 * in the build tree or in an installation. Used by hb and hbd.
 */
#ifndef HB_BASE_INSTALL_PATH_H
#define HB_BASE_INSTALL_PATH_H

#include <stddef.h>

/*
 * Finds the folder that holds the shim's libcuda.so.1; $HB_SHIM_DIR overrides it. Returns 0, -ENOENT or -ENAMETOOLONG.
 */
int hb_install_shim_dir(char *path, size_t size);
/* Finds libhb-signs.so, which `hb run --priority high` preloads. Returns 0, -ENOENT or -ENAMETOOLONG. */
int hb_install_signs(char *path, size_t size);
/* Finds the folder that holds the simulated driver's libcuda.so.1; $HB_SIMCUDA_DIR overrides it. */
int hb_install_simcuda_dir(char *path, size_t size);
/* Finds one of our programs ("hbd", "hb"), or else a program of this name in $PATH. */
int hb_install_program(const char *name, char *path, size_t size);
/*
 * Finds a shared object that the running program loads (dlopen), in the program's own folder. Returns 0, -ENOENT or
 * -ENAMETOOLONG.
 */
int hb_install_module(const char *name, char *path, size_t size);

#endif
