/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared-memory regions that clients registered (the "system shared memory"
 * extension of KServe), and tensors in them. Regions are read and written with
 * pread() and pwrite() and never mapped: if a client truncates its region, the
 * request fails instead of the server receiving SIGBUS. A region belongs to the
 * caller that registered it (`owner`, see struct hb_caller): no other caller sees
 * or uses it. Any thread.
 */
#ifndef HB_SERVER_SHARED_MEMORY_H
#define HB_SERVER_SHARED_MEMORY_H

#include "base/error.h"
#include "server/kserve/inference.h"
#include "server/security/access.h"

#define HB_SHARED_REGIONS_MAX 256
#define HB_SHARED_REGIONS_OF_OWNER 128 /* so that one caller cannot take all places */
#define HB_SHARED_REGION_NAME_MAX HB_TENSOR_NAME_MAX

struct hb_shared_memory;

struct hb_shared_region {
	char name[HB_SHARED_REGION_NAME_MAX];
	char key[HB_SHARED_REGION_NAME_MAX]; /* name of the file in /dev/shm */
	uint64_t offset, bytes;              /* the part of that file */
};

struct hb_shared_memory *hb_shared_memory_new(void);
void hb_shared_memory_free(struct hb_shared_memory *memory);
/*
 * Registers a region for the caller, if the rules of `access` allow it. Returns 0, -EACCES, -EEXIST, -EINVAL, -ENOENT or
 * -ENOSPC with *error.
 */
int hb_shared_memory_register(struct hb_shared_memory *memory, const struct hb_access *access,
			      const struct hb_caller *caller, const struct hb_shared_region *region,
			      struct hb_error *error);
/*
 * Unregisters the owner's region of this name, or all its regions if the name is "". Returns 0, or -ENOENT with *error.
 */
int hb_shared_memory_unregister(struct hb_shared_memory *memory, uint64_t owner, const char *name,
				struct hb_error *error);
/*
 * Copies the descriptions of the owner's regions; name "" = all. Returns their number, or -ENOENT with *error if there is
 * no such name.
 */
int hb_shared_memory_list(struct hb_shared_memory *memory, uint64_t owner, const char *name,
			  struct hb_shared_region *out, uint32_t capacity, struct hb_error *error);
/*
 * Functions that read or write a part of a region: all of it, or they fail. They return 0, -ENOENT, -ERANGE or -EIO
 * with *error.
 */
int hb_shared_memory_read(struct hb_shared_memory *memory, uint64_t owner, const char *name, uint64_t offset, void *out,
			  uint64_t bytes, struct hb_error *error);
int hb_shared_memory_write(struct hb_shared_memory *memory, uint64_t owner, const char *name, uint64_t offset,
			   const void *data, uint64_t bytes, struct hb_error *error);

/*
 * Reads the input `tensor` from the region part that it names, into *copy: memory from malloc, which is charged to the
 * request and which the caller frees with the request's source. Returns HB_ANSWER_OK, or the answer that was set.
 */
enum hb_answer hb_shared_memory_read_input(struct hb_inference *infer, struct hb_shared_memory *memory,
					   struct hb_tensor *tensor, void **copy);
/* Writes the outputs that the client asked for in regions. Returns HB_ANSWER_OK, or the answer that was set. */
enum hb_answer hb_shared_memory_write_outputs(struct hb_inference *infer, struct hb_shared_memory *memory);

#endif
