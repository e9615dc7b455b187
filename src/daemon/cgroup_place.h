/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads from the path of a cgroup where a process runs: container, pod, namespace, Slurm job. Pure. The result is a label for
 * people: users can make cgroups of any name below their own, so no decision may depend on it.
 */
#ifndef HB_DAEMON_CGROUP_PLACE_H
#define HB_DAEMON_CGROUP_PLACE_H

#include <stdbool.h>

/* "" = the path does not show it. */
struct hb_cgroup_place {
	char container[65]; /* 64 hexadecimal digits */
	char pod[40];       /* UID of a Kubernetes pod, with dashes */
	char container_space
		[64];       /* containerd's namespace, if the path begins with it; Kubernetes' own is never shown */
	char slurm_job[24]; /* number */
};

/*
 * Adds what this path shows and *place does not have yet. Knows docker, podman, containerd, CRI-O, Kubernetes and Slurm with
 * cgroup v1 and v2, made by systemd or directly. The innermost container counts.
 */
void hb_cgroup_place_add(struct hb_cgroup_place *place, const char *path);

#endif
