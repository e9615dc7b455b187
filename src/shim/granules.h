/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Device memory that can move: an allocation is an address range whose physical
 * memory consists of granules, and a granule can be exchanged for one in another
 * place (peer GPU, host) under the same address. docs/decisions/0025-elastic-memory.md
 * says why, and who decides about moves.
 *
 * Called by the shim of an elastic tenant: allocation, free and look-up by any
 * thread, moves and spares by one thread at a time. Driver calls go through a table.
 * No lock is held during a driver call. This module holds no program back and knows
 * no stream but the one that it is given: its caller has to make sure that nothing
 * uses the memory from hb_granule_move_copy() to the end of the move.
 */
#ifndef HB_SHIM_GRANULES_H
#define HB_SHIM_GRANULES_H

#include "nvidia/cuda_abi.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HB_GRANULE_UNIT ((size_t)2 << 20)       /* the driver's granularity: every size is a multiple */
#define HB_GRANULE_BYTES_MAX ((size_t)64 << 20) /* the size measured on an H200 (decision 0025) */

/* The driver's functions. */
struct hb_granule_driver {
	__typeof__(&cuMemAddressReserve) address_reserve;
	__typeof__(&cuMemAddressFree) address_free;
	__typeof__(&cuMemCreate) create;
	__typeof__(&cuMemRelease) release;
	__typeof__(&cuMemMap) map;
	__typeof__(&cuMemUnmap) unmap;
	__typeof__(&cuMemSetAccess) set_access;
	__typeof__(&cuMemcpyDtoDAsync_v2) copy;
	__typeof__(&cuStreamQuery) query;
	__typeof__(&cuStreamSynchronize) synchronize;
};

struct hb_granule_config {
	const struct hb_granule_driver *driver;
	int device;                             /* the device of the allocations; only it has access */
	CUmemLocation host;                     /* memory of the host that is near to the device */
	size_t granule_bytes;                   /* a multiple of HB_GRANULE_UNIT, at most HB_GRANULE_BYTES_MAX */
	CUmemAllocationHandleType handle_types; /* for which the memory can be exported; 0 = none */
};

/* Why an allocation stays where it is. After the first row: enum hb_stay_reason of hummingbird/page.h plus 1. */
enum hb_granules_stay {
	HB_STAY_NOT,    /* it can move */
	HB_STAY_SHARED, /* another process maps it */
	HB_STAY_PEERS,  /* other devices have access */
	HB_STAY_DEVICE, /* a device that is no GPU knows its physical addresses */
	HB_N_STAYS
};

/* How physical memory is created, besides its size and place. */
struct hb_granule_kind {
	CUmemAllocationHandleType handle_types; /* for which it can be exported; 0 = none */
	unsigned char rdma;                     /* gpuDirectRDMACapable */
};

struct hb_granules;
struct hb_granule_move;

/* NULL: out of memory, or the size of granules is wrong. */
struct hb_granules *hb_granules_new(const struct hb_granule_config *config);
/* Forgets everything without a driver call; spare granules have to be given back before (hb_granules_keep_spares()). */
void hb_granules_free(struct hb_granules *granules);

/* --- allocations ------------------------------------------------------------------ */

/* Allocates on the device. Nothing is left behind if it fails. */
CUresult hb_granules_allocate(struct hb_granules *granules, size_t bytes, CUdeviceptr *address);
/*
 * The same, with at most `local_bytes` (of units) on the device and the rest on the host. *over_bytes: how much is on the
 * host, which the caller does not count as memory of the device.
 */
CUresult hb_granules_allocate_over(struct hb_granules *granules, size_t bytes, size_t local_bytes, size_t *over_bytes,
				   CUdeviceptr *address);
/*
 * Frees the allocation that begins at the address; CUDA_ERROR_INVALID_VALUE if none does. The caller has waited for work that
 * uses the memory. Removes it from a move that is prepared; waits for the end of a move that copies. *over_bytes, not more than
 * `counted_bytes`: what it had on the host and the caller did not count; may be NULL.
 */
CUresult hb_granules_release(struct hb_granules *granules, CUdeviceptr address, size_t counted_bytes,
			     size_t *over_bytes);
/* The caller now counts so much of what is on the host. Returns how much it was: no more than was not counted. */
size_t hb_granules_count_over(struct hb_granules *granules, size_t bytes);

struct hb_granules_range {
	CUdeviceptr base;
	size_t bytes; /* as the program asked for */
	enum hb_granules_stay stays;
};
/* Finds the allocation around the address. */
bool hb_granules_find(struct hb_granules *granules, CUdeviceptr address, struct hb_granules_range *found);
/* From now on the allocation stays where it is. Moves: as in hb_granules_release(). False: there is no such allocation. */
bool hb_granules_pin(struct hb_granules *granules, CUdeviceptr address, enum hb_granules_stay why);

/*
 * Memory of a physical handle that the program made (own_handles.h), of HB_GRANULE_BYTES_MAX at most. It is in `place`, and is
 * created as `local` on its own device.
 */
struct hb_granules_piece {
	CUmemGenericAllocationHandle handle; /* the driver's */
	size_t bytes;
	CUmemLocation place;
	struct hb_granule_kind local;
	CUdeviceptr ready; /* of host memory of this module: a second address of it; else 0 */
};
/*
 * All of the memory is mapped at the address, and the device has access: it moves as an allocation from now on, but
 * hb_granules_find(), _release() and _part() do not know it. False: out of memory, or the size is wrong.
 */
bool hb_granules_adopt(struct hb_granules *granules, CUdeviceptr address, const struct hb_granules_piece *piece);
/*
 * The opposite. Moves: as in hb_granules_release(). *piece: the memory that is mapped at the address now. False: none was adopted
 * at this address.
 */
bool hb_granules_disown(struct hb_granules *granules, CUdeviceptr address, struct hb_granules_piece *piece);
/* Gives the memory back, which is neither adopted nor mapped. */
void hb_granules_return_piece(struct hb_granules *granules, const struct hb_granules_piece *piece);

/* Whether all of the allocation around the address is on its own device. */
bool hb_granules_is_home(struct hb_granules *granules, CUdeviceptr address);

/*
 * One granule of the allocation that begins at the address, by index. Returns how many granules the allocation has; 0: there
 * is no such allocation, or it has no such granule. The handle is valid while the allocation exists and stays where it is.
 */
size_t hb_granules_part(struct hb_granules *granules, CUdeviceptr address, size_t index,
			CUmemGenericAllocationHandle *handle, size_t *bytes);
/* Gives another device access to all allocations of cuMemAlloc, which stay where they are from now on. */
CUresult hb_granules_share_with_peer(struct hb_granules *granules, int peer);

struct hb_granules_bytes {
	size_t local, peer, host; /* by place, all allocations */
	size_t stays[HB_N_STAYS]; /* by reason; [HB_STAY_NOT] is what can move, wherever it is */
	size_t over;    /* on the host and not counted by the caller; may exceed `host` after memory came home */
	size_t spare;   /* host memory kept for moves */
	size_t movable; /* what is local and can move */
	size_t adopted; /* memory of the program's handles, wherever it is; part of the sums by place */
	size_t leaked;  /* no longer used, but the driver refused to take it back */
};
void hb_granules_count(struct hb_granules *granules, struct hb_granules_bytes *counts);

/* --- host memory prepared for moves ------------------------------------------------- */

/* At most `bytes` of host memory may be in use by moved and spare granules together. At first none. */
void hb_granules_limit_host(struct hb_granules *granules, size_t bytes);
/*
 * One step towards one spare host granule for each granule that would move first, within the limit: creates or gives back
 * one. *more: there is more to do. Creating 64 MiB takes about 15 ms, so other work fits between the steps. Spare granules are
 * mapped, so that a move only has to fill them: mapping memory of the host takes the GPU as long as filling it.
 */
CUresult hb_granules_keep_spares(struct hb_granules *granules, bool *more);

/* --- moves ----------------------------------------------------------------------------- */

/*
 * A move: begin, copy, poll until the copies are done, exchange, end. `end` may follow any step, and has to follow a
 * successful begin. Until the exchange succeeds, everything stays in its old place; afterwards everything is in the new one.
 * Two moves may be in progress, so that one is prepared and exchanged while the other copies; they take different granules.
 */
#define HB_GRANULE_MOVES 2

/*
 * Prepares the move of at least `bytes` (or all, if there is less) from places of type `from` to the place `to`: the
 * newest allocations first, which programs use least (decision 0036); the oldest first if they move home. CUDA_ERROR_NOT_FOUND: there is nothing to move; CUDA_ERROR_OUT_OF_MEMORY: the place has no room;
 * CUDA_ERROR_NOT_READY: two moves are in progress. The program may continue meanwhile.
 */
CUresult hb_granule_move_begin(struct hb_granules *granules, const CUmemLocation *from, const CUmemLocation *to,
			       size_t bytes, struct hb_granule_move **move_out);
/*
 * The same for what is elsewhere of the allocation around the address, whether or not it may move: home. CUDA_ERROR_NOT_FOUND:
 * all of it is home, or there is no such allocation.
 */
CUresult hb_granule_move_begin_home(struct hb_granules *granules, CUdeviceptr address, size_t bytes,
				    struct hb_granule_move **move_out);
/* Bytes that move. Allocations that were freed or pinned since do not count. */
size_t hb_granule_move_bytes(struct hb_granule_move *move);
/* Starts the copies on this stream. From here to the end, nothing else may use the memory. */
CUresult hb_granule_move_copy(struct hb_granule_move *move, CUstream stream);
/* CUDA_ERROR_NOT_READY: the copies are not done yet. */
CUresult hb_granule_move_poll(struct hb_granule_move *move);
/*
 * Exchanges the memory under all addresses. If that fails, undoes what was done and returns the error. If this fails as well,
 * hb_granule_move_is_broken() is true: some address has no memory.
 */
CUresult hb_granule_move_exchange(struct hb_granule_move *move);
/* Only then: tries again to undo the exchange. CUDA_SUCCESS: every address has its old memory. */
CUresult hb_granule_move_undo(struct hb_granule_move *move);
bool hb_granule_move_is_broken(const struct hb_granule_move *move);
/* Waits for copies that are not done. The stream may then be destroyed. */
void hb_granule_move_wait(struct hb_granule_move *move);
/*
 * Gives back what is no longer needed. Waits for copies that are not done. Ends the move also if it is broken, without a repair.
 * After a move to a peer something is left to unmap, so that the program that waits for the old memory gets it sooner.
 */
void hb_granule_move_end(struct hb_granule_move *move);
/* Unmaps what ended moves have left, and tries again what the driver refused. By the thread that moves. True: a move was finished. */
bool hb_granule_moves_finish(struct hb_granules *granules);

#endif
