/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Recorded workloads: the kernels and copies of a program, iteration by iteration.
 *
 * A trace set is read once (trace_csv.c, or written by the importers behind
 * `hb trace import`) and is then immutable, so threads may share it. The
 * readers validate every value. Errors name the file and the line.
 *
 * CSV columns and units: data/traces/README.md.
 */
#ifndef HB_SIM_TRACE_H
#define HB_SIM_TRACE_H

#include "base/error.h"

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Limits of a trace: what a GPU can launch, and what bounds the memory that a bad file can take. */
#define HB_TRACE_OPS_MAX (4u << 20) /* 72 bytes each */
#define HB_TRACE_WORKLOADS_MAX 4096u
#define HB_TRACE_NAMES_MAX 65536u
#define HB_TRACE_NAME_BYTES_MAX 1024u
#define HB_TRACE_NAME_CUT 120u                       /* importers cut longer names */
#define HB_TRACE_TIME_MAX_NS INT64_C(86400000000000) /* a day */
#define HB_TRACE_BYTES_MAX (UINT64_C(1) << 40)
#define HB_TRACE_GRID_X_MAX 2147483647u /* this limit and the next ones are CUDA's */
#define HB_TRACE_GRID_YZ_MAX 65535u
#define HB_TRACE_THREADS_MAX 1024u
#define HB_TRACE_BLOCK_Z_MAX 64u
#define HB_TRACE_REGISTERS_MAX 255u
#define HB_TRACE_CLUSTER_MAX 16u
#define HB_TRACE_SHARED_BYTES_MAX (1u << 20) /* 227 KiB on an H200 */

enum hb_op_kind { HB_OP_KERNEL, HB_OP_MEMSET, HB_OP_COPY_H2D, HB_OP_COPY_D2H, HB_OP_COPY_D2D };

/* One entry of an iteration, in stream order. */
struct hb_op {
	int64_t start_ns;    /* recorded start, counted from the iteration's first op */
	int64_t duration_ns; /* recorded duration alone on the GPU, > 0 */
	int64_t host_ns; /* time of the launch call on the host, counted from the iteration's start, without a profiler; 0 = not known */
	uint64_t bytes;        /* bytes of a copy or memset; 0 for kernels */
	uint64_t blocks;       /* kernels: number of blocks, x * y * z of the grid, >= 1 */
	uint32_t name;         /* index into hb_trace_set.names */
	uint32_t shared_bytes; /* shared memory of a block, dynamic and static */
	uint32_t grid[3];
	uint16_t block[3];  /* threads per block by dimension */
	uint16_t threads;   /* threads of a block, 1..1024 */
	uint16_t registers; /* registers of a thread, 0 = unknown */
	uint8_t kind;       /* enum hb_op_kind */
	uint8_t cluster;    /* blocks per cluster, 1 = none or unknown */
};

struct hb_iteration {
	uint32_t first_op; /* index into hb_workload.ops */
	uint32_t n_ops;
};

struct hb_workload {
	char name[64];
	struct hb_op *ops;
	struct hb_iteration *iterations;
	uint32_t n_ops;
	uint32_t n_iterations;
	/*
	 * Time of an iteration from launch to synchronize, alone on the GPU and
	 * without a profiler, from the trace's companion file (X.csv.gz ->
	 * X.alone.csv); 0 = not known. A profiler makes the gaps of a recorded
	 * timeline longer, so the simulator scales its host times to this time.
	 */
	int64_t alone_ns;
	int64_t alone_graph_ns; /* alone_ns when the iteration is launched as one CUDA graph; 0 = not known */
};

struct hb_trace_set {
	struct hb_workload *workloads;
	uint32_t n_workloads;
	char **names; /* kernel names */
	uint32_t n_names;
};

/*
 * Reads a CSV trace (plain or gzip) and appends its workloads to *set, which
 * the caller zero-initialised or got from an earlier call; pointers into the
 * set's arrays become invalid. Also reads the companion
 * X.alone.csv where there is one. Returns 0, -ENOENT, -EINVAL (bad
 * content), -E2BIG (a line or file over the limits) or -ENOMEM; on an error
 * *set is unchanged.
 */
int hb_trace_read_csv(const char *path, struct hb_trace_set *set, struct hb_error *error);
/*
 * Writes the set as CSV, from which hb_trace_read_csv() makes the same set. Returns 0 or -EIO (also for an earlier
 * error of *out).
 */
int hb_trace_write_csv(FILE *out, const struct hb_trace_set *set);
/* Writes the companion file: a row for each workload whose alone_ns is known. */
int hb_trace_write_alone_csv(FILE *out, const struct hb_trace_set *set);
/* Returns the companion's path: X.csv.gz, X.csv or X -> X.alone.csv; free() it. Returns NULL without memory. */
char *hb_trace_alone_path(const char *path);
void hb_trace_set_fini(struct hb_trace_set *set);

/* Returns the workload of that name, or NULL. */
const struct hb_workload *hb_trace_find(const struct hb_trace_set *set, const char *name);

#endif
