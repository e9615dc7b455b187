/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The range check that is put before a kernel's code: blocks whose linear number
 * is outside [first, first + count) leave at once, the others fall through into
 * the kernel. Called by the splicer and, to compile it, by the shim and the tests.
 *
 * The machine code is not ours: the driver's own compiler makes it from a PTX
 * text, for the GPU that runs. The text has the check, then a marker instruction
 * that the compiler can neither move nor drop, in three entries that differ only
 * in where the bounds lie among the parameters. What is before the marker is the
 * check; where the three differ, and that they differ in proportion, tells how to
 * write the place of the bounds into it. Anything unexpected, and nothing is sliced.
 *
 * Bounds are one parameter of eight bytes behind the kernel's own: first and
 * count, 32 bits each. They belong to the launch, so launches of several streams
 * and threads, and recorded ones, cannot mix them up (docs/decisions/0009).
 */
#ifndef HB_CUBIN_PROLOGUE_H
#define HB_CUBIN_PROLOGUE_H

#include <stddef.h>
#include <stdint.h>

#define HB_PROLOGUE_ALIGN 128 /* the kernel's code stays on the lines that it was placed on */
#define HB_PROLOGUE_BYTES_MAX 512
#define HB_PROLOGUE_PATCHES_MAX 4
#define HB_BOUNDS_BYTES 8

struct hb_bounds {
	uint32_t first, count; /* blocks by linear number: x + width * (y + height * z) */
};

struct hb_prologue {
	unsigned arch;
	uint32_t parameter_base; /* of bank 0, which the kernel's must equal */
	uint32_t n_registers;
	uint32_t exit_place; /* of its EXIT, in bytes from its start */
	size_t n_bytes;      /* a multiple of HB_PROLOGUE_ALIGN */
	uint8_t code[HB_PROLOGUE_BYTES_MAX];
	/* Where the place of the bounds (in bank 0) is added, shifted, to a 64-bit word of the code. */
	size_t n_patches;
	struct {
		size_t word;
		unsigned shift;
	} patches[HB_PROLOGUE_PATCHES_MAX];
};

/* The PTX text, for cuLinkAddData or ptxas. */
extern const char hb_prologue_ptx[];

/*
 * Takes the range check out of the compiled text. 0, or -EINVAL or -ENOTSUP with `why` (static text) when the
 * compiler made something else of it than what is understood here.
 */
int hb_prologue_take(struct hb_prologue *prologue, const void *cubin, size_t size, const char **why);

/* Writes n_bytes of code for a kernel whose bounds lie at this offset among its parameters. */
void hb_prologue_write(const struct hb_prologue *prologue, uint32_t offset, uint8_t *code);

#endif
