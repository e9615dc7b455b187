/* SPDX-License-Identifier: Apache-2.0 */
/* A text with several users; see shared_text.h. */
#include "daemon/shared_text.h"

#include <stdlib.h>

struct hb_shared_text *hb_shared_text_new(char *text, size_t length)
{
	static uint64_t last_number;
	struct hb_shared_text *made = text ? malloc(sizeof *made) : NULL;
	if (!made) {
		free(text);
		return NULL;
	}
	*made = (struct hb_shared_text){.n_users = 1, .number = ++last_number, .length = length, .text = text};
	return made;
}

struct hb_shared_text *hb_shared_text_use(struct hb_shared_text *shared)
{
	shared->n_users++;
	return shared;
}

void hb_shared_text_drop(struct hb_shared_text *shared)
{
	if (!shared || --shared->n_users)
		return;
	free(shared->text);
	free(shared);
}
