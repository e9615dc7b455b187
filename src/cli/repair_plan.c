/* SPDX-License-Identifier: Apache-2.0 */
/* Decides what `hb doctor --fix` repairs; see repair_plan.h. */
#include "cli/repair_plan.h"

#include <stdio.h>
#include <string.h>

struct plan {
	const struct hb_repair_facts *facts;
	struct hb_repair *repairs;
	size_t n;
};

static struct hb_repair *add_repair(struct plan *plan, const char *name)
{
	struct hb_repair *repair = &plan->repairs[plan->n++];
	memset(repair, 0, sizeof *repair);
	repair->name = name;
	repair->remedy = repair->after = "";
	return repair;
}

/* Sets the command: words that are separated by spaces. */
static void set_command(const struct plan *plan, struct hb_repair *repair, const char *command)
{
	size_t n = 0;
	snprintf(repair->text, sizeof repair->text, "%s%s", plan->facts->root ? "" : "sudo ", command);
	for (char *at = repair->text; n < HB_REPAIR_WORDS_MAX && *at;) {
		repair->words[n++] = at;
		at += strcspn(at, " ");
		if (*at)
			*at++ = '\0';
	}
	repair->words[n] = NULL;
}

/* --- groups ------------------------------------------------------------------------------ */

#define LOG_IN_AGAIN "log in again: groups and limits apply from the next login"

static void add_member(struct plan *plan, const char *name, const char *file, enum hb_group_access access,
		       const char *group)
{
	char command[160];
	const char *user = plan->facts->user;
	if (access != HB_GROUP_LACKS && access != HB_GROUP_LATER)
		return;
	struct hb_repair *repair = add_repair(plan, name);
	if (access == HB_GROUP_LATER) {
		snprintf(repair->problem, sizeof repair->problem,
			 "user %s is in the group %s, but logged in before that, so %s cannot be used", user, group,
			 file);
		repair->remedy = LOG_IN_AGAIN;
		return;
	}
	snprintf(repair->problem, sizeof repair->problem, "%s is for the group %s, and user %s is not in it", file,
		 group, user);
	snprintf(command, sizeof command, "usermod -aG %s %s", group, user);
	set_command(plan, repair, command);
	repair->after = LOG_IN_AGAIN;
}

static void add_groups(struct plan *plan)
{
	const struct hb_repair_facts *facts = plan->facts;
	if (facts->lacks_group) {
		struct hb_repair *repair = add_repair(plan, "group");
		strcpy(repair->problem,
		       "there is no group " HB_REPAIR_GROUP ", so only root can use the daemon of the system");
		set_command(plan, repair, "groupadd --system " HB_REPAIR_GROUP);
		repair->after = "systemctl restart hummingbird, then hb doctor --fix again";
	}
	if (!*facts->user)
		return;
	add_member(plan, "gpu-group", "/dev/nvidiactl", facts->device, facts->device_group);
	if (!facts->lacks_group)
		add_member(plan, "group", "the daemon of the system", facts->socket, facts->socket_group);
}

/* --- packages ---------------------------------------------------------------------------- */

/* A file of the driver, and what to install for it. Ubuntu's name gets the driver's major version at its end. */
struct driver_package {
	const char *name, *problem, *debian, *ubuntu, *dnf;
};

static const struct driver_package driver_library = {"library", "libcuda.so.1 cannot be loaded", "libcuda1",
						     "libnvidia-compute", "libcuda.so.1()(64bit)"};
static const struct driver_package mps_control = {
	"mps", "nvidia-cuda-mps-control is missing, so low-priority programs take turns instead of sharing the GPU",
	"nvidia-cuda-mps", "nvidia-compute-utils", "/usr/bin/nvidia-cuda-mps-control"};

static void add_driver_package(struct plan *plan, const struct driver_package *package)
{
	char command[160];
	const struct hb_repair_facts *facts = plan->facts;
	struct hb_repair *repair = add_repair(plan, package->name);
	snprintf(repair->problem, sizeof repair->problem, "%s", package->problem);
	switch (facts->packages) {
	case HB_PACKAGES_DEBIAN:
		snprintf(command, sizeof command, "apt-get install --yes %s", package->debian);
		break;
	case HB_PACKAGES_UBUNTU:
		snprintf(command, sizeof command, "apt-get install --yes %s-%u%s", package->ubuntu, facts->driver,
			 facts->server_driver ? "-server" : "");
		break;
	case HB_PACKAGES_DNF:
		snprintf(command, sizeof command, "dnf install --assumeyes %s", package->dnf);
		break;
	default:
		repair->remedy = "install it from where this machine has its NVIDIA driver, in the same version";
		return;
	}
	set_command(plan, repair, command);
}

static void add_numpy(struct plan *plan)
{
	char command[320];
	const struct hb_repair_facts *facts = plan->facts;
	bool own = strcmp(facts->python, "/usr/bin/python3") == 0;
	struct hb_repair *repair = add_repair(plan, "numpy");
	snprintf(repair->problem, sizeof repair->problem,
		 "%.200s has no numpy, which the Python models of hb serve need", facts->python);
	if (own && (facts->packages == HB_PACKAGES_DEBIAN || facts->packages == HB_PACKAGES_UBUNTU))
		strcpy(command, "apt-get install --yes python3-numpy");
	else if (own && facts->packages == HB_PACKAGES_DNF)
		strcpy(command, "dnf install --assumeyes python3-numpy");
	else {
		/* A Python of its own (a virtual environment, pyenv) belongs to its user. */
		snprintf(repair->text, sizeof repair->text, "%.200s", facts->python);
		const char *const words[] = {repair->text, "-m", "pip", "install", "numpy", NULL};
		memcpy(repair->words, words, sizeof words);
		return;
	}
	set_command(plan, repair, command);
}

/* --- MPS and limits ---------------------------------------------------------------------- */

static void add_other_mps(struct plan *plan)
{
	const struct hb_repair_facts *facts = plan->facts;
	char command[320];
	if (!*facts->mps_folder)
		return;
	struct hb_repair *repair = add_repair(plan, "other-mps");
	snprintf(repair->problem, sizeof repair->problem,
		 "an MPS control daemon that is not Hummingbird's runs in %.160s", facts->mps_folder);
	if (*facts->mps_servers) {
		size_t used = strlen(repair->problem);
		snprintf(repair->problem + used, sizeof repair->problem - used, ", with programs in its server %.40s",
			 facts->mps_servers);
		repair->remedy = "end these programs, then hb doctor --fix again: they would end with their server";
		return;
	}
	snprintf(command, sizeof command, "env CUDA_MPS_PIPE_DIRECTORY=%.200s nvidia-cuda-mps-control",
		 facts->mps_folder);
	set_command(plan, repair, command);
	strcpy(repair->input, "quit");
}

static void add_limit(struct plan *plan)
{
	const struct hb_repair_facts *facts = plan->facts;
	if (facts->open_files >= facts->open_files_needed)
		return;
	struct hb_repair *repair = add_repair(plan, "open-files");
	snprintf(repair->problem, sizeof repair->problem,
		 "the hard limit of open files is %llu; for all its places a daemon of your own needs %llu",
		 (unsigned long long)facts->open_files, (unsigned long long)facts->open_files_needed);
	if (facts->limits_file) {
		repair->remedy = HB_REPAIR_LIMITS_FILE " exists: log in again, or change the limit there";
		return;
	}
	snprintf(repair->input, sizeof repair->input, "%s - nofile %llu", *facts->user ? facts->user : "*",
		 (unsigned long long)facts->open_files_needed);
	set_command(plan, repair, "tee " HB_REPAIR_LIMITS_FILE);
	repair->after = LOG_IN_AGAIN;
}

size_t hb_repair_plan(const struct hb_repair_facts *facts, struct hb_repair repairs[HB_REPAIRS_MAX])
{
	struct plan plan = {facts, repairs, 0};
	add_groups(&plan);
	/* Without a driver, its packages would not fit the one that is installed later. */
	if (facts->driver && facts->lacks_library)
		add_driver_package(&plan, &driver_library);
	if (facts->driver && facts->lacks_control)
		add_driver_package(&plan, &mps_control);
	add_other_mps(&plan);
	add_limit(&plan);
	if (*facts->python)
		add_numpy(&plan);
	return plan.n;
}

const char *hb_repair_format(const struct hb_repair *repair, char *text, size_t size)
{
	size_t used = 0;
	text[0] = '\0';
	if (*repair->input)
		used += (size_t)snprintf(text, size, "echo '%s' | ", repair->input);
	for (size_t i = 0; repair->words[i] && used < size; i++)
		used += (size_t)snprintf(text + used, size - used, "%s%s%s%s", i ? " " : "",
					 strpbrk(repair->words[i], "()") ? "'" : "", repair->words[i],
					 strpbrk(repair->words[i], "()") ? "'" : "");
	return text;
}

/* --- facts ------------------------------------------------------------------------------- */

static bool contains(const unsigned *list, size_t n, unsigned wanted)
{
	for (size_t i = 0; i < n; i++)
		if (list[i] == wanted)
			return true;
	return false;
}

#define READ_WRITE 06u

enum hb_group_access hb_repair_group_access(unsigned mode, unsigned owner, unsigned group, unsigned uid,
					    const unsigned *database, size_t n_database, const unsigned *now,
					    size_t n_now)
{
	bool group_may = (mode >> 3 & READ_WRITE) == READ_WRITE, others_may = (mode & READ_WRITE) == READ_WRITE;
	if (uid == 0 || others_may || (owner == uid && (mode >> 6 & READ_WRITE) == READ_WRITE) ||
	    (group_may && contains(now, n_now, group)))
		return HB_GROUP_ENOUGH;
	if (!group_may || group == 0)
		return HB_GROUP_USELESS;
	return contains(database, n_database, group) ? HB_GROUP_LATER : HB_GROUP_LACKS;
}

/* Whether a list of words, separated by spaces, has this word. */
static bool has_word(const char *list, const char *word)
{
	size_t length = strlen(word);
	for (const char *at = list; (at = strstr(at, word)); at += length)
		if ((at == list || at[-1] == ' ') && (at[length] == ' ' || at[length] == '\0'))
			return true;
	return false;
}

enum hb_packages hb_repair_packages(const char *id, const char *like)
{
	if (has_word(id, "ubuntu") || has_word(like, "ubuntu"))
		return HB_PACKAGES_UBUNTU;
	if (has_word(id, "debian") || has_word(like, "debian"))
		return HB_PACKAGES_DEBIAN;
	if (has_word(id, "fedora") || has_word(id, "rhel") || has_word(like, "fedora") || has_word(like, "rhel"))
		return HB_PACKAGES_DNF;
	return HB_PACKAGES_UNKNOWN;
}
