/* SPDX-License-Identifier: Apache-2.0 */
/* Reading fatbins and cubins, and the rules that decide which kernels can be split. */
#include "cubin/sass.h"
#include "cubin/split_rule.h"

#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cubin_fixture.h"

static void a_fatbin_of_two_zstd_entries_is_read(void **state)
{
	struct hb_fatbin fatbin;
	struct hb_fatbin_entry entry;
	size_t size, n;
	uint8_t *bytes, *file = fixture("kernels.fatbin", &size);
	assert_int_equal(hb_fatbin_open(&fatbin, file, size), 0);
	assert_int_equal(hb_fatbin_next(&fatbin, &entry), 1);
	assert_int_equal(entry.kind, HB_FATBIN_CUBIN);
	assert_int_equal(entry.arch, 90);
	assert_int_equal(entry.packing, HB_FATBIN_ZSTD);
	assert_int_equal(hb_fatbin_unpack(&entry, &bytes, &n), 0);
	assert_memory_equal(bytes, ELFMAG, SELFMAG);
	free(bytes);
	assert_int_equal(hb_fatbin_next(&fatbin, &entry), 1);
	assert_int_equal(entry.kind, HB_FATBIN_PTX);
	assert_int_equal(hb_fatbin_unpack(&entry, &bytes, &n), 0);
	assert_non_null(memmem(bytes, n, ".entry run_plain", 16));
	free(bytes);
	assert_int_equal(hb_fatbin_next(&fatbin, &entry), 0);
	free(file);
}

static void a_fatbin_of_lz4_entries_is_read(void **state)
{
	struct hb_fatbin fatbin;
	struct hb_fatbin_entry entry;
	struct hb_cubin cubin;
	size_t size, n;
	uint8_t *bytes, *file = fixture("lz4.fatbin", &size);
	assert_int_equal(hb_fatbin_open(&fatbin, file, size), 0);
	assert_int_equal(hb_fatbin_next(&fatbin, &entry), 1);
	assert_int_equal(entry.packing, HB_FATBIN_LZ4);
	assert_int_equal(hb_fatbin_unpack(&entry, &bytes, &n), 0);
	assert_int_equal(hb_cubin_open(&cubin, bytes, n), 0);
	assert_string_equal(cubin.kernels[0].name, "nothing");
	hb_cubin_close(&cubin);
	free(bytes);
	entry.n_bytes -= 1; /* truncated */
	assert_int_equal(hb_fatbin_unpack(&entry, &bytes, &n), -EINVAL);
	free(file);
}

/* A truncated fatbin of any length is refused, and nothing behind its end is read. */
static void a_truncated_fatbin_is_refused(void **state)
{
	struct hb_fatbin fatbin;
	struct hb_fatbin_entry entry;
	size_t size;
	uint8_t *file = fixture("lz4.fatbin", &size);
	for (size_t n = 0; n < size; n++) {
		uint8_t *part = malloc(n ? n : 1);
		memcpy(part, file, n);
		int code = hb_fatbin_open(&fatbin, part, n);
		while (code == 0 && (code = hb_fatbin_next(&fatbin, &entry)) == 1)
			code = 0;
		assert_int_equal(code, -EINVAL);
		free(part);
	}
	free(file);
}

static void sizes_of_images_are_read(void **state)
{
	struct {
		uint32_t magic, version;
		const void *fatbin, *unused;
	} wrapper = {0x466243b1, 1, NULL, NULL};
	size_t file_size, cubin_size;
	uint8_t *file = fixture("kernels.fatbin", &file_size), *cubin = fixture_cubin(&cubin_size);
	const void *image = file;
	assert_int_equal(hb_image_size(&image), file_size);
	image = cubin;
	assert_int_equal(hb_image_size(&image), cubin_size);
	image = &wrapper;
	assert_int_equal(hb_image_size(&image), 0);
	wrapper.fatbin = file;
	image = &wrapper;
	assert_int_equal(hb_image_size(&image), file_size);
	assert_ptr_equal(image, file);
	image = ".version 7.0\n.target sm_90\n and so on, which is PTX";
	assert_int_equal(hb_image_size(&image), 0);
	free(file);
	free(cubin);
}

static void a_size_that_is_not_true_is_no_crash(void **state)
{
	const size_t page = (size_t)sysconf(_SC_PAGESIZE);
	uint8_t *memory = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_ptr_not_equal(memory, MAP_FAILED);
	assert_int_equal(mprotect(memory + page, page, PROT_NONE), 0);
	/* A text of one byte at the end of readable memory. */
	const void *image = memory + page - 1;
	assert_int_equal(hb_image_size(&image), 0);
	/* A header that promises more than there is, in a fatbin and in a cubin. */
	const uint8_t fatbin[16] = {0x50, 0xed, 0x55, 0xba, 1, 0, 16, 0, 0, 1};
	image = memcpy(memory + page - sizeof fatbin, fatbin, sizeof fatbin);
	assert_int_equal(hb_image_size(&image), 16 + 256);
	assert_null(hb_image_copy(image, 16 + 256));
	size_t size;
	uint8_t *cubin = fixture_cubin(&size);
	Elf64_Ehdr *header = memcpy(memory + page - sizeof *header, cubin, sizeof *header);
	image = header;
	assert_null(hb_image_copy(image, hb_image_size(&image)));
	header->e_shoff = UINT64_MAX - 64;
	assert_int_equal(hb_image_size(&image), 0);
	uint8_t *copy = hb_image_copy(cubin, size);
	assert_non_null(copy);
	assert_memory_equal(copy, cubin, size);
	free(copy);
	free(cubin);
	munmap(memory, 2 * page);
}

/* Many symbols of many kernels that all name one section: looking for the sections of each would take minutes. */
static void kernels_that_share_a_section_are_refused(void **state)
{
	size_t size;
	struct hb_cubin cubin;
	uint8_t *bytes = fixture_cubin(&size);
	assert_int_equal(hb_cubin_open(&cubin, bytes, size), 0);
	assert_true(cubin.n_kernels >= 2);
	uint64_t symbols = cubin.sections[cubin.symtab].sh_offset;
	Elf64_Sym *second = (Elf64_Sym *)(void *)(bytes + symbols) + cubin.kernels[1].symbol;
	second->st_shndx = (uint16_t)cubin.kernels[0].text;
	second->st_value = second->st_size = 0;
	hb_cubin_close(&cubin);
	assert_int_equal(hb_cubin_open(&cubin, bytes, size), -ENOTSUP);
	free(bytes);
}

static void a_truncated_cubin_is_refused(void **state)
{
	struct hb_cubin cubin;
	size_t size;
	uint8_t *bytes = fixture_cubin(&size);
	for (size_t n = 0; n < size; n += n < 128 ? 1 : 97) {
		uint8_t *part = malloc(n ? n : 1);
		memcpy(part, bytes, n);
		assert_int_equal(hb_cubin_open(&cubin, part, n), -EINVAL);
		free(part);
	}
	free(bytes);
}

static void a_cubin_of_another_form_is_not_supported(void **state)
{
	struct hb_cubin cubin;
	size_t size;
	uint8_t *bytes = fixture_cubin(&size);
	bytes[EI_OSABI] = 51; /* before CUDA 13 */
	assert_int_equal(hb_cubin_open(&cubin, bytes, size), -ENOTSUP);
	free(bytes);
}

static void facts_of_a_kernel_are_read(void **state)
{
	struct hb_cubin cubin;
	struct hb_code_facts facts;
	size_t size;
	uint8_t *bytes = fixture_cubin(&size);
	assert_int_equal(hb_cubin_open(&cubin, bytes, size), 0);
	assert_int_equal(cubin.arch, 90);
	const struct hb_cubin_kernel *kernel = hb_cubin_find_kernel(&cubin, "run_parameters");
	assert_int_equal(hb_code_info_read(&cubin, kernel, &facts), HB_SPLIT_none);
	assert_int_equal(facts.n_parameters, 4);
	assert_int_equal(facts.parameter_bytes, 24); /* 8, 2, 13 and 1 bytes */
	assert_int_equal(facts.parameter_base, 0x210);
	assert_true(facts.n_registers >= 6 && facts.n_registers <= 32);
	assert_null(hb_cubin_find_kernel(&cubin, "run_paramete"));
	hb_cubin_close(&cubin);
	free(bytes);
}

/* Each kernel's name contains the expected decision. */
static void expect_decisions(uint8_t *bytes, size_t size, unsigned n_run_expected, unsigned n_whole_expected)
{
	struct hb_cubin cubin;
	struct hb_code_facts facts;
	unsigned n_run = 0, n_whole = 0;
	assert_int_equal(hb_cubin_open(&cubin, bytes, size), 0);
	for (uint32_t i = 0; i < cubin.n_kernels; i++) {
		const char *name = cubin.kernels[i].name;
		enum hb_split_reason reason = hb_split_rule(&cubin, &cubin.kernels[i], &facts);
		const char *word = hb_split_reason_name(reason);
		if (strncmp(name, "run_", 4) == 0) {
			assert_string_equal(word, "none");
			n_run++;
		} else {
			assert_memory_equal(name, "whole_", 6);
			assert_memory_equal(name + 6, word, strlen(word));
			n_whole++;
		}
	}
	assert_int_equal(n_run, n_run_expected);
	assert_int_equal(n_whole, n_whole_expected);
	hb_cubin_close(&cubin);
	free(bytes);
}

static void each_kernel_gets_the_expected_decision(void **state)
{
	size_t size;
	uint8_t *bytes = fixture_cubin(&size);
	expect_decisions(bytes, size, 7, 11);
}

/* GPUs before sm_90 have no clusters and no dependent kernels. */
static void kernels_of_other_generations_get_the_same_decision(void **state)
{
	static const unsigned archs[][2] = {{80, 8}, {89, 8}, {100, 11}};
	for (size_t i = 0; i < sizeof archs / sizeof archs[0]; i++) {
		size_t size;
		uint8_t *bytes = fixture_for("generations.fatbin", archs[i][0], &size);
		expect_decisions(bytes, size, 7, archs[i][1]);
	}
}

/* Returns the rule's decision about a kernel decide_after one change to the file. */
static enum hb_split_reason decide_after(const char *kernel_name, void (*change)(uint8_t *, const struct hb_cubin *,
										 const struct hb_cubin_kernel *))
{
	struct hb_cubin cubin;
	struct hb_code_facts facts;
	size_t size;
	uint8_t *bytes = fixture_cubin(&size);
	assert_int_equal(hb_cubin_open(&cubin, bytes, size), 0);
	change(bytes, &cubin, hb_cubin_find_kernel(&cubin, kernel_name));
	hb_cubin_close(&cubin);
	assert_int_equal(hb_cubin_open(&cubin, bytes, size), 0);
	enum hb_split_reason reason = hb_split_rule(&cubin, hb_cubin_find_kernel(&cubin, kernel_name), &facts);
	hb_cubin_close(&cubin);
	free(bytes);
	return reason;
}

static void an_unknown_instruction(uint8_t *bytes, const struct hb_cubin *cubin, const struct hb_cubin_kernel *kernel)
{
	bytes[cubin->sections[kernel->text].sh_offset + 32] = 0xc9; /* low byte of USETSHMSZ, 0x9c9 */
	bytes[cubin->sections[kernel->text].sh_offset + 33] = 0x79;
}

/* The first plain load of global memory becomes one that is ordered at the scope of the GPU. */
static void an_ordered_load(uint8_t *bytes, const struct hb_cubin *cubin, const struct hb_cubin_kernel *kernel)
{
	uint8_t *code = bytes + cubin->sections[kernel->text].sh_offset;
	size_t i = 0;
	while (hb_sass_opcode(hb_sass_at(code, i)) != 0x981)
		i++;
	struct hb_sass load = hb_sass_at(code, i);
	load.high |= UINT64_C(7) << 13;
	hb_sass_put(code, i, load);
}

/* The parameters are read from bank 3 instead of bank 0. */
static void another_bank(uint8_t *bytes, const struct hb_cubin *cubin, const struct hb_cubin_kernel *kernel)
{
	uint8_t *code = bytes + cubin->sections[kernel->text].sh_offset;
	struct hb_sass load = hb_sass_at(code, 0);
	load.low |= UINT64_C(3) << 54;
	hb_sass_put(code, 0, load);
}

static void an_unknown_attribute(uint8_t *bytes, const struct hb_cubin *cubin, const struct hb_cubin_kernel *kernel)
{
	bytes[cubin->sections[kernel->info].sh_offset + 1] = 0x7f;
}

static void a_parameter_outside(uint8_t *bytes, const struct hb_cubin *cubin, const struct hb_cubin_kernel *kernel)
{
	struct hb_code_info_list list = hb_code_info_begin(cubin, kernel->info);
	struct hb_code_info record;
	while (hb_code_info_next(&list, &record) == 1)
		if (record.attribute == HB_EIATTR_KPARAM_INFO)
			break;
	bytes[record.value + 7 - cubin->bytes] = 0x20; /* offset 0x2000 and more */
}

static void an_exit_outside(uint8_t *bytes, const struct hb_cubin *cubin, const struct hb_cubin_kernel *kernel)
{
	struct hb_code_info_list list = hb_code_info_begin(cubin, kernel->info);
	struct hb_code_info record;
	while (hb_code_info_next(&list, &record) == 1)
		if (record.attribute == HB_EIATTR_EXIT_INSTR_OFFSETS)
			break;
	bytes[record.value + 3 - cubin->bytes] = 0x7f;
}

static void a_broken_record(uint8_t *bytes, const struct hb_cubin *cubin, const struct hb_cubin_kernel *kernel)
{
	bytes[cubin->sections[kernel->info].sh_offset + 3] = 0xff; /* longer than its section */
}

static void one_change_makes_a_kernel_unsplittable(void **state)
{
	assert_int_equal(decide_after("run_plain", an_unknown_instruction), HB_SPLIT_instruction);
	assert_int_equal(decide_after("run_plain", an_ordered_load), HB_SPLIT_waits);
	assert_int_equal(decide_after("run_plain", another_bank), HB_SPLIT_variables);
	assert_int_equal(decide_after("run_plain", an_unknown_attribute), HB_SPLIT_attribute);
	assert_int_equal(decide_after("run_plain", a_parameter_outside), HB_SPLIT_parameters);
	assert_int_equal(decide_after("run_plain", an_exit_outside), HB_SPLIT_attribute);
	assert_int_equal(decide_after("run_plain", a_broken_record), HB_SPLIT_form);
}

/* An instruction of two words, with the schedule that does not matter. */
static enum hb_split_reason decide_instruction(unsigned arch, uint64_t low, uint64_t high)
{
	uint8_t code[HB_SASS_BYTES];
	size_t where;
	hb_sass_put(code, 0, (struct hb_sass){low, high});
	return hb_sass_check(arch, code, sizeof code, &where);
}

static void forms_of_instructions_decide(void **state)
{
	const uint64_t bindless = UINT64_C(1) << 27, bank_3 = UINT64_C(3) << 54;
	/* IMAD R18, R0, c[0x0][0x0], R3; its bank 3; cx[UR0][0x0] */
	assert_int_equal(decide_instruction(80, 0x0000000000127a24, 0x78e0203), HB_SPLIT_none);
	assert_int_equal(decide_instruction(80, 0x0000000000127a24 | bank_3, 0x78e0203), HB_SPLIT_variables);
	assert_int_equal(decide_instruction(80, 0x0000000000127a24, 0x78e0203 | bindless), HB_SPLIT_instruction);
	/* LDCU UR7, c[0x0][0x370]; its bank 3; without bit 91 */
	assert_int_equal(decide_instruction(100, 0x00006e00ff0777ac, 0x08000800), HB_SPLIT_none);
	assert_int_equal(decide_instruction(100, 0x00006e00ff0777ac | bank_3, 0x08000800), HB_SPLIT_variables);
	assert_int_equal(decide_instruction(100, 0x00006e00ff0777ac, 0x00000800), HB_SPLIT_instruction);
	assert_int_equal(decide_instruction(90, 0x00006e00ff0777ac, 0x08000800), HB_SPLIT_instruction);
	/* UGETNEXTWORKID.BROADCAST; UTCBAR */
	assert_int_equal(decide_instruction(100, 0x73ca, 0), HB_SPLIT_steals);
	assert_int_equal(decide_instruction(100, 0x73e9, 0), HB_SPLIT_instruction);
}

static void kernels_of_other_architectures_are_not_split(void **state)
{
	static const uint8_t exit[16] = {0x4d, 0x79};
	size_t where;
	assert_int_equal(hb_sass_check(90, exit, sizeof exit, &where), HB_SPLIT_none);
	assert_int_equal(hb_sass_check(120, exit, sizeof exit, &where), HB_SPLIT_arch);
	assert_int_equal(hb_sass_check(90, exit, 15, &where), HB_SPLIT_form);
	assert_true(hb_sass_is_proven(90));
	assert_false(hb_sass_is_proven(80) || hb_sass_is_proven(100) || hb_sass_is_proven(120));
	assert_true(hb_sass_runs_on(80, 89) && hb_sass_runs_on(90, 90));
	assert_false(hb_sass_runs_on(89, 86) || hb_sass_runs_on(80, 90) || hb_sass_runs_on(90, 100));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_fatbin_of_two_zstd_entries_is_read),
		cmocka_unit_test(a_fatbin_of_lz4_entries_is_read),
		cmocka_unit_test(a_truncated_fatbin_is_refused),
		cmocka_unit_test(sizes_of_images_are_read),
		cmocka_unit_test(a_size_that_is_not_true_is_no_crash),
		cmocka_unit_test(kernels_that_share_a_section_are_refused),
		cmocka_unit_test(a_truncated_cubin_is_refused),
		cmocka_unit_test(a_cubin_of_another_form_is_not_supported),
		cmocka_unit_test(facts_of_a_kernel_are_read),
		cmocka_unit_test(each_kernel_gets_the_expected_decision),
		cmocka_unit_test(kernels_of_other_generations_get_the_same_decision),
		cmocka_unit_test(forms_of_instructions_decide),
		cmocka_unit_test(one_change_makes_a_kernel_unsplittable),
		cmocka_unit_test(kernels_of_other_architectures_are_not_split),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
