/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The seam between the daemon and command line on one side and real or simulated
 * GPUs on the other. What happens inside a tenant (time slices, gates) goes through
 * its page and is the same for both.
 */
#ifndef HB_GPU_PROVIDER_H
#define HB_GPU_PROVIDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/types.h>

#define HB_GPU_USERS_MAX 256
#define HB_GPU_BYTES_UNKNOWN UINT64_MAX
#define HB_GPU_BUSY_UNKNOWN UINT32_MAX
#define HB_GPU_WHY_MAX 128

/* A process that the driver sees on a GPU. */
struct hb_gpu_user {
	pid_t pid;
	uint64_t
		bytes; /* GPU memory of the process, contexts included; HB_GPU_BYTES_UNKNOWN = the driver does not report it */
	uint32_t busy_ppm; /* part of the last seconds in which its kernels ran; HB_GPU_BUSY_UNKNOWN = not known */
};

/* The use of a GPU at one moment, as the driver reports it. */
struct hb_gpu_use {
	uint64_t total_bytes, used_bytes; /* 0 = unknown */
	uint32_t n_users;
	struct hb_gpu_user users[HB_GPU_USERS_MAX];
	bool is_lost;             /* the GPU does not answer any more */
	char why[HB_GPU_WHY_MAX]; /* why the list of users is missing or incomplete; "" = it is complete */
};

enum hb_gpu_event_kind {
	HB_GPU_EVENT_XID, /* the driver reported an error by its number */
	HB_GPU_EVENT_ECC, /* an error of the GPU's memory that could not be corrected */
	HB_GPU_EVENT_LOST /* the GPU does not answer any more */
};

/* A fault that the driver reported. */
struct hb_gpu_event {
	unsigned char uuid[16];
	enum hb_gpu_event_kind kind;
	uint32_t xid;     /* HB_GPU_EVENT_XID: its number */
	pid_t pid;        /* the process that caused it; 0 = not known */
	char process[32]; /* its name; "" = not known */
};

/* The result of one check that `hb doctor` prints. */
struct hb_probe {
	char name[32]; /* of the mechanism */
	bool works;
	bool required;    /* true: nothing can be scheduled without it; false: there is a fallback */
	char found[480];  /* what was found; a path is never truncated */
	char remedy[240]; /* what the user can do; "" = nothing to do */
};

struct hb_provider {
	const char *name; /* "nvidia", "simulated" */
	bool simulated;
	/* Returns the path of the program that controls MPS servers. 0, or -ENOENT with *why set to a constant text. */
	int (*mps_control)(char *path, size_t size, const char **why);
	/* Returns the name of the GPU with this UUID for people. -ENOENT leaves *name unchanged. */
	int (*gpu_name)(const unsigned char uuid[16], char *name, size_t size);
	/* Returns the GPU's number as the driver's tools show it (in the order of the bus), or -ENOENT. */
	int (*gpu_index)(const unsigned char uuid[16]);
	/*
	 * Writes the UUIDs of the machine's GPUs in the order of the bus. Returns their number, at most `most`; -ENOTSUP: the
	 * driver does not list them, or some are divided by MIG.
	 */
	int (*gpu_list)(unsigned char (*uuids)[16], uint32_t most);
	/* Whether the driver lists all its GPUs, and none has this UUID. False also if it may be an instance of MIG. */
	bool (*gpu_is_missing)(const unsigned char uuid[16]);
	/* Returns the version of the driver, such as 580.159.04; "" if it is not known. */
	void (*driver_version)(char *version, size_t size);
	/* Returns the path of the libcuda.so.1 that the shim must load. -ENOENT: the shim finds it itself. */
	int (*driver_library)(char *path, size_t size);
	/*
	 * Lists the processes on this GPU. May take milliseconds, and much longer if the GPU has a problem, so never call it on
	 * an event loop. One thread at a time. 0, or a negative errno: the list is then empty and use->why says why.
	 */
	int (*gpu_use)(const unsigned char uuid[16], struct hb_gpu_use *use);
	/*
	 * Waits for a fault of one of these GPUs, until stop_fd is readable or about timeout_ms have passed; if the driver
	 * hangs, for ever. One thread at a time. 1 with *event; 0: none came; a negative errno at once: *why says why faults
	 * are not reported.
	 */
	int (*gpu_event)(const unsigned char (*uuids)[16], uint32_t n, int stop_fd, int timeout_ms,
			 struct hb_gpu_event *event, char why[HB_GPU_WHY_MAX]);
	/* Opens what gpu_event() reads with the rights of root. Call it before the process gives them up, and before gpu_event(). */
	void (*open_logs)(void);
	/* Each function checks one thing of the machine without using a GPU, and fills a zeroed probe. Ends with NULL. */
	void (*const *probes)(struct hb_probe *probe);
};

/* Fills the probe "MPS" of a provider. `remedy` is what the user can do if the control program is missing. */
static inline void hb_probe_mps(struct hb_probe *probe, const struct hb_provider *provider, const char *remedy)
{
	char path[470];
	const char *why = "";
	strcpy(probe->name, "MPS");
	probe->works = provider->mps_control(path, sizeof path, &why) == 0;
	strcpy(probe->found, probe->works ? path : why);
	if (!probe->works)
		strcpy(probe->remedy, remedy);
}

extern const struct hb_provider hb_provider_nvidia, hb_provider_simulated;

static inline const struct hb_provider *hb_provider_of(bool simulated)
{
	return simulated ? &hb_provider_simulated : &hb_provider_nvidia;
}

#endif
