/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by granules.c (allocations, spare granules), granule_table.c (look-up) and granule_move.c (moves). */
#ifndef HB_SHIM_GRANULES_PRIV_H
#define HB_SHIM_GRANULES_PRIV_H

#include "shim/granules.h"

#include <pthread.h>

#define GRANULE_CLASSES (HB_GRANULE_BYTES_MAX / HB_GRANULE_UNIT + 1)

struct granule {
	CUmemGenericAllocationHandle handle;
	size_t bytes;
	CUmemLocation place;
	CUdeviceptr ready; /* of the host: a second address at which it is mapped, to be filled by moves; 0 = none */
	bool moves;        /* of a range: a move has chosen it and has not ended */
};

struct granule_range {
	CUdeviceptr base;
	size_t bytes, asked_bytes; /* rounded up to units; as the program asked for */
	uint64_t serial;           /* of older allocations it is smaller */
	enum hb_granules_stay stays;
	bool own;                     /* memory of a handle that the program made: one granule */
	struct hb_granule_kind local; /* how granules on the device are created */
	size_t n;
	struct granule granules[];
};

/* A growing list of granules that no range uses. */
struct granule_list {
	struct granule *items;
	size_t n, room;
};

struct hb_granules {
	struct hb_granule_config config;
	pthread_mutex_t lock; /* protects all below; never held during a driver call */
	pthread_cond_t move_ended;
	struct granule_range **ranges; /* sorted by address */
	size_t n_ranges, room;
	uint64_t next_serial;
	struct hb_granule_move *moves[HB_GRANULE_MOVES]; /* in progress, or NULL */
	struct hb_granule_move *unfinished;              /* have ended, but the driver refused to take something back */
	struct granule_list spares, leaked;
	size_t host_bytes, host_limit; /* host memory that was created and not given back; its bound */
	size_t over_bytes;             /* memory of ranges on the host that the caller does not count */
};

/* Whether the place is the device that the allocations are for. */
static inline bool hb_is_home(const struct hb_granules *granules, const CUmemLocation *place)
{
	return place->type == CU_MEM_LOCATION_TYPE_DEVICE && place->id == granules->config.device;
}

static inline bool hb_is_host(const CUmemLocation *place)
{
	return place->type != CU_MEM_LOCATION_TYPE_DEVICE;
}

/* The kind of granules of cuMemAlloc, and of all granules that are elsewhere. */
static inline struct hb_granule_kind hb_usual_kind(const struct hb_granules *granules)
{
	return (struct hb_granule_kind){.handle_types = granules->config.handle_types};
}

/*
 * Creates a granule, or takes a spare one. For the host: CUDA_ERROR_OUT_OF_MEMORY beyond the limit. `local`: how it is created
 * on its own device.
 */
CUresult hb_granule_make(struct hb_granules *granules, const CUmemLocation *place, struct hb_granule_kind local,
			 size_t bytes, struct granule *made);
/* Gives the memory back to the driver, or keeps it as a spare, or, if the driver refuses, as leaked. */
void hb_granule_put_away(struct hb_granules *granules, const struct granule *granule);
/* Tries again to give leaked memory back. */
void hb_granules_retry_leaked(struct hb_granules *granules);
/* With the lock held. Returns the ranges that can move, by age, in memory to be freed; NULL: out of memory. */
struct granule_range **hb_granules_list(const struct hb_granules *granules, bool newest_first, size_t *n);
CUresult hb_granules_set_access(const struct hb_granules *granules, CUdeviceptr address, size_t bytes);

/* --- granule_table.c --- */

/* With the lock held. NULL: there is no allocation around the address. */
struct granule_range *hb_granules_find_range(const struct hb_granules *granules, CUdeviceptr address);
/* Adds the range, of which so many bytes are on the host and not counted. False: out of memory. */
bool hb_granules_add_range(struct hb_granules *granules, struct granule_range *range, size_t over_bytes);
/* Returns the range of this sort, which no table and no move has any more; NULL: none begins there. */
struct granule_range *hb_granules_take_range(struct hb_granules *granules, CUdeviceptr address, bool own,
					     size_t counted_bytes, size_t *over_bytes);
size_t hb_granules_count_on_host(const struct granule_range *range);

/* --- granule_move.c --- */

/* Tries again to give back what ended moves have left because the driver refused. */
void hb_granule_moves_retry(struct hb_granules *granules);
/* With the lock held. Bytes that ended moves could not give back. */
size_t hb_granule_moves_count_unfinished(const struct hb_granules *granules);
/* Frees ended moves without a driver call. */
void hb_granule_moves_forget(struct hb_granules *granules);
/* With the lock held. Takes the range out of the move, or waits until the move has ended. */
void hb_granule_move_leave_out(struct hb_granules *granules, const struct granule_range *range);

#endif
