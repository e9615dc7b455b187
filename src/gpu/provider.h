/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The GPU seam: what differs between a real GPU and a simulated one for the
 * daemon and the command line. Everything that happens inside a tenant (slices,
 * gates) goes through its page and is the same for both.
 */
#ifndef HB_GPU_PROVIDER_H
#define HB_GPU_PROVIDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define HB_GPU_USERS_MAX 256
#define HB_GPU_BYTES_UNKNOWN UINT64_MAX

/* A process that the driver sees on a GPU. */
struct hb_gpu_user {
	pid_t pid;
	uint64_t bytes; /* of the GPU's memory, contexts included; HB_GPU_BYTES_UNKNOWN: the driver does not say */
};

/* What the driver says of a GPU at one moment. */
struct hb_gpu_use {
	uint64_t total_bytes, used_bytes; /* 0 = not known */
	uint32_t n_users;
	struct hb_gpu_user users[HB_GPU_USERS_MAX];
	char why[128]; /* why the list is missing or not complete; "" = it is complete */
};

/* One thing that was tried: `hb doctor` prints it. */
struct hb_probe {
	char name[32]; /* what the mechanism is called */
	bool works;
	bool required;    /* without it nothing can be scheduled; else there is a fallback */
	char found[480];  /* what was seen; a path is whole */
	char remedy[240]; /* what to do, "" where nothing is to be done */
};

struct hb_provider {
	const char *name; /* "nvidia", "simulated" */
	bool simulated;
	/* The program that controls MPS servers. 0, or -ENOENT with *why set to a constant text. */
	int (*mps_control)(char *path, size_t size, const char **why);
	/* A name for people of the GPU with this UUID; -ENOENT leaves *name alone. */
	int (*gpu_name)(const unsigned char uuid[16], char *name, size_t size);
	/* Its number as the driver's tools give it (in the order of the bus), -ENOENT. */
	int (*gpu_index)(const unsigned char uuid[16]);
	/* The driver's own libcuda.so.1, which the shim is to load; -ENOENT: the shim finds it itself. */
	int (*driver_library)(char *path, size_t size);
	/*
	 * Who is on this GPU. May take milliseconds or, with a GPU in trouble, much longer: not for an event
	 * loop. One thread at a time. 0, or negative errno: then the list is empty and use->why says why.
	 */
	int (*gpu_use)(const unsigned char uuid[16], struct hb_gpu_use *use);
	/* Each looks at one thing of the machine without touching a GPU, and fills a probe of zeros. Ends with NULL. */
	void (*const *probes)(struct hb_probe *probe);
};

extern const struct hb_provider hb_provider_nvidia, hb_provider_simulated;

static inline const struct hb_provider *hb_provider_of(bool simulated)
{
	return simulated ? &hb_provider_simulated : &hb_provider_nvidia;
}

#endif
