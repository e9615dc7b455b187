/* SPDX-License-Identifier: Apache-2.0 */
/* Files of jobs; see job_file.h. */
#include "protocol/job_file.h"

#include "base/proc_stat.h"
#include "protocol/daemon_client.h"
#include "protocol/socket_path.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FOLDER "jobs"
#define CLEAN_MOST 1000
#define NAME_CHARS (2 * HB_TOKEN_BYTES)
#define FORMAT \
	"hummingbird job 1 uid %u pid %d start %" PRIu64 " priority %u memory %" PRIu64 " open %u user %63s name "

static int folder_path(const char *socket_path, char path[HB_PATH_MAX + sizeof FOLDER])
{
	const char *slash = strrchr(socket_path, '/');
	if (!slash || slash - socket_path >= HB_PATH_MAX)
		return -ENAMETOOLONG;
	memcpy(path, socket_path, (size_t)(slash - socket_path) + 1);
	strcpy(path + (slash - socket_path) + 1, FOLDER);
	return 0;
}

/* Opens the folder. `trusted`: see hb_job_read(). */
static int open_folder(const char *socket_path, uid_t trusted)
{
	char path[HB_PATH_MAX + sizeof FOLDER];
	struct stat found;
	int result = folder_path(socket_path, path);
	int folder = result < 0 ? -1 : open(path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (folder < 0)
		return result < 0 ? result : -errno;
	if (fstat(folder, &found) == 0 && (found.st_uid == 0 || found.st_uid == trusted) && !(found.st_mode & 022))
		return folder;
	close(folder);
	return -EPERM;
}

static int write_text(int folder, const char *name, const char *text)
{
	int file = openat(folder, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
	if (file < 0)
		return -errno;
	ssize_t n = write(file, text, strlen(text));
	int result = n == (ssize_t)strlen(text) ? 0 : n < 0 ? -errno : -ENOSPC;
	if (close(file) < 0 && result == 0)
		result = -errno;
	if (result < 0)
		unlinkat(folder, name, 0);
	return result;
}

int hb_job_write(const char *socket_path, const unsigned char token[HB_TOKEN_BYTES], struct hb_job_file *job,
		 struct hb_error *error)
{
	char path[HB_PATH_MAX + sizeof FOLDER], name[NAME_CHARS + 1], text[512];
	int result = folder_path(socket_path, path);
	if (result < 0)
		return hb_error_set(error, result, "%s: the path is too long", socket_path);
	/* Others may enter, because the daemon is another user than root, but may not list the names, which are tokens. */
	if (mkdir(path, 0711) == 0 && chmod(path, 0711) < 0)
		return hb_error_set(error, -errno, "%s: %s", path, strerror(errno));
	int folder = open_folder(socket_path, geteuid());
	if (folder < 0)
		return hb_error_set(error, folder, "%s: cannot use this folder: %s", path, strerror(-folder));
	job->start_ticks = hb_proc_start_ticks(job->pid);
	hb_token_format(token, name);
	snprintf(text, sizeof text, FORMAT "%s\n", (unsigned)job->uid, (int)job->pid, job->start_ticks,
		 (unsigned)job->priority, job->memory_bytes, (unsigned)job->open, job->user, job->name);
	result = job->start_ticks ? write_text(folder, name, text) : -ESRCH;
	close(folder);
	if (result == -ESRCH)
		return hb_error_set(error, result, "process %d does not exist", (int)job->pid);
	return result < 0 ? hb_error_set(error, result, "%s: cannot write a file here: %s", path, strerror(-result))
			  : 0;
}

static int parse(const char *text, struct hb_job_file *job)
{
	unsigned uid, priority, open_to_user;
	int pid, end = 0;
	/* NOLINTNEXTLINE(cert-err34-c): numbers out of range are no use to an attacker, who cannot write the file */
	int fields = sscanf(text, FORMAT "%n", &uid, &pid, &job->start_ticks, &priority, &job->memory_bytes,
			    &open_to_user, job->user, &end);
	if (fields != 7 || !end || priority > HB_PAGE_HIGH || pid <= 0)
		return -EBADMSG;
	job->open = open_to_user;
	job->uid = (uid_t)uid;
	job->pid = (pid_t)pid;
	job->priority = (enum hb_page_priority)priority;
	snprintf(job->name, sizeof job->name, "%.*s", (int)strcspn(text + end, "\n"), text + end);
	return 0;
}

/* Reads the file `name` of the folder. */
static int read_job(int folder, const char *name, uid_t trusted, struct hb_job_file *job)
{
	char text[512];
	struct stat found;
	int file = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (file < 0)
		return -errno;
	int result = 0;
	ssize_t n = 0;
	if (fstat(file, &found) < 0 || !S_ISREG(found.st_mode) || (found.st_uid != 0 && found.st_uid != trusted) ||
	    found.st_mode & 022)
		result = -EPERM;
	else if ((n = read(file, text, sizeof text - 1)) < 0)
		result = -errno;
	close(file);
	if (result < 0)
		return result;
	text[n] = '\0';
	return parse(text, job);
}

int hb_job_read(const char *socket_path, const unsigned char token[HB_TOKEN_BYTES], uid_t trusted,
		struct hb_job_file *job)
{
	char name[NAME_CHARS + 1];
	int folder = open_folder(socket_path, trusted);
	if (folder < 0)
		return folder;
	hb_token_format(token, name);
	int result = read_job(folder, name, trusted, job);
	close(folder);
	return result;
}

void hb_job_remove(const char *socket_path, const unsigned char token[HB_TOKEN_BYTES])
{
	char name[NAME_CHARS + 1];
	int folder = open_folder(socket_path, geteuid());
	if (folder < 0)
		return;
	hb_token_format(token, name);
	unlinkat(folder, name, 0);
	close(folder);
}

void hb_job_clean(const char *socket_path)
{
	char path[HB_PATH_MAX + sizeof FOLDER];
	struct hb_job_file job;
	DIR *folder = folder_path(socket_path, path) == 0 ? opendir(path) : NULL;
	if (!folder)
		return;
	struct dirent *entry;
	for (int i = 0; i < CLEAN_MOST && (entry = readdir(folder)); i++)
		if (strlen(entry->d_name) == NAME_CHARS &&
		    read_job(dirfd(folder), entry->d_name, geteuid(), &job) == 0 &&
		    hb_proc_start_ticks(job.pid) != job.start_ticks)
			unlinkat(dirfd(folder), entry->d_name, 0);
	closedir(folder);
}
