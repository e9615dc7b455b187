/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads a kernel's attributes (.nv.info.NAME, and its registers from .nv.info):
 * records of a format byte, an attribute byte and a value. Called by the
 * slicing rules and the splicer. Changes nothing.
 */
#ifndef HB_CUBIN_CODE_INFO_H
#define HB_CUBIN_CODE_INFO_H

#include "cubin/elf_cubin.h"
#include "cubin/split_reason.h"

enum hb_code_info_format { HB_CODE_INFO_NONE = 1, HB_CODE_INFO_BYTE = 2, HB_CODE_INFO_HALF = 3, HB_CODE_INFO_LIST = 4 };

enum hb_code_info_name {
#define HB_CODE_INFO(name, number, format, treatment) HB_EIATTR_##name = (number),
#include "cubin/code_info.def"
	HB_EIATTR_REGCOUNT = 0x2f, /* in .nv.info: symbol, registers */
};

/* One record. `place` is where it begins in the section, `n_bytes` the value's length. */
struct hb_code_info {
	unsigned format, attribute;
	size_t place;
	const uint8_t *value;
	size_t n_bytes;
};

struct hb_code_info_list {
	const uint8_t *bytes;
	size_t size, at;
};

/* What the rules and the splicer need to know of a kernel. */
struct hb_code_facts {
	uint32_t n_registers;
	uint32_t n_parameters;
	uint32_t parameter_base;  /* in constant bank 0 */
	uint32_t parameter_bytes; /* of all */
};

struct hb_code_info_list hb_code_info_begin(const struct hb_cubin *cubin, uint32_t section);
/* 1 and the next record; 0 at the end; -EINVAL when it leaves the section. */
int hb_code_info_next(struct hb_code_info_list *list, struct hb_code_info *record);

/* Words per item of an attribute that tells places in the code; 0 for others. */
unsigned hb_code_info_stride(unsigned attribute);

/* Reads the attributes of a kernel. HB_SPLIT_none and the facts, or why the kernel must be left whole. */
enum hb_split_reason hb_code_info_read(const struct hb_cubin *cubin, const struct hb_cubin_kernel *kernel,
				       struct hb_code_facts *facts);

#endif
