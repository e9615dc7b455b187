/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the splicer knows of machine code: 16 bytes an instruction, opcode in
 * the low 12 bits, scheduling bits in the high word. Called by the slicing rules
 * (may this kernel run in pieces?) and by prologue.c (is this range check
 * sound?). Knows sm_90; everything is left whole on another architecture.
 */
#ifndef HB_CUBIN_SASS_H
#define HB_CUBIN_SASS_H

#include "cubin/split_reason.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HB_SASS_BYTES 16 /* per instruction */

struct hb_sass {
	uint64_t low, high;
};

/* The scheduling bits: scoreboards (0 to 5) that it waits for and that it sets; 7 = sets none. */
struct hb_sass_schedule {
	unsigned waits, sets_write, sets_read;
};

enum {
	HB_SASS_OP_LDC = 0xb82,
	HB_SASS_OP_EXIT = 0x94d,
	HB_SASS_OP_NOP = 0x918,
	HB_SASS_OP_PMTRIG = 0x801,
};

struct hb_sass hb_sass_at(const uint8_t *code, size_t index);
void hb_sass_put(uint8_t *code, size_t index, struct hb_sass instruction);
unsigned hb_sass_opcode(struct hb_sass instruction);
struct hb_sass_schedule hb_sass_schedule(struct hb_sass instruction);
bool hb_sass_is_predicated(struct hb_sass instruction);

/*
 * Reads all of a kernel's code. HB_SPLIT_none: no block of it can wait for
 * another one, and nothing in it depends on where it lies or on variables of the
 * module. Otherwise the first thing found that speaks against it, and where.
 */
enum hb_split_reason hb_sass_check(unsigned arch, const uint8_t *code, size_t n_bytes, size_t *where);

#endif
