/* SPDX-License-Identifier: Apache-2.0 */
/* The environment of a command of `hb run`; see run_environment.h. */
#include "cli/run_environment.h"

#include "base/install_path.h"
#include "gpu/provider.h"
#include "protocol/tenant_options_env.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NO_SIMULATED_DRIVER \
	"the simulated driver (libcuda.so.1) is not found beside hb; set HB_SIMCUDA_DIR to its folder"

static int set_variable(const char *name, const char *value, struct hb_error *error)
{
	if (setenv(name, value, 1) == 0)
		return 0;
	return hb_error_set(error, -errno, "cannot set %s: %s", name, strerror(errno));
}

/* Sets the variable of one line of the daemon, NAME=VALUE. */
static int set_granted(const char *line, struct hb_error *error)
{
	static const char *const names[] = {HB_GRANTED_VARIABLES};
	size_t length = strcspn(line, "=");
	for (size_t i = 0; line[length] && i < sizeof names / sizeof names[0]; i++)
		if (strlen(names[i]) == length && strncmp(line, names[i], length) == 0)
			return set_variable(names[i], line + length + 1, error);
	return hb_error_set(
		error, -EPROTO,
		"the daemon wants to set '%.*s' for the command, which a daemon of this version never does; hb is "
		"older than the daemon, or HB_SOCKET belongs to another user",
		length < 60 ? (int)length : 60, line);
}

/* Sets the variables that the daemon sent, for example the folder of the MPS server's pipes. */
static int set_from_daemon(const char *lines, struct hb_error *error)
{
	int result = 0;
	for (; result == 0 && *lines; lines += strlen(lines) + 1)
		result = set_granted(lines, error);
	return result;
}

/* Puts a folder or file before the others of a list whose items are separated by colons. */
static int set_first_in_list(const char *name, const char *first, struct hb_error *error)
{
	char *list;
	const char *old = getenv(name);
	if (asprintf(&list, "%s%s%s", first, old && *old ? ":" : "", old ? old : "") < 0)
		return hb_error_set(error, -ENOMEM, "out of memory");
	int result = set_variable(name, list, error);
	free(list);
	return result;
}

static int set_library_path(struct hb_error *error)
{
	char shim[PATH_MAX], library[PATH_MAX + sizeof "/libcuda.so.1"];
	if (hb_install_shim_dir(shim, sizeof shim) < 0)
		return hb_error_set(error, -ENOENT,
				    "the shim (libcuda.so.1) is not found beside hb; set HB_SHIM_DIR to its folder");
	snprintf(library, sizeof library, "%s/libcuda.so.1", shim);
	if (access(library, R_OK) < 0)
		return hb_error_set(error, -errno, "the shim %s: %s; HB_SHIM_DIR has to name its folder, or unset it",
				    library, strerror(errno));
	return set_first_in_list("LD_LIBRARY_PATH", shim, error);
}

/* Preloads libhb-signs, before other libraries. An installation may lack it. */
static int set_preload(struct hb_error *error)
{
	char signs[PATH_MAX];
	if (hb_install_signs(signs, sizeof signs) < 0)
		return 0;
	return set_first_in_list("LD_PRELOAD", signs, error);
}

static int set_driver(bool simulated, struct hb_error *error)
{
	char driver[PATH_MAX];
	int result = hb_provider_of(simulated)->driver_library(driver, sizeof driver);
	if (result == 0)
		return set_variable("HB_REAL_LIBCUDA", driver, error);
	if (!simulated)
		return 0; /* the shim finds the system's driver */
	return hb_error_set(error, result, NO_SIMULATED_DRIVER);
}

int hb_run_set_environment(const struct hb_tenant_options *options, const char *socket_path, const char *from_daemon,
			   bool signs, struct hb_error *error)
{
	int result = hb_tenant_options_to_environment(options);
	if (result < 0)
		return hb_error_set(error, result, "cannot set the environment: %s", strerror(-result));
	result = set_variable("HB_SOCKET", socket_path, error);
	if (result == 0)
		result = set_from_daemon(from_daemon, error);
	if (result == 0)
		result = set_library_path(error);
	if (result == 0 && signs)
		result = set_preload(error);
	if (result == 0)
		result = set_driver(options->flags & HB_REGISTER_SIMULATED, error);
	return result;
}

int hb_run_set_environment_alone(bool simulated, struct hb_error *error)
{
	char driver[PATH_MAX];
	if (unsetenv("HB_TENANT") < 0)
		return hb_error_set(error, -errno, "cannot remove HB_TENANT: %s", strerror(errno));
	if (!simulated)
		return 0;
	if (hb_install_simcuda_dir(driver, sizeof driver) < 0)
		return hb_error_set(error, -ENOENT, NO_SIMULATED_DRIVER);
	return set_first_in_list("LD_LIBRARY_PATH", driver, error);
}
