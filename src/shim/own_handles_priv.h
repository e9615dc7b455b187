/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by own_handles.c (calls) and own_lists.c (lists and look-ups). */
#ifndef HB_SHIM_OWN_HANDLES_PRIV_H
#define HB_SHIM_OWN_HANDLES_PRIV_H

#include "shim/elastic.h"
#include "shim/own_handles.h"

struct own_handle {
	CUmemGenericAllocationHandle number;
	CUmemAllocationProp properties; /* the driver's answer when it was created */
	int device;
	struct hb_granules_piece piece; /* the memory, as it was when its mapping last began or ceased to move */
	unsigned references; /* of the program; 0: the number is no longer valid, but mappings keep the memory */
	unsigned n_mappings; /* more than 1 only if it stays */
	CUdeviceptr base;    /* of the only mapping */
	bool stays;          /* on its own device, for good */
};

struct own_mapping {
	CUdeviceptr base;
	size_t bytes;
	uint64_t id;
	struct own_handle *handle;
	bool moves;   /* the granules of the device have adopted it */
	bool stopped; /* it moved before the call in progress */
};

bool hb_own_has_any(void);

/* --- with the lock of calls held, which alone permits changes; a look-up by another thread takes the lock of the lists --- */

/* NULL: the program has no such handle (any more). */
struct own_handle *hb_own_find_handle(CUmemGenericAllocationHandle number);
/* False: out of memory. */
bool hb_own_add_handle(struct own_handle *own);
void hb_own_remove_handle(const struct own_handle *own);

/* Returns the index of the first mapping that ends above the address. */
size_t hb_own_find_first(CUdeviceptr address);
/* NULL: there is none around the address. */
struct own_mapping *hb_own_find_mapping(CUdeviceptr address);
/*
 * Returns mapping number i, which ends above the address, if it is in the range, of which it may be a part only; NULL: this one
 * and those above are not.
 */
struct own_mapping *hb_own_mapping_in(size_t i, CUdeviceptr address, size_t bytes);
/* False: out of memory. */
bool hb_own_add_mapping(struct own_handle *own, CUdeviceptr address, size_t bytes);
void hb_own_remove_mapping(size_t i);

void hb_own_set_piece(struct own_handle *own, const struct hb_granules_piece *piece);
void hb_own_set_moves(struct own_mapping *mapping, bool moves);
void hb_own_set_stays(struct own_handle *own, bool stays);
bool hb_own_is_home(const struct own_handle *own);

void hb_own_lists_leave_in_child(void);

#endif
