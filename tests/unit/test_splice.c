/* SPDX-License-Identifier: Apache-2.0 */
/* The range check, and the split copy of a cubin: what changes in the copy, and that nothing else does. */
#include "cubin/splice.h"

#include "cubin/code_info.h"
#include "cubin/sass.h"

#include <errno.h>

#include "cubin_fixture.h"

static void read_range_check(struct hb_prologue *prologue)
{
	size_t size;
	const char *why = NULL;
	uint8_t *bytes = fixture("range_check.cubin", &size);
	assert_int_equal(hb_prologue_take(prologue, bytes, size, &why), 0);
	assert_null(why);
	free(bytes);
}

static void the_range_check_is_extracted(void **state)
{
	struct hb_prologue prologue;
	read_range_check(&prologue);
	assert_int_equal(prologue.arch, 90);
	assert_int_equal(prologue.parameter_base, 0x210);
	assert_int_equal(prologue.n_bytes, 256);
	assert_int_equal(prologue.exit_place, 0xa0);
	assert_int_equal(prologue.n_patches, 1);
	assert_true(prologue.n_registers <= 8);
	uint8_t code[HB_PROLOGUE_BYTES_MAX];
	hb_prologue_write(&prologue, 0x40, code);
	struct hb_sass bounds = hb_sass_at(code, 5);
	assert_int_equal(hb_sass_opcode(bounds), HB_SASS_OP_LDC);
	assert_int_equal(bounds.low >> 38 & 0xffff, 0x250); /* c[0x0][0x210 + 0x40] */
	for (size_t i = 11; i < 16; i++)
		assert_int_equal(hb_sass_opcode(hb_sass_at(code, i)), HB_SASS_OP_NOP);
}

/* Returns why the range check is refused after a change to instruction `index` of an entry. */
static const char *refusal(const char *entry, size_t index, struct hb_sass clear, struct hb_sass set)
{
	struct hb_prologue prologue;
	struct hb_cubin cubin;
	size_t size;
	const char *why = NULL;
	uint8_t *bytes = fixture("range_check.cubin", &size);
	assert_int_equal(hb_cubin_open(&cubin, bytes, size), 0);
	uint8_t *code = bytes + cubin.sections[hb_cubin_find_kernel(&cubin, entry)->text].sh_offset;
	struct hb_sass instruction = hb_sass_at(code, index);
	instruction.low = (instruction.low & ~clear.low) | set.low;
	instruction.high = (instruction.high & ~clear.high) | set.high;
	hb_sass_put(code, index, instruction);
	hb_cubin_close(&cubin);
	assert_int_equal(hb_prologue_take(&prologue, bytes, size, &why), -ENOTSUP);
	free(bytes);
	return why;
}

static void other_range_checks_are_refused(void **state)
{
	const struct hb_sass none = {0, 0}, opcode = {0xfff, 0}, waits = {0, UINT64_C(0x3f) << 52};
	assert_string_equal(refusal("hb_range_8", 12, opcode, (struct hb_sass){HB_SASS_OP_NOP, 0}),
			    "the range check has no marker at the expected place");
	assert_string_equal(refusal("hb_range_1576", 11, opcode, (struct hb_sass){HB_SASS_OP_PMTRIG, 0}),
			    "the entries of the range check differ in length");
	assert_string_equal(refusal("hb_range_4080", 11, opcode, (struct hb_sass){HB_SASS_OP_NOP, 0}),
			    "the range check does not end with its exit");
	assert_string_equal(refusal("hb_range_1576", 11, none, (struct hb_sass){0x7000, 0}),
			    "the range check has an unexpected predicate");
	assert_string_equal(refusal("hb_range_8", 7, opcode, (struct hb_sass){0x986, 0}), /* a store */
			    "the range check has an unexpected instruction");
	assert_string_equal(refusal("hb_range_8", 9, waits, none), "the range check ends with operations in flight");
	assert_string_equal(refusal("hb_range_8", 0, opcode, (struct hb_sass){HB_SASS_OP_NOP, 0}),
			    "the range check does not begin by loading the stack pointer");
	assert_string_equal(refusal("hb_range_1576", 9, none, (struct hb_sass){UINT64_C(1) << 33, 0}),
			    "the entries of the range check differ in more than the place of the bounds");
}

static void other_code_is_not_a_range_check(void **state)
{
	struct hb_prologue prologue;
	size_t size;
	const char *why = NULL;
	uint8_t *bytes = fixture_cubin(&size);
	assert_int_equal(hb_prologue_take(&prologue, bytes, size, &why), -ENOTSUP);
	assert_string_equal(why, "an entry of the range check is missing");
	assert_int_equal(hb_prologue_take(&prologue, bytes, 100, &why), -EINVAL);
	free(bytes);
}

/* The kernels of tests/cubin and their split copy. */
struct pair {
	struct hb_prologue prologue;
	uint8_t *bytes;
	struct hb_cubin old, new;
	struct hb_splice splice;
};

static int open_pair(void **state)
{
	static struct pair pair;
	size_t size;
	read_range_check(&pair.prologue);
	pair.bytes = fixture_cubin(&size);
	assert_int_equal(hb_cubin_open(&pair.old, pair.bytes, size), 0);
	assert_int_equal(hb_splice(&pair.old, &pair.prologue, &pair.splice), 0);
	assert_int_equal(hb_cubin_open(&pair.new, pair.splice.bytes, pair.splice.size), 0);
	*state = &pair;
	return 0;
}

static int close_pair(void **state)
{
	struct pair *pair = *state;
	hb_cubin_close(&pair->new);
	hb_cubin_close(&pair->old);
	hb_splice_free(&pair->splice);
	free(pair->bytes);
	return 0;
}

static bool is_split(const struct pair *pair, uint32_t kernel)
{
	return pair->splice.kernels[kernel].reason == HB_SPLIT_none;
}

static void code_is_the_check_and_the_old_code(void **state)
{
	struct pair *pair = *state;
	assert_int_equal(pair->splice.n_split, 7);
	for (uint32_t i = 0; i < pair->old.n_kernels; i++) {
		if (!is_split(pair, i))
			continue;
		uint8_t check[HB_PROLOGUE_BYTES_MAX];
		uint32_t text = pair->old.kernels[i].text;
		size_t old_size = pair->old.sections[text].sh_size, n = pair->prologue.n_bytes;
		const uint8_t *code = hb_cubin_content(&pair->new, text);
		hb_prologue_write(&pair->prologue, pair->splice.kernels[i].bounds_place, check);
		assert_int_equal(pair->new.sections[text].sh_size, old_size + n);
		assert_memory_equal(code, check, n);
		assert_memory_equal(code + n, hb_cubin_content(&pair->old, text), old_size);
		assert_int_equal(pair->new.symbols[pair->new.kernels[i].symbol].st_size, old_size + n);
		assert_int_equal(pair->new.sections[text].sh_offset % 128, 0);
	}
}

static void bounds_are_the_last_parameter(void **state)
{
	struct pair *pair = *state;
	for (uint32_t i = 0; i < pair->old.n_kernels; i++) {
		struct hb_code_facts before, now;
		if (!is_split(pair, i))
			continue;
		assert_int_equal(hb_code_info_read(&pair->old, &pair->old.kernels[i], &before), HB_SPLIT_none);
		assert_int_equal(hb_code_info_read(&pair->new, &pair->new.kernels[i], &now), HB_SPLIT_none);
		uint32_t place = pair->splice.kernels[i].bounds_place;
		assert_int_equal(now.n_parameters, before.n_parameters + 1);
		assert_int_equal(now.n_registers, before.n_registers);
		assert_int_equal(now.parameter_bytes, place + 8);
		assert_true(place % 8 == 0 && place >= before.parameter_bytes && place < before.parameter_bytes + 8);
		assert_int_equal(pair->new.sections[pair->new.kernels[i].constants].sh_size, 0x210 + place + 8);
	}
}

/* Reads the words of all records of an attribute of a kernel. */
static size_t words_of(const struct hb_cubin *cubin, const char *kernel, unsigned attribute, uint32_t words[64])
{
	struct hb_code_info_list list = hb_code_info_begin(cubin, hb_cubin_find_kernel(cubin, kernel)->info);
	struct hb_code_info record;
	size_t n = 0;
	while (hb_code_info_next(&list, &record) == 1)
		if (record.attribute == attribute) {
			memcpy(words + n, record.value, record.n_bytes);
			n += record.n_bytes / 4;
		}
	return n;
}

static void positions_in_the_code_move(void **state)
{
	struct pair *pair = *state;
	uint32_t before[64], now[64];
	size_t n = words_of(&pair->old, "run_calls", HB_EIATTR_EXIT_INSTR_OFFSETS, before);
	assert_true(n >= 2);
	assert_int_equal(words_of(&pair->new, "run_calls", HB_EIATTR_EXIT_INSTR_OFFSETS, now), n + 1);
	assert_int_equal(now[0], pair->prologue.exit_place);
	for (size_t i = 0; i < n; i++)
		assert_int_equal(now[i + 1], before[i] + pair->prologue.n_bytes);
	n = words_of(&pair->old, "run_everything", HB_EIATTR_COOP_GROUP_INSTR_OFFSETS, before);
	assert_true(n >= 5); /* its shuffles */
	assert_int_equal(words_of(&pair->new, "run_everything", HB_EIATTR_COOP_GROUP_INSTR_OFFSETS, now), n);
	for (size_t i = 0; i < n; i++)
		assert_int_equal(now[i], before[i] + pair->prologue.n_bytes);
}

static void everything_else_is_unchanged(void **state)
{
	struct pair *pair = *state;
	assert_int_equal(pair->new.n_sections, pair->old.n_sections);
	for (uint32_t i = 1; i < pair->old.n_sections; i++) {
		bool changed = i == pair->old.symtab;
		for (uint32_t k = 0; k < pair->old.n_kernels; k++) {
			const struct hb_cubin_kernel *kernel = &pair->old.kernels[k];
			changed |= is_split(pair, k) &&
				   (kernel->text == i || kernel->info == i || kernel->constants == i);
		}
		assert_string_equal(hb_cubin_section_name(&pair->old, i), hb_cubin_section_name(&pair->new, i));
		if (changed)
			continue;
		assert_int_equal(pair->old.sections[i].sh_size, pair->new.sections[i].sh_size);
		const uint8_t *content = hb_cubin_content(&pair->old, i);
		if (content)
			assert_memory_equal(content, hb_cubin_content(&pair->new, i), pair->old.sections[i].sh_size);
	}
}

/* Symbols move with the code. The driver finds code by segments, so they must cover the same sections. */
static void symbols_and_segments_follow(void **state)
{
	struct pair *pair = *state;
	unsigned n_moved = 0;
	for (uint32_t i = 0; i < pair->old.n_symbols; i++)
		n_moved += pair->new.symbols[i].st_value == pair->old.symbols[i].st_value + pair->prologue.n_bytes;
	assert_true(n_moved >= 2); /* the divisions of run_calls */
	for (uint32_t s = 0; s < pair->old.n_segments; s++)
		for (uint32_t i = 1; i < pair->old.n_sections; i++) {
			const Elf64_Shdr *was = &pair->old.sections[i], *is = &pair->new.sections[i];
			const Elf64_Phdr *old = &pair->old.segments[s], *new = &pair->new.segments[s];
			if (was->sh_type == SHT_NOBITS || was->sh_size == 0)
				continue;
			bool was_in = was->sh_offset >= old->p_offset &&
				      was->sh_offset + was->sh_size <= old->p_offset + old->p_filesz;
			bool is_in = is->sh_offset >= new->p_offset &&
				     is->sh_offset + is->sh_size <= new->p_offset + new->p_filesz;
			assert_int_equal(was_in, is_in);
		}
}

/* Splices the kernels for `arch` with the check for `gpu`. */
static void splice_generation(unsigned arch, unsigned gpu, struct hb_splice *splice)
{
	struct hb_prologue prologue;
	struct hb_cubin cubin;
	size_t size, check_size;
	const char *why = NULL;
	uint8_t *bytes = fixture_for("generations.fatbin", arch, &size);
	uint8_t *check = fixture_for("range_checks.fatbin", gpu, &check_size);
	assert_int_equal(hb_prologue_take(&prologue, check, check_size, &why), 0);
	assert_int_equal(prologue.arch, gpu);
	assert_int_equal(hb_cubin_open(&cubin, bytes, size), 0);
	assert_int_equal(hb_splice(&cubin, &prologue, splice), 0);
	hb_cubin_close(&cubin);
	free(bytes);
	free(check);
}

/* The check reads its bounds at the place of the new parameter: its patched words differ by the place alone. */
static void kernels_of_other_generations_are_spliced(void **state)
{
	static const unsigned pairs[][3] = {{80, 80, 7},   {80, 89, 7}, {89, 89, 7},
					    {100, 100, 7}, {89, 80, 0}, {80, 100, 0}};
	for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
		struct hb_splice splice;
		splice_generation(pairs[i][0], pairs[i][1], &splice);
		assert_int_equal(splice.n_split, pairs[i][2]);
		hb_splice_free(&splice);
	}
}

/* On sm_80 the check reads c[0x0][0x160 + place] for the first block and the word behind it for the count. */
static void a_check_reads_its_bounds_from_operands(void **state)
{
	struct hb_prologue prologue;
	size_t size;
	const char *why = NULL;
	uint8_t code[HB_PROLOGUE_BYTES_MAX], *bytes = fixture_for("range_checks.fatbin", 80, &size);
	assert_int_equal(hb_prologue_take(&prologue, bytes, size, &why), 0);
	assert_int_equal(prologue.parameter_base, 0x160);
	assert_int_equal(prologue.n_patches, 2);
	hb_prologue_write(&prologue, 0x40, code);
	assert_int_equal(hb_sass_at(code, 5).low >> 38 & 0xffff, 0x1a0);
	assert_int_equal(hb_sass_at(code, 6).low >> 38 & 0xffff, 0x1a4);
	free(bytes);
}

static void kernels_that_do_not_fit_the_check_are_not_split(void **state)
{
	struct pair *pair = *state;
	struct hb_splice splice;
	struct hb_prologue other = pair->prologue;
	uint32_t plain = (uint32_t)(hb_cubin_find_kernel(&pair->old, "run_plain") - pair->old.kernels);
	other.n_registers = 256;
	assert_int_equal(hb_splice(&pair->old, &other, &splice), 0);
	assert_int_equal(splice.kernels[plain].reason, HB_SPLIT_registers);
	assert_null(splice.bytes);
	hb_splice_free(&splice);
	other = pair->prologue;
	other.parameter_base = 0x160;
	assert_int_equal(hb_splice(&pair->old, &other, &splice), 0);
	assert_int_equal(splice.kernels[plain].reason, HB_SPLIT_parameters);
	hb_splice_free(&splice);
}

static void layouts_that_cannot_grow_are_refused(void **state)
{
	struct pair *pair = *state;
	struct hb_splice splice;
	const struct hb_cubin_kernel *plain = hb_cubin_find_kernel(&pair->old, "run_plain");
	uint32_t callgraph = hb_cubin_find_section(&pair->old, ".nv.callgraph");
	Elf64_Shdr *section = &pair->old.sections[callgraph];
	Elf64_Shdr kept = *section;
	section->sh_offset = pair->old.sections[plain->text].sh_offset; /* in the middle of code */
	assert_int_equal(hb_splice(&pair->old, &pair->prologue, &splice), -EINVAL);
	*section = kept;
	section->sh_addralign = 4096;
	assert_int_equal(hb_splice(&pair->old, &pair->prologue, &splice), -EINVAL);
	*section = kept;
	Elf64_Phdr segment = pair->old.segments[3];
	pair->old.segments[3].p_filesz -= 16; /* ends inside code */
	assert_int_equal(hb_splice(&pair->old, &pair->prologue, &splice), -EINVAL);
	pair->old.segments[3] = segment;
	assert_int_equal(hb_splice(&pair->old, &pair->prologue, &splice), 0);
	hb_splice_free(&splice);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_range_check_is_extracted),
		cmocka_unit_test(other_range_checks_are_refused),
		cmocka_unit_test(other_code_is_not_a_range_check),
		cmocka_unit_test(code_is_the_check_and_the_old_code),
		cmocka_unit_test(bounds_are_the_last_parameter),
		cmocka_unit_test(positions_in_the_code_move),
		cmocka_unit_test(everything_else_is_unchanged),
		cmocka_unit_test(symbols_and_segments_follow),
		cmocka_unit_test(kernels_of_other_generations_are_spliced),
		cmocka_unit_test(a_check_reads_its_bounds_from_operands),
		cmocka_unit_test(kernels_that_do_not_fit_the_check_are_not_split),
		cmocka_unit_test(layouts_that_cannot_grow_are_refused),
	};
	return cmocka_run_group_tests(tests, open_pair, close_pair);
}
