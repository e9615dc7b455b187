/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the path of a cgroup; see cgroup_place.h. */
#include "daemon/cgroup_place.h"

#include <ctype.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define ID_LENGTH 64
#define UID_LENGTH 36
#define PARTS_MAX 32 /* deeper paths are cut off */

struct path_part {
	const char *text;
	size_t n;
};

static bool begins_with(const struct path_part *part, const char *word)
{
	return part->n >= strlen(word) && strncmp(part->text, word, strlen(word)) == 0;
}

static bool is_part(const struct path_part *part, const char *word)
{
	return part->n == strlen(word) && begins_with(part, word);
}

/* The id of "ID", "RUNTIME-ID" or "RUNTIME-ID.scope"; NULL = the part is no container. "libpod-conmon-ID" is its monitor. */
static const char *find_container(const struct path_part *part)
{
	static const char scope[] = ".scope";
	size_t n = part->n, digits = 0;
	if (n > sizeof scope && strncmp(part->text + n - (sizeof scope - 1), scope, sizeof scope - 1) == 0)
		n -= sizeof scope - 1;
	while (digits < n && isxdigit((unsigned char)part->text[n - 1 - digits]))
		digits++;
	if (digits != ID_LENGTH || (n > digits && part->text[n - digits - 1] != '-') ||
	    memmem(part->text, n, "conmon", 6))
		return NULL;
	return part->text + n - digits;
}

/* Copies a UID; systemd's names of units have underscores for its dashes. */
static bool copy_uid(const char *text, size_t n, char pod[40])
{
	if (n != UID_LENGTH)
		return false;
	for (size_t i = 0; i < n; i++) {
		bool dash = i == 8 || i == 13 || i == 18 || i == 23;
		char c = text[i] == '_' ? '-' : text[i];
		if (dash ? c != '-' : !isxdigit((unsigned char)c))
			return false;
		pod[i] = c;
	}
	pod[n] = '\0';
	return true;
}

/* "podUID" or "kubepods-burstable-podUID.slice". */
static void find_pod(const struct path_part *part, char pod[40])
{
	char uid[40];
	const char *end = part->text + part->n, *at = memmem(part->text, part->n, "pod", 3);
	if (!begins_with(part, "kubepods") && !begins_with(part, "pod"))
		return;
	for (; at; at = memmem(at + 1, (size_t)(end - at - 1), "pod", 3)) {
		size_t n = (size_t)(end - at) - 3;
		if (n == UID_LENGTH + 6 && strncmp(end - 6, ".slice", 6) == 0)
			n -= 6;
		if (copy_uid(at + 3, n, uid)) {
			strcpy(pod, uid);
			return;
		}
	}
}

/* "/slurm/uid_1000/job_7/...", "/system.slice/slurmstepd.scope/job_7/...", "/system.slice/NODE_slurmstepd.scope/job_7/..." */
static void find_job(const struct path_part *parts, size_t at, char job[24])
{
	bool below_slurm = false;
	const char *number = parts[at].text + 4;
	size_t n = parts[at].n > 4 ? parts[at].n - 4 : 0;
	for (size_t i = 0; i < at; i++)
		below_slurm |= is_part(&parts[i], "slurm") || begins_with(&parts[i], "slurm_") ||
			       (parts[i].n >= 16 &&
				strncmp(parts[i].text + parts[i].n - 16, "slurmstepd.scope", 16) == 0);
	if (!below_slurm || !begins_with(&parts[at], "job_") || !n || n >= 24)
		return;
	for (size_t i = 0; i < n; i++)
		if (!isdigit((unsigned char)number[i]))
			return;
	snprintf(job, 24, "%.*s", (int)n, number);
}

static size_t split_path(const char *path, struct path_part parts[PARTS_MAX])
{
	size_t n = 0;
	for (; *path && n < PARTS_MAX; path += strcspn(path, "/")) {
		path += strspn(path, "/");
		if (*path)
			parts[n++] = (struct path_part){path, strcspn(path, "/\n")};
	}
	return n;
}

void hb_cgroup_place_add(struct hb_cgroup_place *place, const char *path)
{
	struct path_part parts[PARTS_MAX];
	struct hb_cgroup_place found = {.container = ""};
	size_t n = split_path(path, parts);
	for (size_t i = 0; i < n; i++) {
		const char *id = find_container(&parts[i]);
		if (id) {
			snprintf(found.container, sizeof found.container, "%.*s", ID_LENGTH, id);
			/* containerd alone: "/NAMESPACE/ID" */
			if (i == 1 && n >= 2 && id == parts[1].text && !is_part(&parts[0], "docker") &&
			    parts[0].n < sizeof found.container_space)
				snprintf(found.container_space, sizeof found.container_space, "%.*s", (int)parts[0].n,
					 parts[0].text);
		}
		find_pod(&parts[i], found.pod);
		find_job(parts, i, found.slurm_job);
	}
	if (!place->container[0])
		strcpy(place->container, found.container);
	if (!place->pod[0])
		strcpy(place->pod, found.pod);
	if (!place->container_space[0])
		strcpy(place->container_space, found.container_space);
	if (!place->slurm_job[0])
		strcpy(place->slurm_job, found.slurm_job);
}
