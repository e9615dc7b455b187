/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the status says of processes on a GPU: the memory that a tenant's
 * contexts take beside what it holds, and processes that are no tenants. The
 * driver's list comes from a fake libnvidia-ml.so.1.
 */
#include "daemon_harness.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB (UINT64_C(1) << 20)

static struct daemon daemon_;
static struct hb_membership member = HB_MEMBERSHIP_NONE;
static pid_t stranger;

/* A process called "stranger" that is on the GPU without Hummingbird. */
static void start_stranger(void)
{
	int ends[2];
	char byte;
	assert_int_equal(pipe(ends), 0);
	stranger = fork();
	if (stranger == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		prctl(PR_SET_NAME, "stranger");
		if (write(ends[1], "", 1) != 1)
			_exit(1);
		for (;;)
			pause();
	}
	assert_int_equal(read(ends[0], &byte, 1), 1); /* it has its name */
	close(ends[0]);
	close(ends[1]);
}

/* "PID:BYTES" for this process, the tenant, and for the stranger; NULL leaves one out. */
static void say(const char *variable, const char *ours, const char *strangers)
{
	char text[128] = "";
	if (ours)
		snprintf(text, sizeof text, "%d:%s", (int)getpid(), ours);
	if (strangers)
		snprintf(text + strlen(text), sizeof text - strlen(text), ",%d:%s", (int)stranger, strangers);
	setenv(variable, text, 1);
}

/* The status with a tenant that holds 100 MiB. */
static json_t *status_with(uint32_t flags)
{
	daemon_start(&daemon_, HBD, NULL);
	struct hb_tenant_options wish = wish_of(1, HB_PAGE_LOW);
	wish.flags |= flags;
	assert_int_equal(create(&daemon_, wish), 0);
	assert_int_equal(join(&daemon_, &wish, &member), 0);
	member.page->processes[member.slot].memory[0].used_bytes = 100 * MIB;
	return daemon_status(&daemon_);
}

static int set_up(void **state)
{
	start_stranger();
	return 0;
}

static int tear_down(void **state)
{
	hb_membership_fini(&member);
	daemon_clean(&daemon_);
	child_kill(stranger);
	unsetenv("HB_FAKE_NVML_COMPUTE");
	unsetenv("HB_FAKE_NVML_MPS");
	unsetenv("HB_FAKE_NVML_BUSY");
	unsetenv("HB_FAKE_NVML_FAIL");
	return 0;
}

static const json_t *gpu_of(const json_t *status)
{
	return json_array_get(json_object_get(status, "gpus"), 0);
}

static const json_t *use_of(const json_t *status)
{
	return json_array_get(json_object_get(json_array_get(json_object_get(status, "tenants"), 0), "gpus"), 0);
}

static const char *text_of(const json_t *object, const char *key)
{
	return json_string_value(json_object_get(object, key));
}

static void what_a_tenant_takes_beside_its_allocations_is_its_contexts(void **state)
{
	say("HB_FAKE_NVML_COMPUTE", "667942912", "2147483648");
	json_t *status = status_with(0);
	const json_t *use = use_of(status);
	assert_int_equal(json_integer_value(json_object_get(use, "memory_overhead")), 537 * MIB);
	assert_string_equal(text_of(use, "memory_overhead_why"), "");
	assert_int_equal(json_integer_value(json_object_get(gpu_of(status), "memory_total")), 80 * 1024 * MIB);
	json_decref(status);
}

static void processes_that_are_no_tenants_are_listed(void **state)
{
	say("HB_FAKE_NVML_COMPUTE", "667942912", "2147483648");
	json_t *status = status_with(0);
	const json_t *list = json_object_get(gpu_of(status), "uncovered");
	assert_int_equal(json_array_size(list), 1); /* the tenant is not among them */
	const json_t *entry = json_array_get(list, 0);
	assert_int_equal(json_integer_value(json_object_get(entry, "pid")), stranger);
	assert_string_equal(text_of(entry, "name"), "stranger");
	assert_int_equal(json_integer_value(json_object_get(entry, "memory")), 2048 * MIB);
	assert_string_equal(text_of(gpu_of(status), "uncovered_why"), "");
	json_decref(status);
}

static void say_busy(int percent)
{
	char text[64];
	snprintf(text, sizeof text, "%d:%d", (int)stranger, percent);
	setenv("HB_FAKE_NVML_BUSY", text, 1);
}

/* Beside a process that always has work, an LP context with a tiny slice would never run. */
static void beside_a_busy_process_that_is_no_tenant_low_priority_has_longer_slices(void **state)
{
	static const struct {
		int percent, slice_us;
	} cases[] = {{0, 1}, {50, 1}, {51, 500}, {100, 500}};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		say("HB_FAKE_NVML_COMPUTE", "667942912", "2147483648");
		say_busy(cases[i].percent);
		json_t *status = status_with(0);
		assert_int_equal(json_is_true(json_object_get(gpu_of(status), "busy_outside")), cases[i].slice_us > 1);
		for (int polls = 0;
		     json_integer_value(json_object_get(use_of(status), "slice_us")) != cases[i].slice_us; polls++) {
			assert_true(polls < 1000);
			usleep(10000);
			json_decref(status);
			status = daemon_status(&daemon_);
		}
		json_decref(status);
		hb_membership_fini(&member);
		daemon_clean(&daemon_);
	}
}

static void a_figure_that_the_driver_does_not_give_is_not_made_up(void **state)
{
	say("HB_FAKE_NVML_MPS", "-", NULL);
	json_t *status = status_with(HB_REGISTER_MPS);
	const json_t *use = use_of(status);
	assert_true(json_is_null(json_object_get(use, "memory_overhead")));
	assert_string_equal(text_of(use, "memory_overhead_why"),
			    "the driver gives no size for 1 of 1 processes (clients of an MPS server)");
	json_decref(status);
}

static void without_a_list_the_reason_is_shown(void **state)
{
	setenv("HB_FAKE_NVML_FAIL", "compute=4", 1);
	json_t *status = status_with(0);
	assert_true(json_is_null(json_object_get(use_of(status), "memory_overhead")));
	assert_string_equal(text_of(use_of(status), "memory_overhead_why"),
			    "NVML's list of processes: no permission (4)");
	assert_string_equal(text_of(gpu_of(status), "uncovered_why"), "NVML's list of processes: no permission (4)");
	assert_int_equal(json_array_size(json_object_get(gpu_of(status), "uncovered")), 0);
	json_decref(status);
}

/* In bytes; 0 where a sanitizer has reserved more than any machine has. */
static rlim_t daemon_size(void)
{
	char path[64], line[256];
	unsigned long long kib = 0;
	snprintf(path, sizeof path, "/proc/%d/status", (int)daemon_.pid);
	FILE *file = fopen(path, "r");
	assert_non_null(file);
	while (!kib && fgets(line, sizeof line, file))
		sscanf(line, "VmSize: %llu kB", &kib);
	fclose(file);
	return kib < UINT64_C(1) << 30 ? (rlim_t)kib * 1024 : 0;
}

static json_t *status_with_overhead(void)
{
	json_t *status = daemon_status(&daemon_);
	while (json_is_null(json_object_get(use_of(status), "memory_overhead"))) {
		json_decref(status);
		status = daemon_status(&daemon_);
	}
	return status;
}

/* The daemon asks the driver in a thread of its own, for the first time when a tenant uses the GPU. */
static void where_no_thread_can_be_made_the_last_answer_is_shown(void **state)
{
	const struct rlimit any = {RLIM_INFINITY, RLIM_INFINITY};
	say("HB_FAKE_NVML_COMPUTE", "667942912", NULL);
	daemon_start(&daemon_, HBD, NULL);
	struct hb_tenant_options wish = wish_of(1, HB_PAGE_LOW);
	assert_int_equal(create(&daemon_, wish), 0);
	assert_int_equal(join(&daemon_, &wish, &member), 0);
	json_decref(status_with_overhead());
	rlim_t size = daemon_size();
	if (!size)
		skip();
	const struct rlimit small = {size + MIB, RLIM_INFINITY}; /* no room for a thread's stack */
	assert_int_equal(prlimit(daemon_.pid, RLIMIT_AS, &small, NULL), 0);
	for (int i = 0; i < 10; i++)
		json_decref(status_with_overhead());
	assert_int_equal(prlimit(daemon_.pid, RLIMIT_AS, &any, NULL), 0);
	json_t *status = status_with_overhead();
	assert_int_equal(json_integer_value(json_object_get(gpu_of(status), "memory_total")), 80 * 1024 * MIB);
	json_decref(status);
}

/* Both tenants are this process, which uses 600 MiB according to the driver. */
static void a_false_report_keeps_no_memory_from_others(void **state)
{
	struct hb_membership liar = HB_MEMBERSHIP_NONE;
	struct hb_tenant_options first = wish_of(1, HB_PAGE_LOW), second = wish_of(2, HB_PAGE_LOW);
	struct hb_error error;
	int result;
	say("HB_FAKE_NVML_COMPUTE", "629145600", NULL);
	daemon_start(&daemon_, HBD, NULL);
	assert_int_equal(create(&daemon_, first), 0);
	assert_int_equal(join(&daemon_, &first, &liar), 0);
	assert_int_equal(create(&daemon_, second), 0);
	assert_int_equal(join(&daemon_, &second, &member), 0);
	while (!member.gpus[0]->total_bytes) /* the driver has not answered yet */
		daemon_tenants(&daemon_);
	liar.page->gpus[0].used_bytes = UINT64_MAX / 2;
	liar.page->processes[liar.slot].memory[0].used_bytes = UINT64_MAX / 2;
	liar.page->processes[liar.slot].memory_pending = 1;
	int fd = daemon_connect(&daemon_);
	for (int i = 0; i < 1000; i++) {
		result = hb_client_ask_memory(fd, second.token, second.uuids[0], 79 * 1024 * MIB, &error);
		if (result == 0)
			break;
		usleep(20000);
	}
	close(fd);
	assert_int_equal(result, 0);
	assert_in_range(member.page->gpus[0].low_lease_bytes, 79 * 1024 * MIB, 80 * 1024 * MIB);
	/* The next ticks leave the honest tenant most of what it does not use yet. */
	for (int64_t i = 0; i < 20 && member.page->gpus[0].low_others_bytes > 1024 * MIB; i++)
		usleep(20000);
	assert_true(member.page->gpus[0].low_others_bytes <= 1024 * MIB);
	assert_true(member.gpus[0]->low_used_bytes <= 1024 * MIB);
	assert_int_equal(member.gpus[0]->total_bytes, 80 * 1024 * MIB);
	hb_membership_fini(&liar);
}

#define T(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(what_a_tenant_takes_beside_its_allocations_is_its_contexts),
		T(processes_that_are_no_tenants_are_listed),
		T(beside_a_busy_process_that_is_no_tenant_low_priority_has_longer_slices),
		T(a_figure_that_the_driver_does_not_give_is_not_made_up),
		T(without_a_list_the_reason_is_shown),
		T(a_false_report_keeps_no_memory_from_others),
		T(where_no_thread_can_be_made_the_last_answer_is_shown),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
