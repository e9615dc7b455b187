/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the project's own programs and libraries are, seen from the running
 * program: in the build tree or where they were installed. Used by hb and hbd.
 */
#ifndef HB_BASE_INSTALL_PATH_H
#define HB_BASE_INSTALL_PATH_H

#include <stddef.h>

/* The folder that holds the shim's libcuda.so.1; $HB_SHIM_DIR wins. 0, -ENOENT, -ENAMETOOLONG. */
int hb_install_shim_dir(char *path, size_t size);
/* libhb-signs.so, which `hb run --priority high` preloads. 0, -ENOENT, -ENAMETOOLONG. */
int hb_install_signs(char *path, size_t size);
/* The folder that holds the simulated driver's libcuda.so.1; $HB_SIMCUDA_DIR wins. */
int hb_install_simcuda_dir(char *path, size_t size);
/* One of our programs ("hbd", "hb"), else what $PATH has by this name. */
int hb_install_program(const char *name, char *path, size_t size);
/* A shared object that the running program loads (dlopen), in the program's own folder. 0, -ENOENT, -ENAMETOOLONG. */
int hb_install_module(const char *name, char *path, size_t size);

#endif
