/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The watch on channel groups: groups are found whichever way the library was
 * linked, get the slices of the page and are read back; failures show on the
 * page; the library's own calls keep their results.
 */
#include "nvidia/nvidia_rm.h"
#include "nvidia/nvidia_rm_abi.h"
#include "unit.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { FD = 77, CLIENT = 0xc1d00001, DEVICE = 0x5c000001, SUBDEVICE = 0x5c000002, GROUP = 0x5c000010 };

/* The fake resource manager: remembers slices by object, and misbehaves where a test asks it to. */
static struct {
	uint64_t slice[64];
	uint32_t refuse;   /* status of SET_TIMESLICE */
	uint64_t read_add; /* added to what GET_TIMESLICE answers */
	bool closed;       /* controls fail with EBADF */
	unsigned sets, gets;
	unsigned char uuid[16];
	bool no_uuid;
} rm;

static uint32_t rm_control(const struct hb_rm_control *call)
{
	void *params = (void *)(uintptr_t)call->params;
	size_t index = (call->object - GROUP) % 64;
	switch (call->command) {
	case HB_RM_GROUP_SET_TIMESLICE:
		rm.sets++;
		if (rm.refuse)
			return rm.refuse;
		memcpy(&rm.slice[index], params, 8);
		return 0;
	case HB_RM_GROUP_GET_TIMESLICE: {
		uint64_t answer = rm.slice[index] + rm.read_add;
		rm.gets++;
		memcpy(params, &answer, 8);
		return 0;
	}
	case HB_RM_SUBDEVICE_GET_GID: {
		struct hb_rm_gid_params *gid = params;
		if (rm.no_uuid)
			return 0x56;
		gid->length = 16;
		memcpy(gid->data, rm.uuid, 16);
		return 0;
	}
	default:
		return 0;
	}
}

static int fake_rm(int fd, unsigned long request, ...)
{
	va_list arguments;
	va_start(arguments, request);
	void *argument = va_arg(arguments, void *);
	va_end(arguments);
	if (fd != FD || rm.closed) {
		errno = EBADF;
		return -1;
	}
	unsigned number = _IOC_NR(request);
	if (number == HB_RM_NR_TRANSFER) {
		struct hb_rm_transfer *transfer = argument;
		number = transfer->number;
		argument = (void *)(uintptr_t)transfer->pointer;
	}
	if (number == HB_RM_NR_CONTROL) {
		struct hb_rm_control *call = argument;
		call->status = rm_control(call);
	}
	return 0;
}

typedef int alloc_call(int, uint32_t, uint32_t, uint32_t, uint32_t, void *);
typedef int control_call(int, uint32_t, uint32_t, uint32_t, void *, uint32_t);
typedef int free_call(int, uint32_t, uint32_t, uint32_t);
typedef int raw_call(int, unsigned long, void *);

static struct {
	void *handle;
	alloc_call *alloc, *alloc_short;
	control_call *control, *transferred;
	free_call *free;
	raw_call *raw;
	struct hb_page *page;
} fake;

static void *find(const char *name)
{
	void *found = dlsym(fake.handle, name);
	assert_non_null(found);
	return found;
}

static void load(const char *path, hb_rm_ioctl *forward)
{
	fake.handle = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
	assert_non_null(fake.handle);
	fake.alloc = (alloc_call *)find("fake_alloc");
	fake.alloc_short = (alloc_call *)find("fake_alloc_short");
	fake.control = (control_call *)find("fake_control");
	fake.transferred = (control_call *)find("fake_control_transferred");
	fake.free = (free_call *)find("fake_free");
	fake.raw = (raw_call *)find("fake_raw");
	assert_int_equal(hb_rm_watch_install(fake.handle, forward), 0);
}

static int set_up(void **state)
{
	memset(&rm, 0, sizeof rm);
	memset(rm.uuid, 0xab, sizeof rm.uuid);
	load(FAKE_NOW, fake_rm);
	fake.page = aligned_alloc(64, sizeof *fake.page);
	assert_non_null(fake.page);
	memset(fake.page, 0, sizeof *fake.page);
	fake.page->n_gpus = 2;
	memset(fake.page->gpus[0].uuid, 0x11, 16);
	memset(fake.page->gpus[1].uuid, 0xab, 16);
	fake.page->gpus[1].slice_us[HB_GROUP_COMPUTE] = 1;
	fake.page->gpus[1].slice_us[HB_GROUP_COPY] = 20;
	return 0;
}

static int tear_down(void **state)
{
	hb_rm_watch_attach(NULL, 0);
	rm.closed = false;
	fake.free(FD, CLIENT, CLIENT, CLIENT);
	dlclose(fake.handle);
	free(fake.page);
	return 0;
}

/* What libcuda does when a context is made: a device, then a compute group and three copy groups. */
static void make_context(uint32_t first, bool told)
{
	fake.alloc(FD, CLIENT, CLIENT, DEVICE, HB_RM_CLASS_DEVICE, NULL);
	fake.alloc(FD, CLIENT, DEVICE, SUBDEVICE, HB_RM_CLASS_SUBDEVICE, NULL);
	for (uint32_t i = 0; i < 4; i++) {
		struct hb_rm_group_params params = {.engine_type = i ? HB_RM_ENGINE_COPY_FIRST + i
								     : HB_RM_ENGINE_GRAPHICS_FIRST};
		fake.alloc(FD, CLIENT, DEVICE, first + i, HB_RM_CLASS_GROUP, told ? &params : NULL);
	}
	unsigned char enable[3] = {1, 0, 0};
	for (uint32_t i = 0; i < 4; i++)
		fake.control(FD, CLIENT, first + i, HB_RM_GROUP_SCHEDULE, enable, sizeof enable);
}

static struct hb_page_group *record(size_t i)
{
	return &fake.page->processes[3].groups[i];
}

static uint64_t counted(enum hb_page_counter counter)
{
	return fake.page->processes[3].counters[counter];
}

static void groups_get_the_slices_of_their_class(void **state)
{
	hb_rm_watch_attach(fake.page, 3);
	make_context(GROUP, true);
	for (size_t i = 0; i < 4; i++) {
		assert_int_equal(rm.slice[i], i ? 20 : 1);
		assert_int_equal(record(i)->state, HB_GROUP_SET);
		assert_int_equal(record(i)->group_class, i ? HB_GROUP_COPY : HB_GROUP_COMPUTE);
		assert_int_equal(record(i)->gpu, 1);
		assert_int_equal(record(i)->got_us, i ? 20 : 1);
	}
	assert_int_equal(rm.sets, 4);
	assert_int_equal(rm.gets, 4);
	assert_int_equal(counted(HB_COUNT_groups), 4);
	assert_int_equal(counted(HB_COUNT_groups_not_set), 0);
}

static void without_an_engine_type_the_first_group_is_compute(void **state)
{
	hb_rm_watch_attach(fake.page, 3);
	make_context(GROUP, false);
	assert_int_equal(record(0)->group_class, HB_GROUP_COMPUTE);
	for (size_t i = 1; i < 4; i++)
		assert_int_equal(record(i)->group_class, HB_GROUP_COPY);
}

static void groups_from_before_the_page_are_set_when_it_comes(void **state)
{
	make_context(GROUP, true);
	assert_int_equal(rm.sets, 0);
	hb_rm_watch_attach(fake.page, 3);
	assert_int_equal(rm.slice[0], 1);
	assert_int_equal(rm.slice[3], 20);
	assert_int_equal(record(3)->state, HB_GROUP_SET);
}

static void new_slices_on_the_page_are_applied_once(void **state)
{
	hb_rm_watch_attach(fake.page, 3);
	make_context(GROUP, true);
	fake.page->gpus[1].slice_us[HB_GROUP_COMPUTE] = 5000;
	hb_rm_watch_apply();
	fake.page->slice_sequence = 1;
	hb_rm_watch_apply();
	hb_rm_watch_apply();
	assert_int_equal(rm.slice[0], 5000);
	assert_int_equal(rm.sets, 5);
	assert_int_equal(fake.page->processes[3].applied, 1);
}

static void a_slice_set_by_the_library_itself_does_not_stay(void **state)
{
	hb_rm_watch_attach(fake.page, 3);
	make_context(GROUP, true);
	uint64_t own = 2048;
	assert_int_equal(fake.control(FD, CLIENT, GROUP, HB_RM_GROUP_SET_TIMESLICE, &own, sizeof own), 0);
	assert_int_equal(rm.slice[0], 1);
}

static void calls_by_pointer_are_seen_too(void **state)
{
	hb_rm_watch_attach(fake.page, 3);
	make_context(GROUP, true);
	uint64_t own = 2048;
	assert_int_equal(fake.transferred(FD, CLIENT, GROUP, HB_RM_GROUP_SET_TIMESLICE, &own, sizeof own), 0);
	assert_int_equal(rm.slice[0], 1);
	fake.alloc_short(FD, CLIENT, DEVICE, GROUP + 8, HB_RM_CLASS_GROUP, NULL);
	assert_int_equal(counted(HB_COUNT_groups), 5);
}

static void failures_show_on_the_page(void **state)
{
	hb_rm_watch_attach(fake.page, 3);
	rm.refuse = 0x1b;
	make_context(GROUP, true);
	assert_int_equal(record(0)->state, HB_GROUP_REFUSED);
	assert_int_equal(record(0)->rm_status, 0x1b);
	assert_true(counted(HB_COUNT_groups_not_set) >= 4);

	rm.refuse = 0;
	rm.read_add = 7;
	fake.page->slice_sequence++;
	hb_rm_watch_apply();
	assert_int_equal(record(0)->state, HB_GROUP_DIFFERS);
	assert_int_equal(record(0)->got_us, 8);

	rm.closed = true;
	fake.page->slice_sequence++;
	hb_rm_watch_apply();
	assert_int_equal(record(0)->state, HB_GROUP_UNREACHABLE);
	size_t groups, set;
	hb_rm_watch_count(&groups, &set);
	assert_int_equal(groups, 4);
	assert_int_equal(set, 0);
}

static void freed_groups_leave_the_page_and_make_room(void **state)
{
	hb_rm_watch_attach(fake.page, 3);
	make_context(GROUP, true);
	fake.free(FD, CLIENT, DEVICE, GROUP + 1);
	assert_int_equal(record(1)->state, HB_GROUP_EMPTY);
	fake.alloc(FD, CLIENT, DEVICE, GROUP + 9, HB_RM_CLASS_GROUP, NULL);
	assert_int_equal(record(1)->object, GROUP + 9);
	fake.free(FD, CLIENT, CLIENT, DEVICE);
	size_t groups, set;
	hb_rm_watch_count(&groups, &set);
	assert_int_equal(groups, 0);
	for (size_t i = 0; i < 4; i++)
		assert_int_equal(record(i)->state, HB_GROUP_EMPTY);
}

static void more_groups_than_the_page_shows_are_set_all_the_same(void **state)
{
	hb_rm_watch_attach(fake.page, 3);
	for (uint32_t i = 0; i < 15; i++)
		make_context(GROUP + 4 * i, true);
	size_t groups, set;
	hb_rm_watch_count(&groups, &set);
	assert_int_equal(groups, 60);
	assert_int_equal(set, 60);
	assert_int_equal(counted(HB_COUNT_groups_untracked), 60 - HB_PAGE_GROUPS);
}

static void an_unknown_gpu_is_left_alone_unless_it_is_the_only_one(void **state)
{
	rm.no_uuid = true;
	hb_rm_watch_attach(fake.page, 3);
	make_context(GROUP, true);
	assert_int_equal(rm.sets, 0);
	assert_int_equal(record(0)->state, HB_GROUP_SEEN);
	assert_int_equal(record(0)->gpu, HB_PAGE_GPUS);

	fake.page->n_gpus = 1;
	fake.page->gpus[0].slice_us[HB_GROUP_COMPUTE] = 9;
	fake.page->slice_sequence++;
	hb_rm_watch_apply();
	assert_int_equal(rm.slice[0], 9);
}

static void a_forked_child_starts_empty_and_leaves_the_page_alone(void **state)
{
	hb_rm_watch_attach(fake.page, 3);
	make_context(GROUP, true);
	pid_t child = fork();
	if (child == 0) {
		size_t groups = 99, set = 99;
		hb_rm_watch_count(&groups, &set);
		hb_rm_watch_apply();
		_exit(groups == 0 && set == 0 ? 0 : 1);
	}
	int status = -1;
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	size_t groups, set;
	hb_rm_watch_count(&groups, &set);
	assert_int_equal(groups, 4);
}

static void lazily_bound_libraries_are_watched_too(void **state)
{
	dlclose(fake.handle);
	load(FAKE_LAZY, fake_rm);
	hb_rm_watch_attach(fake.page, 3);
	make_context(GROUP, true);
	assert_int_equal(rm.slice[0], 1);
}

static void other_calls_pass_with_result_and_errno(void **state)
{
	dlclose(fake.handle);
	load(FAKE_NOW, NULL); /* the C library's ioctl */
	errno = 0;
	assert_int_equal(fake.raw(-1, HB_RM_REQUEST(HB_RM_NR_ALLOC, struct hb_rm_alloc), NULL), -1);
	assert_int_equal(errno, EBADF);
	int pipe_fds[2], waiting = -1;
	assert_int_equal(pipe(pipe_fds), 0);
	assert_int_equal(write(pipe_fds[1], "abc", 3), 3);
	assert_int_equal(fake.raw(pipe_fds[0], FIONREAD, &waiting), 0);
	assert_int_equal(waiting, 3);
	close(pipe_fds[0]);
	close(pipe_fds[1]);
	assert_int_equal(hb_rm_watch_install(fake.handle, fake_rm), 0);
}

static void a_library_without_the_import_is_told(void **state)
{
	void *other = dlopen("libm.so.6", RTLD_LAZY);
	assert_non_null(other);
	assert_int_equal(hb_rm_watch_install(other, fake_rm), -ENOENT);
	dlclose(other);
}

int main(void)
{
#define TEST(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		TEST(groups_get_the_slices_of_their_class),
		TEST(without_an_engine_type_the_first_group_is_compute),
		TEST(groups_from_before_the_page_are_set_when_it_comes),
		TEST(new_slices_on_the_page_are_applied_once),
		TEST(a_slice_set_by_the_library_itself_does_not_stay),
		TEST(calls_by_pointer_are_seen_too),
		TEST(failures_show_on_the_page),
		TEST(freed_groups_leave_the_page_and_make_room),
		TEST(more_groups_than_the_page_shows_are_set_all_the_same),
		TEST(an_unknown_gpu_is_left_alone_unless_it_is_the_only_one),
		TEST(a_forked_child_starts_empty_and_leaves_the_page_alone),
		TEST(lazily_bound_libraries_are_watched_too),
		TEST(other_calls_pass_with_result_and_errno),
		TEST(a_library_without_the_import_is_told),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
