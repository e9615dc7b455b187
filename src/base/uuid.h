/* SPDX-License-Identifier: Apache-2.0 */
/* The UUID of a GPU as text, in the form in which the driver and nvidia-smi give and take it. */
#ifndef HB_BASE_UUID_H
#define HB_BASE_UUID_H

#define HB_UUID_TEXT_SIZE 41 /* bytes of the text with its NUL */

/* Writes the form "GPU-01234567-89ab-cdef-0123-456789abcdef". Returns `text`. */
char *hb_uuid_format(const unsigned char uuid[16], char text[static HB_UUID_TEXT_SIZE]);

/* Reads that form. 0, or -EINVAL and *uuid is unchanged. */
int hb_uuid_parse(const char *text, unsigned char uuid[16]);

#endif
