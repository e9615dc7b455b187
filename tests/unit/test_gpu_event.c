/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Faults of NVIDIA GPUs: events of a fake libnvidia-ml.so.1 arrive with the GPU they are about, and the
 * kernel's log names the process.
 */
#include "fake_nvml_files.h"
#include "gpu/provider.h"
#include "nvidia/xid_log.h"
#include "unit.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WAIT_MS 10000

static const unsigned char uuids[1][16] = {"0123456789abcde"};

static int set_up(void **state)
{
	make_nvml_files();
	return 0;
}

static int tear_down(void **state)
{
	remove_nvml_files();
	return 0;
}

static int wait_for(int timeout_ms, struct hb_gpu_event *event, char *why)
{
	return hb_provider_nvidia.gpu_event(uuids, 1, -1, timeout_ms, event, why);
}

/* The first call registers the GPU: a GPU that reports no memory errors reports its Xids. */
static void a_refused_registration_is_reported(void **state)
{
	struct hb_gpu_event event;
	char why[HB_GPU_WHY_MAX] = "";
	setenv("HB_FAKE_NVML_FAIL", "register=4", 1);
	assert_int_equal(wait_for(1, &event, why), -EIO);
	assert_string_equal(why, "NVML's registration for events: no permission (4)");
	unsetenv("HB_FAKE_NVML_FAIL");
	setenv("HB_FAKE_NVML_NO_ECC", "1", 1);
	assert_int_equal(wait_for(1, &event, why), 0);
}

static void an_xid_arrives_with_its_gpu_and_number(void **state)
{
	struct hb_gpu_event event;
	char why[HB_GPU_WHY_MAX] = "";
	write_file(events_path, "a", "ecc\nxid 31\nxid 43\n"); /* memory errors were not registered */
	assert_int_equal(wait_for(WAIT_MS, &event, why), 1);
	assert_memory_equal(event.uuid, uuids[0], 16);
	assert_int_equal(event.kind, HB_GPU_EVENT_XID);
	assert_int_equal(event.xid, 31);
	assert_int_equal(wait_for(WAIT_MS, &event, why), 1);
	assert_int_equal(event.xid, 43);
	assert_int_equal(wait_for(1, &event, why), 0);
}

static void a_lost_gpu_is_reported_once(void **state)
{
	struct hb_gpu_event event;
	struct hb_gpu_use use;
	char why[HB_GPU_WHY_MAX] = "";
	write_file(state_path, "w", "lost\n");
	assert_int_equal(wait_for(WAIT_MS, &event, why), 1);
	assert_int_equal(event.kind, HB_GPU_EVENT_LOST);
	assert_memory_equal(event.uuid, uuids[0], 16);
	assert_int_equal(wait_for(1, &event, why), -EIO); /* the caller waits before it asks again */
	assert_non_null(strstr(why, "fallen off the bus"));
	hb_provider_nvidia.gpu_use(uuids[0], &use);
	assert_true(use.is_lost);
	write_file(state_path, "w", "\n");
	assert_int_equal(wait_for(1, &event, why), 0);
	hb_provider_nvidia.gpu_use(uuids[0], &use);
	assert_false(use.is_lost);
}

static const char kernel_log[] =
	"6,1,100,-;NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64\n"
	"3,2,200,-;NVRM: Xid (PCI:0000:17:00): 31, pid=4711, name=train, Ch 0000000a, intr 00000000. MMU Fault\n"
	"3,3,300,-;NVRM: Xid (PCI:0000:65:00): 31, pid=99, name=other, Ch 0000000b\n"
	"3,4,400,-;NVRM: Xid (PCI:0000:17:00): 43, pid='<unknown>', name=<unknown>, Ch 0000000a\n"
	"3,5,500,-;NVRM: Xid (PCI:0000:17:00): 79, GPU has fallen off the bus.\n";

static void the_kernels_log_names_the_process(void **state)
{
	char path[] = "/tmp/hb-kmsg-XXXXXX", name[32];
	close(mkstemp(path));
	write_file(path, "w", kernel_log);
	int log = hb_xid_log_open(path);
	assert_true(log >= 0);
	assert_int_equal(hb_xid_log_find(log, "0000:17:00.0", 31, name), 4711);
	assert_string_equal(name, "train");
	assert_int_equal(hb_xid_log_find(log, "0000:65:00.0", 31, name), 99);
	assert_int_equal(hb_xid_log_find(log, "0000:17:00.0", 43, name), 0);
	assert_string_equal(name, "");
	assert_int_equal(hb_xid_log_find(log, "0000:17:00.0", 79, name), 0);
	assert_int_equal(hb_xid_log_find(log, "0000:99:00.0", 31, name), 0);
	unlink(path);
	close(log);
	assert_int_equal(hb_xid_log_open(path), -ENOENT);
	assert_int_equal(hb_xid_log_find(-ENOENT, "0000:17:00.0", 31, name), 0);
}

static void a_name_in_the_log_is_made_printable(void **state)
{
	struct hb_xid_line line;
	assert_int_equal(hb_xid_line_parse("NVRM: Xid (PCI:0000:17:00): 13, pid=5, name=a\x1b[2Jb, Graphics", &line),
			 0);
	assert_string_equal(line.name, "a?[2Jb");
	assert_int_equal(hb_xid_line_parse("NVRM: Xid (PCI:0000:17:00", &line), -ENOENT);
	assert_int_equal(hb_xid_line_parse("", &line), -ENOENT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_refused_registration_is_reported),
		cmocka_unit_test(an_xid_arrives_with_its_gpu_and_number),
		cmocka_unit_test(a_lost_gpu_is_reported_once),
		cmocka_unit_test(the_kernels_log_names_the_process),
		cmocka_unit_test(a_name_in_the_log_is_made_printable),
	};
	return cmocka_run_group_tests(tests, set_up, tear_down);
}
