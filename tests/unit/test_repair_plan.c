/* SPDX-License-Identifier: Apache-2.0 */
/* Tests what hb doctor --fix repairs on which machine, and with which command. */
#include "cli/repair_plan.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static struct hb_repair repairs[HB_REPAIRS_MAX];

/* A machine with nothing to repair. */
static struct hb_repair_facts make_facts(void)
{
	return (struct hb_repair_facts){.root = true,
					.user = "ann",
					.packages = HB_PACKAGES_DEBIAN,
					.driver = 580,
					.open_files = 65536,
					.open_files_needed = 40000};
}

/* Checks that these facts need one repair, with this command. */
static void check_command(const struct hb_repair_facts *facts, const char *name, const char *command)
{
	char text[512];
	assert_int_equal(hb_repair_plan(facts, repairs), 1);
	assert_string_equal(repairs[0].name, name);
	assert_string_equal(hb_repair_format(&repairs[0], text, sizeof text), command);
}

/* Checks that these facts need one repair that only a person can do. */
static void check_remedy(const struct hb_repair_facts *facts, const char *name, const char *part)
{
	assert_int_equal(hb_repair_plan(facts, repairs), 1);
	assert_string_equal(repairs[0].name, name);
	assert_null(repairs[0].words[0]);
	assert_non_null(strstr(repairs[0].remedy, part));
}

static void test_well(void **state)
{
	struct hb_repair_facts facts = make_facts();
	assert_int_equal(hb_repair_plan(&facts, repairs), 0);
}

static void test_packages(void **state)
{
	struct hb_repair_facts facts = make_facts();
	facts.lacks_control = true;
	check_command(&facts, "mps", "apt-get install --yes nvidia-cuda-mps");
	facts.packages = HB_PACKAGES_UBUNTU;
	check_command(&facts, "mps", "apt-get install --yes nvidia-compute-utils-580");
	facts.server_driver = true;
	check_command(&facts, "mps", "apt-get install --yes nvidia-compute-utils-580-server");
	facts.packages = HB_PACKAGES_DNF;
	check_command(&facts, "mps", "dnf install --assumeyes /usr/bin/nvidia-cuda-mps-control");
	facts.root = false;
	check_command(&facts, "mps", "sudo dnf install --assumeyes /usr/bin/nvidia-cuda-mps-control");
	facts.packages = HB_PACKAGES_UNKNOWN;
	check_remedy(&facts, "mps", "in the same version");
	facts.driver = 0; /* the package of an unknown driver would not fit */
	assert_int_equal(hb_repair_plan(&facts, repairs), 0);
	facts = make_facts();
	facts.lacks_library = true;
	check_command(&facts, "library", "apt-get install --yes libcuda1");
	facts.packages = HB_PACKAGES_DNF;
	check_command(&facts, "library", "dnf install --assumeyes 'libcuda.so.1()(64bit)'");
	assert_string_equal(repairs[0].words[3], "libcuda.so.1()(64bit)"); /* no shell reads it */
}

static void test_numpy(void **state)
{
	struct hb_repair_facts facts = make_facts();
	strcpy(facts.python, "/usr/bin/python3");
	check_command(&facts, "numpy", "apt-get install --yes python3-numpy");
	facts.root = false;
	strcpy(facts.python, "/home/ann/.venv/bin/python3");
	check_command(&facts, "numpy", "/home/ann/.venv/bin/python3 -m pip install numpy"); /* hers: without sudo */
}

static void test_groups(void **state)
{
	struct hb_repair_facts facts = make_facts();
	facts.socket = HB_GROUP_LACKS;
	strcpy(facts.socket_group, "hummingbird");
	check_command(&facts, "group", "usermod -aG hummingbird ann");
	assert_non_null(strstr(repairs[0].after, "log in again"));
	facts.socket = HB_GROUP_LATER;
	check_remedy(&facts, "group", "log in again");
	facts.socket = HB_GROUP_USELESS;
	assert_int_equal(hb_repair_plan(&facts, repairs), 0);
	facts.lacks_group = true;
	check_command(&facts, "group", "groupadd --system hummingbird");
	facts = make_facts();
	facts.device = HB_GROUP_LACKS;
	strcpy(facts.device_group, "video");
	check_command(&facts, "gpu-group", "usermod -aG video ann");
	facts.user[0] = '\0';
	assert_int_equal(hb_repair_plan(&facts, repairs), 0);
}

static void test_group_access(void **state)
{
	const unsigned ann = 1000, video = 44, groups[] = {1000, 44}, fewer[] = {1000};
	assert_int_equal(hb_repair_group_access(0100660, 0, video, ann, groups, 2, groups, 2), HB_GROUP_ENOUGH);
	assert_int_equal(hb_repair_group_access(0100660, 0, video, ann, groups, 2, fewer, 1), HB_GROUP_LATER);
	assert_int_equal(hb_repair_group_access(0100660, 0, video, ann, fewer, 1, fewer, 1), HB_GROUP_LACKS);
	assert_int_equal(hb_repair_group_access(0100666, 0, video, ann, fewer, 1, fewer, 1), HB_GROUP_ENOUGH);
	assert_int_equal(hb_repair_group_access(0100600, 0, video, ann, groups, 2, groups, 2), HB_GROUP_USELESS);
	assert_int_equal(hb_repair_group_access(0100600, ann, video, ann, fewer, 1, fewer, 1), HB_GROUP_ENOUGH);
	assert_int_equal(hb_repair_group_access(0100660, 0, 0, ann, fewer, 1, fewer, 1), HB_GROUP_USELESS);
	assert_int_equal(hb_repair_group_access(0100600, ann, video, 0, fewer, 1, fewer, 1), HB_GROUP_ENOUGH);
}

static void test_other_mps(void **state)
{
	struct hb_repair_facts facts = make_facts();
	strcpy(facts.mps_folder, "/tmp/nvidia-mps");
	check_command(&facts, "other-mps",
		      "echo 'quit' | env CUDA_MPS_PIPE_DIRECTORY=/tmp/nvidia-mps nvidia-cuda-mps-control");
	strcpy(facts.mps_servers, "4711"); /* never ends programs */
	check_remedy(&facts, "other-mps", "end these programs");
}

static void test_open_files(void **state)
{
	struct hb_repair_facts facts = make_facts();
	facts.open_files = 4096;
	check_command(&facts, "open-files", "echo 'ann - nofile 40000' | tee " HB_REPAIR_LIMITS_FILE);
	facts.limits_file = true; /* a file of somebody else is not replaced */
	check_remedy(&facts, "open-files", "exists");
}

static void test_all_at_once(void **state)
{
	struct hb_repair_facts facts = make_facts();
	facts.lacks_library = facts.lacks_control = facts.lacks_group = true;
	facts.device = facts.socket = HB_GROUP_LACKS;
	facts.open_files = 1;
	strcpy(facts.mps_folder, "/tmp/nvidia-mps");
	strcpy(facts.python, "/usr/bin/python3");
	assert_int_equal(hb_repair_plan(&facts, repairs), 7);
	assert_in_range(hb_repair_plan(&facts, repairs), 1, HB_REPAIRS_MAX);
}

static void test_distributions(void **state)
{
	assert_int_equal(hb_repair_packages("debian", ""), HB_PACKAGES_DEBIAN);
	assert_int_equal(hb_repair_packages("linuxmint", "ubuntu debian"), HB_PACKAGES_UBUNTU);
	assert_int_equal(hb_repair_packages("rocky", "rhel centos fedora"), HB_PACKAGES_DNF);
	assert_int_equal(hb_repair_packages("fedora", ""), HB_PACKAGES_DNF);
	assert_int_equal(hb_repair_packages("notdebian", "debianish"), HB_PACKAGES_UNKNOWN);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_well),          cmocka_unit_test(test_packages),
		cmocka_unit_test(test_numpy),         cmocka_unit_test(test_groups),
		cmocka_unit_test(test_group_access),  cmocka_unit_test(test_other_mps),
		cmocka_unit_test(test_open_files),    cmocka_unit_test(test_all_at_once),
		cmocka_unit_test(test_distributions),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
