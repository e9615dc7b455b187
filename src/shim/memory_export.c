/* SPDX-License-Identifier: Apache-2.0 */
/* The exporting side of IPC handles of granules (memory_share.h). */
#include "base/thread.h"
#include "shim/memory_share.h"
#include "shim/memory_table.h"
#include "shim/shim.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

/* Guards the next three; held while the socket is made. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int listener = -1;
static ino_t listener_inode;
static unsigned char name[16];

unsigned hb_share_address(const unsigned char wanted[16], struct sockaddr_un *address)
{
	*address = (struct sockaddr_un){.sun_family = AF_UNIX};
	char *path = address->sun_path + 1; /* an abstract name: it needs no file and ends with the process */
	int length = snprintf(path, sizeof(address->sun_path) - 1, "hummingbird-memory-");
	for (int i = 0; i < 16; i++)
		length += snprintf(path + length, 3, "%02x", wanted[i]);
	return (unsigned)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
}

bool hb_share_is_same_user(int socket)
{
	struct ucred peer;
	socklen_t size = sizeof(peer);
	return getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == geteuid();
}

/* ---- the thread ---- */

static uint64_t serial_of(CUdeviceptr base)
{
	struct hb_memory_entry entry;
	return hb_memory_table_get(HB_MEMORY_POINTER, base, &entry) ? entry.serial : 0;
}

static bool send_packet(int socket, const struct hb_share_packet *packet, const int *fds)
{
	union {
		struct cmsghdr header;
		char space[CMSG_SPACE(HB_SHARE_BATCH * sizeof(int))];
	} control = {0};
	struct iovec part = {(void *)packet, sizeof(*packet)};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
	if (packet->n_here) {
		message.msg_control = &control;
		message.msg_controllen = CMSG_SPACE(packet->n_here * sizeof(int));
		struct cmsghdr *rights = CMSG_FIRSTHDR(&message);
		rights->cmsg_level = SOL_SOCKET;
		rights->cmsg_type = SCM_RIGHTS;
		rights->cmsg_len = CMSG_LEN(packet->n_here * sizeof(int));
		memcpy(CMSG_DATA(rights), fds, packet->n_here * sizeof(int));
	}
	return sendmsg(socket, &message, MSG_NOSIGNAL) == (ssize_t)sizeof(*packet);
}

/* Sends up to HB_SHARE_BATCH granules from `first` on. Returns how many; 0: an error. */
static uint32_t send_batch(int socket, struct hb_granules *granules, CUdeviceptr base, uint32_t first, uint32_t n_total)
{
	struct hb_share_packet packet = {.n_total = n_total};
	int fds[HB_SHARE_BATCH];
	CUresult result = CUDA_SUCCESS;
	while (packet.n_here < HB_SHARE_BATCH && first + packet.n_here < n_total && result == CUDA_SUCCESS) {
		CUmemGenericAllocationHandle handle;
		size_t bytes;
		result = hb_granules_part(granules, base, first + packet.n_here, &handle, &bytes) > 0
				 ? HB_REAL(cuMemExportToShareableHandle)(&fds[packet.n_here], handle,
									 CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0)
				 : CUDA_ERROR_INVALID_VALUE;
		if (result == CUDA_SUCCESS)
			packet.bytes[packet.n_here++] = bytes;
	}
	bool sent = result == CUDA_SUCCESS && send_packet(socket, &packet, fds);
	for (uint32_t i = 0; i < packet.n_here; i++)
		close(fds[i]);
	return sent ? packet.n_here : 0;
}

static void answer_client(int socket)
{
	struct hb_share_handle asked;
	struct hb_elastic_found found;
	const struct hb_share_packet none = {0};
	if (!hb_share_is_same_user(socket) || recv(socket, &asked, sizeof(asked), 0) != (ssize_t)sizeof(asked))
		return;
	bool known = hb_elastic_find(asked.base, &found) && found.range.base == asked.base &&
		     found.range.stays == HB_STAY_SHARED && asked.serial && serial_of(asked.base) == asked.serial;
	struct hb_granules *granules = known ? hb_elastic_granules(found.device) : NULL;
	CUmemGenericAllocationHandle handle;
	size_t bytes;
	uint32_t n_total = granules ? (uint32_t)hb_granules_part(granules, asked.base, 0, &handle, &bytes) : 0;
	uint32_t sent = 0, more = 1;
	while (sent < n_total && (more = send_batch(socket, granules, asked.base, sent, n_total)) > 0)
		sent += more;
	if (!n_total || !more)
		send_packet(socket, &none, NULL);
}

static void set_timeouts(int socket)
{
	const struct timeval limit = {.tv_sec = HB_SHARE_TIMEOUT_MS / 1000,
				      .tv_usec = HB_SHARE_TIMEOUT_MS % 1000 * 1000};
	setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
}

/* Whether the descriptor is still the socket: the program may have closed it and reused its number. */
static bool is_listener(int fd)
{
	struct stat found;
	return fd >= 0 && fstat(fd, &found) == 0 && found.st_ino == listener_inode && S_ISSOCK(found.st_mode);
}

static void *run_thread(void *argument)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	int fd = (int)(intptr_t)argument;
	prctl(PR_SET_NAME, "hb-share");
	HB_REAL(cuThreadExchangeStreamCaptureMode)(&mode);
	while (is_listener(fd)) {
		int client = accept4(fd, NULL, NULL, SOCK_CLOEXEC);
		if (client < 0)
			continue;
		set_timeouts(client);
		answer_client(client);
		close(client);
	}
	return NULL;
}

/* ---- handles ---- */

/* With the lock held. */
static bool open_listener(void)
{
	struct sockaddr_un address;
	struct stat made;
	if (getrandom(name, sizeof(name), 0) != (ssize_t)sizeof(name))
		return false;
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	unsigned length = hb_share_address(name, &address);
	bool ready = fd >= 0 && bind(fd, (struct sockaddr *)&address, length) == 0 && listen(fd, 64) == 0 &&
		     fstat(fd, &made) == 0;
	if (ready) {
		listener_inode = made.st_ino;
		ready = hb_thread_start(NULL, 0, run_thread, (void *)(intptr_t)fd) == 0;
	}
	if (ready)
		listener = fd;
	else if (fd >= 0)
		close(fd);
	return ready;
}

CUresult hb_share_export(const struct hb_elastic_found *found, CUipcMemHandle *handle)
{
	struct hb_share_handle made = {.magic = HB_SHARE_MAGIC,
				       .base = found->range.base,
				       .bytes = found->range.bytes,
				       .serial = serial_of(found->range.base)};
	pthread_mutex_lock(&lock);
	bool ready = listener >= 0 || open_listener();
	memcpy(made.name, name, sizeof(made.name));
	pthread_mutex_unlock(&lock);
	if (!ready || !made.serial)
		return CUDA_ERROR_OUT_OF_MEMORY;
	memcpy(handle, &made, sizeof(made));
	return CUDA_SUCCESS;
}

void hb_share_export_leave_in_child(void)
{
	pthread_mutex_init(&lock, NULL);
	if (is_listener(listener))
		close(listener); /* else the name would outlive the parent */
	listener = -1;
}
