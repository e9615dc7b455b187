/* SPDX-License-Identifier: Apache-2.0 */
/* See shared_memory.h. */
#include "server/kserve/shared_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define INPUT_BYTES_MAX (UINT64_C(1) << 31)

struct hb_shared_memory {
	pthread_mutex_t lock; /* guards the rest */
	uint32_t n;
	struct hb_shared_region region[HB_SHARED_REGIONS_MAX];
	uint64_t owner[HB_SHARED_REGIONS_MAX];
	int fd[HB_SHARED_REGIONS_MAX];
};

/* ---- regions ---- */

struct hb_shared_memory *hb_shared_memory_new(void)
{
	struct hb_shared_memory *memory = calloc(1, sizeof(*memory));
	if (memory)
		pthread_mutex_init(&memory->lock, NULL);
	return memory;
}

void hb_shared_memory_free(struct hb_shared_memory *memory)
{
	if (!memory)
		return;
	for (uint32_t i = 0; i < memory->n; i++)
		close(memory->fd[i]);
	pthread_mutex_destroy(&memory->lock);
	free(memory);
}

/* Returns the index of the region; HB_SHARED_REGIONS_MAX if the owner has none of this name. */
static uint32_t find_region(const struct hb_shared_memory *memory, uint64_t owner, const char *name)
{
	for (uint32_t i = 0; i < memory->n; i++)
		if (memory->owner[i] == owner && strcmp(memory->region[i].name, name) == 0)
			return i;
	return HB_SHARED_REGIONS_MAX;
}

static uint32_t count_regions(const struct hb_shared_memory *memory, uint64_t owner)
{
	uint32_t n = 0;
	for (uint32_t i = 0; i < memory->n; i++)
		n += memory->owner[i] == owner;
	return n;
}

/* Checks the open file and not its name, which another process may give to another file at any time. */
static int open_region(const struct hb_access *access, const struct hb_caller *caller,
		       const struct hb_shared_region *region, struct hb_error *error)
{
	const char *name = region->key[0] == '/' ? region->key + 1 : region->key;
	struct stat status;
	if (!name[0] || strchr(name, '/'))
		return hb_error_set(error, -EINVAL, "region \"%s\": key \"%s\" is not a name of shared memory",
				    region->name, region->key);
	int fd = shm_open(region->key, O_RDWR | O_CLOEXEC, 0); /* follows no symbolic link */
	if (fd < 0)
		return hb_error_set(error, -errno, "region \"%s\": key \"%s\": %s", region->name, region->key,
				    strerror(errno));
	if (fstat(fd, &status) < 0 || hb_access_check_object(access, caller, region->key, &status, error) < 0) {
		close(fd);
		return -EACCES;
	}
	if (region->bytes == 0 || region->offset > (uint64_t)status.st_size ||
	    region->bytes > (uint64_t)status.st_size - region->offset) {
		close(fd);
		return hb_error_set(error, -EINVAL,
				    "region \"%s\": %llu bytes at offset %llu are not inside key \"%s\"", region->name,
				    (unsigned long long)region->bytes, (unsigned long long)region->offset, region->key);
	}
	return fd;
}

int hb_shared_memory_register(struct hb_shared_memory *memory, const struct hb_access *access,
			      const struct hb_caller *caller, const struct hb_shared_region *region,
			      struct hb_error *error)
{
	int fd = open_region(access, caller, region, error), result = 0;
	if (fd < 0)
		return fd;
	pthread_mutex_lock(&memory->lock);
	if (find_region(memory, caller->id, region->name) != HB_SHARED_REGIONS_MAX)
		result = hb_error_set(error, -EEXIST, "region \"%s\" is already registered", region->name);
	else if (memory->n == HB_SHARED_REGIONS_MAX || count_regions(memory, caller->id) == HB_SHARED_REGIONS_OF_OWNER)
		result = hb_error_set(error, -ENOSPC,
				      "region \"%s\": a client can have %d regions, and all clients together %d",
				      region->name, HB_SHARED_REGIONS_OF_OWNER, HB_SHARED_REGIONS_MAX);
	else {
		memory->region[memory->n] = *region;
		memory->owner[memory->n] = caller->id;
		memory->fd[memory->n++] = fd;
	}
	pthread_mutex_unlock(&memory->lock);
	if (result < 0)
		close(fd);
	return result;
}

static void remove_region(struct hb_shared_memory *memory, uint32_t index)
{
	close(memory->fd[index]);
	memory->n--;
	memory->region[index] = memory->region[memory->n];
	memory->owner[index] = memory->owner[memory->n];
	memory->fd[index] = memory->fd[memory->n];
}

int hb_shared_memory_unregister(struct hb_shared_memory *memory, uint64_t owner, const char *name,
				struct hb_error *error)
{
	int result = 0;
	pthread_mutex_lock(&memory->lock);
	uint32_t index = find_region(memory, owner, name);
	if (index != HB_SHARED_REGIONS_MAX)
		remove_region(memory, index);
	else if (name[0])
		result = hb_error_set(error, -ENOENT, "no region \"%s\" is registered", name);
	for (uint32_t i = memory->n; !name[0] && i > 0; i--)
		if (memory->owner[i - 1] == owner)
			remove_region(memory, i - 1);
	pthread_mutex_unlock(&memory->lock);
	return result;
}

int hb_shared_memory_list(struct hb_shared_memory *memory, uint64_t owner, const char *name,
			  struct hb_shared_region *out, uint32_t capacity, struct hb_error *error)
{
	int n = 0;
	pthread_mutex_lock(&memory->lock);
	for (uint32_t i = 0; i < memory->n; i++)
		if (memory->owner[i] == owner && (!name[0] || strcmp(memory->region[i].name, name) == 0) &&
		    (uint32_t)n < capacity)
			out[n++] = memory->region[i];
	pthread_mutex_unlock(&memory->lock);
	return n || !name[0] ? n : hb_error_set(error, -ENOENT, "no region \"%s\" is registered", name);
}

/* ---- their content ---- */

/* Finds a part of a region: a duplicate of the region's descriptor and the part's place in that file; or negative errno. */
static int open_part(struct hb_shared_memory *memory, uint64_t owner, const char *name, uint64_t offset, uint64_t bytes,
		     uint64_t *begin, struct hb_error *error)
{
	int result;
	pthread_mutex_lock(&memory->lock);
	uint32_t index = find_region(memory, owner, name);
	const struct hb_shared_region *region = &memory->region[index == HB_SHARED_REGIONS_MAX ? 0 : index];
	if (index == HB_SHARED_REGIONS_MAX)
		result = hb_error_set(error, -ENOENT, "no region \"%s\" is registered", name);
	else if (offset > region->bytes || bytes > region->bytes - offset)
		result = hb_error_set(
			error, -ERANGE, "region \"%s\": %llu bytes at offset %llu are not inside its %llu bytes", name,
			(unsigned long long)bytes, (unsigned long long)offset, (unsigned long long)region->bytes);
	else {
		*begin = region->offset + offset;
		result = fcntl(memory->fd[index], F_DUPFD_CLOEXEC, 0);
		if (result < 0)
			result = hb_error_set(error, -errno, "region \"%s\": %s", name, strerror(errno));
	}
	pthread_mutex_unlock(&memory->lock);
	return result;
}

static int move_bytes(int fd, uint64_t begin, char *data, uint64_t bytes, bool write)
{
	for (uint64_t done = 0; done < bytes;) {
		ssize_t n = write ? pwrite(fd, data + done, bytes - done, (off_t)(begin + done))
				  : pread(fd, data + done, bytes - done, (off_t)(begin + done));
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return -EIO;
		done += (uint64_t)n;
	}
	return 0;
}

static int move_part(struct hb_shared_memory *memory, uint64_t owner, const char *name, uint64_t offset, void *data,
		     uint64_t bytes, bool write, struct hb_error *error)
{
	struct stat status;
	uint64_t begin = 0;
	int fd = open_part(memory, owner, name, offset, bytes, &begin, error);
	if (fd < 0)
		return fd;
	/* The owner may have truncated the file since; writing behind its end would make it longer again. */
	bool inside = fstat(fd, &status) == 0 && begin + bytes <= (uint64_t)status.st_size;
	int result = inside ? move_bytes(fd, begin, data, bytes, write) : -EIO;
	close(fd);
	return result == 0
		       ? 0
		       : hb_error_set(error, result, "region \"%s\" is shorter now than when it was registered", name);
}

int hb_shared_memory_read(struct hb_shared_memory *memory, uint64_t owner, const char *name, uint64_t offset, void *out,
			  uint64_t bytes, struct hb_error *error)
{
	return move_part(memory, owner, name, offset, out, bytes, false, error);
}

int hb_shared_memory_write(struct hb_shared_memory *memory, uint64_t owner, const char *name, uint64_t offset,
			   const void *data, uint64_t bytes, struct hb_error *error)
{
	return move_part(memory, owner, name, offset, (void *)data, bytes, true, error);
}

/* ---- tensors of a request ---- */

enum hb_answer hb_shared_memory_read_input(struct hb_inference *infer, struct hb_shared_memory *memory,
					   struct hb_tensor *tensor, void **copy)
{
	struct hb_error error = {.text = ""};
	const struct hb_region_part *part = &tensor->part;
	if (part->bytes > INPUT_BYTES_MAX)
		return hb_inference_fail(infer, HB_ANSWER_TOO_LARGE, "input \"%s\" is larger than 2 GiB", tensor->name);
	if (hb_inference_allocate(infer, part->bytes ? part->bytes : 1, copy) != HB_ANSWER_OK)
		return infer->answer;
	if (hb_shared_memory_read(memory, infer->caller, part->region, part->offset, *copy, part->bytes, &error) < 0)
		return hb_inference_fail(infer, HB_ANSWER_BAD_REQUEST, "input \"%s\": %s", tensor->name, error.text);
	tensor->data = *copy;
	tensor->bytes = part->bytes;
	return HB_ANSWER_OK;
}

static struct hb_tensor *find_output(struct hb_inference *infer, const char *name)
{
	for (uint32_t i = 0; i < infer->n_outputs; i++)
		if (strcmp(infer->outputs[i].name, name) == 0)
			return &infer->outputs[i];
	return NULL;
}

enum hb_answer hb_shared_memory_write_outputs(struct hb_inference *infer, struct hb_shared_memory *memory)
{
	struct hb_error error = {.text = ""};
	for (uint32_t i = 0; i < infer->n_requested; i++) {
		const struct hb_region_part *part = &infer->requested[i].part;
		struct hb_tensor *output = find_output(infer, infer->requested[i].name);
		if (!part->region[0] || !output)
			continue;
		if (output->bytes > part->bytes)
			return hb_inference_fail(infer, HB_ANSWER_BAD_REQUEST,
						 "output \"%s\" has %llu bytes, but its part of the region has %llu",
						 output->name, (unsigned long long)output->bytes,
						 (unsigned long long)part->bytes);
		if (hb_shared_memory_write(memory, infer->caller, part->region, part->offset, output->data,
					   output->bytes, &error) < 0)
			return hb_inference_fail(infer, HB_ANSWER_BAD_REQUEST, "output \"%s\": %s", output->name,
						 error.text);
		output->part = *part;
		output->part.bytes = output->bytes;
	}
	return HB_ANSWER_OK;
}
