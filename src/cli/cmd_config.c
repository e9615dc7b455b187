/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `hb config`: checks hummingbird.yaml without a daemon (`check`), or prints where the daemon looks for it (`path`).
 * Changes nothing.
 */
#include "cli/cli.h"
#include "daemon/daemon_config.h"

#include <errno.h>
#include <getopt.h>
#include <string.h>
#include <unistd.h>

#define COMMAND "config"

static const char usage[] = "usage: hb config check [--system] [FILE]\n"
			    "       hb config path [--system]\n"
			    "\n"
			    "check reads hummingbird.yaml as the daemon does and reports the first error with\n"
			    "file, line and key. path prints where the daemon looks for the file.\n"
			    "\n"
			    "  --system        use /etc/hummingbird/hummingbird.yaml, not the user's own file\n"
			    "  -h, --help\n"
			    "\n"
			    "On SIGHUP (systemctl reload hummingbird) a running daemon applies rules, others,\n"
			    "reserve, elastic_host, elastic_peers, window, masks, trusted_driver, user_tenants,\n"
			    "user_processes, user_connections and idle_exit, and isolation for programs that\n"
			    "start later. The other keys apply after a restart.\n"
			    "\n"
			    "exit status: 0 no error, 2 an error in the file or a bad command line\n";

static int check_file(const char *path, bool given)
{
	struct hb_daemon_config config;
	struct hb_error error = {""};
	hb_daemon_config_init(&config);
	int result = hb_daemon_config_load(path, &config, &error);
	if (result == -ENOENT && !given) {
		printf("%s: does not exist, so the defaults are used\n", path);
		return HB_EXIT_OK;
	}
	if (result < 0)
		return hb_cli_error(COMMAND, -EINVAL, error.text);
	printf("%s: no error; %u rule%s\n", path, (unsigned)config.n_rules, config.n_rules == 1 ? "" : "s");
	return HB_EXIT_OK;
}

static int take_option(void *argument, int code, const char *value)
{
	*(bool *)argument = true; /* --system */
	return -1;
}

static int read_options(int argc, char **argv, bool *system_mode)
{
	static const struct option options[] = {
		{"system", no_argument, NULL, 's'},
		{"help", no_argument, NULL, 'h'},
		{NULL, 0, NULL, 0},
	};
	static const struct hb_cli_syntax syntax = {COMMAND, usage, ":h", options, take_option, true};
	return hb_cli_read_options(&syntax, argc, argv, system_mode);
}

int hb_cmd_config(int argc, char **argv)
{
	bool system_mode = false;
	char path[512];
	int status = read_options(argc, argv, &system_mode);
	if (status >= 0)
		return status;
	const char *verb = optind < argc ? argv[optind++] : "";
	bool checking = strcmp(verb, "check") == 0;
	if (!checking && strcmp(verb, "path") != 0)
		return hb_cli_usage_error(COMMAND,
					  *verb ? "'%s' is neither check nor path" : "check or path is missing", verb);
	if (argc - optind > checking)
		return hb_cli_usage_error(COMMAND, "%s: too many arguments", verb);
	hb_daemon_config_path(system_mode, path, sizeof path);
	if (checking && optind < argc)
		return check_file(argv[optind], true);
	if (!path[0])
		return hb_cli_error(COMMAND, -EINVAL, "there is no home folder to look in; give the file, or --system");
	if (checking)
		return check_file(path, false);
	puts(path);
	return HB_EXIT_OK;
}
