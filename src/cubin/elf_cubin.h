/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A cubin (the ELF file in which the GPU's machine code comes) taken apart and
 * checked: sections, symbols, segments, kernels. Called by the slicing rules
 * and the splicer; changes nothing. Every offset, size, index and name is
 * checked here once, so that users of struct hb_cubin may follow them blindly.
 *
 * Only the form that CUDA 13 writes for linked code is read (ELF OS ABI 65);
 * another one is -ENOTSUP, and its kernels are left whole.
 */
#ifndef HB_CUBIN_ELF_CUBIN_H
#define HB_CUBIN_ELF_CUBIN_H

#include <elf.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A kernel: the sections that belong to it, by number; 0 = it has none. */
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
	uint32_t symtab, names, symbol_names; /* sections */
	struct hb_cubin_kernel *kernels;
};

/*
 * Reads `bytes`, which must stay while the cubin is used. 0; -EINVAL: broken;
 * -ENOTSUP: sound as far as read, but of a form that is not known; -ENOMEM.
 */
int hb_cubin_open(struct hb_cubin *cubin, const void *bytes, size_t size);
void hb_cubin_close(struct hb_cubin *cubin);

/* The section's content; NULL for one without (SHT_NOBITS). */
const uint8_t *hb_cubin_content(const struct hb_cubin *cubin, uint32_t section);
const char *hb_cubin_section_name(const struct hb_cubin *cubin, uint32_t section);
const char *hb_cubin_symbol_name(const struct hb_cubin *cubin, uint32_t symbol);
/* The section of this name, 0 when there is none. */
uint32_t hb_cubin_find_section(const struct hb_cubin *cubin, const char *name);
/* NULL when there is none. */
const struct hb_cubin_kernel *hb_cubin_find_kernel(const struct hb_cubin *cubin, const char *name);

#endif
