/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who is on an NVIDIA GPU, as read from a fake libnvidia-ml.so.1: whatever size
 * the driver's records have, processes come out with their memory, and what the
 * driver does not say is said to be unknown.
 */
#include "gpu/provider.h"
#include "unit.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const unsigned char uuid[16] = "0123456789abcde";

static struct hb_gpu_use look(void)
{
	struct hb_gpu_use use;
	hb_provider_nvidia.gpu_use(uuid, &use);
	return use;
}

static int clear(void **state)
{
	static const char *const names[] = {"COMPUTE", "MPS", "BUSY", "STRIDE", "CLEAR", "FAIL"};
	char name[64];
	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
		snprintf(name, sizeof name, "HB_FAKE_NVML_%s", names[i]);
		unsetenv(name);
	}
	return 0;
}

static uint64_t bytes_of(const struct hb_gpu_use *use, pid_t pid)
{
	for (uint32_t i = 0; i < use->n_users; i++)
		if (use->users[i].pid == pid)
			return use->users[i].bytes;
	fail_msg("process %d is not listed", (int)pid);
	return 0;
}

static void records_of_every_size_are_read(void **state)
{
	static const char *const strides[] = {"16", "24", "32"};
	setenv("HB_FAKE_NVML_COMPUTE", "100:536870912,200:-,300:7", 1);
	for (size_t i = 0; i < 6; i++) {
		setenv("HB_FAKE_NVML_STRIDE", strides[i % 3], 1);
		if (i == 3)
			setenv("HB_FAKE_NVML_CLEAR", "1", 1);
		struct hb_gpu_use use = look();
		assert_int_equal(use.n_users, 3);
		assert_int_equal(bytes_of(&use, 100), 536870912);
		assert_int_equal(bytes_of(&use, 200), HB_GPU_BYTES_UNKNOWN);
		assert_int_equal(bytes_of(&use, 300), 7);
		assert_string_equal(use.why, "");
		assert_int_equal(use.total_bytes, UINT64_C(80) << 30);
		assert_int_equal(use.used_bytes, UINT64_C(10) << 30);
	}
}

static void the_utilization_of_a_process_is_the_mean_of_its_samples(void **state)
{
	setenv("HB_FAKE_NVML_COMPUTE", "100:1,200:2,300:3", 1);
	assert_int_equal(look().users[0].busy_ppm, HB_GPU_BUSY_UNKNOWN);
	setenv("HB_FAKE_NVML_BUSY", "100:20,999:90,100:40,300:101", 1); /* 101 %: not a percentage */
	struct hb_gpu_use use = look();
	assert_int_equal(use.users[0].busy_ppm, 300000);
	assert_int_equal(use.users[1].busy_ppm, HB_GPU_BUSY_UNKNOWN);
	assert_int_equal(use.users[2].busy_ppm, HB_GPU_BUSY_UNKNOWN);
	setenv("HB_FAKE_NVML_FAIL", "utilization=3", 1);
	assert_int_equal(look().users[0].busy_ppm, HB_GPU_BUSY_UNKNOWN);
	assert_int_equal(look().n_users, 3);
}

static void an_empty_gpu_has_no_users(void **state)
{
	struct hb_gpu_use use = look();
	assert_int_equal(use.n_users, 0);
	assert_string_equal(use.why, "");
}

static void clients_of_mps_are_listed_once(void **state)
{
	setenv("HB_FAKE_NVML_COMPUTE", "100:5,200:-", 1);
	setenv("HB_FAKE_NVML_MPS", "200:9,300:-", 1);
	struct hb_gpu_use use = look();
	assert_int_equal(use.n_users, 3);
	assert_int_equal(bytes_of(&use, 200), 9);
	assert_int_equal(bytes_of(&use, 300), HB_GPU_BYTES_UNKNOWN);
}

static void processes_of_other_namespaces_are_told(void **state)
{
	setenv("HB_FAKE_NVML_COMPUTE", "0:5,0:6,77:8", 1);
	struct hb_gpu_use use = look();
	assert_int_equal(use.n_users, 1);
	assert_string_equal(use.why, "2 processes belong to other pid namespaces");
}

static void a_full_list_is_no_list(void **state)
{
	static char text[8 * (HB_GPU_USERS_MAX + 2)];
	char *at = text;
	for (int i = 0; i < HB_GPU_USERS_MAX + 1; i++)
		at += sprintf(at, "%s%d:1", i ? "," : "", 1000 + i);
	setenv("HB_FAKE_NVML_COMPUTE", text, 1);
	struct hb_gpu_use use;
	assert_int_equal(hb_provider_nvidia.gpu_use(uuid, &use), -E2BIG);
	assert_int_equal(use.n_users, 0);
	assert_string_equal(use.why, "more than 256 processes are on the GPU");
}

static void failures_are_named(void **state)
{
	struct hb_gpu_use use;
	setenv("HB_FAKE_NVML_FAIL", "handle=6", 1);
	assert_int_equal(hb_provider_nvidia.gpu_use(uuid, &use), -EIO);
	assert_string_equal(use.why, "NVML's look for the GPU: it knows no such GPU (6)");
	setenv("HB_FAKE_NVML_FAIL", "compute=4", 1);
	assert_int_equal(hb_provider_nvidia.gpu_use(uuid, &use), -EIO);
	assert_string_equal(use.why, "NVML's list of processes: no permission (4)");
	setenv("HB_FAKE_NVML_FAIL", "mps=3", 1);
	setenv("HB_FAKE_NVML_COMPUTE", "100:5", 1);
	use = look();
	assert_int_equal(use.n_users, 1);
	assert_string_equal(use.why, "");
}

/* The library is loaded once a process, so this has one of its own. */
static void a_driver_that_is_not_loaded_is_told(void **state)
{
	pid_t child = fork();
	if (child == 0) {
		struct hb_gpu_use use;
		setenv("HB_FAKE_NVML_FAIL", "init=9", 1);
		int result = hb_provider_nvidia.gpu_use(uuid, &use);
		_exit(result == -ENOENT && strcmp(use.why, "libnvidia-ml.so.1 does not start: the driver is not "
							   "loaded (9)") == 0
			      ? 0
			      : 1);
	}
	int status;
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(a_driver_that_is_not_loaded_is_told, clear), /* first: nothing is loaded yet */
		cmocka_unit_test_setup(records_of_every_size_are_read, clear),
		cmocka_unit_test_setup(the_utilization_of_a_process_is_the_mean_of_its_samples, clear),
		cmocka_unit_test_setup(an_empty_gpu_has_no_users, clear),
		cmocka_unit_test_setup(clients_of_mps_are_listed_once, clear),
		cmocka_unit_test_setup(processes_of_other_namespaces_are_told, clear),
		cmocka_unit_test_setup(a_full_list_is_no_list, clear),
		cmocka_unit_test_setup(failures_are_named, clear),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
