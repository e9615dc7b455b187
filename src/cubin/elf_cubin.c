/* SPDX-License-Identifier: Apache-2.0 */
/* Parses and checks cubins; see elf_cubin.h. */
#include "cubin/elf_cubin.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define CUBIN_ABI 65 /* ELF OS ABI of the form that CUDA 13 writes, ABI version 8 */
#define CUBIN_ABI_VERSION 8
#define KERNEL_NAME_MAX 65536 /* bytes; longer names do not occur */
#define SYMBOL_IS_ENTRY 0x10  /* bit of a symbol's st_other: the symbol is a kernel */

static bool is_within(uint64_t offset, uint64_t size, uint64_t limit)
{
	return offset <= limit && size <= limit - offset;
}

static int copy_table(const struct hb_cubin *cubin, uint64_t offset, uint32_t n, size_t entry_size, void **table)
{
	if (!is_within(offset, (uint64_t)n * entry_size, cubin->size))
		return -EINVAL;
	*table = calloc(n ? n : 1, entry_size);
	if (!*table)
		return -ENOMEM;
	memcpy(*table, cubin->bytes + offset, (size_t)n * entry_size);
	return 0;
}

static int read_header(struct hb_cubin *cubin)
{
	const Elf64_Ehdr *header = &cubin->header;
	if (cubin->size < sizeof *header)
		return -EINVAL;
	memcpy(&cubin->header, cubin->bytes, sizeof *header);
	if (memcmp(header->e_ident, ELFMAG, SELFMAG) != 0 || header->e_ident[EI_CLASS] != ELFCLASS64 ||
	    header->e_ident[EI_DATA] != ELFDATA2LSB || header->e_machine != EM_CUDA)
		return -EINVAL;
	if (header->e_ident[EI_OSABI] != CUBIN_ABI || header->e_ident[EI_ABIVERSION] != CUBIN_ABI_VERSION ||
	    header->e_type != ET_EXEC)
		return -ENOTSUP;
	if (header->e_shentsize != sizeof(Elf64_Shdr) || (header->e_phnum && header->e_phentsize != sizeof(Elf64_Phdr)))
		return -EINVAL;
	if (header->e_shnum == 0 || header->e_shstrndx >= header->e_shnum)
		return -EINVAL; /* more than 65,535 sections do not occur: a cubin has three per kernel */
	cubin->arch = header->e_flags >> 8 & 0xff;
	cubin->n_sections = header->e_shnum;
	cubin->n_segments = header->e_phnum;
	cubin->names = header->e_shstrndx;
	return 0;
}

/* Returns whether the section is a string table that ends with a zero, because names are read as C strings. */
static bool is_string_table(const struct hb_cubin *cubin, uint32_t section)
{
	if (section >= cubin->n_sections)
		return false;
	const Elf64_Shdr *header = &cubin->sections[section];
	return header->sh_type == SHT_STRTAB && header->sh_size > 0 &&
	       cubin->bytes[header->sh_offset + header->sh_size - 1] == 0;
}

static int read_sections(struct hb_cubin *cubin)
{
	int code = copy_table(cubin, cubin->header.e_shoff, cubin->n_sections, sizeof *cubin->sections,
			      (void **)&cubin->sections);
	for (uint32_t i = 0; code == 0 && i < cubin->n_sections; i++) {
		const Elf64_Shdr *section = &cubin->sections[i];
		bool has_bytes = section->sh_type != SHT_NOBITS && section->sh_type != SHT_NULL;
		if (has_bytes && !is_within(section->sh_offset, section->sh_size, cubin->size))
			code = -EINVAL;
	}
	if (code == 0 && !is_string_table(cubin, cubin->names))
		code = -EINVAL;
	for (uint32_t i = 0; code == 0 && i < cubin->n_sections; i++)
		if (cubin->sections[i].sh_name >= cubin->sections[cubin->names].sh_size)
			code = -EINVAL;
	return code;
}

static int read_segments(struct hb_cubin *cubin)
{
	int code = copy_table(cubin, cubin->header.e_phoff, cubin->n_segments, sizeof *cubin->segments,
			      (void **)&cubin->segments);
	for (uint32_t i = 0; code == 0 && i < cubin->n_segments; i++)
		if (!is_within(cubin->segments[i].p_offset, cubin->segments[i].p_filesz, cubin->size))
			code = -EINVAL;
	return code;
}

static int check_symbols(const struct hb_cubin *cubin)
{
	uint64_t n_name_bytes = cubin->sections[cubin->symbol_names].sh_size;
	for (uint32_t i = 0; i < cubin->n_symbols; i++) {
		const Elf64_Sym *symbol = &cubin->symbols[i];
		if (symbol->st_name >= n_name_bytes)
			return -EINVAL;
		if (symbol->st_shndx >= cubin->n_sections && symbol->st_shndx < SHN_LORESERVE)
			return -EINVAL;
	}
	return 0;
}

static int read_symbols(struct hb_cubin *cubin)
{
	for (uint32_t i = 1; i < cubin->n_sections; i++)
		if (cubin->sections[i].sh_type == SHT_SYMTAB) {
			if (cubin->symtab)
				return -ENOTSUP;
			cubin->symtab = i;
		}
	if (!cubin->symtab)
		return -ENOTSUP;
	const Elf64_Shdr *table = &cubin->sections[cubin->symtab];
	if (table->sh_entsize != sizeof(Elf64_Sym) || table->sh_size % sizeof(Elf64_Sym) != 0 ||
	    table->sh_size / sizeof(Elf64_Sym) > UINT32_MAX || !is_string_table(cubin, table->sh_link))
		return -EINVAL;
	cubin->symbol_names = table->sh_link;
	cubin->n_symbols = (uint32_t)(table->sh_size / sizeof(Elf64_Sym));
	int code = copy_table(cubin, table->sh_offset, cubin->n_symbols, sizeof *cubin->symbols,
			      (void **)&cubin->symbols);
	return code ? code : check_symbols(cubin);
}

/* Notes the section if it is the kernel's PREFIX.NAME. */
static void take_section(const struct hb_cubin *cubin, uint32_t section, const char *prefix, const char *kernel,
			 uint32_t *found)
{
	size_t length = strlen(prefix);
	const char *name = hb_cubin_section_name(cubin, section);
	if (!*found && strncmp(name, prefix, length) == 0 && strncmp(name + length, kernel, KERNEL_NAME_MAX) == 0)
		*found = section;
}

static bool is_kernel(const struct hb_cubin *cubin, uint32_t i)
{
	const Elf64_Sym *symbol = &cubin->symbols[i];
	if (ELF64_ST_TYPE(symbol->st_info) != STT_FUNC || !(symbol->st_other & SYMBOL_IS_ENTRY) ||
	    symbol->st_shndx == SHN_UNDEF || symbol->st_shndx >= cubin->n_sections)
		return false;
	const Elf64_Shdr *text = &cubin->sections[symbol->st_shndx];
	return text->sh_type == SHT_PROGBITS && is_within(symbol->st_value, symbol->st_size, text->sh_size);
}

/*
 * Enters the kernels. kernel_of[section] becomes the number + 1 of the kernel whose code the section is. A second kernel
 * with the same section is refused: compilers give each kernel a section of its own, and without that the search below
 * would take symbols times sections steps.
 */
static int enter_kernels(struct hb_cubin *cubin, uint32_t *kernel_of)
{
	for (uint32_t i = 0; i < cubin->n_symbols; i++) {
		uint32_t text = cubin->symbols[i].st_shndx;
		if (!is_kernel(cubin, i))
			continue;
		const char *name = hb_cubin_symbol_name(cubin, i);
		if (kernel_of[text] || strnlen(name, KERNEL_NAME_MAX) == KERNEL_NAME_MAX)
			return -ENOTSUP;
		cubin->kernels[cubin->n_kernels++] = (struct hb_cubin_kernel){.name = name, .symbol = i, .text = text};
		kernel_of[text] = cubin->n_kernels;
	}
	return 0;
}

/* The sections of a kernel say in sh_info which section has its code. */
static void find_kernel_sections(struct hb_cubin *cubin, const uint32_t *kernel_of)
{
	for (uint32_t i = 1; i < cubin->n_sections; i++) {
		uint32_t text = cubin->sections[i].sh_info;
		if (text >= cubin->n_sections || !kernel_of[text])
			continue;
		struct hb_cubin_kernel *kernel = &cubin->kernels[kernel_of[text] - 1];
		take_section(cubin, i, ".nv.info.", kernel->name, &kernel->info);
		take_section(cubin, i, ".nv.constant0.", kernel->name, &kernel->constants);
	}
}

static int find_kernels(struct hb_cubin *cubin)
{
	cubin->kernels = calloc(cubin->n_sections, sizeof *cubin->kernels);
	uint32_t *kernel_of = calloc(cubin->n_sections, sizeof *kernel_of);
	int code = cubin->kernels && kernel_of ? enter_kernels(cubin, kernel_of) : -ENOMEM;
	if (code == 0)
		find_kernel_sections(cubin, kernel_of);
	free(kernel_of);
	return code;
}

int hb_cubin_open(struct hb_cubin *cubin, const void *bytes, size_t size)
{
	*cubin = (struct hb_cubin){.bytes = bytes, .size = size};
	int code = read_header(cubin);
	if (code == 0)
		code = read_sections(cubin);
	if (code == 0)
		code = read_segments(cubin);
	if (code == 0)
		code = read_symbols(cubin);
	if (code == 0)
		code = find_kernels(cubin);
	if (code)
		hb_cubin_close(cubin);
	return code;
}

void hb_cubin_close(struct hb_cubin *cubin)
{
	free(cubin->sections);
	free(cubin->segments);
	free(cubin->symbols);
	free(cubin->kernels);
	*cubin = (struct hb_cubin){0};
}

const uint8_t *hb_cubin_content(const struct hb_cubin *cubin, uint32_t section)
{
	const Elf64_Shdr *header = &cubin->sections[section];
	return header->sh_type == SHT_NOBITS || header->sh_type == SHT_NULL ? NULL : cubin->bytes + header->sh_offset;
}

const char *hb_cubin_section_name(const struct hb_cubin *cubin, uint32_t section)
{
	return (const char *)cubin->bytes + cubin->sections[cubin->names].sh_offset + cubin->sections[section].sh_name;
}

const char *hb_cubin_symbol_name(const struct hb_cubin *cubin, uint32_t symbol)
{
	return (const char *)cubin->bytes + cubin->sections[cubin->symbol_names].sh_offset +
	       cubin->symbols[symbol].st_name;
}

uint32_t hb_cubin_find_section(const struct hb_cubin *cubin, const char *name)
{
	for (uint32_t i = 1; i < cubin->n_sections; i++)
		if (strcmp(hb_cubin_section_name(cubin, i), name) == 0)
			return i;
	return 0;
}

const struct hb_cubin_kernel *hb_cubin_find_kernel(const struct hb_cubin *cubin, const char *name)
{
	for (uint32_t i = 0; i < cubin->n_kernels; i++)
		if (strcmp(cubin->kernels[i].name, name) == 0)
			return &cubin->kernels[i];
	return NULL;
}
