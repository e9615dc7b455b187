/* SPDX-License-Identifier: Apache-2.0 */
/* See bench_scripts.h. */
#include "bench/bench_scripts.h"

#include "base/paths.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <unistd.h>

int hb_bench_script(const char *folder, const char *name, char path[PATH_MAX], struct hb_error *error)
{
	/* Of hb in build/, in build-test/gcc/, and installed in bin/. */
	static const struct {
		const char *text;
		bool installed;
	} places[] = {{"../bench", false}, {"../../bench", false}, {"../share/hummingbird/bench", true}};
	char own[PATH_MAX] = "";
	bool known = hb_path_own_folder(own) == 0;
	for (size_t i = 0; known && i < sizeof places / sizeof *places; i++)
		if (snprintf(path, PATH_MAX, "%s/%s/%s%s", own, places[i].text, places[i].installed ? "" : folder,
			     name) < PATH_MAX &&
		    access(path, R_OK) == 0)
			return 0;
	return hb_error_set(error, -ENOENT,
			    "%s is not found: it lies in bench/%s of the source tree that %s/hb was built in, or is "
			    "installed with hb",
			    name, folder, own);
}
