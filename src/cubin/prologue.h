/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The range check that is put before a kernel's code. Blocks whose linear number is
 * outside [first, first + count) exit at once; the others continue into the kernel.
 * Called by the splicer and, to compile the check, by the shim and the tests.
 *
 * The driver's own compiler creates the machine code from a PTX text, for the GPU
 * that runs. The text contains the check and then a marker instruction that the
 * compiler can neither move nor remove. It has three entries, which differ only in
 * the offset of the bounds among the parameters. The code before the marker is the
 * check. The words in which the three entries differ, in proportion to the offset,
 * are where the offset of a kernel's bounds must be written. If anything is
 * unexpected, no kernel is split.
 *
 * The bounds are one 8-byte parameter after the kernel's own: first and count, 32
 * bits each. They belong to the launch, so launches of several streams and threads,
 * and captured launches, cannot mix them up (docs/decisions/0009).
 */
#ifndef HB_CUBIN_PROLOGUE_H
#define HB_CUBIN_PROLOGUE_H

#include <stddef.h>
#include <stdint.h>

#define HB_PROLOGUE_ALIGN 128 /* keeps the alignment of the kernel's code to cache lines */
#define HB_PROLOGUE_BYTES_MAX 512
#define HB_PROLOGUE_PATCHES_MAX 4
#define HB_BOUNDS_BYTES 8

struct hb_bounds {
	uint32_t first, count; /* linear block numbers: x + width * (y + height * z) */
};

struct hb_prologue {
	unsigned arch;
	uint32_t parameter_base; /* offset of the parameters in constant bank 0; it must equal that of the kernel */
	uint32_t n_registers;
	uint32_t exit_place; /* offset of the check's EXIT instruction in bytes */
	size_t n_bytes;      /* a multiple of HB_PROLOGUE_ALIGN */
	uint8_t code[HB_PROLOGUE_BYTES_MAX];
	/* 64-bit words of the code to which the shifted offset of the bounds is added. */
	size_t n_patches;
	struct {
		size_t word;
		unsigned shift;
	} patches[HB_PROLOGUE_PATCHES_MAX];
};

/* The PTX text, for cuLinkAddData or ptxas. */
extern const char hb_prologue_ptx[];

/*
 * Extracts the range check from the compiled text. Returns 0, or -EINVAL or -ENOTSUP and sets *why (static text) if the
 * compiler's output is not understood.
 */
int hb_prologue_take(struct hb_prologue *prologue, const void *cubin, size_t size, const char **why);

/* Writes the check (n_bytes) for a kernel whose bounds are at this offset among its parameters. */
void hb_prologue_write(const struct hb_prologue *prologue, uint32_t offset, uint8_t *code);

#endif
