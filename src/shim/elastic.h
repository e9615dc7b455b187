/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The elastic memory of this process (docs/decisions/0025-elastic-memory.md): in an
 * LP tenant with HB_ELASTIC_ON, large allocations consist of granules
 * (granules.h), and one thread of the shim moves them when the daemon orders it.
 *
 *   elastic.c         which allocations consist of granules, and freeing them
 *   own_handles.c     memory that the program creates itself with cuMemCreate
 *   elastic_record.c  the record of this process on the page: sizes, orders, results
 *   elastic_thread.c  the thread: carries out orders, prepares memory of the host
 *   elastic_park.c    an idle process without its memory: its calls wait for it
 *   hook_pointer.c    the driver's answers about granules, as for ordinary memory
 *
 * Any error or doubt at an allocation makes it an ordinary one. In a process
 * without granules each function here costs one load. No lock is held during a
 * driver call, except by the thread and in own_handles.c.
 */
#ifndef HB_SHIM_ELASTIC_H
#define HB_SHIM_ELASTIC_H

#include "shim/granules.h"
#include "shim/memory_account.h"
#include "shim/shim_tenant.h"

#include <stdbool.h>
#include <stddef.h>

/* ---- elastic.c: any thread ---- */

/* Whether this process has had granules. */
extern atomic_bool hb_elastic_any;

/* Allocates granules on the current device. False: this allocation has to be an ordinary one. */
bool hb_elastic_allocate(CUdeviceptr *pointer, size_t bytes);
/* The granules of the device, to adopt memory that the program creates on it; NULL: it must not move, or the device is not current. */
struct hb_granules *hb_elastic_prepare(int device);
/* Whether what does not fit of this tenant's large allocations is created on the host (decision 0036). */
bool hb_elastic_has_over(const struct hb_place *place);
/*
 * The same as hb_elastic_allocate() for an allocation that does not fit: what the account has no room for, or the driver, is
 * created on the host. The account holds the rest afterwards, and *claim is to be noted. Takes up to 0.3 s. False: it is
 * refused, and the account is unchanged.
 */
bool hb_elastic_allocate_over(CUdeviceptr *pointer, size_t bytes, struct hb_claim *claim);
/*
 * Frees the granules that this address belongs to, and their memory on the account. Waits for their context first. False: it is
 * no address of granules. While a stream captures, the wait is illegal: then the memory is freed at the next allocation or free
 * after the capture.
 */
bool hb_elastic_free(CUdeviceptr pointer, CUresult *result);
/* After the driver has destroyed the context to which the allocation belonged. Returns how much of it was not on the account. */
size_t hb_elastic_drop(CUdeviceptr pointer, size_t counted_bytes);
/* From now on all allocations of this process are ordinary ones. */
void hb_elastic_stop_allocating(void);

struct hb_elastic_found {
	int device;
	struct hb_granules_range range;
};
bool hb_elastic_find(CUdeviceptr pointer, struct hb_elastic_found *found);
/*
 * From now on the allocation around the address is on its own GPU, and stays there. An error: it is elsewhere and cannot return
 * now, so others must not get to know it. No allocation of granules: CUDA_SUCCESS.
 */
CUresult hb_elastic_pin(CUdeviceptr pointer, enum hb_granules_stay why);
/* The granules of a CUDA device; NULL: it has none. */
struct hb_granules *hb_elastic_granules(int device);
/* Bytes of this device's granules that are elsewhere now. */
size_t hb_elastic_moved_bytes(int device);

/* ---- elastic_record.c ---- */

/* The record of this process for the device's GPU; taken if there is none. NULL: the page has no room. */
struct hb_page_elastic *hb_elastic_record(const struct hb_place *place, int device);
/* Writes the sizes to the record. */
void hb_elastic_publish(const struct hb_place *place, int device);

/* An order as it was read from the record. */
struct hb_elastic_order {
	uint32_t number;
	bool home, pause, leave;
	size_t peer_bytes, host_bytes;
	int peer; /* CUDA device; -1: this process does not see the peer */
	int64_t expires_ns;
};
/* False: there is no order that is not answered. */
bool hb_elastic_read_order(const struct hb_page_elastic *record, struct hb_elastic_order *order);
/* Whether the daemon still waits for this order. */
bool hb_elastic_is_awaited(const struct hb_page_elastic *record, const struct hb_elastic_order *order);
void hb_elastic_answer(const struct hb_place *place, int device, struct hb_page_elastic *record,
		       const struct hb_elastic_order *order, enum hb_move_result reason, size_t moved_bytes);

/* ---- elastic_thread.c ---- */

/* Whether the process has a device open that is no GPU and may know physical addresses: then nothing moves. */
bool hb_elastic_is_known_to_devices(void);
/* Starts the thread, once. False: it cannot be started. */
bool hb_elastic_start_thread(void);
/*
 * Moves the allocation to its own GPU, which another process or device is about to know; the caller has pinned it. Any thread,
 * without locks. Waits up to 3 s. CUDA_ERROR_OUT_OF_MEMORY: the GPU has no room; then it stays where it is.
 */
CUresult hb_elastic_bring_home(const struct hb_elastic_found *found);
/* Sizes have changed, of granules or of other memory: the thread writes them to the page. */
void hb_elastic_note_change(void);

/* ---- elastic_park.c: the thread, but for the first ---- */

/* Any thread: a call waits because the process is parked. */
void hb_elastic_wake(void);
/* The device's memory has moved away because the process is idle. */
void hb_elastic_park(int device);
/* An order to move memory home was carried out. */
void hb_elastic_note_home(int device);
/* After a move: the calls that were held back continue, fail if it was `broken`, or wait if the process is parked. */
void hb_elastic_end_hold(bool broken);
/*
 * Tells the daemon that a call waits. Once all memory was ordered home, or nobody orders it in time, the calls continue, with the
 * memory where it is.
 */
void hb_elastic_serve_parked(const struct hb_place *place);
void hb_elastic_unpark(const struct hb_place *place);

/* ---- fork ---- */

/* In a forked child, which has no other threads. */
void hb_elastic_leave_in_child(void);
void hb_elastic_thread_leave_in_child(void);
void hb_elastic_park_leave_in_child(void);

#endif
