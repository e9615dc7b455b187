/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds data files (recorded traces, GPU descriptions): in $HB_DATA_DIR if that is
 * set; else in the source tree's data/ when the program or library runs from the
 * build folder; else in share/hummingbird beside or above its installed folder.
 * A complete build or install tree can therefore be moved. Also chooses a user's own
 * files, and shortens command lines for people.
 */
#ifndef HB_BASE_PATHS_H
#define HB_BASE_PATHS_H

#include "base/error.h"

#include <limits.h>
#include <stddef.h>

/* Finds the folder of the program, or of the shared library, that this function is linked into. Returns 0 or -errno. */
int hb_path_own_folder(char folder[static PATH_MAX]);

/*
 * Finds an existing data file or folder, e.g. "traces/h200-colocation.csv".
 * Returns 0, -ENOENT (error says where it looked), -ENAMETOOLONG. *path written only on success.
 */
int hb_path_data(const char *relative, char *path, size_t size, struct hb_error *error);

/*
 * Writes the path of a file of this user: hummingbird/NAME in the folder that the variable `xdg` names, or in `fallback` (as
 * ".config") below $HOME. "" if neither is an absolute path.
 */
void hb_path_user_file(const char *xdg, const char *fallback, const char *name, char *path, size_t size);

/* Makes the folders of the file's path that are missing, for this user only. Opening the file reports a failure. */
void hb_path_make_folders(const char *path);

/* Returns the part of a command line that people recognise: "python serve.py" of "/opt/venv/bin/python serve.py". Points into `command`. */
const char *hb_path_command(const char *command);

#endif
