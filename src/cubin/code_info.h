/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads a kernel's attributes (.nv.info.NAME, and its registers from .nv.info):
 * records of a format byte, an attribute byte and a value. Called by the rules for
 * splitting and by the splicer. Changes nothing.
 */
#ifndef HB_CUBIN_CODE_INFO_H
#define HB_CUBIN_CODE_INFO_H

#include "cubin/elf_cubin.h"
#include "cubin/split_reason.h"

enum hb_code_info_format { HB_CODE_INFO_NONE = 1, HB_CODE_INFO_BYTE = 2, HB_CODE_INFO_HALF = 3, HB_CODE_INFO_LIST = 4 };

enum hb_code_info_name {
#define HB_CODE_INFO(name, number, format, treatment) HB_EIATTR_##name = (number),
#include "cubin/code_info.def"
	HB_EIATTR_REGCOUNT = 0x2f, /* attribute in .nv.info whose value is a symbol and the kernel's registers */
};

/* One record: `place` is its offset in the section, `n_bytes` the length of its value. */
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

/* Facts about a kernel that the rules and the splicer need. */
struct hb_code_facts {
	uint32_t n_registers;
	uint32_t n_parameters;
	uint32_t parameter_base;  /* offset of the parameters in constant bank 0 */
	uint32_t parameter_bytes; /* size of all parameters */
};

/* Starts to iterate over the records of a section. */
struct hb_code_info_list hb_code_info_begin(const struct hb_cubin *cubin, uint32_t section);
/* Returns 1 and the next record; 0 at the end; -EINVAL if the record exceeds the section. */
int hb_code_info_next(struct hb_code_info_list *list, struct hb_code_info *record);

/* Returns whether the attribute has a row in this format. */
bool hb_code_info_is_known(const struct hb_code_info *record);
/* Returns the words per item of an attribute that lists positions in the code; 0 for other attributes. */
unsigned hb_code_info_stride(unsigned attribute);

/* Reads the attributes of a kernel. Returns HB_SPLIT_none and fills `facts`, or returns why the kernel cannot be split. */
enum hb_split_reason hb_code_info_read(const struct hb_cubin *cubin, const struct hb_cubin_kernel *kernel,
				       struct hb_code_facts *facts);

#endif
