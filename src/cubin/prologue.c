/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Extracts the range check from compiled PTX; see prologue.h.
 *
 * When a kernel is entered, nothing is in flight, and its code relies on that. So
 * every scoreboard that the check sets must be waited for before the check ends;
 * its EXIT must be its last instruction, whose predicate depends on all that was
 * computed; and it must not touch the stack. Each compiled kernel begins by loading
 * the stack pointer; that instruction is left out, because the spliced kernel has
 * its own. Registers, uniform registers and predicates have no value at entry, so
 * the check may use them freely.
 */
#include "cubin/prologue.h"

#include "cubin/code_info.h"
#include "cubin/sass.h"

#include <errno.h>
#include <string.h>

#define ENTRY(place) \
	".visible .entry hb_range_" #place "(.param .align 8 .b8 before[" #place "], .param .align 8 .u32 first, " \
	".param .u32 count)\n" \
	"{\n" \
	" .reg .pred %outside;\n" \
	" .reg .u32 %x, %y, %z, %width, %height, %row, %block, %first, %count, %past;\n" \
	" mov.u32 %x, %ctaid.x;\n" \
	" mov.u32 %y, %ctaid.y;\n" \
	" mov.u32 %z, %ctaid.z;\n" \
	" mov.u32 %width, %nctaid.x;\n" \
	" mov.u32 %height, %nctaid.y;\n" \
	" mad.lo.u32 %row, %z, %height, %y;\n" \
	" mad.lo.u32 %block, %row, %width, %x;\n" \
	" ld.param.u32 %first, [first];\n" \
	" ld.param.u32 %count, [count];\n" \
	" sub.u32 %past, %block, %first;\n" \
	" setp.ge.u32 %outside, %past, %count;\n" \
	" @%outside exit;\n" \
	" pmevent 7;\n" \
	" exit;\n" \
	"}\n"

const char hb_prologue_ptx[] = ".version 7.0\n.target sm_70\n.address_size 64\n" ENTRY(8) ENTRY(1576) ENTRY(4080);

static const struct {
	const char *name;
	uint32_t place;
} entries[] = {{"hb_range_8", 8}, {"hb_range_1576", 1576}, {"hb_range_4080", 4080}};
enum { N_ENTRIES = sizeof entries / sizeof entries[0] };

/* One compiled entry of the PTX text. */
struct compiled_entry {
	const uint8_t *code;
	size_t n; /* instructions before the marker */
	struct hb_code_facts facts;
};

/*
 * Returns whether the check may contain this instruction. Any other instruction would need an argument why it is safe.
 */
static bool is_expected(unsigned opcode)
{
	static const uint16_t expected[] = {
		0x919, 0x9c3,                      /* S2R, S2UR */
		0xb82, 0xab9, 0x7ac,               /* LDC, ULDC, LDCU */
		0x202, 0x802, 0xc02, 0xc82, 0x882, /* MOV, UMOV */
		0x2a4, 0x4a4, 0x8a4,               /* UIMAD */
		0x224, 0x424, 0x824, 0xc24, 0xe24, /* IMAD */
		0x290, 0x890,                      /* UIADD3 */
		0x210, 0x810, 0xc10, 0xc36,        /* IADD3, VIADD */
		0x20c, 0x80c, 0xc0c, 0x28c, 0x88c, /* ISETP, UISETP */
		0x2ca,                             /* R2UR */
		0xa24, 0xa10, 0xa0c,               /* IMAD, IADD3, ISETP with an operand in a constant bank */
	};
	for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++)
		if (expected[i] == opcode)
			return true;
	return false;
}

/*
 * LDC R1, c[0x0][0x28] loads the stack pointer; before sm_90, MOV does. Without the load, waiting for its scoreboard
 * ends at once.
 */
static bool loads_stack_pointer(struct hb_sass instruction)
{
	unsigned opcode = hb_sass_opcode(instruction);
	return (opcode == HB_SASS_OP_LDC || opcode == HB_SASS_OP_MOV_BANK) && (instruction.low >> 16 & 0xff) == 1;
}

/* Finds the code before the marker in entry i. Returns NULL, or what is wrong with the entry. */
static const char *find_entry(const struct hb_cubin *cubin, unsigned i, struct compiled_entry *out)
{
	const struct hb_cubin_kernel *kernel = hb_cubin_find_kernel(cubin, entries[i].name);
	if (!kernel)
		return "an entry of the range check is missing";
	if (hb_code_info_read(cubin, kernel, &out->facts) != HB_SPLIT_none)
		return "the range check has unknown attributes";
	if (out->facts.parameter_bytes != entries[i].place + HB_BOUNDS_BYTES)
		return "the range check's parameters are at an unexpected offset";
	size_t n = cubin->sections[kernel->text].sh_size / HB_SASS_BYTES;
	out->code = hb_cubin_content(cubin, kernel->text);
	for (out->n = 0; out->n < n; out->n++)
		if (hb_sass_opcode(hb_sass_at(out->code, out->n)) == HB_SASS_OP_PMTRIG)
			break;
	if (out->n == n || out->n < 2 || out->n * HB_SASS_BYTES > HB_PROLOGUE_BYTES_MAX)
		return "the range check has no marker at the expected place";
	return NULL;
}

static const char *check_code(const struct compiled_entry *compiled)
{
	unsigned in_flight = 0;
	for (size_t i = 1; i < compiled->n; i++) {
		struct hb_sass instruction = hb_sass_at(compiled->code, i);
		struct hb_sass_schedule schedule = hb_sass_schedule(instruction);
		bool is_last = i == compiled->n - 1;
		if (is_last != (hb_sass_opcode(instruction) == HB_SASS_OP_EXIT))
			return "the range check does not end with its exit";
		if (!is_last && !is_expected(hb_sass_opcode(instruction)))
			return "the range check has an unexpected instruction";
		if (is_last != hb_sass_is_predicated(instruction))
			return "the range check has an unexpected predicate";
		in_flight &= ~schedule.waits;
		if (schedule.sets_write != 7)
			in_flight |= 1u << schedule.sets_write;
		if (schedule.sets_read != 7)
			in_flight |= 1u << schedule.sets_read;
	}
	if (!loads_stack_pointer(hb_sass_at(compiled->code, 0)))
		return "the range check does not begin by loading the stack pointer";
	return in_flight ? "the range check ends with operations in flight" : NULL;
}

/* Returns the shift s for which the words differ by step << s, or -1. */
static int find_shift(uint64_t low, uint64_t high, uint32_t step)
{
	for (int shift = 0; shift < 48; shift++)
		if (high - low == (uint64_t)step << shift)
			return shift;
	return -1;
}

static uint64_t read_word_at(const struct compiled_entry *compiled, size_t i)
{
	uint64_t word;
	memcpy(&word, compiled->code + HB_SASS_BYTES + i * sizeof word, sizeof word);
	return word;
}

/* Compares the entries to find the words of the code that contain the place of the bounds. */
static const char *find_patches(struct hb_prologue *prologue, const struct compiled_entry compiled[N_ENTRIES])
{
	for (size_t i = 0; i < (compiled[0].n - 1) * 2; i++) {
		uint64_t word = read_word_at(&compiled[0], i);
		bool same = true;
		int shift = find_shift(word, read_word_at(&compiled[1], i), entries[1].place - entries[0].place);
		for (unsigned k = 1; k < N_ENTRIES; k++) {
			uint64_t other = read_word_at(&compiled[k], i);
			same &= other == word;
			if (find_shift(word, other, entries[k].place - entries[0].place) != shift)
				shift = -1;
		}
		if (same)
			continue;
		if (shift < 0 || prologue->n_patches == HB_PROLOGUE_PATCHES_MAX)
			return "the entries of the range check differ in more than the place of the bounds";
		prologue->patches[prologue->n_patches].word = i;
		prologue->patches[prologue->n_patches++].shift = (unsigned)shift;
		word -= (uint64_t)entries[0].place << shift;
		memcpy(prologue->code + i * sizeof word, &word, sizeof word);
	}
	return prologue->n_patches ? NULL : "the range check does not read its bounds";
}

static const char *extract_check(struct hb_prologue *prologue, const struct hb_cubin *cubin)
{
	struct compiled_entry compiled[N_ENTRIES];
	const char *why = NULL;
	for (unsigned i = 0; i < N_ENTRIES && !why; i++) {
		why = find_entry(cubin, i, &compiled[i]);
		if (!why && compiled[i].n != compiled[0].n)
			why = "the entries of the range check differ in length";
		if (!why)
			why = check_code(&compiled[i]);
	}
	if (why)
		return why;
	size_t n = compiled[0].n - 1, n_bytes = n * HB_SASS_BYTES;
	prologue->arch = cubin->arch;
	prologue->parameter_base = compiled[0].facts.parameter_base;
	prologue->n_registers = compiled[0].facts.n_registers;
	prologue->exit_place = (uint32_t)(n_bytes - HB_SASS_BYTES);
	prologue->n_bytes = (n_bytes + HB_PROLOGUE_ALIGN - 1) & ~(size_t)(HB_PROLOGUE_ALIGN - 1);
	memcpy(prologue->code, compiled[0].code + HB_SASS_BYTES, n_bytes);
	/* Fills up with NOPs of one cycle that wait for nothing, as compilers write them. */
	for (size_t i = n; i < prologue->n_bytes / HB_SASS_BYTES; i++)
		hb_sass_put(prologue->code, i, (struct hb_sass){0x7918, 0x000fc20000000000});
	return find_patches(prologue, compiled);
}

int hb_prologue_take(struct hb_prologue *prologue, const void *bytes, size_t size, const char **why)
{
	struct hb_cubin cubin;
	int code = hb_cubin_open(&cubin, bytes, size);
	if (code) {
		*why = "the compiler's output is not a cubin of a known form";
		return code;
	}
	*prologue = (struct hb_prologue){0};
	*why = hb_sass_is_known(cubin.arch) ? extract_check(prologue, &cubin)
					    : "the instructions of this architecture are unknown";
	hb_cubin_close(&cubin);
	return *why ? -ENOTSUP : 0;
}

void hb_prologue_write(const struct hb_prologue *prologue, uint32_t offset, uint8_t *code)
{
	memcpy(code, prologue->code, prologue->n_bytes);
	for (size_t i = 0; i < prologue->n_patches; i++) {
		uint64_t word;
		uint8_t *at = code + prologue->patches[i].word * sizeof word;
		memcpy(&word, at, sizeof word);
		word += (uint64_t)offset << prologue->patches[i].shift;
		memcpy(at, &word, sizeof word);
	}
}
