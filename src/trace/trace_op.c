/* SPDX-License-Identifier: Apache-2.0 */
/* Checks values of ops and names; see trace_op.h. */
#include "trace/trace_op.h"

#include <errno.h>
#include <math.h>
#include <string.h>

int64_t hb_ns_from_us(double us)
{
	double ns = floor(us * 1000.0 + 0.5);
	if (isnan(ns) || ns >= 9.2e18)
		return INT64_MAX;
	return ns <= -9.2e18 ? INT64_MIN : (int64_t)ns;
}

static int refuse_value(struct hb_op_fault *fault, enum hb_trace_column column, const char *why)
{
	*fault = (struct hb_op_fault){column, why};
	return -EINVAL;
}

static int check_times(const struct hb_op_values *values, struct hb_op_fault *fault)
{
	if (values->start_ns < 0)
		return refuse_value(fault, HB_TRACE_COLUMN_START, "is negative");
	if (values->start_ns > HB_TRACE_TIME_MAX_NS)
		return refuse_value(fault, HB_TRACE_COLUMN_START, "is more than a day (86400000000 us)");
	if (values->duration_ns < 0)
		return refuse_value(fault, HB_TRACE_COLUMN_DURATION, "is negative");
	if (values->duration_ns == 0)
		return refuse_value(fault, HB_TRACE_COLUMN_DURATION, "is less than a nanosecond (0.001 us)");
	if (values->duration_ns > HB_TRACE_TIME_MAX_NS)
		return refuse_value(fault, HB_TRACE_COLUMN_DURATION, "is more than a day (86400000000 us)");
	if (values->host_ns < 0)
		return refuse_value(fault, HB_TRACE_COLUMN_HOST, "is negative");
	if (values->host_ns > HB_TRACE_TIME_MAX_NS)
		return refuse_value(fault, HB_TRACE_COLUMN_HOST, "is more than a day (86400000000 us)");
	return 0;
}

static int check_extent(const int64_t extent[3], const int64_t max[3], enum hb_trace_column column,
			struct hb_op_fault *fault)
{
	for (int i = 0; i < 3; i++) {
		if (extent[i] < 1)
			return refuse_value(fault, column, "has a number below 1");
		if (extent[i] > max[i])
			return refuse_value(fault, column, "is larger than CUDA allows");
	}
	return 0;
}

static int check_range(int64_t value, int64_t least, int64_t most, enum hb_trace_column column,
		       struct hb_op_fault *fault)
{
	if (value < least)
		return refuse_value(fault, column, least ? "is below 1" : "is negative");
	return value > most ? refuse_value(fault, column, "is too large") : 0;
}

static int check_kernel(const struct hb_op_values *values, struct hb_op_fault *fault)
{
	static const int64_t grid_max[3] = {HB_TRACE_GRID_X_MAX, HB_TRACE_GRID_YZ_MAX, HB_TRACE_GRID_YZ_MAX};
	static const int64_t block_max[3] = {HB_TRACE_THREADS_MAX, HB_TRACE_THREADS_MAX, HB_TRACE_BLOCK_Z_MAX};
	int code = check_extent(values->grid, grid_max, HB_TRACE_COLUMN_GRID, fault);
	if (!code)
		code = check_extent(values->block, block_max, HB_TRACE_COLUMN_BLOCK, fault);
	if (!code && values->block[0] * values->block[1] * values->block[2] > HB_TRACE_THREADS_MAX)
		code = refuse_value(fault, HB_TRACE_COLUMN_BLOCK, "is more than 1024 threads");
	if (!code)
		code = check_range(values->registers, 0, HB_TRACE_REGISTERS_MAX, HB_TRACE_COLUMN_REGISTERS, fault);
	if (!code)
		code = check_range(values->shared_bytes, 0, HB_TRACE_SHARED_BYTES_MAX, HB_TRACE_COLUMN_SHARED, fault);
	if (!code)
		code = check_range(values->cluster, 1, HB_TRACE_CLUSTER_MAX, HB_TRACE_COLUMN_CLUSTER, fault);
	return code;
}

static int set_kernel(const struct hb_op_values *values, struct hb_op *op, struct hb_op_fault *fault)
{
	int code = check_kernel(values, fault);
	if (code)
		return code;
	op->blocks = op->threads = 1;
	for (int i = 0; i < 3; i++) {
		op->grid[i] = (uint32_t)values->grid[i];
		op->block[i] = (uint16_t)values->block[i];
		op->blocks *= op->grid[i];
		op->threads = (uint16_t)(op->threads * op->block[i]);
	}
	if (op->blocks % (uint64_t)values->cluster)
		return refuse_value(fault, HB_TRACE_COLUMN_CLUSTER, "does not divide the grid");
	op->registers = (uint16_t)values->registers;
	op->shared_bytes = (uint32_t)values->shared_bytes;
	op->cluster = (uint8_t)values->cluster;
	return 0;
}

int hb_op_from_values(const struct hb_op_values *values, struct hb_op *op, struct hb_op_fault *fault)
{
	struct hb_op made = {.kind = (uint8_t)values->kind, .cluster = 1};
	int code = check_times(values, fault);
	if (!code && values->kind == HB_OP_KERNEL)
		code = set_kernel(values, &made, fault);
	else if (!code)
		code = check_range(values->bytes, 0, (int64_t)HB_TRACE_BYTES_MAX, HB_TRACE_COLUMN_BYTES, fault);
	if (code)
		return code;
	made.start_ns = values->start_ns;
	made.duration_ns = values->duration_ns;
	made.host_ns = values->host_ns;
	if (values->kind != HB_OP_KERNEL)
		made.bytes = (uint64_t)values->bytes;
	*op = made;
	return 0;
}

bool hb_copy_direction(const char *name, enum hb_op_kind *kind)
{
	static const struct {
		const char *text;
		enum hb_op_kind kind;
	} directions[] = {
		{"HtoD", HB_OP_COPY_H2D}, {"HtoA", HB_OP_COPY_H2D}, {"DtoH", HB_OP_COPY_D2H},
		{"AtoH", HB_OP_COPY_D2H}, {"DtoD", HB_OP_COPY_D2D}, {"PtoP", HB_OP_COPY_D2D},
		{"AtoA", HB_OP_COPY_D2D}, {"AtoD", HB_OP_COPY_D2D}, {"DtoA", HB_OP_COPY_D2D},
	};
	for (size_t i = 0; i < sizeof directions / sizeof *directions; i++) {
		if (!strstr(name, directions[i].text))
			continue;
		*kind = directions[i].kind;
		return true;
	}
	return false;
}

/* Returns the length of the printable UTF-8 character at `text`; 0 = there is none. */
static size_t measure_character(const unsigned char *text)
{
	static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
	if (text[0] < 0x80)
		return text[0] >= ' ' && text[0] != 0x7f;
	if (text[0] < 0xc2 || text[0] > 0xf4)
		return 0;
	size_t length = text[0] >= 0xf0 ? 4 : text[0] >= 0xe0 ? 3 : 2;
	uint32_t value = text[0] & (0x7fu >> length);
	for (size_t i = 1; i < length; i++) {
		if ((text[i] & 0xc0) != 0x80)
			return 0;
		value = value << 6 | (text[i] & 0x3f);
	}
	bool valid = value >= least[length] && value <= 0x10ffff && (value < 0xd800 || value > 0xdfff) && value >= 0xa0;
	return valid ? length : 0;
}

const char *hb_op_name_fault(const char *name)
{
	if (!*name)
		return "is empty";
	if (strlen(name) > HB_TRACE_NAME_BYTES_MAX)
		return "is longer than 1024 bytes";
	for (size_t at = 0, length = 0; name[at]; at += length) {
		length = measure_character((const unsigned char *)name + at);
		if (!length)
			return "is not printable UTF-8 text";
	}
	return NULL;
}

const char *hb_workload_name_fault(const char *name)
{
	static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.";
	if (!*name)
		return "is empty";
	if (strlen(name) >= sizeof((struct hb_workload *)0)->name)
		return "is longer than 63 characters";
	if (name[strspn(name, allowed)])
		return "may hold letters, digits, '_', '-' and '.' only";
	return NULL;
}

void hb_op_name_clean(const char *name, char out[static HB_TRACE_NAME_CUT + 1])
{
	size_t used = 0;
	while (*name) {
		size_t length = measure_character((const unsigned char *)name);
		if (used + (length ? length : 1) > HB_TRACE_NAME_CUT)
			break;
		if (length)
			memcpy(out + used, name, length);
		else
			out[used] = '?';
		used += length ? length : 1;
		name += length ? length : 1;
	}
	if (!used)
		out[used++] = '?';
	out[used] = '\0';
}
