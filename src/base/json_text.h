/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes JSON directly into one buffer, for answers that are written often
 * (json.h writes everything else). The caller adds commas and brackets as text.
 * Numbers are as short as possible and still read back as the same value: 0.1 as
 * a float is 0.1 and not 0.10000000149011612.
 */
#ifndef HB_BASE_JSON_TEXT_H
#define HB_BASE_JSON_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct hb_json_text {
	char *data; /* the text, from malloc; the caller frees it */
	size_t bytes, room;
	bool no_memory; /* memory ran out; nothing has been added since */
};

/* Reserves `room` bytes; the buffer grows when needed. */
void hb_json_text_init(struct hb_json_text *text, size_t room);
void hb_json_text_add(struct hb_json_text *text, const char *from, size_t bytes);
/* Adds a string literal. */
#define HB_JSON_TEXT_ADD(text, literal) hb_json_text_add(text, literal "", sizeof(literal) - 1)
/* Adds a text in quotes, escaped. Returns false and adds nothing if the text is not UTF-8. */
bool hb_json_text_add_text(struct hb_json_text *text, const char *from, size_t bytes);
void hb_json_text_add_integer(struct hb_json_text *text, int64_t value);
void hb_json_text_add_unsigned(struct hb_json_text *text, uint64_t value);
/* Returns false and adds nothing if the value is not finite. */
bool hb_json_text_add_float(struct hb_json_text *text, float value);
bool hb_json_text_add_double(struct hb_json_text *text, double value);

#endif
