/* SPDX-License-Identifier: Apache-2.0 */
/* Where the Python programs of `hb bench` lie: in the source tree of the build, or installed. */
#ifndef HB_BENCH_SCRIPTS_H
#define HB_BENCH_SCRIPTS_H

#include "base/error.h"

#include <limits.h>

/* `folder` below bench/ in the source tree ("" or "workloads/"); installed they lie together. 0, or -ENOENT with *error. */
int hb_bench_script(const char *folder, const char *name, char path[PATH_MAX], struct hb_error *error);

#endif
