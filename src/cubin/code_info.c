/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the attributes of kernels; see code_info.h. */
#include "cubin/code_info.h"

#include <errno.h>
#include <string.h>

#define PARAMETER_LIMIT 4088 /* bytes; with 8 more it is the limit of every CUDA 13 driver */
#define N_PARAMETERS_LIMIT 256
#define UNNAMED_VALUE 0x101
#define UNNAMED_VALUE_BEFORE_SM90 0
#define SHT_CUDA_INFO 0x70000000

enum code_info_treatment { KEEP, STRIDE, PARAMETERS, LAYOUT, EXITS, REFUSE };

struct code_info_row {
	uint8_t number, format, treatment, detail; /* detail: words per item, or enum hb_split_reason */
};

#define TREAT_KEEP KEEP, 0
#define TREAT_PARAMETERS PARAMETERS, 0
#define TREAT_LAYOUT LAYOUT, 0
#define TREAT_EXITS EXITS, 1
#define TREAT_OFFSETS(n) STRIDE, n
#define TREAT_calls REFUSE, HB_SPLIT_calls
#define TREAT_jumps REFUSE, HB_SPLIT_jumps
#define TREAT_cluster REFUSE, HB_SPLIT_cluster

static const struct code_info_row rows[] = {
#define HB_CODE_INFO(name, number, format, treatment) {number, HB_CODE_INFO_##format, TREAT_##treatment},
#include "cubin/code_info.def"
};

static const struct code_info_row *find_row(unsigned attribute)
{
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
		if (rows[i].number == attribute)
			return &rows[i];
	return NULL;
}

static uint32_t read_word(const uint8_t *bytes)
{
	uint32_t value;
	memcpy(&value, bytes, sizeof value);
	return value;
}

static uint16_t read_half(const uint8_t *bytes)
{
	uint16_t value;
	memcpy(&value, bytes, sizeof value);
	return value;
}

struct hb_code_info_list hb_code_info_begin(const struct hb_cubin *cubin, uint32_t section)
{
	const uint8_t *bytes = hb_cubin_content(cubin, section);
	return (struct hb_code_info_list){.bytes = bytes, .size = bytes ? cubin->sections[section].sh_size : 0};
}

int hb_code_info_next(struct hb_code_info_list *list, struct hb_code_info *record)
{
	size_t n_left = list->size - list->at;
	if (n_left == 0)
		return 0;
	if (n_left < 4)
		return -EINVAL;
	const uint8_t *head = list->bytes + list->at;
	*record = (struct hb_code_info){head[0], head[1], list->at, head + 2, 2};
	size_t length = 4;
	if (head[0] == HB_CODE_INFO_LIST) {
		record->value = head + 4;
		record->n_bytes = read_half(head + 2);
		length += (record->n_bytes + 3) & ~(size_t)3;
	} else if (head[0] < HB_CODE_INFO_NONE || head[0] > HB_CODE_INFO_LIST) {
		return -EINVAL;
	}
	if (length > n_left)
		return -EINVAL;
	list->at += length;
	return 1;
}

bool hb_code_info_is_known(const struct hb_code_info *record)
{
	const struct code_info_row *row = find_row(record->attribute);
	return row && row->format == record->format;
}

unsigned hb_code_info_stride(unsigned attribute)
{
	const struct code_info_row *row = find_row(attribute);
	return row && (row->treatment == STRIDE || row->treatment == EXITS) ? row->detail : 0;
}

static enum hb_split_reason read_layout(const struct hb_code_info *record, struct hb_code_facts *facts)
{
	if (record->attribute == HB_EIATTR_CBANK_PARAM_SIZE) {
		facts->parameter_bytes = read_half(record->value);
		return HB_SPLIT_none;
	}
	if (record->n_bytes != 8) /* PARAM_CBANK: symbol, then size and offset */
		return HB_SPLIT_parameters;
	facts->parameter_base = read_word(record->value + 4) & 0xffff;
	return HB_SPLIT_none;
}

/* Returns whether every place that an attribute lists is an instruction of the kernel. */
static bool are_places(const struct hb_code_info *record, unsigned stride, uint64_t code_bytes)
{
	if (record->n_bytes % (4 * stride) != 0)
		return false;
	for (size_t i = 0; i < record->n_bytes; i += 4 * stride)
		if (read_word(record->value + i) >= code_bytes || read_word(record->value + i) % 16 != 0)
			return false;
	return true;
}

static enum hb_split_reason read_record(const struct hb_code_info *record, unsigned arch, uint64_t code_bytes,
					struct hb_code_facts *facts)
{
	const struct code_info_row *row = find_row(record->attribute);
	if (!hb_code_info_is_known(record))
		return HB_SPLIT_attribute;
	uint16_t unnamed = arch < 90 ? UNNAMED_VALUE_BEFORE_SM90 : UNNAMED_VALUE;
	if (record->attribute == HB_EIATTR_ATTRIBUTE_5F && read_half(record->value) != unnamed)
		return HB_SPLIT_attribute;
	switch ((enum code_info_treatment)row->treatment) {
	case REFUSE:
		return (enum hb_split_reason)row->detail;
	case STRIDE:
	case EXITS:
		return are_places(record, row->detail, code_bytes) ? HB_SPLIT_none : HB_SPLIT_attribute;
	case PARAMETERS:
		facts->n_parameters++;
		return record->n_bytes == 12 ? HB_SPLIT_none : HB_SPLIT_parameters;
	case LAYOUT:
		return read_layout(record, facts);
	case KEEP:
		break;
	}
	return HB_SPLIT_none;
}

/* Returns whether each parameter is listed once and lies within the parameter area. */
static bool are_parameters_sound(const struct hb_cubin *cubin, uint32_t section, const struct hb_code_facts *facts)
{
	struct hb_code_info_list list = hb_code_info_begin(cubin, section);
	struct hb_code_info record;
	bool seen[N_PARAMETERS_LIMIT] = {false};
	while (hb_code_info_next(&list, &record) == 1) {
		if (record.attribute != HB_EIATTR_KPARAM_INFO)
			continue;
		uint32_t ordinal = read_half(record.value + 4), offset = read_half(record.value + 6);
		uint32_t n_bytes = read_word(record.value + 8) >> 18;
		if (ordinal >= facts->n_parameters || seen[ordinal] || offset + n_bytes > facts->parameter_bytes)
			return false;
		seen[ordinal] = true;
	}
	return true;
}

static uint32_t read_register_count(const struct hb_cubin *cubin, uint32_t symbol)
{
	uint32_t section = hb_cubin_find_section(cubin, ".nv.info");
	struct hb_code_info_list list = hb_code_info_begin(cubin, section);
	struct hb_code_info record;
	while (section && hb_code_info_next(&list, &record) == 1)
		if (record.attribute == HB_EIATTR_REGCOUNT && record.format == HB_CODE_INFO_LIST &&
		    record.n_bytes == 8 && read_word(record.value) == symbol)
			return read_word(record.value + 4);
	return 0;
}

enum hb_split_reason hb_code_info_read(const struct hb_cubin *cubin, const struct hb_cubin_kernel *kernel,
				       struct hb_code_facts *facts)
{
	struct hb_code_info record;
	*facts = (struct hb_code_facts){0};
	if (!kernel->info || !kernel->constants || cubin->sections[kernel->info].sh_type != SHT_CUDA_INFO ||
	    cubin->sections[kernel->constants].sh_type != SHT_PROGBITS)
		return HB_SPLIT_form;
	uint64_t code_bytes = cubin->sections[kernel->text].sh_size;
	struct hb_code_info_list list = hb_code_info_begin(cubin, kernel->info);
	int more;
	while ((more = hb_code_info_next(&list, &record)) == 1) {
		enum hb_split_reason reason = read_record(&record, cubin->arch, code_bytes, facts);
		if (reason != HB_SPLIT_none)
			return reason;
	}
	if (more < 0)
		return HB_SPLIT_form;
	facts->n_registers = read_register_count(cubin, kernel->symbol);
	if (facts->n_parameters == 0 || facts->n_parameters >= N_PARAMETERS_LIMIT || facts->parameter_bytes == 0 ||
	    facts->parameter_base == 0 || facts->parameter_bytes > PARAMETER_LIMIT ||
	    !are_parameters_sound(cubin, kernel->info, facts))
		return HB_SPLIT_parameters;
	if (cubin->sections[kernel->constants].sh_size != facts->parameter_base + facts->parameter_bytes)
		return HB_SPLIT_parameters;
	return HB_SPLIT_none;
}
