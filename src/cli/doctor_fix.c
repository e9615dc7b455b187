/* SPDX-License-Identifier: Apache-2.0 */
/* Finds what repair_plan.c needs to know about this machine, and runs its commands; see doctor_fix.h. */
#include "cli/doctor_fix.h"

#include "base/clock.h"
#include "base/install_path.h"
#include "cli/child_process.h"
#include "cli/cli.h"
#include "cli/repair_plan.h"
#include "daemon/user_places.h"
#include "gpu/provider.h"
#include "protocol/socket_path.h"

#include <errno.h>
#include <glob.h>
#include <grp.h>
#include <limits.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define COMMAND "doctor"
#define GROUPS_MAX 256
#define ANSWER_LIMIT_NS (10 * HB_NS_PER_S)

/* --- the person and the groups ----------------------------------------------------------- */

struct person {
	uid_t uid;
	gid_t now[GROUPS_MAX], database[GROUPS_MAX];
	int n_now, n_database;
};

/* Under sudo the person is who called it, and its groups of now are not known: those in the database count. */
static void find_person(struct person *person, struct hb_repair_facts *facts)
{
	const char *called_by = geteuid() == 0 ? getenv("SUDO_UID") : NULL;
	person->uid = called_by ? (uid_t)strtoul(called_by, NULL, 10) : geteuid();
	const struct passwd *entry = getpwuid(person->uid);
	person->n_now = getgroups(GROUPS_MAX, person->now);
	person->n_now = person->n_now < 0 ? 0 : person->n_now;
	facts->root = geteuid() == 0;
	if (!entry)
		return;
	snprintf(facts->user, sizeof facts->user, "%s", entry->pw_name);
	person->n_database = GROUPS_MAX;
	if (getgrouplist(entry->pw_name, entry->pw_gid, person->database, &person->n_database) < 0)
		person->n_database = 0;
	if (called_by) {
		memcpy(person->now, person->database, sizeof person->now);
		person->n_now = person->n_database;
	}
}

static enum hb_group_access find_access(const struct person *person, const char *file, char group[64])
{
	struct stat found;
	if (stat(file, &found) < 0)
		return HB_GROUP_ENOUGH;
	const struct group *entry = getgrgid(found.st_gid);
	if (!entry)
		return HB_GROUP_USELESS;
	snprintf(group, 64, "%s", entry->gr_name);
	return hb_repair_group_access(found.st_mode, found.st_uid, found.st_gid, person->uid, person->database,
				      (size_t)person->n_database, person->now, (size_t)person->n_now);
}

/* --- packages ---------------------------------------------------------------------------- */

/* Reads a value of /etc/os-release without its quotes; "" if there is none. */
static void read_release(const char *key, char *value, size_t size)
{
	char line[256];
	FILE *stream = fopen("/etc/os-release", "re");
	value[0] = '\0';
	while (stream && fgets(line, sizeof line, stream)) {
		size_t length = strlen(key);
		if (strncmp(line, key, length) != 0 || line[length] != '=')
			continue;
		char *text = line + length + 1;
		text += strspn(text, "\"'");
		text[strcspn(text, "\"'\n")] = '\0';
		snprintf(value, size, "%s", text);
	}
	if (stream)
		fclose(stream);
}

static void find_packages(struct hb_repair_facts *facts)
{
	char id[64], like[128], pattern[64];
	glob_t found = {0};
	read_release("ID", id, sizeof id);
	read_release("ID_LIKE", like, sizeof like);
	facts->packages = hb_repair_packages(id, like);
	snprintf(pattern, sizeof pattern, "/var/lib/dpkg/info/*nvidia*-%u-server*.list", facts->driver);
	facts->server_driver = glob(pattern, 0, NULL, &found) == 0;
	globfree(&found);
}

/* Finds out what is missing of the driver, with the checks of `hb doctor`. */
static void find_driver(struct hb_repair_facts *facts)
{
	char version[64] = "", path[PATH_MAX];
	const char *why;
	const struct hb_provider *provider = &hb_provider_nvidia;
	provider->driver_version(version, sizeof version);
	facts->driver = (unsigned)strtoul(version, NULL, 10);
	facts->lacks_control = provider->mps_control(path, sizeof path, &why) < 0;
	for (size_t i = 0; provider->probes[i]; i++) {
		struct hb_probe probe = {.works = false};
		provider->probes[i](&probe);
		facts->lacks_library |= strcmp(probe.name, "driver library") == 0 && !probe.works;
	}
}

static void find_python(struct hb_repair_facts *facts)
{
	char path[PATH_MAX], text[8];
	if (hb_install_program("python3", path, sizeof path) < 0 || strlen(path) >= sizeof facts->python)
		return;
	const char *const arguments[] = {path, "-c", "import numpy; print('yes')", NULL};
	struct hb_child child = {arguments, NULL, HB_CHILD_ERRORS_HIDDEN, ANSWER_LIMIT_NS};
	if (hb_child_read(&child, text, sizeof text) == 0)
		strcpy(facts->python, path);
}

/* --- MPS and limits ---------------------------------------------------------------------- */

/* Another MPS control daemon that answers. A file that a dead one left harms nothing. */
static void find_other_mps(struct hb_repair_facts *facts)
{
	const char *set = getenv("CUDA_MPS_PIPE_DIRECTORY"), *folder = set ? set : "/tmp/nvidia-mps";
	char variable[300], file[300];
	snprintf(variable, sizeof variable, "CUDA_MPS_PIPE_DIRECTORY=%s", folder);
	snprintf(file, sizeof file, "%s/control", folder);
	if (facts->lacks_control || strlen(folder) >= sizeof facts->mps_folder || strpbrk(folder, " \n") ||
	    access(file, F_OK) != 0)
		return;
	/* The control program's exit status says whether a daemon answered; a shell tells it apart from an empty list. */
	const char *const arguments[] = {"sh", "-c",     "env \"$1\" nvidia-cuda-mps-control && echo end",
					 "sh", variable, NULL};
	struct hb_child child = {arguments, "get_server_list\n", HB_CHILD_ERRORS_HIDDEN, ANSWER_LIMIT_NS};
	char text[sizeof facts->mps_servers];
	int length = hb_child_read(&child, text, sizeof text);
	char *end = length > 0 ? strstr(text, "end\n") : NULL;
	if (!end && length < (int)sizeof text - 1)
		return;
	if (end)
		*end = '\0';
	for (char *at = text; *at; at++)
		*at = *at == '\n' ? ' ' : *at;
	snprintf(facts->mps_servers, sizeof facts->mps_servers, "%.*s", (int)strcspn(text, " "), text);
	strcpy(facts->mps_folder, folder);
}

static void find_facts(struct hb_repair_facts *facts, bool simulated)
{
	static struct person person;
	struct rlimit limit = {RLIM_INFINITY, RLIM_INFINITY};
	memset(facts, 0, sizeof *facts);
	memset(&person, 0, sizeof person);
	find_person(&person, facts);
	facts->socket = find_access(&person, HB_SYSTEM_DIR "/" HB_SOCKET_NAME, facts->socket_group);
	facts->lacks_group = access(HB_SYSTEM_DIR "/" HB_SOCKET_NAME, F_OK) == 0 && !getgrnam(HB_REPAIR_GROUP);
	if (!simulated) {
		facts->device = find_access(&person, "/dev/nvidiactl", facts->device_group);
		find_driver(facts);
		find_other_mps(facts);
	}
	find_packages(facts);
	getrlimit(RLIMIT_NOFILE, &limit);
	facts->open_files = limit.rlim_max;
	facts->open_files_needed = HB_DESCRIPTORS_MAX;
	facts->limits_file = access(HB_REPAIR_LIMITS_FILE, F_OK) == 0;
	find_python(facts);
}

/* --- repairing --------------------------------------------------------------------------- */

static const struct hb_repair *find_repair(const struct hb_repair *repairs, size_t n, const char *name)
{
	for (size_t i = 0; i < n; i++)
		if (strcmp(repairs[i].name, name) == 0)
			return &repairs[i];
	return NULL;
}

static void print_repair(const struct hb_repair *repair)
{
	char command[512];
	printf("%-11s %s\n", repair->name, repair->problem);
	if (repair->words[0])
		printf("            $ %s\n", hb_repair_format(repair, command, sizeof command));
	else
		printf("            -> %s\n", repair->remedy);
}

/* Runs the command and looks again. Returns whether the problem is gone, or will be when the person has done the rest. */
static bool run_repair(const struct hb_repair *repair, bool simulated)
{
	static struct hb_repair again[HB_REPAIRS_MAX];
	struct hb_repair_facts facts;
	char input[sizeof repair->input + 1];
	snprintf(input, sizeof input, "%s\n", repair->input);
	struct hb_child child = {.arguments = repair->words, .input = *repair->input ? input : NULL};
	int status = hb_child_run(&child);
	if (status != 0) {
		printf("            not repaired: %s ended with status %d\n", repair->words[0], status);
		return false;
	}
	find_facts(&facts, simulated);
	const struct hb_repair *left = find_repair(again, hb_repair_plan(&facts, again), repair->name);
	if (left && !*repair->after)
		printf("            not repaired, although the command succeeded: %s\n", left->problem);
	else
		printf("            done%s%s\n", *repair->after ? "; now " : "", repair->after);
	return !left || *repair->after;
}

int hb_doctor_fix(bool simulated, bool yes)
{
	static struct hb_repair repairs[HB_REPAIRS_MAX];
	struct hb_repair_facts facts;
	bool repaired = true;
	size_t left = 0;
	if (getenv("HB_TENANT"))
		return hb_cli_error(COMMAND, -EINVAL, "--fix: run it outside hb run");
	find_facts(&facts, simulated);
	size_t n = hb_repair_plan(&facts, repairs);
	for (size_t i = 0; i < n; i++) {
		print_repair(&repairs[i]);
		left += repairs[i].words[0] != NULL;
		if (!repairs[i].words[0])
			repaired = false;
		else if (yes)
			repaired = run_repair(&repairs[i], simulated) && repaired;
	}
	if (n == 0)
		puts("there is nothing to repair; `hb doctor` says what works");
	else if (!yes && left)
		puts("nothing was changed; hb doctor --fix --yes runs the commands");
	return n == 0 || (yes && repaired) ? HB_EXIT_OK : HB_EXIT_FAILURE;
}
