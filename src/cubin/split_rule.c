/* SPDX-License-Identifier: Apache-2.0 */
/* Decides whether a kernel can be split; see split_rule.h. */
#include "cubin/split_rule.h"

#include "cubin/sass.h"

#include <string.h>

#define TEXT_ALIGN 128

/*
 * Returns whether the text section contains only this kernel, from its beginning, and the driver chooses its address.
 */
static bool is_text_sound(const struct hb_cubin *cubin, const struct hb_cubin_kernel *kernel)
{
	const Elf64_Shdr *text = &cubin->sections[kernel->text];
	const Elf64_Sym *symbol = &cubin->symbols[kernel->symbol];
	if (text->sh_type != SHT_PROGBITS || text->sh_addr != 0 || text->sh_offset % TEXT_ALIGN != 0 ||
	    text->sh_addralign > TEXT_ALIGN || symbol->st_value != 0 || symbol->st_size != text->sh_size)
		return false;
	for (uint32_t i = 0; i < cubin->n_symbols; i++) {
		const Elf64_Sym *other = &cubin->symbols[i];
		bool is_function = ELF64_ST_TYPE(other->st_info) == STT_FUNC;
		if (i != kernel->symbol && other->st_shndx == kernel->text && is_function && other->st_value == 0)
			return false;
	}
	return true;
}

/*
 * Returns whether relocations exist for the kernel's code or its table of literals. Linked
 * code has only empty relocation sections; otherwise it contains addresses.
 */
static bool has_relocations(const struct hb_cubin *cubin, const struct hb_cubin_kernel *kernel)
{
	uint32_t literals = 0;
	for (uint32_t i = 1; i < cubin->n_sections && !literals; i++) {
		const char *name = hb_cubin_section_name(cubin, i);
		if (strncmp(name, ".nv.constant2.", 14) == 0 && strcmp(name + 14, kernel->name) == 0)
			literals = i;
	}
	for (uint32_t i = 1; i < cubin->n_sections; i++) {
		const Elf64_Shdr *section = &cubin->sections[i];
		if ((section->sh_type != SHT_RELA && section->sh_type != SHT_REL) || section->sh_size == 0)
			continue;
		if (section->sh_info == kernel->text || (literals && section->sh_info == literals))
			return true;
	}
	return false;
}

enum hb_split_reason hb_split_rule(const struct hb_cubin *cubin, const struct hb_cubin_kernel *kernel,
				   struct hb_code_facts *facts)
{
	size_t where;
	enum hb_split_reason reason = hb_code_info_read(cubin, kernel, facts);
	if (reason != HB_SPLIT_none)
		return reason;
	if (!is_text_sound(cubin, kernel))
		return HB_SPLIT_form;
	if (has_relocations(cubin, kernel))
		return HB_SPLIT_calls;
	return hb_sass_check(cubin->arch, hb_cubin_content(cubin, kernel->text), cubin->sections[kernel->text].sh_size,
			     &where);
}
