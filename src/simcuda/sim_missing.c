/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Weak functions for every name that a driver exports. They return
 * CUDA_ERROR_NOT_SUPPORTED and count the call. The implemented functions in
 * sim_entry.c override them. This file must not include the prototypes, because
 * all functions here take no arguments.
 */
#include <stdint.h>
#include <string.h>

int sim_unsupported(const char *name);
void *sim_missing_find(const char *base);

#define X(name) \
	int name(void); \
	__attribute__((weak, visibility("default"))) int name(void) \
	{ \
		return sim_unsupported(#name); \
	}
#include "nvidia/exports.def"
#undef X

static const struct {
	const char *name;
	void *function;
} names[] = {
#define X(name) {#name, (void *)(uintptr_t)name},
#include "nvidia/exports.def"
#undef X
};

/* Finds the newest form of a name: the last one in the sorted table that starts with it. */
void *sim_missing_find(const char *base)
{
	size_t n = strlen(base);
	void *found = NULL;
	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		if (strncmp(names[i].name, base, n) != 0)
			continue;
		const char *rest = names[i].name + n;
		if (*rest == '\0' || (rest[0] == '_' && rest[1] == 'v' && !strstr(rest, "_pt")))
			found = names[i].function;
	}
	return found;
}
