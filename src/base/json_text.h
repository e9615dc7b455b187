/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writing JSON straight into one buffer, for answers that are written often
 * (json.h writes everything else). The caller keeps the grammar: commas and
 * brackets are text to it. Numbers are as short as they can be and still read
 * back as the same value: 0.1 as a float is 0.1 and not 0.10000000149011612.
 */
#ifndef HB_BASE_JSON_TEXT_H
#define HB_BASE_JSON_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct hb_json_text {
	char *data; /* from malloc; the caller's */
	size_t bytes, room;
	bool no_memory; /* nothing was added since */
};

/* With room for so many bytes; more is made when it is needed. */
void hb_json_text_init(struct hb_json_text *text, size_t room);
void hb_json_text_add(struct hb_json_text *text, const char *from, size_t bytes);
/* A literal. */
#define HB_JSON_TEXT_ADD(text, literal) hb_json_text_add(text, literal "", sizeof(literal) - 1)
/* In quotes, escaped. False, and nothing added: it is not UTF-8. */
bool hb_json_text_add_text(struct hb_json_text *text, const char *from, size_t bytes);
void hb_json_text_add_integer(struct hb_json_text *text, int64_t value);
void hb_json_text_add_unsigned(struct hb_json_text *text, uint64_t value);
/* False, and nothing added: not finite. */
bool hb_json_text_add_float(struct hb_json_text *text, float value);
bool hb_json_text_add_double(struct hb_json_text *text, double value);

#endif
