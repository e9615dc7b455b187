/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Legacy IPC handles of granules (cuIpcGetMemHandle and its counterparts): the
 * driver has none, so the shim makes them. The handle names a Unix socket of the
 * exporting process. A process with the shim that opens the handle gets the file
 * descriptors of the granules there, imports them and maps them.
 *
 *   memory_export.c  makes handles; a thread answers at the socket
 *   memory_import.c  opens and closes them
 *
 * Both sides talk to processes of the same user only, as the kernel names it. The
 * shared memory stays where it is from then on. The driver refuses these handles,
 * so a process without the shim gets an error.
 */
#ifndef HB_SHIM_MEMORY_SHARE_H
#define HB_SHIM_MEMORY_SHARE_H

#include "nvidia/cuda_abi.h"
#include "shim/elastic.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/un.h>

#define HB_SHARE_MAGIC UINT64_C(0x3145524148534248) /* "HBSHARE1" */
#define HB_SHARE_BATCH 64                           /* most descriptors in one packet; the kernel's limit is 253 */
#define HB_SHARE_TIMEOUT_MS 2000                    /* for each packet, on both sides */

/* The handle, in the bytes of CUipcMemHandle. */
struct hb_share_handle {
	uint64_t magic;
	unsigned char name[16]; /* random; of the socket */
	uint64_t base, bytes;   /* of the allocation, in the exporting process */
	uint64_t serial;        /* of the allocation: differs from that of an earlier one at the same address */
	uint64_t zero[2];
};
_Static_assert(sizeof(struct hb_share_handle) == sizeof(CUipcMemHandle), "handle");

/* The client sends the handle; the server answers with packets until `n_total` granules are sent. */
struct hb_share_packet {
	uint32_t n_total; /* granules of the allocation; 0 = there is no such allocation (any more) */
	uint32_t n_here;  /* descriptors in this packet */
	uint64_t bytes[HB_SHARE_BATCH];
};

/* Makes a handle of granules. Any error: none can be made. */
CUresult hb_share_export(const struct hb_elastic_found *found, CUipcMemHandle *handle);
/* Whether the address belongs to imported granules; *base and *bytes are those of the allocation. */
bool hb_share_find_import(CUdeviceptr pointer, CUdeviceptr *base, size_t *bytes);

/* memory_export.c: the address of the socket with this name. Returns its length. */
unsigned hb_share_address(const unsigned char name[16], struct sockaddr_un *address);
/* Whether the process at the other end of the connection belongs to the same user. */
bool hb_share_is_same_user(int socket);

/* In a forked child, which has no other threads. */
void hb_share_export_leave_in_child(void);
void hb_share_import_leave_in_child(void);

#endif
