/* SPDX-License-Identifier: Apache-2.0 */
/* See uuid.h. */
#include "base/uuid.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

char *hb_uuid_format(const unsigned char uuid[16], char text[static HB_UUID_TEXT_SIZE])
{
	char *at = text + sprintf(text, "GPU-");
	for (int i = 0; i < 16; i++)
		at += sprintf(at, "%s%02x", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", uuid[i]);
	return text;
}

int hb_uuid_parse(const char *text, unsigned char uuid[16])
{
	unsigned char read[16];
	char again[HB_UUID_TEXT_SIZE];
	const char *at = text + 4;
	if (strlen(text) != HB_UUID_TEXT_SIZE - 1)
		return -EINVAL;
	for (int i = 0; i < 16; i++, at += 2) {
		at += *at == '-';
		if (sscanf(at, "%2hhx", &read[i]) != 1)
			return -EINVAL;
	}
	if (strcmp(hb_uuid_format(read, again), text) != 0)
		return -EINVAL;
	memcpy(uuid, read, sizeof read);
	return 0;
}
