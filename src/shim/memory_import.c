/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The importing side of IPC handles of granules (memory_share.h). Handles that the
 * driver made go to the driver. As with the driver's, a handle that is opened again
 * in the same process gets the same address, and counts.
 */
#include "shim/hook_memory.h"
#include "shim/memory_share.h"
#include "shim/takeover.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

struct memory_import {
	struct hb_share_handle handle;
	CUdevice device;
	CUdeviceptr base;
	size_t bytes; /* mapped */
	unsigned opened;
	struct memory_import *next;
};

/* Held while a handle is opened or closed, so that two threads do not import the same memory twice. Not taken by look-ups. */
static pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER;
/* Guards the list; never held during a driver call. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct memory_import *imports;
static atomic_bool any;

/* ---- the list ---- */

bool hb_share_find_import(CUdeviceptr pointer, CUdeviceptr *base, size_t *bytes)
{
	if (!atomic_load_explicit(&any, memory_order_relaxed))
		return false;
	bool found = false;
	pthread_mutex_lock(&lock);
	for (const struct memory_import *import = imports; import && !found; import = import->next) {
		found = pointer >= import->base && pointer - import->base < import->handle.bytes;
		if (found) {
			*base = import->base;
			*bytes = (size_t)import->handle.bytes;
		}
	}
	pthread_mutex_unlock(&lock);
	return found;
}

static struct memory_import *find_opened(const struct hb_share_handle *handle, CUdevice device)
{
	struct memory_import *import = imports;
	while (import && (import->device != device || memcmp(&import->handle, handle, sizeof(*handle)) != 0))
		import = import->next;
	return import;
}

static void add_import(struct memory_import *import)
{
	pthread_mutex_lock(&lock);
	import->next = imports;
	imports = import;
	pthread_mutex_unlock(&lock);
	atomic_store(&any, true);
}

static void remove_import(struct memory_import *import)
{
	pthread_mutex_lock(&lock);
	struct memory_import **at = &imports;
	while (*at != import)
		at = &(*at)->next;
	*at = import->next;
	pthread_mutex_unlock(&lock);
}

/* ---- the connection ---- */

/* Returns a connected socket, or -1. */
static int connect_to_exporter(const struct hb_share_handle *handle)
{
	const struct timeval limit = {.tv_sec = HB_SHARE_TIMEOUT_MS / 1000,
				      .tv_usec = HB_SHARE_TIMEOUT_MS % 1000 * 1000};
	struct sockaddr_un address;
	unsigned length = hb_share_address(handle->name, &address);
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -1;
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
	if (connect(fd, (struct sockaddr *)&address, length) == 0 && hb_share_is_same_user(fd) &&
	    send(fd, handle, sizeof(*handle), MSG_NOSIGNAL) == (ssize_t)sizeof(*handle))
		return fd;
	close(fd);
	return -1;
}

/* Returns the number of descriptors that came; 0: an error, or there is no such memory. */
static uint32_t receive_packet(int socket, struct hb_share_packet *packet, int fds[HB_SHARE_BATCH])
{
	union {
		struct cmsghdr header;
		char space[CMSG_SPACE(HB_SHARE_BATCH * sizeof(int))];
	} control;
	struct iovec part = {packet, sizeof(*packet)};
	struct msghdr message = {
		.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)};
	uint32_t n = 0;
	ssize_t size = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
	const struct cmsghdr *rights = size >= 0 ? CMSG_FIRSTHDR(&message) : NULL;
	if (rights && rights->cmsg_level == SOL_SOCKET && rights->cmsg_type == SCM_RIGHTS) {
		n = (uint32_t)((rights->cmsg_len - CMSG_LEN(0)) / sizeof(int));
		memcpy(fds, CMSG_DATA(rights), n * sizeof(int));
	}
	if (size == (ssize_t)sizeof(*packet) && n == packet->n_here)
		return n;
	for (uint32_t i = 0; i < n; i++)
		close(fds[i]);
	return 0;
}

/* ---- mapping ---- */

static CUresult map_part(struct memory_import *import, size_t offset, size_t bytes, int fd)
{
	CUmemGenericAllocationHandle handle;
	CUresult result = HB_REAL(cuMemImportFromShareableHandle)(&handle, (void *)(intptr_t)fd,
								  CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
	if (result != CUDA_SUCCESS)
		return result;
	result = HB_REAL(cuMemMap)(import->base + offset, bytes, 0, handle, 0);
	HB_REAL(cuMemRelease)(handle); /* the mapping keeps the memory */
	return result;
}

/* Maps what comes. *mapped: how much, in any case. */
static CUresult map_all(struct memory_import *import, int socket, size_t *mapped)
{
	CUresult result = CUDA_SUCCESS;
	while (result == CUDA_SUCCESS && *mapped < import->bytes) {
		struct hb_share_packet packet;
		int fds[HB_SHARE_BATCH];
		uint32_t n = receive_packet(socket, &packet, fds);
		if (!n)
			result = CUDA_ERROR_INVALID_VALUE;
		for (uint32_t i = 0; i < n; i++) {
			size_t bytes = (size_t)packet.bytes[i];
			if (bytes > import->bytes - *mapped)
				result = CUDA_ERROR_INVALID_VALUE;
			if (result == CUDA_SUCCESS)
				result = map_part(import, *mapped, bytes, fds[i]);
			if (result == CUDA_SUCCESS)
				*mapped += bytes;
			close(fds[i]);
		}
	}
	return result;
}

static CUresult import_memory(struct memory_import *import)
{
	const CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, import->device},
					CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	size_t mapped = 0;
	CUresult result = HB_REAL(cuMemAddressReserve)(&import->base, import->bytes, 0, 0, 0);
	if (result != CUDA_SUCCESS)
		return result;
	int socket = connect_to_exporter(&import->handle);
	result = socket < 0 ? CUDA_ERROR_INVALID_VALUE : map_all(import, socket, &mapped);
	if (socket >= 0)
		close(socket);
	if (result == CUDA_SUCCESS)
		result = HB_REAL(cuMemSetAccess)(import->base, import->bytes, &access, 1);
	if (result == CUDA_SUCCESS)
		return result;
	if (mapped)
		HB_REAL(cuMemUnmap)(import->base, mapped);
	HB_REAL(cuMemAddressFree)(import->base, import->bytes);
	return result;
}

/* With `opening` held. */
static CUresult open_share(const struct hb_share_handle *handle, CUdeviceptr *pointer)
{
	CUdevice device;
	CUresult result = HB_REAL(cuCtxGetDevice)(&device);
	if (result != CUDA_SUCCESS)
		return result;
	struct memory_import *import = find_opened(handle, device);
	if (import) {
		import->opened++;
		*pointer = import->base;
		return CUDA_SUCCESS;
	}
	if (!handle->bytes || handle->bytes > SIZE_MAX - HB_GRANULE_UNIT)
		return CUDA_ERROR_INVALID_VALUE;
	import = calloc(1, sizeof(*import));
	if (!import)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*import = (struct memory_import){.handle = *handle, .device = device, .opened = 1};
	import->bytes = (handle->bytes + HB_GRANULE_UNIT - 1) / HB_GRANULE_UNIT * HB_GRANULE_UNIT;
	result = import_memory(import);
	if (result == CUDA_SUCCESS) {
		*pointer = import->base;
		add_import(import);
	} else {
		free(import);
	}
	return result;
}

/* ---- hooks ---- */

#define OPEN(name) \
	CUresult hb_hook_##name(CUdeviceptr *pointer, CUipcMemHandle handle, unsigned int flags) \
	{ \
		struct hb_share_handle share; \
		memcpy(&share, &handle, sizeof(share)); \
		hb_elastic_stop_allocating(); \
		if (share.magic != HB_SHARE_MAGIC || !pointer) \
			return HB_REAL(name)(pointer, handle, flags); \
		pthread_mutex_lock(&opening); \
		CUresult result = HB_DOUBT(open_share(&share, pointer)); \
		pthread_mutex_unlock(&opening); \
		return result; \
	}

OPEN(cuIpcOpenMemHandle)
OPEN(cuIpcOpenMemHandle_v2)

/* With `opening` held. As the driver does, waits for work that uses the memory. */
static CUresult close_share(struct memory_import *import)
{
	if (import->opened > 1) {
		import->opened--;
		return CUDA_SUCCESS;
	}
	CUresult result = HB_REAL(cuCtxSynchronize)();
	if (result == CUDA_SUCCESS)
		result = HB_REAL(cuMemUnmap)(import->base, import->bytes);
	if (result != CUDA_SUCCESS)
		return result;
	remove_import(import);
	HB_REAL(cuMemAddressFree)(import->base, import->bytes);
	free(import);
	return CUDA_SUCCESS;
}

CUresult hb_hook_cuIpcCloseMemHandle(CUdeviceptr pointer)
{
	CUresult result;
	if (!atomic_load_explicit(&any, memory_order_relaxed))
		return HB_REAL(cuIpcCloseMemHandle)(pointer);
	pthread_mutex_lock(&opening);
	struct memory_import *import = imports;
	while (import && import->base != pointer)
		import = import->next;
	result = import ? HB_WIDE(close_share(import)) : HB_REAL(cuIpcCloseMemHandle)(pointer);
	pthread_mutex_unlock(&opening);
	return result;
}

void hb_share_import_leave_in_child(void)
{
	pthread_mutex_init(&opening, NULL);
	pthread_mutex_init(&lock, NULL);
	imports = NULL; /* not freed: another thread may have held the allocator's lock at the fork */
	atomic_store(&any, false);
}
