/* SPDX-License-Identifier: Apache-2.0 */
/* See uuid.h. */
#include "base/uuid.h"

#include <stdio.h>

char *hb_uuid_format(const unsigned char uuid[16], char text[static HB_UUID_TEXT_SIZE])
{
	char *at = text + sprintf(text, "GPU-");
	for (int i = 0; i < 16; i++)
		at += sprintf(at, "%s%02x", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", uuid[i]);
	return text;
}
