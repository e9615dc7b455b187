/* SPDX-License-Identifier: Apache-2.0 */
/* Folders, access lists, token and environment of the MPS server; see mps_place.h. */
#include "daemon/mps_place.h"

#include "base/install_path.h"
#include "base/log.h"
#include "daemon/access_list.h"
#include "gpu/provider.h"
#include "protocol/tenant_options_env.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

extern char **environ;

void hb_mps_place_init(struct hb_mps_place *place, const struct hb_daemon_options *options)
{
	const char *prefix = options->simulated ? "sim-" : "";
	*place = (struct hb_mps_place){.simulated = options->simulated, .system_mode = options->system_mode};
	strcpy(place->socket, options->socket);
	snprintf(place->pipe_dir, sizeof place->pipe_dir, "%s/%smps", options->dir, prefix);
	snprintf(place->log_dir, sizeof place->log_dir, "%s/%smps-log", options->dir, prefix);
}

/* --- environment ------------------------------------------------------------------- */

/* Adds or replaces a variable for the control program and the server that it starts. hb_mps_environment_free() frees it. */
static void add_variable(char **list, size_t *n, const char *name, const char *value)
{
	size_t length = strlen(name);
	char *entry = NULL;
	if (asprintf(&entry, "%s=%s", name, value) < 0)
		return;
	for (size_t i = 0; i < *n; i++)
		if (strncmp(list[i], name, length) == 0 && list[i][length] == '=') {
			free(list[i]);
			list[i] = entry;
			return;
		}
	list[(*n)++] = entry;
	list[*n] = NULL;
}

#define OWN_VARIABLES 10

static void add_shim(char **list, size_t *n, const struct hb_provider *provider)
{
	char shim[PATH_MAX], path[3 * PATH_MAX], driver[PATH_MAX];
	const char *old = getenv("LD_LIBRARY_PATH");
	if (hb_install_shim_dir(shim, sizeof shim) < 0) {
		hb_log_warning(
			"the shim's libcuda.so.1 was not found: the MPS server keeps the driver's own time slices");
		return;
	}
	snprintf(path, sizeof path, "%s%s%.4096s", shim, old && *old ? ":" : "", old ? old : "");
	add_variable(list, n, "LD_LIBRARY_PATH", path);
	if (provider->driver_library(driver, sizeof driver) == 0)
		add_variable(list, n, "HB_REAL_LIBCUDA", driver);
}

char **hb_mps_place_environment(const struct hb_mps_place *place)
{
	size_t n = 0, count = 0;
	char digits[2 * HB_TOKEN_BYTES + 1];
	while (environ[count])
		count++;
	char **list = calloc(count + OWN_VARIABLES + 1, sizeof *list);
	for (; list && n < count; n++)
		list[n] = strdup(environ[n]);
	if (!list)
		return NULL;
	hb_token_format(place->token, digits);
	add_variable(list, &n, "CUDA_MPS_PIPE_DIRECTORY", place->pipe_dir);
	add_variable(list, &n, "CUDA_MPS_LOG_DIRECTORY", place->log_dir);
	add_variable(list, &n, "HB_SOCKET", place->socket);
	add_variable(list, &n, "HB_TENANT", digits);
	add_variable(list, &n, "HB_PRIORITY", "low");
	add_variable(list, &n, "HB_ROLE", "server");
	if (place->simulated)
		add_variable(list, &n, "HB_GPU", "sim");
	add_shim(list, &n, hb_provider_of(place->simulated));
	return list;
}

void hb_mps_environment_free(char **list)
{
	for (size_t i = 0; list && list[i]; i++)
		free(list[i]);
	free(list);
}

/* --- folders --- */

/*
 * Any user who reaches the control program's pipe can ask for a server of his own, for which all others would then have
 * to wait. So only the user whose programs the server serves may enter the folder.
 */
static int admit_user(const struct hb_mps_place *place, uid_t uid, const char *folder)
{
	if (!place->system_mode || uid == geteuid())
		return 0;
	int result = hb_access_list_set(folder, 0700, uid, 5);
	if (result != -EOPNOTSUPP)
		return result;
	hb_log_warning("%s is on a file system without access control lists: every user can enter it", folder);
	return chmod(folder, 0755) < 0 ? -errno : 0;
}

/* Whatever the umask and the mode of an existing folder. */
static int make_folder(const struct hb_mps_place *place, uid_t uid, const char *path)
{
	const mode_t mode = 0700;
	struct stat found;
	char own[32];
	if (mkdir(path, mode) < 0 && errno != EEXIST)
		return -errno;
	int fd = open(path,
		      O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC); /* O_PATH works without the right to read it */
	if (fd < 0)
		return -errno;
	snprintf(own, sizeof own, "/proc/self/fd/%d", fd);
	int result = fstat(fd, &found) < 0 ? -errno : 0;
	if (result == 0 && found.st_uid != geteuid())
		result = -EPERM;
	if (result == 0 && (found.st_mode & 07777) != mode && chmod(own, mode) < 0)
		result = -errno;
	if (result == 0)
		result = admit_user(place, uid, own);
	close(fd);
	return result;
}

/* The server runs as its user, whose groups it may lack, and its shim has to reach the daemon. */
static void admit_server(const struct hb_mps_place *place, uid_t uid)
{
	if (!place->system_mode || uid == geteuid())
		return;
	int result = hb_access_list_set(place->socket, 0660, uid, 6);
	if (result < 0)
		hb_log_info("%s: no access for the MPS server of user %u: %s", place->socket, (unsigned)uid,
			    strerror(-result));
}

int hb_mps_place_prepare(const struct hb_mps_place *place, uid_t uid)
{
	int result = make_folder(place, uid, place->pipe_dir);
	if (result == 0)
		result = make_folder(place, uid, place->log_dir);
	if (result == 0)
		admit_server(place, uid);
	return result;
}

/* --- the token --- */

/* Other users may be able to write to the folder: refuses links and files that another user owns. */
static bool read_token_file(const char *path, unsigned char token[HB_TOKEN_BYTES])
{
	char text[2 * HB_TOKEN_BYTES + 1] = "";
	struct stat found;
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	bool known = fd >= 0 && fstat(fd, &found) == 0 && S_ISREG(found.st_mode) && found.st_uid == geteuid() &&
		     read(fd, text, sizeof text - 1) > 0 && hb_token_parse(text, token) == 0;
	if (fd >= 0)
		close(fd);
	return known;
}

static int write_token_file(const char *path, const unsigned char token[HB_TOKEN_BYTES])
{
	char text[2 * HB_TOKEN_BYTES + 1];
	hb_token_format(token, text);
	if (unlink(path) < 0 && errno != ENOENT)
		return -errno;
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	ssize_t n = write(fd, text, strlen(text));
	return close(fd) == 0 && n == (ssize_t)strlen(text) ? 0 : -EIO;
}

static void name_token_file(const struct hb_mps_place *place, char path[HB_PATH_MAX + 32])
{
	snprintf(path, HB_PATH_MAX + 32, "%s.token", place->pipe_dir);
}

bool hb_mps_place_read_token(struct hb_mps_place *place)
{
	char path[HB_PATH_MAX + 32];
	name_token_file(place, path);
	if (!place->has_token)
		place->has_token = read_token_file(path, place->token);
	return place->has_token;
}

int hb_mps_place_make_token(struct hb_mps_place *place)
{
	char path[HB_PATH_MAX + 32];
	if (hb_mps_place_read_token(place))
		return 0;
	if (getrandom(place->token, HB_TOKEN_BYTES, 0) != HB_TOKEN_BYTES)
		return -EIO;
	name_token_file(place, path);
	int result = write_token_file(path, place->token);
	place->has_token = result == 0;
	return result;
}
