/* SPDX-License-Identifier: Apache-2.0 */
/* Container, pod, namespace and Slurm job from the paths of cgroups that container runtimes and Slurm make. */
#include "daemon/cgroup_place.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define ID "4f5e6d7c8b9a0f1e2d3c4b5a69788796a5b4c3d2e1f00112233445566778899a"
#define OUTER "0000000000000000000000000000000000000000000000000000000000000001"
#define UID "1b2c3d4e-5f60-7182-93a4-b5c6d7e8f901"
#define UNIT_UID "1b2c3d4e_5f60_7182_93a4_b5c6d7e8f901"

static void check_path(const char *path, const char *container, const char *pod, const char *space, const char *job)
{
	struct hb_cgroup_place place = {.container = ""};
	hb_cgroup_place_add(&place, path);
	assert_string_equal(place.container, container);
	assert_string_equal(place.pod, pod);
	assert_string_equal(place.container_space, space);
	assert_string_equal(place.slurm_job, job);
}

static void test_docker_and_podman(void **state)
{
	check_path("/docker/" ID, ID, "", "", "");
	check_path("/system.slice/docker-" ID ".scope", ID, "", "", "");
	check_path("/docker/" ID "/system.slice/app.service\n", ID, "", "", "");
	check_path("/machine.slice/libpod-" ID ".scope/container", ID, "", "", "");
	check_path("/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-" ID ".scope", ID, "", "", "");
	check_path("/libpod_parent/libpod-" ID, ID, "", "", "");
	check_path("/machine.slice/libpod-conmon-" ID ".scope", "", "", "", "");
}

static void test_containerd(void **state)
{
	check_path("/default/" ID, ID, "", "default", "");
	check_path("/k8s.io/" ID, ID, "", "k8s.io", "");
	check_path("/system.slice/nerdctl-" ID ".scope", ID, "", "", "");
}

static void test_kubernetes(void **state)
{
	check_path("/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" UNIT_UID
		   ".slice/cri-containerd-" ID ".scope",
		   ID, UID, "", "");
	check_path("/kubepods.slice/kubepods-pod" UNIT_UID ".slice/crio-" ID ".scope", ID, UID, "", "");
	check_path("/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod" UNIT_UID ".slice/docker-" ID
		   ".scope",
		   ID, UID, "", "");
	check_path("/kubepods/burstable/pod" UID "/" ID, ID, UID, "", "");
	check_path("/kubepods/pod" UID "/crio-" ID, ID, UID, "", "");
	/* Kubernetes in Docker: the innermost container counts. */
	check_path("/docker/" OUTER "/kubelet/kubepods/pod" UID "/" ID, ID, UID, "", "");
}

static void test_slurm(void **state)
{
	check_path("/slurm/uid_1000/job_4711/step_0/task_0", "", "", "", "4711");
	check_path("/slurm_node7/uid_1000/job_12/step_batch", "", "", "", "12");
	check_path("/system.slice/slurmstepd.scope/job_4711/step_0/user/task_0", "", "", "", "4711");
	check_path("/system.slice/node7_slurmstepd.scope/job_8/step_extern", "", "", "", "8");
	check_path("/slurm/uid_1000/job_4711/step_0/docker/" ID, ID, "", "", "4711");
}

static void test_other_paths(void **state)
{
	check_path("", "", "", "", "");
	check_path("/", "", "", "", "");
	check_path("/user.slice/user-1000.slice/session-3.scope", "", "", "", "");
	check_path("/job_7/step_0", "", "", "", "");
	check_path("/slurm/uid_0/job_/x/job_7x/job_123456789012345678901234567890", "", "", "", "");
	check_path("/docker/" ID "0", "", "", "", "");
	check_path("/docker/x" ID, "", "", "", "");
	check_path("/kubepods/podcast/pod-of-nobody", "", "", "", "");
	check_path("/kubepods/pod1b2c3d4e-5f60-7182-93a4xb5c6d7e8f901", "", "", "", "");
	check_path("/mypod" UID, "", "", "", "");
}

/* cgroup v1 has a line for each controller; the first that shows something counts. */
static void test_several_lines(void **state)
{
	struct hb_cgroup_place place = {.container = ""};
	hb_cgroup_place_add(&place, "/");
	hb_cgroup_place_add(&place, "/slurm/uid_1/job_5");
	hb_cgroup_place_add(&place, "/docker/" ID);
	hb_cgroup_place_add(&place, "/slurm/uid_1/job_6");
	assert_string_equal(place.slurm_job, "5");
	assert_string_equal(place.container, ID);
}

static void test_deep_path(void **state)
{
	char path[4096] = "";
	for (int i = 0; i < 500; i++)
		strcat(path, "/a//b");
	check_path(path, "", "", "", "");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_docker_and_podman), cmocka_unit_test(test_containerd),
		cmocka_unit_test(test_kubernetes),        cmocka_unit_test(test_slurm),
		cmocka_unit_test(test_other_paths),       cmocka_unit_test(test_several_lines),
		cmocka_unit_test(test_deep_path),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
