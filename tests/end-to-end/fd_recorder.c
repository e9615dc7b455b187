/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Preloaded into a program and so into all that it starts: writes what descriptors each program finds open when it
 * begins, to a new file in $HB_TEST_DESCRIPTORS. First line: "PID PARENT NAME"; then "NUMBER TARGET" for each.
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void write_targets(FILE *out)
{
	DIR *folder = opendir("/proc/self/fd");
	for (struct dirent *entry; folder && (entry = readdir(folder));) {
		char target[512];
		int fd = atoi(entry->d_name);
		ssize_t n = readlinkat(dirfd(folder), entry->d_name, target, sizeof target - 1);
		if (n < 0 || fd == dirfd(folder) || fd == fileno(out))
			continue;
		target[n] = '\0';
		fprintf(out, "%d %s\n", fd, target);
	}
	if (folder)
		closedir(folder);
}

__attribute__((constructor)) static void record_descriptors(void)
{
	const char *folder = getenv("HB_TEST_DESCRIPTORS");
	char path[512], program[512];
	if (!folder)
		return;
	snprintf(path, sizeof path, "%s/XXXXXX", folder);
	int fd = mkostemp(path, 0);
	FILE *out = fd < 0 ? NULL : fdopen(fd, "w");
	if (!out)
		return;
	ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);
	program[n > 0 ? n : 0] = '\0';
	fprintf(out, "%d %d %s\n", (int)getpid(), (int)getppid(),
		strrchr(program, '/') ? strrchr(program, '/') + 1 : "?");
	write_targets(out);
	fclose(out);
}
