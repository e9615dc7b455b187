/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parses and checks a cubin, the ELF file that contains the GPU's machine code:
 * sections, symbols, segments, kernels. Called by the rules for splitting and by
 * the splicer; changes nothing. Every offset, size, index and name is checked here
 * once, so users of struct hb_cubin need not check them again.
 *
 * Only the form that CUDA 13 writes for linked code is supported (ELF OS ABI 65).
 * Another form is -ENOTSUP, and its kernels are not split.
 */
#ifndef HB_CUBIN_ELF_CUBIN_H
#define HB_CUBIN_ELF_CUBIN_H

#include <elf.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A kernel with the numbers of its sections; 0 = it has no such section. */
struct hb_cubin_kernel {
	const char *name;
	uint32_t symbol;
	uint32_t text, info, constants; /* .text.NAME, .nv.info.NAME, .nv.constant0.NAME */
};

struct hb_cubin {
	const uint8_t *bytes;
	size_t size;
	unsigned arch; /* 90 = sm_90 */
	Elf64_Ehdr header;
	uint32_t n_sections, n_symbols, n_segments, n_kernels;
	Elf64_Shdr *sections;
	Elf64_Phdr *segments;
	Elf64_Sym *symbols;
	uint32_t symtab, names, symbol_names; /* section numbers */
	struct hb_cubin_kernel *kernels;
};

/*
 * Parses `bytes`, which must stay valid while the cubin is used. Returns 0, -EINVAL
 * (broken), -ENOTSUP (an unknown form, valid as far as it was read), or -ENOMEM.
 */
int hb_cubin_open(struct hb_cubin *cubin, const void *bytes, size_t size);
void hb_cubin_close(struct hb_cubin *cubin);

/* Returns the section's content; NULL if it has none (SHT_NOBITS). */
const uint8_t *hb_cubin_content(const struct hb_cubin *cubin, uint32_t section);
const char *hb_cubin_section_name(const struct hb_cubin *cubin, uint32_t section);
const char *hb_cubin_symbol_name(const struct hb_cubin *cubin, uint32_t symbol);
/* Returns the number of the section with this name; 0 if there is none. */
uint32_t hb_cubin_find_section(const struct hb_cubin *cubin, const char *name);
/* Returns the kernel with this name; NULL if there is none. */
const struct hb_cubin_kernel *hb_cubin_find_kernel(const struct hb_cubin *cubin, const char *name);

#endif
