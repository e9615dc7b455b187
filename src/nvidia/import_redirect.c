/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Walks the dynamic relocations of one loaded object; see import_redirect.h. Every
 * number read from the object is an address inside its own mapping, which its linker
 * wrote and the loader has already followed.
 */
#include "nvidia/import_redirect.h"

#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <link.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define SLOTS_MAX 8 /* at most one JUMP_SLOT and one GLOB_DAT, plus a few function pointers in data */

struct loaded_object {
	uintptr_t base;
	const ElfW(Sym) * symbols;
	const char *names;
	const ElfW(Rela) * plt, *rela;
	size_t n_plt, n_rela;
	uintptr_t relro_start, relro_end; /* pages that the loader made read-only */
};

static bool is_import(ElfW(Xword) info)
{
	switch (ELF64_R_TYPE(info)) {
#if defined(__x86_64__)
	case R_X86_64_JUMP_SLOT:
	case R_X86_64_GLOB_DAT:
	case R_X86_64_64:
#elif defined(__aarch64__)
	case R_AARCH64_JUMP_SLOT:
	case R_AARCH64_GLOB_DAT:
	case R_AARCH64_ABS64:
#endif
		return true;
	default:
		return false;
	}
}

static int find_relro(struct dl_phdr_info *info, size_t size, void *argument)
{
	struct loaded_object *object = argument;
	if (info->dlpi_addr != object->base)
		return 0;
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *header = &info->dlpi_phdr[i];
		if (header->p_type != PT_GNU_RELRO)
			continue;
		/* The loader protects complete pages inside the range; round in the same way. */
		object->relro_start = (object->base + header->p_vaddr) & ~(page - 1);
		object->relro_end = (object->base + header->p_vaddr + header->p_memsz) & ~(page - 1);
	}
	return 1;
}

/* glibc relocates the pointers in l_ld of ordinary objects, but not of all (the vDSO), so accept both forms. */
static uintptr_t find_in_memory(const struct loaded_object *object, ElfW(Addr) value)
{
	return value < object->base ? object->base + value : value;
}

static int open_object(void *handle, struct loaded_object *object)
{
	struct link_map *map;
	memset(object, 0, sizeof *object);
	if (dlinfo(handle, RTLD_DI_LINKMAP, &map) != 0 || !map->l_ld)
		return -EINVAL;
	object->base = map->l_addr;
	for (const ElfW(Dyn) *entry = map->l_ld; entry->d_tag != DT_NULL; entry++) {
		uintptr_t address = find_in_memory(object, entry->d_un.d_ptr);
		switch (entry->d_tag) {
		case DT_SYMTAB:
			object->symbols = (const ElfW(Sym) *)address;
			break;
		case DT_STRTAB:
			object->names = (const char *)address;
			break;
		case DT_JMPREL:
			object->plt = (const ElfW(Rela) *)address;
			break;
		case DT_PLTRELSZ:
			object->n_plt = entry->d_un.d_val / sizeof(ElfW(Rela));
			break;
		case DT_RELA:
			object->rela = (const ElfW(Rela) *)address;
			break;
		case DT_RELASZ:
			object->n_rela = entry->d_un.d_val / sizeof(ElfW(Rela));
			break;
		default:
			break;
		}
	}
	if (!object->symbols || !object->names)
		return -EINVAL;
	dl_iterate_phdr(find_relro, object);
	return 0;
}

static size_t find_slots(const struct loaded_object *object, const ElfW(Rela) * table, size_t n, const char *symbol,
			 void **slots[], size_t n_slots)
{
	for (size_t i = 0; table && i < n && n_slots < SLOTS_MAX; i++) {
		size_t index = ELF64_R_SYM(table[i].r_info);
		if (!index || !is_import(table[i].r_info) || table[i].r_addend)
			continue;
		if (strcmp(object->names + object->symbols[index].st_name, symbol) == 0)
			slots[n_slots++] = (void **)(object->base + table[i].r_offset);
	}
	return n_slots;
}

static bool is_read_only(const struct loaded_object *object, void **slot)
{
	return (uintptr_t)slot >= object->relro_start && (uintptr_t)slot < object->relro_end;
}

static int protect_slot(void **slot, int protection)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	void *start = (void *)((uintptr_t)slot & ~(page - 1));
	return mprotect(start, page, protection) < 0 ? -errno : 0;
}

static int unlock_slots(const struct loaded_object *object, void **slots[], size_t n)
{
	int result = 0;
	for (size_t i = 0; i < n && result == 0; i++)
		if (is_read_only(object, slots[i]))
			result = protect_slot(slots[i], PROT_READ | PROT_WRITE);
	return result;
}

static void lock_slots(const struct loaded_object *object, void **slots[], size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (is_read_only(object, slots[i]))
			protect_slot(slots[i], PROT_READ);
}

int hb_import_redirect(void *handle, const char *symbol, void *replacement)
{
	struct loaded_object object;
	void **slots[SLOTS_MAX];
	int result = open_object(handle, &object);
	if (result < 0)
		return result;
	size_t n = find_slots(&object, object.plt, object.n_plt, symbol, slots, 0);
	n = find_slots(&object, object.rela, object.n_rela, symbol, slots, n);
	if (n == 0)
		return -ENOENT;
	result = unlock_slots(&object, slots, n);
	for (size_t i = 0; result == 0 && i < n; i++)
		__atomic_store_n(slots[i], replacement, __ATOMIC_RELEASE);
	lock_slots(&object, slots, n);
	return result;
}
