/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared-memory regions that clients registered (KServe's system shared
 * memory). Read and written with pread and pwrite, never mapped: a client that
 * truncates its region gets an error, and the server no SIGBUS. Any thread.
 */
#ifndef HB_FRONT_REGIONS_H
#define HB_FRONT_REGIONS_H

#include "base/error.h"

#include <stdint.h>

#define HB_REGIONS_MAX 256
#define HB_REGION_NAME_MAX 96

struct hb_regions;

struct hb_region {
	char name[HB_REGION_NAME_MAX];
	char key[HB_REGION_NAME_MAX]; /* below /dev/shm */
	uint64_t offset, bytes;
};

struct hb_regions *hb_regions_new(void);
void hb_regions_free(struct hb_regions *regions);
/* 0, -EEXIST, -EINVAL, -ENOENT, -ENOSPC with *error. */
int hb_regions_register(struct hb_regions *regions, const struct hb_region *region, struct hb_error *error);
/* Name "" = all. 0 or -ENOENT. */
int hb_regions_unregister(struct hb_regions *regions, const char *name, struct hb_error *error);
/* Copies of what is there; name "" = all. How many; -ENOENT for a name that is not. */
int hb_regions_list(struct hb_regions *regions, const char *name, struct hb_region *out, uint32_t capacity,
		    struct hb_error *error);
/* A part of a region, whole or not at all. 0, -ENOENT, -ERANGE, -EIO with *error. */
int hb_regions_read(struct hb_regions *regions, const char *name, uint64_t offset, void *out, uint64_t bytes,
		    struct hb_error *error);
int hb_regions_write(struct hb_regions *regions, const char *name, uint64_t offset, const void *data, uint64_t bytes,
		     struct hb_error *error);

#endif
