/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A worker's process: started in its model's folder, in a process group of its
 * own, under `hb run` with its model's priority where there is a GPU; ended with
 * its group, and by the kernel, with its group, when the server dies. It writes
 * where the server logs. Used by backend_worker.c.
 * Nothing here waits for a process, but hb_worker_processes_await().
 */
#ifndef HB_FRONT_WORKER_PROCESS_H
#define HB_FRONT_WORKER_PROCESS_H

#include "server/models/model_config.h"

#include <stdint.h>
#include <sys/types.h>

/* How workers are started. */
enum hb_worker_gpu {
	HB_WORKER_GPU_AUTO, /* as REAL where there is an NVIDIA driver, else as NONE */
	HB_WORKER_GPU_REAL, /* hb run --priority P */
	HB_WORKER_GPU_SIM,  /* hb run --gpu sim --priority P */
	HB_WORKER_GPU_NONE, /* as they are */
};

/* Whether workers find a GPU, real or simulated. */
bool hb_worker_gpu_there(enum hb_worker_gpu gpu);

struct hb_worker_process {
	pid_t pid; /* 0 = none */
	int pidfd;
	int lifeline; /* its group is killed when this is closed, as when the server dies */
};

/*
 * The worker finds in its environment HB_WORKER_FDS (memory,submitted,completed: descriptors), HB_WORKER_INPUTS and
 * HB_WORKER_OUTPUTS (lines of "TYPE name"), HB_WORKER_SHAPES (lines of dimensions, of inputs, then outputs; with the batch's
 * where there is one; -1 = any), and in PYTHONPATH, last, where the module `hummingbird` is. 0, or negative errno with *error.
 */
int hb_worker_process_start(const struct hb_model_config *config, enum hb_worker_gpu gpu, const int fds[3],
			    struct hb_worker_process *out, struct hb_error *error);
/* True once it has ended; *text says how ("signal 9", "exit status 1"). Its group is ended with it. */
bool hb_worker_process_ended(struct hb_worker_process *process, char *text, size_t size);
/*
 * Tells it and its group to end, at once. That may take as long as the kernel holds it, a driver that hangs for ever:
 * hb_worker_process_ended() says when it has.
 */
void hb_worker_process_kill(const struct hb_worker_process *process);
/* The same for one that nobody will ask about any more; a thread waits for its end. Any thread. */
void hb_worker_process_leave(struct hb_worker_process *process);
/* Waits until those that were left have ended, but not longer; how many have not. */
uint32_t hb_worker_processes_await(int64_t for_ns);

#endif
