/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The processes on each GPU, as the driver reports them: asked every few
 * seconds while there are tenants, for each status, and when an LP tenant lacks
 * memory. Shows how much memory contexts take beyond the tenants' allocations, and
 * which processes use a GPU without being tenants. gpu_memory.c compares it with
 * what tenants report.
 */
#ifndef HB_DAEMON_GPU_PROCESSES_H
#define HB_DAEMON_GPU_PROCESSES_H

#include "daemon/gpu_record.h"

struct hb_gpu_processes;

/* `answered` is called in the loop after each answer of the driver. 0 or negative errno. */
int hb_gpu_processes_new(struct hb_daemon *daemon, void (*answered)(struct hb_daemon *daemon),
			 struct hb_gpu_processes **processes);
void hb_gpu_processes_free(struct hb_gpu_processes *processes);
void hb_gpu_processes_tick(struct hb_gpu_processes *processes, int64_t now_ns);
/* Asks the driver about all GPUs; a question under way is asked again afterwards. True: `answered` will be called. */
bool hb_gpu_processes_poll(struct hb_gpu_processes *processes);
/* The same unless the last answer is recent. False: it is recent, or the driver cannot be asked. */
bool hb_gpu_processes_poll_recent(struct hb_gpu_processes *processes, int64_t now_ns);

/* GPU memory of this process in the driver's last answer; HB_GPU_BYTES_UNKNOWN. */
uint64_t hb_gpu_process_bytes(const struct hb_gpu *gpu, pid_t pid);
/* Whether this process belongs to a tenant or is the daemon's MPS server. */
bool hb_gpu_process_is_covered(const struct hb_daemon *daemon, pid_t pid);
/*
 * Whether it runs and belongs to no tenant; its name. In a container the driver may report numbers of the host, which name
 * no process here, or one that does not use the GPU.
 */
bool hb_gpu_process_is_outside(const struct hb_daemon *daemon, pid_t pid, char name[32]);
/* Whether it belongs to an LP tenant. */
bool hb_gpu_process_is_low(const struct hb_daemon *daemon, pid_t pid);
/* Its name for people, printable ASCII. False: the process has ended. */
bool hb_gpu_process_name(pid_t pid, char name[32]);

#endif
