/* SPDX-License-Identifier: Apache-2.0 */
/* See regions.h. */
#include "server/kserve/regions.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

struct hb_regions {
	pthread_mutex_t lock;
	uint32_t n;
	struct hb_region region[HB_REGIONS_MAX];
	int fd[HB_REGIONS_MAX];
};

struct hb_regions *hb_regions_new(void)
{
	struct hb_regions *regions = calloc(1, sizeof(*regions));
	if (regions)
		pthread_mutex_init(&regions->lock, NULL);
	return regions;
}

void hb_regions_free(struct hb_regions *regions)
{
	if (!regions)
		return;
	for (uint32_t i = 0; i < regions->n; i++)
		close(regions->fd[i]);
	pthread_mutex_destroy(&regions->lock);
	free(regions);
}

/* HB_REGIONS_MAX = none. */
static uint32_t find(const struct hb_regions *regions, const char *name)
{
	for (uint32_t i = 0; i < regions->n; i++)
		if (strcmp(regions->region[i].name, name) == 0)
			return i;
	return HB_REGIONS_MAX;
}

static int open_region(const struct hb_region *region, struct hb_error *error)
{
	const char *name = region->key[0] == '/' ? region->key + 1 : region->key;
	struct stat status;
	if (!name[0] || strchr(name, '/'))
		return hb_error_set(error, -EINVAL, "region \"%s\": key \"%s\" is no name of shared memory",
				    region->name, region->key);
	int fd = shm_open(region->key, O_RDWR | O_CLOEXEC, 0);
	if (fd < 0)
		return hb_error_set(error, -errno, "region \"%s\": key \"%s\": %s", region->name, region->key,
				    strerror(errno));
	if (fstat(fd, &status) < 0 || region->bytes == 0 || region->offset > (uint64_t)status.st_size ||
	    region->bytes > (uint64_t)status.st_size - region->offset) {
		close(fd);
		return hb_error_set(error, -EINVAL, "region \"%s\": %llu bytes from %llu are not inside key \"%s\"",
				    region->name, (unsigned long long)region->bytes, (unsigned long long)region->offset,
				    region->key);
	}
	return fd;
}

int hb_regions_register(struct hb_regions *regions, const struct hb_region *region, struct hb_error *error)
{
	int fd = open_region(region, error), result = 0;
	if (fd < 0)
		return fd;
	pthread_mutex_lock(&regions->lock);
	if (find(regions, region->name) != HB_REGIONS_MAX)
		result = hb_error_set(error, -EEXIST, "region \"%s\" is registered already", region->name);
	else if (regions->n == HB_REGIONS_MAX)
		result = hb_error_set(error, -ENOSPC, "region \"%s\": more than %d regions", region->name,
				      HB_REGIONS_MAX);
	else {
		regions->region[regions->n] = *region;
		regions->fd[regions->n++] = fd;
	}
	pthread_mutex_unlock(&regions->lock);
	if (result < 0)
		close(fd);
	return result;
}

static void forget(struct hb_regions *regions, uint32_t at)
{
	close(regions->fd[at]);
	regions->n--;
	regions->region[at] = regions->region[regions->n];
	regions->fd[at] = regions->fd[regions->n];
}

int hb_regions_unregister(struct hb_regions *regions, const char *name, struct hb_error *error)
{
	int result = 0;
	pthread_mutex_lock(&regions->lock);
	uint32_t at = find(regions, name);
	if (at != HB_REGIONS_MAX)
		forget(regions, at);
	else if (name[0])
		result = hb_error_set(error, -ENOENT, "no region \"%s\" is registered", name);
	while (!name[0] && regions->n)
		forget(regions, regions->n - 1);
	pthread_mutex_unlock(&regions->lock);
	return result;
}

int hb_regions_list(struct hb_regions *regions, const char *name, struct hb_region *out, uint32_t capacity,
		    struct hb_error *error)
{
	int n = 0;
	pthread_mutex_lock(&regions->lock);
	for (uint32_t i = 0; i < regions->n; i++)
		if ((!name[0] || strcmp(regions->region[i].name, name) == 0) && (uint32_t)n < capacity)
			out[n++] = regions->region[i];
	pthread_mutex_unlock(&regions->lock);
	return n || !name[0] ? n : hb_error_set(error, -ENOENT, "no region \"%s\" is registered", name);
}

/* A descriptor of our own for the part, and where it begins; negative errno. */
static int take_part(struct hb_regions *regions, const char *name, uint64_t offset, uint64_t bytes, uint64_t *begin,
		     struct hb_error *error)
{
	int result;
	pthread_mutex_lock(&regions->lock);
	uint32_t at = find(regions, name);
	const struct hb_region *region = &regions->region[at == HB_REGIONS_MAX ? 0 : at];
	if (at == HB_REGIONS_MAX)
		result = hb_error_set(error, -ENOENT, "no region \"%s\" is registered", name);
	else if (offset > region->bytes || bytes > region->bytes - offset)
		result = hb_error_set(error, -ERANGE, "region \"%s\": %llu bytes from %llu are not inside its %llu",
				      name, (unsigned long long)bytes, (unsigned long long)offset,
				      (unsigned long long)region->bytes);
	else {
		*begin = region->offset + offset;
		result = fcntl(regions->fd[at], F_DUPFD_CLOEXEC, 0);
		if (result < 0)
			result = hb_error_set(error, -errno, "region \"%s\": %s", name, strerror(errno));
	}
	pthread_mutex_unlock(&regions->lock);
	return result;
}

static int move(int fd, uint64_t begin, char *data, uint64_t bytes, bool write)
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

static int move_part(struct hb_regions *regions, const char *name, uint64_t offset, void *data, uint64_t bytes,
		     bool write, struct hb_error *error)
{
	struct stat status;
	uint64_t begin = 0;
	int fd = take_part(regions, name, offset, bytes, &begin, error);
	if (fd < 0)
		return fd;
	/* Writing past the end would make a region longer that its owner has cut. */
	bool inside = fstat(fd, &status) == 0 && begin + bytes <= (uint64_t)status.st_size;
	int result = inside ? move(fd, begin, data, bytes, write) : -EIO;
	close(fd);
	return result == 0 ? 0 : hb_error_set(error, result, "region \"%s\" is shorter than it was registered", name);
}

int hb_regions_read(struct hb_regions *regions, const char *name, uint64_t offset, void *out, uint64_t bytes,
		    struct hb_error *error)
{
	return move_part(regions, name, offset, out, bytes, false, error);
}

int hb_regions_write(struct hb_regions *regions, const char *name, uint64_t offset, const void *data, uint64_t bytes,
		     struct hb_error *error)
{
	return move_part(regions, name, offset, (void *)data, bytes, true, error);
}
