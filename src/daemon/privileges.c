/* SPDX-License-Identifier: Apache-2.0 */
/* See privileges.h. */
#include "daemon/privileges.h"

#include <errno.h>
#include <grp.h>
#include <linux/capability.h>
#include <pwd.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define GROUPS_MAX 64

struct daemon_user {
	uid_t uid;
	gid_t gid;
};

/* Reads the file itself: other sources of user names may not answer. */
static bool find_user(struct daemon_user *user)
{
	bool found = false;
	FILE *file = fopen("/etc/passwd", "re");
	for (const struct passwd *entry; file && !found && (entry = fgetpwent(file));) {
		found = strcmp(entry->pw_name, HB_DAEMON_USER) == 0;
		*user = (struct daemon_user){entry->pw_uid, entry->pw_gid};
	}
	if (file)
		fclose(file);
	return found && user->uid != 0;
}

int hb_privileges_user(uid_t *uid, gid_t *gid)
{
	struct daemon_user user;
	if (!find_user(&user))
		return -ENOENT;
	*uid = user.uid;
	*gid = user.gid;
	return 0;
}

/* The groups of the user, for example one that may use the devices of GPUs. Returns their number. */
static size_t find_groups(gid_t groups[GROUPS_MAX])
{
	size_t n = 0;
	FILE *file = fopen("/etc/group", "re");
	for (const struct group *entry; file && n < GROUPS_MAX && (entry = fgetgrent(file));)
		for (char **member = entry->gr_mem; *member && n < GROUPS_MAX; member++)
			if (strcmp(*member, HB_DAEMON_USER) == 0)
				groups[n++] = entry->gr_gid;
	if (file)
		fclose(file);
	return n;
}

static int read_capabilities(struct __user_cap_data_struct sets[2])
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	return syscall(SYS_capget, &header, sets) < 0 ? -errno : 0;
}

static bool has_capabilities(void)
{
	struct __user_cap_data_struct sets[2];
	if (read_capabilities(sets) < 0)
		return true;
	return sets[0].effective | sets[1].effective | sets[0].permitted | sets[1].permitted | sets[0].inheritable |
	       sets[1].inheritable;
}

int hb_privileges_limit(void)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct sets[2];
	int result = read_capabilities(sets);
	if (result < 0)
		return result;
	sets[0].inheritable = sets[1].inheritable = 0;
	if (syscall(SYS_capset, &header, sets) < 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return -errno;
	return 0;
}

int hb_privileges_drop(void)
{
	struct daemon_user user;
	gid_t groups[GROUPS_MAX];
	uid_t real, effective, saved;
	if (!find_user(&user))
		return -ENOENT;
	/* The C library changes all threads, and the kernel takes the capabilities of each away with its user. */
	if (setgroups(find_groups(groups), groups) < 0 || setresgid(user.gid, user.gid, user.gid) < 0 ||
	    setresuid(user.uid, user.uid, user.uid) < 0)
		return -errno;
	if (getresuid(&real, &effective, &saved) < 0 || real != user.uid || effective != user.uid ||
	    saved != user.uid || setuid(0) == 0 || has_capabilities())
		return -EPERM;
	return 0;
}

/* Exit statuses of the child process in which everything is tried. */
enum { TRIAL_WORKS, TRIAL_NO_DROP, TRIAL_NO_PROC };

static int try_drop(void)
{
	char path[32];
	snprintf(path, sizeof path, "/proc/%d/stat", (int)getppid());
	if (hb_privileges_limit() < 0 || hb_privileges_drop() < 0)
		return TRIAL_NO_DROP;
	FILE *file = fopen(path, "re");
	bool reads = file && fgetc(file) != EOF;
	if (file)
		fclose(file);
	return reads ? TRIAL_WORKS : TRIAL_NO_PROC;
}

int hb_privileges_check(const char **why)
{
	struct daemon_user user;
	int status;
	*why = NULL;
	if (geteuid() != 0)
		*why = "it was not started by root";
	else if (!find_user(&user))
		*why = "there is no user " HB_DAEMON_USER " in /etc/passwd";
	if (*why)
		return -1;
	pid_t child = fork();
	if (child == 0)
		_exit(try_drop());
	while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR)
		;
	if (child < 0 || !WIFEXITED(status) || WEXITSTATUS(status) == TRIAL_NO_DROP)
		*why = "the process may not change its user";
	else if (WEXITSTATUS(status) == TRIAL_NO_PROC)
		*why = "user " HB_DAEMON_USER
		       " cannot read /proc of other users: add the user to the group of the mount option gid=, or mount "
		       "/proc without hidepid";
	return *why ? -1 : 0;
}
