/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Physical handles that an elastic program makes itself with cuMemCreate, as
 * expandable segments of PyTorch do (docs/decisions/0045-own-handles.md). A handle
 * that may move gets a number of the shim in place of the driver's handle: a move
 * exchanges the memory behind it, and the driver's handle with it.
 *
 * Memory moves while the handle is mapped once, whole, and accessible to its own
 * device only. Any other use brings it home, and it stays there for good.
 *
 * The functions below are the driver's functions of the same names for handles of
 * both kinds. The hooks of hook_handles.c call them; they know no account. One lock
 * is held during their driver calls, so that they follow each other, but only in a
 * process that has numbers; look-ups do not take it. The thread that moves memory
 * never takes it.
 */
#ifndef HB_SHIM_OWN_HANDLES_H
#define HB_SHIM_OWN_HANDLES_H

#include "nvidia/cuda_abi.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

CUresult hb_own_create(CUmemGenericAllocationHandle *handle, size_t bytes, const CUmemAllocationProp *prop,
		       unsigned long long flags);
CUresult hb_own_release(CUmemGenericAllocationHandle handle);
CUresult hb_own_retain(CUmemGenericAllocationHandle *handle, void *address);
CUresult hb_own_map(CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
		    unsigned long long flags);
CUresult hb_own_unmap(CUdeviceptr address, size_t bytes);
CUresult hb_own_set_access(CUdeviceptr address, size_t bytes, const CUmemAccessDesc *descs, size_t n);
CUresult hb_own_get_properties(CUmemAllocationProp *prop, CUmemGenericAllocationHandle handle);
CUresult hb_own_export(void *shareable, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type,
		       unsigned long long flags);

CUresult hb_own_bind_multicast(CUmemGenericAllocationHandle multicast, size_t multicast_offset,
			       CUmemGenericAllocationHandle handle, size_t offset, size_t bytes,
			       unsigned long long flags);

/*
 * Others are about to get to know what is mapped in the range: it is on its own device from now on. An error: some of it is
 * elsewhere and cannot return now, so they must not.
 */
CUresult hb_own_keep_home(CUdeviceptr address, size_t bytes);

/* A mapping of memory that can move. */
struct hb_own_found {
	CUdeviceptr base;
	size_t bytes;
	int device;
	uint64_t id; /* of the mapping */
	CUmemAllocationHandleType handle_types;
	bool moves; /* its device has access, and nobody else */
};
/* Finds the mapping around the address. Takes no lock that is held during a driver call. */
bool hb_own_find(CUdeviceptr pointer, struct hb_own_found *found);
/* Bytes of this device that are elsewhere and not mapped now. */
size_t hb_own_unmapped_away_bytes(int device);

/*
 * The program has looked up a function that the shim does not know. If it may take handles, no further numbers are given. `known`:
 * another version of a function with a hook.
 */
void hb_own_note_unknown(const char *symbol, bool known);

/* In a forked child, which has no other threads. */
void hb_own_leave_in_child(void);

#endif
