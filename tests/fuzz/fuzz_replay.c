/* SPDX-License-Identifier: Apache-2.0 */
/*
 * main() of a fuzz target that is built without libFuzzer. Runs the target once on
 * each file of the given folders and prints the number of files. A folder without
 * files is an error, so that a wrong path does not pass the test.
 */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int replay_file(const char *path)
{
	FILE *file = fopen(path, "rb");
	if (!file || fseek(file, 0, SEEK_END))
		return -1;
	long size = ftell(file);
	uint8_t *data = malloc(size > 0 ? (size_t)size : 1);
	rewind(file);
	int code = data && fread(data, 1, (size_t)size, file) == (size_t)size ? 0 : -1;
	if (!code)
		LLVMFuzzerTestOneInput(data, (size_t)size);
	free(data);
	fclose(file);
	return code;
}

static int replay_folder(const char *folder)
{
	struct dirent **entries;
	int n = scandir(folder, &entries, NULL, alphasort), count = 0;
	for (int i = 0; i < n; i++) {
		char path[4096];
		snprintf(path, sizeof path, "%s/%s", folder, entries[i]->d_name);
		if (entries[i]->d_type == DT_REG || entries[i]->d_type == DT_UNKNOWN)
			count += replay_file(path) == 0;
		free(entries[i]);
	}
	if (n >= 0)
		free(entries);
	return count;
}

int main(int argc, char **argv)
{
	int total = 0;
	for (int i = 1; i < argc; i++)
		total += replay_folder(argv[i]);
	printf("%d inputs\n", total);
	return total ? EXIT_SUCCESS : EXIT_FAILURE;
}
