/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where data files (recorded traces, GPU descriptions) are found: in
 * $HB_DATA_DIR if that is set; else in the source tree's data/ when the program
 * or library runs out of the build folder; else in share/hummingbird beside or
 * above the folder it was installed to. A copy of the build or install tree
 * can therefore be moved as a whole. And how a program's path is shown.
 */
#ifndef HB_BASE_PATHS_H
#define HB_BASE_PATHS_H

#include "base/error.h"

#include <limits.h>
#include <stddef.h>

/* Folder of the program, or of the shared library, that this function is linked into. 0 or -errno. */
int hb_path_own_folder(char folder[static PATH_MAX]);

/*
 * Path of an existing data file or folder, e.g. "traces/h200-colocation.csv".
 * 0, -ENOENT (error says where it looked), -ENAMETOOLONG. *path written only on success.
 */
int hb_path_data(const char *relative, char *path, size_t size, struct hb_error *error);

/* "python serve.py" of the command line "/opt/venv/bin/python serve.py": what people know a program by. Points into `command`. */
const char *hb_path_command(const char *command);

#endif
