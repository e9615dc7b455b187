/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads the loader's cache, format "glibc-ld.so.cache1.1" (glibc 2.2 and later): a
 * header, n entries with offsets, then the strings. Called once per process by
 * real_library.c. The file is untrusted: every offset is checked.
 */
#include "shim/real_library.h"

#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

struct cache_header {
	char magic[20]; /* includes the version; no final 0 */
	uint32_t n_libraries;
	uint32_t strings_bytes;
	uint32_t unused[5];
};

struct cache_entry {
	int32_t flags;
	uint32_t name; /* offsets from the start of the header */
	uint32_t path;
	uint32_t os_version;
	uint64_t hardware; /* not 0: the library is for special hardware only */
};

static const char magic[] = "glibc-ld.so.cache1.1";

/* elf.h does not define these flags: an ELF library for glibc (3) and, in the upper byte, the machine. */
#if defined(__x86_64__)
#define WANTED_FLAGS 0x0303
#elif defined(__aarch64__)
#define WANTED_FLAGS 0x0a03
#endif

/* Returns the string at this offset, or NULL if it is not inside the file. */
static const char *read_string(const char *file, size_t size, uint32_t offset)
{
	if (offset >= size || !memchr(file + offset, '\0', size - offset))
		return NULL;
	return file + offset;
}

void *hb_loader_cache_read(const char *file, size_t size, const char *library,
			   void *(*visit)(const char *path, void *context), void *context)
{
	struct cache_header header;
	if (size < sizeof(header))
		return NULL;
	memcpy(&header, file, sizeof(header));
	if (memcmp(header.magic, magic, sizeof(header.magic)) != 0 ||
	    header.n_libraries > (size - sizeof(header)) / sizeof(struct cache_entry))
		return NULL;
	for (uint32_t i = 0; i < header.n_libraries; i++) {
		struct cache_entry entry;
		memcpy(&entry, file + sizeof(header) + i * sizeof(entry), sizeof(entry));
		const char *name = read_string(file, size, entry.name);
		const char *path = read_string(file, size, entry.path);
		if (!name || !path || entry.flags != WANTED_FLAGS || strcmp(name, library) != 0)
			continue;
		void *found = visit(path, context);
		if (found)
			return found;
	}
	return NULL;
}

void *hb_loader_cache_each(const char *cache_path, const char *library, void *(*visit)(const char *path, void *context),
			   void *context)
{
	int fd = open(cache_path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return NULL;
	struct stat st;
	void *found = NULL;
	if (fstat(fd, &st) == 0 && st.st_size > 0) {
		size_t size = (size_t)st.st_size;
		void *file = mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0);
		if (file != MAP_FAILED) {
			found = hb_loader_cache_read(file, size, library, visit, context);
			munmap(file, size);
		}
	}
	close(fd);
	return found;
}
