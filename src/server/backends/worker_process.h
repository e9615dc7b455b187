/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The process of a worker. It is started in the model's folder, in a process group
 * of its own, and under `hb run` with the model's priority if there is a GPU. Its
 * output goes to the server's log. When the process ends, the rest of its group
 * is killed; when the server dies, the kernel kills the group. Used by
 * backend_worker.c. Only hb_worker_processes_await() waits for processes.
 */
#ifndef HB_SERVER_WORKER_PROCESS_H
#define HB_SERVER_WORKER_PROCESS_H

#include "server/models/model_config.h"

#include <stdint.h>
#include <sys/types.h>

/* Ways of starting a worker. */
enum hb_worker_gpu {
	HB_WORKER_GPU_AUTO, /* REAL if there is an NVIDIA driver, else NONE */
	HB_WORKER_GPU_REAL, /* hb run --priority P */
	HB_WORKER_GPU_SIM,  /* hb run --gpu sim --priority P */
	HB_WORKER_GPU_NONE, /* without hb run */
};

/* Returns whether workers have a GPU, real or simulated. */
bool hb_worker_gpu_there(enum hb_worker_gpu gpu);

/*
 * Returns how many GPUs workers have: the entries of CUDA_VISIBLE_DEVICES, else the machine's NVIDIA devices; 1 if they are
 * simulated or there is none.
 */
uint32_t hb_worker_gpu_count(enum hb_worker_gpu gpu);

/* Writes the name of the GPU's type, "" if it is not known. */
void hb_worker_gpu_name(enum hb_worker_gpu gpu, char *out, size_t size);

/* Where a worker runs. */
struct hb_worker_place {
	enum hb_worker_gpu gpu;
	int device; /* GPU of those that the server sees; -1 = all of them */
	uint32_t
		sm_percent; /* share of the SMs that it may use, if it runs in an MPS server; 0 = as the server's environment says */
};

struct hb_worker_process {
	pid_t pid; /* 0 = none */
	int pidfd;
	int lifeline; /* write end of a pipe; the group is killed when it is closed, also by the server's death */
};

/*
 * Starts a worker with these variables in its environment:
 *
 *	HB_WORKER_FDS                       "MEMORY,SUBMITTED,COMPLETED": descriptors of the memory and the doorbells
 *	HB_WORKER_INPUTS, HB_WORKER_OUTPUTS a line "TYPE NAME" for each tensor
 *	HB_WORKER_SHAPES                    a line of dimensions for each input, then each output, with the batch dimension
 *	                                    if there is one; -1 = any size
 *	CUDA_VISIBLE_DEVICES                GPU `device` of those that the server sees; unchanged if that is -1
 *	CUDA_MPS_ACTIVE_THREAD_PERCENTAGE   sm_percent; unchanged if that is 0
 *	PYTHONPATH                          with the folder of the module `hummingbird` at the end
 *
 * Returns 0, or negative errno with *error.
 */
int hb_worker_process_start(const struct hb_model_config *config, const struct hb_worker_place *place, const int fds[3],
			    struct hb_worker_process *out, struct hb_error *error);
/* Returns whether the process has ended; *text says how ("signal 9", "exit status 1"). Kills the rest of its group. */
bool hb_worker_process_ended(struct hb_worker_process *process, char *text, size_t size);
/*
 * Kills the process and its group. Does not wait: the kernel may need long to end it, forever if a driver hangs. Poll
 * hb_worker_process_ended().
 */
void hb_worker_process_kill(const struct hb_worker_process *process);
/* Kills the process and its group and forgets it; a background thread waits for its end. May be called by any thread. */
void hb_worker_process_abandon(struct hb_worker_process *process);
/*
 * Forgets a process that was asked to end; a background thread waits for its end, and kills it and its group after grace_ns.
 * May be called by any thread.
 */
void hb_worker_process_dismiss(struct hb_worker_process *process, int64_t grace_ns);
/* Waits, at most for_ns, until all abandoned and dismissed processes have ended. Returns how many have not. */
uint32_t hb_worker_processes_await(int64_t for_ns);

#endif
