/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads machine code, as far as the splicer must: an instruction has 16 bytes, with
 * the opcode in the low 12 bits and scheduling bits in the high word. Called by the
 * rules for splitting (can this kernel be split?) and by prologue.c (is this range
 * check sound?). Knows the architectures of sass_archs.def; no kernel of another one is
 * split.
 */
#ifndef HB_CUBIN_SASS_H
#define HB_CUBIN_SASS_H

#include "cubin/split_reason.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HB_SASS_BYTES 16 /* size of an instruction */

struct hb_sass {
	uint64_t low, high;
};

/* Scheduling bits: the set of scoreboards (0 to 5) to wait for, and the scoreboards to set; 7 = none. */
struct hb_sass_schedule {
	unsigned waits, sets_write, sets_read;
};

enum {
	HB_SASS_OP_LDC = 0xb82,
	HB_SASS_OP_MOV_BANK = 0xa02,
	HB_SASS_OP_EXIT = 0x94d,
	HB_SASS_OP_NOP = 0x918,
	HB_SASS_OP_PMTRIG = 0x801,
};

/* Returns whether the instructions of the architecture (90 = sm_90) are known. */
bool hb_sass_is_known(unsigned arch);
/* Returns whether split kernels were tried on a GPU of this architecture. */
bool hb_sass_is_proven(unsigned arch);
/* Returns whether a GPU of architecture `gpu` executes the instructions of `code`: same generation, not newer. */
bool hb_sass_runs_on(unsigned code, unsigned gpu);

struct hb_sass hb_sass_at(const uint8_t *code, size_t index);
void hb_sass_put(uint8_t *code, size_t index, struct hb_sass instruction);
unsigned hb_sass_opcode(struct hb_sass instruction);
struct hb_sass_schedule hb_sass_schedule(struct hb_sass instruction);
bool hb_sass_is_predicated(struct hb_sass instruction);

/*
 * Checks all of a kernel's code. Returns HB_SPLIT_none if no block can wait for
 * another one and nothing depends on the code's position or on variables of the
 * module; otherwise the first reason against splitting, with its place in *where.
 */
enum hb_split_reason hb_sass_check(unsigned arch, const uint8_t *code, size_t n_bytes, size_t *where);

#endif
