/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How many kernels of a library can be split, and why the others cannot:
 *
 *   slice-survey [--arch 90] [--why REASON] [--samples FILE] LIBRARY...
 *
 * Looks for fatbins anywhere in the files (libtorch_cuda.so, libcublas.so, a
 * cubin) and asks the rules for splitting about every kernel of the architecture.
 * Needs no GPU. --why lists the kernels that have this reason. --samples appends
 * some instructions of each opcode (16 bytes each), from which sass_table.py makes
 * and checks the instruction tables.
 */
#include "cubin/fatbin.h"
#include "cubin/sass.h"
#include "cubin/split_rule.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

struct survey {
	unsigned arch;
	const char *why;
	size_t n_fatbins, n_cubins, n_broken, n_kernels, n_by_reason[HB_N_SPLIT_REASONS];
	size_t n_by_opcode[4096], n_by_attribute[256];
	FILE *samples;
	uint8_t n_samples[4096];
};

enum { SAMPLES_PER_OPCODE = 16 };

/* Writes the kernel's first instruction of each opcode, for SAMPLES_PER_OPCODE kernels. */
static void write_samples(struct survey *survey, const struct hb_cubin *cubin, const struct hb_cubin_kernel *kernel)
{
	bool seen[4096] = {false};
	const uint8_t *code = hb_cubin_content(cubin, kernel->text);
	for (size_t i = 0; code && i < cubin->sections[kernel->text].sh_size / HB_SASS_BYTES; i++) {
		unsigned opcode = hb_sass_opcode(hb_sass_at(code, i));
		if (seen[opcode] || survey->n_samples[opcode] == SAMPLES_PER_OPCODE)
			continue;
		seen[opcode] = true;
		survey->n_samples[opcode]++;
		fwrite(code + i * HB_SASS_BYTES, HB_SASS_BYTES, 1, survey->samples);
	}
}

/* Counts the first attribute of the kernel that has no row. */
static void count_attribute(struct survey *survey, const struct hb_cubin *cubin, const struct hb_cubin_kernel *kernel)
{
	struct hb_code_info_list list = hb_code_info_begin(cubin, kernel->info);
	struct hb_code_info record;
	while (hb_code_info_next(&list, &record) == 1)
		if (!hb_code_info_is_known(&record)) {
			survey->n_by_attribute[record.attribute]++;
			return;
		}
}

static void count_kernel(struct survey *survey, const struct hb_cubin *cubin, const struct hb_cubin_kernel *kernel)
{
	struct hb_code_facts facts;
	size_t where = 0;
	enum hb_split_reason reason = hb_split_rule(cubin, kernel, &facts);
	survey->n_kernels++;
	survey->n_by_reason[reason]++;
	if (survey->samples)
		write_samples(survey, cubin, kernel);
	if (reason == HB_SPLIT_attribute)
		count_attribute(survey, cubin, kernel);
	if (reason == HB_SPLIT_instruction) {
		const uint8_t *code = hb_cubin_content(cubin, kernel->text);
		hb_sass_check(cubin->arch, code, cubin->sections[kernel->text].sh_size, &where);
		survey->n_by_opcode[hb_sass_opcode(hb_sass_at(code, where / HB_SASS_BYTES))]++;
	}
	if (survey->why && strcmp(survey->why, hb_split_reason_name(reason)) == 0)
		printf("%s +0x%zx\n", kernel->name, where);
}

static void count_cubin(struct survey *survey, const uint8_t *bytes, size_t size)
{
	struct hb_cubin cubin;
	int code = hb_cubin_open(&cubin, bytes, size);
	survey->n_cubins++;
	survey->n_broken += code != 0;
	for (uint32_t i = 0; code == 0 && i < cubin.n_kernels; i++)
		count_kernel(survey, &cubin, &cubin.kernels[i]);
	if (code == 0)
		hb_cubin_close(&cubin);
}

static void count_fatbin(struct survey *survey, struct hb_fatbin *fatbin)
{
	struct hb_fatbin_entry entry;
	uint8_t *bytes;
	size_t size;
	survey->n_fatbins++;
	while (hb_fatbin_next(fatbin, &entry) == 1) {
		if (entry.kind != HB_FATBIN_CUBIN || entry.arch != survey->arch)
			continue;
		if (hb_fatbin_unpack(&entry, &bytes, &size)) {
			survey->n_broken++;
			continue;
		}
		count_cubin(survey, bytes, size);
		free(bytes);
	}
}

static void count_file(struct survey *survey, const uint8_t *bytes, size_t size)
{
	struct hb_fatbin fatbin;
	if (size > 8 && memcmp(bytes, ELFMAG, SELFMAG) == 0 && ((const Elf64_Ehdr *)bytes)->e_machine == EM_CUDA)
		count_cubin(survey, bytes, size);
	for (size_t at = 0; at + 16 <= size;) {
		if (hb_fatbin_open(&fatbin, bytes + at, size - at)) {
			at += 8;
			continue;
		}
		at = (size_t)(fatbin.end - bytes + 7) & ~(size_t)7;
		count_fatbin(survey, &fatbin);
	}
}

static int survey_path(struct survey *survey, const char *path)
{
	struct stat status;
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &status) != 0) {
		fprintf(stderr, "slice-survey: %s: %s\n", path, strerror(errno));
		return 1;
	}
	void *bytes = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	close(fd);
	if (bytes == MAP_FAILED) {
		fprintf(stderr, "slice-survey: %s: cannot be mapped: %s\n", path, strerror(errno));
		return 1;
	}
	count_file(survey, bytes, (size_t)status.st_size);
	munmap(bytes, (size_t)status.st_size);
	return 0;
}

static void print(const struct survey *survey)
{
	printf("%zu fatbins, %zu cubins for sm_%u (%zu not readable), %zu kernels\n", survey->n_fatbins,
	       survey->n_cubins, survey->arch, survey->n_broken, survey->n_kernels);
	for (int reason = 0; reason < HB_N_SPLIT_REASONS; reason++)
		if (survey->n_by_reason[reason])
			printf("%8zu %5.1f %%  %s: %s\n", survey->n_by_reason[reason],
			       100.0 * (double)survey->n_by_reason[reason] / (double)survey->n_kernels,
			       hb_split_reason_name(reason), hb_split_reason_text(reason));
	for (int opcode = 0; opcode < 4096; opcode++)
		if (survey->n_by_opcode[opcode])
			printf("%8zu          opcode 0x%03x\n", survey->n_by_opcode[opcode], (unsigned)opcode);
	for (int attribute = 0; attribute < 256; attribute++)
		if (survey->n_by_attribute[attribute])
			printf("%8zu          attribute 0x%02x\n", survey->n_by_attribute[attribute],
			       (unsigned)attribute);
}

/* Opens the file of samples. Returns false after an error message. */
static bool open_samples(struct survey *survey, const char *path)
{
	survey->samples = fopen(path, "ab");
	if (!survey->samples)
		fprintf(stderr, "slice-survey: %s: %s\n", path, strerror(errno));
	return survey->samples != NULL;
}

int main(int argc, char **argv)
{
	static struct survey survey = {.arch = 90};
	int status = 0, i = 1;
	for (; i + 1 < argc && strncmp(argv[i], "--", 2) == 0; i += 2) {
		if (strcmp(argv[i], "--arch") == 0)
			survey.arch = (unsigned)strtoul(argv[i + 1], NULL, 10);
		else if (strcmp(argv[i], "--why") == 0)
			survey.why = argv[i + 1];
		else if (strcmp(argv[i], "--samples") == 0 && !open_samples(&survey, argv[i + 1]))
			return 1;
		else if (strcmp(argv[i], "--samples") != 0)
			break;
	}
	if (i >= argc || strncmp(argv[i], "--", 2) == 0) {
		fprintf(stderr, "usage: slice-survey [--arch 90] [--why REASON] [--samples FILE] LIBRARY...\n");
		return 2;
	}
	for (; i < argc; i++)
		status |= survey_path(&survey, argv[i]);
	print(&survey);
	if (survey.samples && fclose(survey.samples) != 0) {
		fprintf(stderr, "slice-survey: the samples cannot be written: %s\n", strerror(errno));
		return 1;
	}
	return status;
}
