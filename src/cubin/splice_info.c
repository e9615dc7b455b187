/* SPDX-License-Identifier: Apache-2.0 */
/* Rewrites the attributes of kernels; see splice_info.h. */
#include "cubin/splice_info.h"

#include <string.h>

struct info_writer {
	uint8_t *out;
	size_t at;
};

static void put_bytes(struct info_writer *writer, const void *bytes, size_t n)
{
	memcpy(writer->out + writer->at, bytes, n);
	writer->at += n;
}

static void put_half(struct info_writer *writer, uint16_t value)
{
	put_bytes(writer, &value, sizeof value);
}

static void put_word(struct info_writer *writer, uint32_t value)
{
	put_bytes(writer, &value, sizeof value);
}

static void put_head(struct info_writer *writer, unsigned format, unsigned attribute, size_t length)
{
	uint8_t head[2] = {(uint8_t)format, (uint8_t)attribute};
	put_bytes(writer, head, sizeof head);
	put_half(writer, (uint16_t)length);
}

static uint32_t read_word_at(const struct hb_code_info *record, size_t i)
{
	uint32_t value;
	memcpy(&value, record->value + i * sizeof value, sizeof value);
	return value;
}

/*
 * Writes the record of the bounds: index, ordinal, offset, and a word with the size in its high 14 bits and other bits
 * as compilers set them.
 */
static void put_bounds_parameter(struct info_writer *writer, const struct hb_code_facts *facts)
{
	put_head(writer, HB_CODE_INFO_LIST, HB_EIATTR_KPARAM_INFO, 12);
	put_word(writer, 0);
	put_half(writer, (uint16_t)facts->n_parameters);
	put_half(writer, (uint16_t)hb_splice_bounds_place(facts));
	put_word(writer, (uint32_t)HB_BOUNDS_BYTES << 18 | 0x1f000);
}

/* Writes items of `stride` words; the first word of each is a position in the code and is moved. */
static void put_positions(struct info_writer *writer, const struct hb_code_info *record, unsigned stride,
			  const struct hb_prologue *prologue)
{
	bool has_exit = record->attribute == HB_EIATTR_EXIT_INSTR_OFFSETS;
	put_head(writer, record->format, record->attribute, record->n_bytes + (has_exit ? 4 : 0));
	if (has_exit)
		put_word(writer, prologue->exit_place);
	for (size_t i = 0; i < record->n_bytes / 4; i++)
		put_word(writer, read_word_at(record, i) + (i % stride == 0 ? (uint32_t)prologue->n_bytes : 0));
}

static void put_layout(struct info_writer *writer, const struct hb_code_info *record, const struct hb_code_facts *facts)
{
	uint32_t n_bytes = hb_splice_bounds_place(facts) + HB_BOUNDS_BYTES;
	if (record->attribute == HB_EIATTR_CBANK_PARAM_SIZE) {
		put_head(writer, record->format, record->attribute, n_bytes);
		return;
	}
	put_head(writer, record->format, record->attribute, record->n_bytes);
	put_word(writer, read_word_at(record, 0));
	put_word(writer, n_bytes << 16 | facts->parameter_base);
}

size_t hb_splice_info(const struct hb_cubin *cubin, const struct hb_cubin_kernel *kernel,
		      const struct hb_code_facts *facts, const struct hb_prologue *prologue, uint8_t *out)
{
	struct hb_code_info_list list = hb_code_info_begin(cubin, kernel->info);
	struct hb_code_info record;
	struct info_writer writer = {.out = out};
	bool has_bounds = false;
	while (hb_code_info_next(&list, &record) == 1) {
		unsigned stride = hb_code_info_stride(record.attribute);
		if (record.attribute == HB_EIATTR_KPARAM_INFO && !has_bounds) {
			put_bounds_parameter(&writer, facts);
			has_bounds = true;
		}
		if (stride)
			put_positions(&writer, &record, stride, prologue);
		else if (record.attribute == HB_EIATTR_CBANK_PARAM_SIZE || record.attribute == HB_EIATTR_PARAM_CBANK)
			put_layout(&writer, &record, facts);
		else
			put_bytes(&writer, list.bytes + record.place, list.at - record.place);
	}
	return writer.at;
}
