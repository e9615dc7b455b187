/* SPDX-License-Identifier: Apache-2.0 */
/* Prints facts about traces as tables or JSON; see trace_info_output.h. */
#include "cli/trace_info_output.h"

#include "base/json.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

static int find_name_width(const struct hb_trace_set *set)
{
	size_t width = strlen("workload");
	for (uint32_t i = 0; i < set->n_workloads; i++)
		if (strlen(set->workloads[i].name) > width)
			width = strlen(set->workloads[i].name);
	return (int)width;
}

static void print_us(FILE *out, int width, double us)
{
	if (us > 0)
		fprintf(out, " %*.*f", width, us < 100 ? 2 : 0, us);
	else
		fprintf(out, " %*s", width, "-");
}

static void print_times(FILE *out, const struct hb_trace_set *set, const struct hb_workload_info *info, int width)
{
	fprintf(out, "%-*s %5s %6s %7s %5s %5s %8s %8s %8s %8s\n", width, "workload", "iter", "ops", "kernels", "sets",
		"copies", "busy us", "span us", "alone us", "graph us");
	for (uint32_t i = 0; i < set->n_workloads; i++) {
		const struct hb_workload *workload = &set->workloads[i];
		fprintf(out, "%-*s %5u %6.0f %7.0f %5.0f %6.0f", width, workload->name, workload->n_iterations,
			info[i].ops, info[i].kernels, info[i].memsets, info[i].copies);
		print_us(out, 8, info[i].busy_us);
		print_us(out, 8, info[i].span_us);
		print_us(out, 8, (double)workload->alone_ns / 1e3);
		print_us(out, 8, (double)workload->alone_graph_ns / 1e3);
		fputc('\n', out);
	}
}

static void print_shares(FILE *out, const struct hb_trace_set *set, const struct hb_workload_info *info, int width,
			 const char *gpu)
{
	fprintf(out, "\n%-*s %27s   share of kernel time by how much of %s they fill\n", width, "",
		"duration of an op, us", gpu);
	fprintf(out, "%-*s %6s %6s %6s %6s", width, "workload", "p50", "p90", "p99", "max");
	for (int class = 0; class < HB_WAVE_CLASSES; class ++)
		fprintf(out, "  %s", hb_wave_texts[class]);
	fputc('\n', out);
	for (uint32_t i = 0; i < set->n_workloads; i++) {
		fprintf(out, "%-*s", width, set->workloads[i].name);
		print_us(out, 6, info[i].p50_us);
		print_us(out, 6, info[i].p90_us);
		print_us(out, 6, info[i].p99_us);
		print_us(out, 6, info[i].max_us);
		for (int class = 0; class < HB_WAVE_CLASSES; class ++)
			fprintf(out, "  %*.1f%%", (int)strlen(hb_wave_texts[class]) - 1,
				100 * info[i].wave_share[class]);
		fputc('\n', out);
	}
}

static void format_extent(char text[static 40], uint32_t x, uint32_t y, uint32_t z)
{
	snprintf(text, 40, "%ux%ux%u", x, y, z);
}

static void print_shapes(FILE *out, const struct hb_trace_set *set, const struct hb_workload_info *info, int width)
{
	fprintf(out, "\n%-*s %18s %12s %8s %8s %6s\n", width, "launch shapes", "grid", "block", "launches", "waves",
		"time");
	for (uint32_t i = 0; i < set->n_workloads; i++) {
		for (uint32_t k = 0; k < info[i].n_shown; k++) {
			const struct hb_shape *shape = &info[i].shapes[k];
			char grid[40], block[40];
			format_extent(grid, shape->grid[0], shape->grid[1], shape->grid[2]);
			format_extent(block, shape->block[0], shape->block[1], shape->block[2]);
			fprintf(out, "%-*s %18s %12s %8.0f %8.2f %5.1f%%\n", width, k ? "" : set->workloads[i].name,
				grid, block, shape->count / (double)set->workloads[i].n_iterations, shape->waves,
				100 * shape->share);
		}
		if (info[i].n_shapes > info[i].n_shown)
			fprintf(out, "%-*s %18u more\n", width, "", info[i].n_shapes - info[i].n_shown);
	}
}

void hb_trace_info_table(FILE *out, const struct hb_trace_set *set, const struct hb_workload_info *info,
			 const char *gpu)
{
	int width = find_name_width(set);
	print_times(out, set, info, width);
	print_shares(out, set, info, width, gpu);
	print_shapes(out, set, info, width);
}

static json_t *pack_shapes(const struct hb_workload *workload, const struct hb_workload_info *info,
			   struct hb_error *error)
{
	json_t *shapes = json_array();
	for (uint32_t i = 0; i < info->n_shown; i++) {
		const struct hb_shape *shape = &info->shapes[i];
		json_t *entry = hb_json_pack(error, "{s:[i, i, i], s:[i, i, i], s:f, s:f, s:f}", "grid",
					     (int)shape->grid[0], (int)shape->grid[1], (int)shape->grid[2], "block",
					     shape->block[0], shape->block[1], shape->block[2], "launches",
					     shape->count / (double)workload->n_iterations, "waves", shape->waves,
					     "share", shape->share);
		if (json_array_append_new(shapes, entry)) {
			json_decref(shapes);
			return NULL;
		}
	}
	return shapes;
}

static json_t *pack_shares(const struct hb_workload_info *info)
{
	json_t *shares = json_object();
	for (int class = 0; class < HB_WAVE_CLASSES; class ++)
		json_object_set_new(shares, hb_wave_keys[class], json_real(info->wave_share[class]));
	return shares;
}

/* Packs a time as JSON; an unknown time becomes null. */
static json_t *pack_time(int64_t ns)
{
	return ns ? json_real((double)ns / 1e3) : json_null();
}

static json_t *pack_workload(const struct hb_workload *workload, const struct hb_workload_info *info,
			     struct hb_error *error)
{
	json_t *durations = hb_json_pack(error, "{s:f, s:f, s:f, s:f}", "p50", info->p50_us, "p90", info->p90_us, "p99",
					 info->p99_us, "max", info->max_us);
	return hb_json_pack(error, "{s:s, s:i, s:f, s:f, s:f, s:f, s:f, s:f, s:o, s:o, s:o, s:o, s:i, s:o}", "name",
			    workload->name, "iterations", (int)workload->n_iterations, "ops", info->ops, "kernels",
			    info->kernels, "memsets", info->memsets, "copies", info->copies, "busy_us", info->busy_us,
			    "span_us", info->span_us, "alone_us", pack_time(workload->alone_ns), "alone_graph_us",
			    pack_time(workload->alone_graph_ns), "duration_us", durations, "wave_share",
			    pack_shares(info), "shapes", (int)info->n_shapes, "top_shapes",
			    pack_shapes(workload, info, error));
}

static json_t *pack_files(char *const *paths, int n)
{
	json_t *files = json_array();
	for (int i = 0; i < n; i++)
		json_array_append_new(files, json_string(paths[i]));
	return files;
}

int hb_trace_info_json(FILE *out, const struct hb_trace_set *set, const struct hb_workload_info *info, const char *gpu,
		       char *const *paths, int n_paths, struct hb_error *error)
{
	json_t *workloads = json_array();
	bool complete = true;
	for (uint32_t i = 0; i < set->n_workloads; i++)
		complete &= json_array_append_new(workloads, pack_workload(&set->workloads[i], &info[i], error)) == 0;
	json_t *root = hb_json_pack(error, "{s:o, s:s, s:i, s:o}", "files", pack_files(paths, n_paths), "gpu", gpu,
				    "names", (int)set->n_names, "workloads", workloads);
	int code = complete ? hb_json_write(root, out, error) : -EINVAL;
	json_decref(root);
	return code;
}
