/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keeps what `engine: auto` has learned (engine_history.h) in a file, so that a restart of the daemon or of the machine
 * does not forget it. The file is JSON with a version; it holds at most HB_ENGINE_PAIRS pairs. A thread writes it, because
 * a disk can take seconds. Only the event loop calls these functions.
 */
#ifndef HB_DAEMON_ENGINE_FILE_H
#define HB_DAEMON_ENGINE_FILE_H

#include "base/error.h"
#include "daemon/engine_history.h"

#include <stdbool.h>
#include <sys/types.h>

/*
 * Chooses the file and reads it. The file is engines.json in $STATE_DIRECTORY (set by systemd), or in /var/lib/hummingbird
 * in system mode, or in $XDG_STATE_HOME/hummingbird, or in ~/.local/state/hummingbird. A damaged file is renamed to
 * engines.json.damaged. The path becomes "" if no folder can be chosen, or if a newer version wrote the file, which is then
 * left alone. Each problem is logged.
 */
void hb_engine_file_begin(bool system_mode, char *path, size_t size, struct hb_engine_history *history);
/* Makes the folder, and gives it and the file to this user, as whom the daemon will continue. Each problem is logged. */
void hb_engine_file_give(bool system_mode, uid_t uid, gid_t gid);
/*
 * Reads the file. Returns 0, also when there is none; or a negative errno with *error ("FILE: what is wrong"), and the
 * history is unchanged. -ENOTSUP: a newer version wrote the file.
 */
int hb_engine_file_load(const char *path, struct hb_engine_history *history, struct hb_error *error);
/* Begins to write the file, unless the path is "". Makes its folder if needed. A failure is logged once. */
void hb_engine_file_save(const char *path, const struct hb_engine_history *history);
/* Waits until the last save has ended, two seconds at most. */
void hb_engine_file_finish(void);

#endif
