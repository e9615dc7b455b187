/* SPDX-License-Identifier: Apache-2.0 */
/* The command line of programs that check texts against golden files; see golden_main.h. */
#include "golden_main.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>

enum mode { PRINT, CHECK, REFRESH };

/* All that a scenario prints; the caller frees. The error's text names the file without its folders. */
static char *transcript(const char *path, hb_golden_run run)
{
	char *text = NULL;
	size_t len = 0;
	FILE *in = fopen(path, "r");
	FILE *out = open_memstream(&text, &len);
	const char *slash = strrchr(path, '/');
	if (in && out)
		run(slash ? slash + 1 : path, in, out);
	if (out)
		fclose(out);
	if (!in) {
		free(text);
		return NULL;
	}
	fclose(in);
	return text;
}

static char *expected_path(const char *path)
{
	size_t len = strlen(path);
	char *out = malloc(len + 5);
	if (!out)
		return NULL;
	strcpy(out, path);
	strcpy(len > 4 && !strcmp(path + len - 4, ".txt") ? out + len - 4 : out + len, ".out");
	return out;
}

static char *read_all(const char *path)
{
	char *text = NULL;
	size_t len = 0;
	int c;
	FILE *in = fopen(path, "r");
	FILE *out = in ? open_memstream(&text, &len) : NULL;
	while (out && (c = getc(in)) != EOF)
		putc(c, out);
	if (out)
		fclose(out);
	if (in)
		fclose(in);
	return text;
}

static void print_difference(const char *path, const char *expected, const char *found)
{
	int line = 1;
	const char *e = expected, *f = found;
	for (; *e && *e == *f; e++, f++) {
		if (*e != '\n')
			continue;
		line++;
		expected = e + 1;
		found = f + 1;
	}
	printf("%s:%d: expected: %.*s\n%s:%d: found:    %.*s\n", path, line, (int)strcspn(expected, "\n"), expected,
	       path, line, (int)strcspn(found, "\n"), found);
}

static int check(const char *path, const char *text)
{
	char *expected = read_all(path);
	int result = !expected || strcmp(expected, text) != 0;
	if (!expected)
		printf("%s: not there; write it with --refresh and read it\n", path);
	else if (result)
		print_difference(path, expected, text);
	free(expected);
	return result;
}

static int refresh(const char *path, const char *text)
{
	FILE *out = fopen(path, "w");
	int result = !out || fputs(text, out) == EOF;
	if (out && fclose(out))
		result = 1;
	if (result)
		fprintf(stderr, "%s: cannot write: %m\n", path);
	return result;
}

static int run_one(const char *path, hb_golden_run run, enum mode mode)
{
	char *text = transcript(path, run);
	char *golden = expected_path(path);
	int result = 2;
	if (!text || !golden)
		fprintf(stderr, "%s: cannot read: %m\n", path);
	else if (mode == CHECK)
		result = check(golden, text);
	else if (mode == REFRESH)
		result = refresh(golden, text);
	else
		result = fputs(text, stdout) == EOF;
	free(golden);
	free(text);
	return result;
}

static int is_scenario(const struct dirent *entry)
{
	size_t len = strlen(entry->d_name);
	return len > 4 && !strcmp(entry->d_name + len - 4, ".txt");
}

static int run_folder(const char *folder, struct dirent **entries, int n, hb_golden_run run, enum mode mode)
{
	int result = n > 0 ? 0 : 2;
	for (int i = 0; i < n; i++) {
		char path[4096];
		snprintf(path, sizeof path, "%s/%s", folder, entries[i]->d_name);
		int one = run_one(path, run, mode);
		result = one > result ? one : result;
		free(entries[i]);
	}
	free(entries);
	return result;
}

static int run_path(const char *path, hb_golden_run run, enum mode mode)
{
	struct dirent **entries;
	int n = scandir(path, &entries, is_scenario, alphasort);
	return n < 0 ? run_one(path, run, mode) : run_folder(path, entries, n, run, mode);
}

uint32_t hb_golden_split(char *line, char *words[HB_GOLDEN_WORDS])
{
	char *rest = NULL;
	uint32_t n = 0;
	for (char *word = strtok_r(line, " \t\n", &rest); word && n < HB_GOLDEN_WORDS;
	     word = strtok_r(NULL, " \t\n", &rest))
		words[n++] = word;
	return n;
}

const char *hb_golden_value(char *const *words, uint32_t n, const char *key)
{
	size_t length = strlen(key);
	for (uint32_t i = 0; i < n; i++)
		if (strncmp(words[i], key, length) == 0 && words[i][length] == '=')
			return words[i] + length + 1;
	return NULL;
}

int hb_golden_main(int argc, char **argv, hb_golden_run run)
{
	enum mode mode = PRINT;
	int result = 0, first = 1;
	if (argc > 1 && !strcmp(argv[1], "--check"))
		mode = CHECK;
	if (argc > 1 && !strcmp(argv[1], "--refresh"))
		mode = REFRESH;
	first += mode != PRINT;
	if (first >= argc) {
		fprintf(stderr, "usage: %s [--check | --refresh] FILE.txt|FOLDER...\n", argv[0]);
		return 2;
	}
	for (int i = first; i < argc; i++) {
		int one = run_path(argv[i], run, mode);
		result = one > result ? one : result;
	}
	return result;
}
