/* SPDX-License-Identifier: Apache-2.0 */
/* See message_parts.h. */
#include "k8s/message_parts.h"

#include "base/log.h"

#include <stdlib.h>
#include <string.h>

static void *check_memory(void *memory)
{
	if (!memory) {
		hb_log_error("out of memory");
		exit(1);
	}
	return memory;
}

void *hb_part_new(size_t bytes)
{
	return check_memory(calloc(1, bytes));
}

char *hb_part_text(const char *text)
{
	return check_memory(strdup(text));
}

void hb_part_append(void *list, size_t *n, void *part)
{
	void ***parts = list;
	*parts = check_memory(reallocarray(*parts, *n + 1, sizeof(void *)));
	(*parts)[(*n)++] = part;
}
