/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `hb serve`: executes the program hb-serve (src/cli/hb_serve.c). hb-serve is separate because no other command needs the
 * HTTP libraries.
 */
#include "base/install_path.h"
#include "cli/cli.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#define COMMAND "serve"

int hb_cmd_serve(int argc, char **argv)
{
	char path[4096];
	if (hb_install_program("hb-serve", path, sizeof(path)) < 0)
		return hb_cli_error(COMMAND, -ENOEXEC, "hb-serve is not installed");
	argv[0] = path;
	execv(path, argv);
	return hb_cli_error(COMMAND, -errno, strerror(errno));
}
