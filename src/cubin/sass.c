/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads machine code; see sass.h.
 *
 * Can a block wait for another block? A waiting block reads memory again and again
 * until the other block writes it. By the rules of the language such a read must be
 * ordered: volatile, atomic, relaxed or acquire at GPU scope or wider, or behind a
 * fence that empties the L1 cache (compilers do so for every fence). In machine
 * code these are loads with a strong order beyond the SM, atomics with a result,
 * and CCTL. A kernel without any of them could see another block's progress only
 * by plain loads, which the L1 cache may serve forever.
 */
#include "cubin/sass.h"

#include <string.h>

enum sass_treatment { UNKNOWN, PLAIN, LOAD, CONSTANT, CONSTANT_UNIFORM, REFUSE };

struct sass_row {
	uint8_t treatment, reason;
};

#define TREAT_PLAIN PLAIN, 0
#define TREAT_LOAD LOAD, 0
#define TREAT_CONSTANT CONSTANT, 0
#define TREAT_CONSTANT_UNIFORM CONSTANT_UNIFORM, 0
#define TREAT_waits REFUSE, HB_SPLIT_waits
#define TREAT_jumps REFUSE, HB_SPLIT_jumps
#define TREAT_calls REFUSE, HB_SPLIT_calls
#define TREAT_cluster REFUSE, HB_SPLIT_cluster
#define TREAT_dependents REFUSE, HB_SPLIT_dependents
#define TREAT_steals REFUSE, HB_SPLIT_steals

static const struct sass_row sm90[4096] = {
#define HB_SASS(opcode, name, treatment) [opcode] = {TREAT_##treatment},
#include "cubin/sass_sm90.def"
};
static const struct sass_row sm8x[4096] = {
#define HB_SASS(opcode, name, treatment) [opcode] = {TREAT_##treatment},
#include "cubin/sass_sm8x.def"
};
static const struct sass_row sm100[4096] = {
#define HB_SASS(opcode, name, treatment) [opcode] = {TREAT_##treatment},
#include "cubin/sass_sm100.def"
};

enum sass_proof { OFFLINE, PROVEN };

static const struct sass_arch {
	unsigned arch;
	const struct sass_row *rows;
	enum sass_proof proof;
} archs[] = {
#define HB_SASS_ARCH(arch, table, proof) {arch, table, proof},
#include "cubin/sass_archs.def"
};

/* The memory order of a load, bits 77 to 80. */
enum { ORDER_WEAK = 0, ORDER_CONSTANT = 4, ORDER_STRONG_SM = 5 };
/* The constant bank, bits 54 to 58: 0 = parameters and launch, 2 = literals of the kernel. */
enum { BANK_LAUNCH = 0, BANK_KERNEL = 2 };
/* Bit 91: on most instructions, the bank is in a uniform register. CONSTANT_UNIFORM: always set. */
#define BANK_FORM (UINT64_C(1) << 27)

static const struct sass_arch *find_arch(unsigned arch)
{
	for (size_t i = 0; i < sizeof archs / sizeof archs[0]; i++)
		if (archs[i].arch == arch)
			return &archs[i];
	return NULL;
}

bool hb_sass_is_known(unsigned arch)
{
	return find_arch(arch) != NULL;
}

bool hb_sass_is_proven(unsigned arch)
{
	const struct sass_arch *row = find_arch(arch);
	return row && row->proof == PROVEN;
}

bool hb_sass_runs_on(unsigned code, unsigned gpu)
{
	return code / 10 == gpu / 10 && code <= gpu;
}

struct hb_sass hb_sass_at(const uint8_t *code, size_t index)
{
	struct hb_sass instruction;
	memcpy(&instruction, code + index * HB_SASS_BYTES, sizeof instruction);
	return instruction;
}

void hb_sass_put(uint8_t *code, size_t index, struct hb_sass instruction)
{
	memcpy(code + index * HB_SASS_BYTES, &instruction, sizeof instruction);
}

unsigned hb_sass_opcode(struct hb_sass instruction)
{
	return instruction.low & 0xfff;
}

struct hb_sass_schedule hb_sass_schedule(struct hb_sass instruction)
{
	return (struct hb_sass_schedule){
		.waits = instruction.high >> 52 & 0x3f,
		.sets_read = instruction.high >> 49 & 7,
		.sets_write = instruction.high >> 46 & 7,
	};
}

/* Bits 12 to 15 are the predicate and its negation; 7 = always. */
bool hb_sass_is_predicated(struct hb_sass instruction)
{
	return (instruction.low >> 12 & 0xf) != 7;
}

static enum hb_split_reason check_load(struct hb_sass instruction)
{
	unsigned order = instruction.high >> 13 & 0xf;
	return order == ORDER_WEAK || order == ORDER_CONSTANT || order == ORDER_STRONG_SM ? HB_SPLIT_none
											  : HB_SPLIT_waits;
}

static enum hb_split_reason check_bank(struct hb_sass instruction, uint64_t form)
{
	unsigned bank = instruction.low >> 54 & 0x1f;
	if ((instruction.high & BANK_FORM) != form)
		return HB_SPLIT_instruction;
	return bank == BANK_LAUNCH || bank == BANK_KERNEL ? HB_SPLIT_none : HB_SPLIT_variables;
}

static enum hb_split_reason check_instruction(const struct sass_row *rows, struct hb_sass instruction)
{
	struct sass_row row = rows[hb_sass_opcode(instruction)];
	switch ((enum sass_treatment)row.treatment) {
	case PLAIN:
		return HB_SPLIT_none;
	case LOAD:
		return check_load(instruction);
	case CONSTANT:
		return check_bank(instruction, 0);
	case CONSTANT_UNIFORM:
		return check_bank(instruction, BANK_FORM);
	case REFUSE:
		return (enum hb_split_reason)row.reason;
	case UNKNOWN:
		break;
	}
	return HB_SPLIT_instruction;
}

enum hb_split_reason hb_sass_check(unsigned arch, const uint8_t *code, size_t n_bytes, size_t *where)
{
	*where = 0;
	const struct sass_arch *row = find_arch(arch);
	if (!row)
		return HB_SPLIT_arch;
	if (n_bytes == 0 || n_bytes % HB_SASS_BYTES != 0)
		return HB_SPLIT_form;
	for (size_t i = 0; i < n_bytes / HB_SASS_BYTES; i++) {
		enum hb_split_reason reason = check_instruction(row->rows, hb_sass_at(code, i));
		if (reason != HB_SPLIT_none) {
			*where = i * HB_SASS_BYTES;
			return reason;
		}
	}
	return HB_SPLIT_none;
}
