/* SPDX-License-Identifier: Apache-2.0 */
/* Files that commands write: refused before the work, there whole or not at all, and nothing beside them. */
#include "base/out_file.h"
#include "unit.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[32], path[64];

/* The linker sends the calls of out_file.c here (tests/unit/meson.build). */
static char calls[64];
static int sync_error;
int __real_fsync(int fd);
int __real_rename(const char *from, const char *to);
int __wrap_fsync(int fd);
int __wrap_rename(const char *from, const char *to);

int __wrap_fsync(int fd)
{
	strcat(calls, "fsync ");
	errno = sync_error;
	return sync_error ? -1 : __real_fsync(fd);
}

int __wrap_rename(const char *from, const char *to)
{
	strcat(calls, "rename ");
	return __real_rename(from, to);
}

static int set_up(void **state)
{
	(void)state;
	calls[0] = '\0';
	strcpy(folder, "/tmp/hb-out-XXXXXX");
	assert_non_null(mkdtemp(folder));
	snprintf(path, sizeof path, "%s/out.json", folder);
	return 0;
}

/* rmdir() also proves that nothing is left. */
static int tear_down(void **state)
{
	(void)state;
	unlink(path);
	return rmdir(folder);
}

static void write_seven(struct hb_error *error)
{
	struct hb_out_file file;
	assert_int_equal(hb_out_file_open(&file, path, error), 0);
	fputs("7", file.stream);
	assert_int_equal(hb_out_file_commit(&file, error), 0);
	hb_out_file_fini(&file);
}

static void a_file_appears_whole_or_not_at_all(void **state)
{
	struct hb_error error = {""};
	struct hb_out_file file;
	char text[8] = "";
	assert_int_equal(hb_out_file_open(&file, path, &error), 0);
	fputs("half", file.stream);
	hb_out_file_fini(&file);
	assert_int_equal(access(path, F_OK), -1);
	write_seven(&error);
	FILE *again = fopen(path, "r");
	assert_non_null(again);
	assert_non_null(fgets(text, sizeof text, again));
	fclose(again);
	assert_string_equal(text, "7");
}

static void a_folder_that_is_not_there_is_told_at_once(void **state)
{
	struct hb_error error = {""};
	struct hb_out_file file;
	char nowhere[80];
	snprintf(nowhere, sizeof nowhere, "%s/none/out.json", folder);
	assert_int_equal(hb_out_file_open(&file, nowhere, &error), -ENOENT);
	assert_ptr_equal(strstr(error.text, nowhere), error.text);
	hb_out_file_fini(&file);
}

static void a_link_under_the_temporary_name_is_not_followed(void **state)
{
	struct hb_error error = {""};
	char link[96], other[64];
	snprintf(link, sizeof link, "%s.%d.tmp", path, (int)getpid());
	snprintf(other, sizeof other, "%s/other", folder);
	assert_int_equal(symlink(other, link), 0);
	write_seven(&error);
	assert_int_equal(access(other, F_OK), -1);
}

static void devices_are_written_not_replaced(void **state)
{
	struct hb_error error = {""};
	char target[16] = "";
	assert_int_equal(symlink("/dev/null", path), 0);
	write_seven(&error);
	assert_int_equal(readlink(path, target, sizeof target), 9);
}

static void a_replaced_file_passes_its_mode_on(void **state)
{
	(void)state;
	struct hb_error error = {""};
	struct stat status;
	write_seven(&error);
	assert_int_equal(chmod(path, 0640), 0);
	write_seven(&error);
	assert_int_equal(stat(path, &status), 0);
	assert_int_equal(status.st_mode & 07777, 0640);
}

/* A power failure must not leave an empty file under the name: first the data, then the name, then the folder. */
static void the_data_is_on_disk_before_the_name(void **state)
{
	(void)state;
	struct hb_error error = {""};
	write_seven(&error);
	assert_string_equal(calls, "fsync rename fsync ");
}

static void a_file_that_cannot_be_written_to_disk_does_not_appear(void **state)
{
	(void)state;
	struct hb_error error = {""};
	struct hb_out_file file;
	assert_int_equal(hb_out_file_open(&file, path, &error), 0);
	fputs("7", file.stream);
	sync_error = ENOSPC;
	assert_int_equal(hb_out_file_commit(&file, &error), -ENOSPC);
	sync_error = 0;
	assert_ptr_equal(strstr(error.text, path), error.text);
	assert_int_equal(access(path, F_OK), -1);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		TEST(a_file_appears_whole_or_not_at_all),
		TEST(a_folder_that_is_not_there_is_told_at_once),
		TEST(a_link_under_the_temporary_name_is_not_followed),
		TEST(devices_are_written_not_replaced),
		TEST(a_replaced_file_passes_its_mode_on),
		TEST(the_data_is_on_disk_before_the_name),
		TEST(a_file_that_cannot_be_written_to_disk_does_not_appear),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
