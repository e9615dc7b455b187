/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Data files are found by a program in the build folder, where HB_DATA_DIR
 * says, and beside an installed program: that one is a copy of this test, called
 * with the name of a file to find.
 */
#include "base/paths.h"
#include "unit.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int forget_data_dir(void **state)
{
	return unsetenv("HB_DATA_DIR");
}

static void source_data_is_found_from_the_build_folder(void **state)
{
	char path[PATH_MAX];
	assert_int_equal(hb_path_data("traces/README.md", path, sizeof path, NULL), 0);
	assert_int_equal(path[0], '/');
	assert_int_equal(access(path, R_OK), 0);
}

static void working_folder_does_not_matter(void **state)
{
	char path[PATH_MAX], before[PATH_MAX];
	assert_non_null(getcwd(before, sizeof before));
	assert_int_equal(chdir("/"), 0);
	assert_int_equal(hb_path_data("traces/README.md", path, sizeof path, NULL), 0);
	assert_int_equal(chdir(before), 0);
}

static void environment_decides_alone(void **state)
{
	char folder[] = "/tmp/hb-paths-XXXXXX", file[64], path[PATH_MAX] = "untouched";
	struct hb_error error = {""};
	assert_non_null(mkdtemp(folder));
	setenv("HB_DATA_DIR", folder, 1);
	assert_int_equal(hb_path_data("traces/README.md", path, sizeof path, &error), -ENOENT);
	assert_string_equal(path, "untouched");
	assert_non_null(strstr(error.text, folder));
	assert_non_null(strstr(error.text, "traces/README.md"));

	snprintf(file, sizeof file, "%s/x.gpu", folder);
	FILE *out = fopen(file, "w");
	assert_non_null(out);
	fclose(out);
	assert_int_equal(hb_path_data("x.gpu", path, sizeof path, NULL), 0);
	assert_string_equal(path, file);
	unlink(file);
	rmdir(folder);
}

static void short_buffers_and_missing_files_are_errors(void **state)
{
	char path[8] = "as was";
	struct hb_error error = {""};
	assert_int_equal(hb_path_data("traces/README.md", path, sizeof path, NULL), -ENAMETOOLONG);
	assert_int_equal(hb_path_data("no/such.file", path, sizeof path, &error), -ENAMETOOLONG);
	assert_string_equal(path, "as was");
	char longer[PATH_MAX];
	assert_int_equal(hb_path_data("no/such.file", longer, sizeof longer, &error), -ENOENT);
	assert_non_null(strstr(error.text, "no/such.file"));
}

/* A file `folder`/`name` with these bytes, its folders made. */
static void put_file(const char *folder, const char *name, const char *from)
{
	char command[3 * PATH_MAX];
	snprintf(command, sizeof command, "mkdir -p $(dirname %s/%s) && cat %s >%s/%s && chmod +x %s/%s", folder, name,
		 from, folder, name, folder, name);
	assert_int_equal(system(command), 0);
}

static void installed_programs_find_their_data_wherever_the_tree_lies(void **state)
{
	static const char *const programs[] = {"bin/prog", "lib/x86_64-linux-gnu/hummingbird/prog"};
	char self[PATH_MAX] = "";
	assert_true(readlink("/proc/self/exe", self, sizeof self - 1) > 0);
	for (int i = 0; i < 2; i++) {
		char folder[] = "/tmp/hb-paths-XXXXXX", command[256], found[PATH_MAX] = "", expected[128];
		assert_non_null(mkdtemp(folder));
		put_file(folder, programs[i], self);
		put_file(folder, "share/hummingbird/x.gpu", "/dev/null");
		snprintf(expected, sizeof expected, "%s/share/hummingbird/x.gpu", folder);
		snprintf(command, sizeof command, "%s/%s no.gpu >/dev/null", folder, programs[i]);
		assert_int_not_equal(system(command), 0);
		/* The last of them removes its own file first, as an update does while a daemon runs. */
		for (int replaced = 0; replaced < 2; replaced++) {
			snprintf(command, sizeof command, "cd / && %s/%s x.gpu %s", folder, programs[i],
				 replaced ? "replaced" : "");
			FILE *out = popen(command, "r");
			assert_non_null(out);
			char *line = fgets(found, sizeof found, out);
			assert_int_equal(pclose(out), 0);
			assert_ptr_equal(line, found);
			assert_string_equal(found, expected);
		}
		snprintf(command, sizeof command, "rm -r %s", folder);
		assert_int_equal(system(command), 0);
	}
}

static void a_command_is_shown_without_the_folders_of_its_program(void **state)
{
	assert_string_equal(hb_path_command("/opt/venv/bin/python serve.py"), "python serve.py");
	assert_string_equal(hb_path_command("./serve --models /srv/models"), "serve --models /srv/models");
	assert_string_equal(hb_path_command("serve"), "serve");
	assert_string_equal(hb_path_command("/bin/"), "");
	assert_string_equal(hb_path_command(""), "");
}

static int find_and_print(const char *relative)
{
	char path[PATH_MAX];
	struct hb_error error;
	if (hb_path_data(relative, path, sizeof path, &error))
		return 1;
	return fputs(path, stdout) == EOF;
}

int main(int argc, char **argv)
{
	if (argc > 2 && unlink(argv[0]) < 0)
		return 2;
	if (argc > 1)
		return find_and_print(argv[1]);
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(source_data_is_found_from_the_build_folder, forget_data_dir,
						forget_data_dir),
		cmocka_unit_test_setup_teardown(working_folder_does_not_matter, forget_data_dir, forget_data_dir),
		cmocka_unit_test_setup_teardown(environment_decides_alone, forget_data_dir, forget_data_dir),
		cmocka_unit_test_setup_teardown(installed_programs_find_their_data_wherever_the_tree_lies,
						forget_data_dir, forget_data_dir),
		cmocka_unit_test_setup_teardown(short_buffers_and_missing_files_are_errors, forget_data_dir,
						forget_data_dir),
		cmocka_unit_test(a_command_is_shown_without_the_folders_of_its_program),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
