/* SPDX-License-Identifier: Apache-2.0 */
/* Writes a trace set as the CSV that trace_csv.c reads; the importers' output. */
#include "trace/trace.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <string.h>

static const char *const kind_names[] = {
	[HB_OP_KERNEL] = "kernel",   [HB_OP_MEMSET] = "memset",   [HB_OP_COPY_H2D] = "memcpy",
	[HB_OP_COPY_D2H] = "memcpy", [HB_OP_COPY_D2D] = "memcpy",
};

/* Writes microseconds exactly with as few digits as possible: 0.0, 13.28, 1.344. */
static void write_us(FILE *out, int64_t ns)
{
	int fraction = (int)(ns % 1000), digits = 3;
	for (; digits > 1 && fraction % 10 == 0; digits--)
		fraction /= 10;
	fprintf(out, ",%" PRId64 ".%0*d", ns / 1000, digits, fraction);
}

/* Optional columns of a trace. */
struct extra_columns {
	bool clusters, host;
};

static void write_text(FILE *out, const char *text)
{
	if (!text[strcspn(text, ",\"\r\n")]) {
		fputs(text, out);
		return;
	}
	fputc('"', out);
	for (; *text; text++) {
		if (*text == '"')
			fputc('"', out);
		fputc(*text, out);
	}
	fputc('"', out);
}

static struct extra_columns find_extra(const struct hb_trace_set *set)
{
	struct extra_columns extra = {false, false};
	for (uint32_t i = 0; i < set->n_workloads; i++)
		for (uint32_t op = 0; op < set->workloads[i].n_ops; op++) {
			extra.clusters |= set->workloads[i].ops[op].cluster > 1;
			extra.host |= set->workloads[i].ops[op].host_ns > 0;
		}
	return extra;
}

static void write_header(FILE *out, struct extra_columns extra)
{
	const char *before = "";
#define HB_TRACE_COLUMN(id, name, required) \
	if ((required) || (extra.clusters && !strcmp(name, "cluster")) || (extra.host && !strcmp(name, "host_us"))) { \
		fprintf(out, "%s%s", before, name); \
		before = ","; \
	}
#include "trace/trace_columns.def"
#undef HB_TRACE_COLUMN
	fputc('\n', out);
}

static void write_op(FILE *out, const struct hb_trace_set *set, const struct hb_op *op, struct extra_columns extra)
{
	fprintf(out, ",%s,", kind_names[op->kind]);
	write_text(out, set->names[op->name]);
	write_us(out, op->start_ns);
	write_us(out, op->duration_ns);
	if (op->kind == HB_OP_KERNEL)
		fprintf(out, ",%ux%ux%u,%ux%ux%u,%u,%u,", op->grid[0], op->grid[1], op->grid[2], op->block[0],
			op->block[1], op->block[2], op->registers, op->shared_bytes);
	else
		fprintf(out, ",,,,,%" PRIu64, op->bytes);
	if (extra.clusters)
		fprintf(out, ",%u", op->cluster);
	if (extra.host && op->host_ns == 0)
		fputc(',', out);
	else if (extra.host)
		write_us(out, op->host_ns);
	fputc('\n', out);
}

int hb_trace_write_csv(FILE *out, const struct hb_trace_set *set)
{
	struct extra_columns extra = find_extra(set);
	write_header(out, extra);
	for (uint32_t w = 0; w < set->n_workloads; w++) {
		const struct hb_workload *workload = &set->workloads[w];
		for (uint32_t i = 0; i < workload->n_iterations; i++) {
			const struct hb_iteration *iteration = &workload->iterations[i];
			for (uint32_t op = 0; op < iteration->n_ops; op++) {
				fprintf(out, "%s,%u", workload->name, i);
				write_op(out, set, &workload->ops[iteration->first_op + op], extra);
			}
		}
	}
	return fflush(out) || ferror(out) ? -EIO : 0;
}
