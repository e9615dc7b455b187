/* SPDX-License-Identifier: Apache-2.0 */
/* Allocations that consist of granules, and spare granules (granules.h). granule_table.c has the table of them. */
#include "shim/granules_priv.h"

#include <stdlib.h>
#include <string.h>

static const struct hb_granule_driver *driver_of(const struct hb_granules *granules)
{
	return granules->config.driver;
}

struct hb_granules *hb_granules_new(const struct hb_granule_config *config)
{
	bool fits = config->granule_bytes && config->granule_bytes <= HB_GRANULE_BYTES_MAX &&
		    config->granule_bytes % HB_GRANULE_UNIT == 0;
	struct hb_granules *granules = fits ? calloc(1, sizeof(*granules)) : NULL;
	if (!granules)
		return NULL;
	granules->config = *config;
	pthread_mutex_init(&granules->lock, NULL);
	pthread_cond_init(&granules->move_ended, NULL);
	return granules;
}

void hb_granules_free(struct hb_granules *granules)
{
	if (!granules)
		return;
	for (size_t i = 0; i < granules->n_ranges; i++)
		free(granules->ranges[i]);
	free(granules->ranges);
	hb_granule_moves_forget(granules);
	free(granules->spares.items);
	free(granules->leaked.items);
	pthread_cond_destroy(&granules->move_ended);
	pthread_mutex_destroy(&granules->lock);
	free(granules);
}

/* ---- granules that no range uses ---- */

/* With the lock held. False: out of memory. */
static bool add_to_list(struct granule_list *list, const struct granule *granule)
{
	if (list->n == list->room) {
		size_t room = list->room ? 2 * list->room : 64;
		struct granule *bigger = realloc(list->items, room * sizeof(*bigger));
		if (!bigger)
			return false;
		list->items = bigger;
		list->room = room;
	}
	list->items[list->n++] = *granule;
	return true;
}

static bool take_spare(struct hb_granules *granules, size_t bytes, struct granule *taken)
{
	struct granule_list *spares = &granules->spares;
	bool found = false;
	pthread_mutex_lock(&granules->lock);
	for (size_t i = spares->n; i-- > 0 && !found;)
		if (spares->items[i].bytes == bytes) {
			*taken = spares->items[i];
			spares->items[i] = spares->items[--spares->n];
			found = true;
		}
	pthread_mutex_unlock(&granules->lock);
	return found;
}

/* Claims host memory before it is created, so that the limit holds. */
static bool claim_host(struct hb_granules *granules, size_t bytes)
{
	pthread_mutex_lock(&granules->lock);
	bool fits = granules->host_bytes <= granules->host_limit &&
		    bytes <= granules->host_limit - granules->host_bytes;
	if (fits)
		granules->host_bytes += bytes;
	pthread_mutex_unlock(&granules->lock);
	return fits;
}

static CUresult create_granule(struct hb_granules *granules, const CUmemLocation *place, struct hb_granule_kind kind,
			       size_t bytes, struct granule *made)
{
	const CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
						.requestedHandleTypes = kind.handle_types,
						.location = *place,
						.allocFlags.gpuDirectRDMACapable = kind.rdma};
	bool host = hb_is_host(place);
	if (host && !claim_host(granules, bytes))
		return CUDA_ERROR_OUT_OF_MEMORY;
	struct granule fresh = {.bytes = bytes, .place = *place};
	CUresult result = driver_of(granules)->create(&fresh.handle, bytes, &properties, 0);
	if (result == CUDA_SUCCESS)
		*made = fresh;
	pthread_mutex_lock(&granules->lock);
	granules->host_bytes -= host && result != CUDA_SUCCESS ? bytes : 0;
	pthread_mutex_unlock(&granules->lock);
	return result;
}

static CUresult create_on_host(struct hb_granules *granules, size_t bytes, struct granule *made)
{
	return create_granule(granules, &granules->config.host, hb_usual_kind(granules), bytes, made);
}

CUresult hb_granule_make(struct hb_granules *granules, const CUmemLocation *place, struct hb_granule_kind local,
			 size_t bytes, struct granule *made)
{
	if (!hb_is_host(place))
		return create_granule(granules, place, hb_is_home(granules, place) ? local : hb_usual_kind(granules),
				      bytes, made);
	return take_spare(granules, bytes, made) ? CUDA_SUCCESS : create_on_host(granules, bytes, made);
}

/*
 * Maps memory of the host at a second address. If the driver refuses, the move that uses the memory maps it. False: the memory
 * is mapped there, but cannot be used.
 */
static bool map_ready(struct hb_granules *granules, struct granule *granule)
{
	const struct hb_granule_driver *driver = driver_of(granules);
	CUdeviceptr ready = 0;
	if (driver->address_reserve(&ready, granule->bytes, 0, 0, 0) != CUDA_SUCCESS)
		return true;
	if (driver->map(ready, granule->bytes, 0, granule->handle, 0) == CUDA_SUCCESS) {
		granule->ready = ready;
		if (hb_granules_set_access(granules, ready, granule->bytes) == CUDA_SUCCESS)
			return true;
		if (driver->unmap(ready, granule->bytes) != CUDA_SUCCESS)
			return false;
	}
	granule->ready = 0;
	(void)driver->address_free(ready, granule->bytes);
	return true;
}

static CUresult unmap_ready(struct hb_granules *granules, struct granule *granule)
{
	CUresult result = CUDA_SUCCESS;
	if (granule->ready)
		result = driver_of(granules)->unmap(granule->ready, granule->bytes);
	if (granule->ready && result == CUDA_SUCCESS) {
		(void)driver_of(granules)->address_free(granule->ready, granule->bytes);
		granule->ready = 0;
	}
	return result;
}

/* Memory that cannot even be remembered as leaked stays allocated until the process ends. */
static void release_granule(struct hb_granules *granules, const struct granule *unused)
{
	struct granule rest = *unused, *granule = &rest;
	CUresult result = unmap_ready(granules, granule);
	if (result == CUDA_SUCCESS)
		result = driver_of(granules)->release(granule->handle);
	pthread_mutex_lock(&granules->lock);
	if (result != CUDA_SUCCESS)
		(void)add_to_list(&granules->leaked, granule);
	else if (hb_is_host(&granule->place))
		granules->host_bytes -= granule->bytes;
	pthread_mutex_unlock(&granules->lock);
}

void hb_granule_put_away(struct hb_granules *granules, const struct granule *granule)
{
	pthread_mutex_lock(&granules->lock);
	bool kept = hb_is_host(&granule->place) && granules->host_bytes <= granules->host_limit &&
		    add_to_list(&granules->spares, granule);
	pthread_mutex_unlock(&granules->lock);
	if (!kept)
		release_granule(granules, granule);
}

void hb_granules_retry_leaked(struct hb_granules *granules)
{
	pthread_mutex_lock(&granules->lock);
	struct granule_list leaked = granules->leaked;
	granules->leaked = (struct granule_list){0};
	pthread_mutex_unlock(&granules->lock);
	for (size_t i = 0; i < leaked.n; i++)
		release_granule(granules, &leaked.items[i]);
	free(leaked.items);
	hb_granule_moves_retry(granules);
}

/* ---- allocations ---- */

CUresult hb_granules_set_access(const struct hb_granules *granules, CUdeviceptr address, size_t bytes)
{
	const CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, granules->config.device},
					CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	return driver_of(granules)->set_access(address, bytes, &access, 1);
}

static struct granule_range *new_range(const struct hb_granules *granules, size_t bytes)
{
	if (!bytes || bytes > SIZE_MAX - HB_GRANULE_UNIT)
		return NULL;
	size_t unit = granules->config.granule_bytes;
	size_t rounded = (bytes + HB_GRANULE_UNIT - 1) / HB_GRANULE_UNIT * HB_GRANULE_UNIT;
	size_t n = rounded / unit + (rounded % unit != 0);
	struct granule_range *range = calloc(1, sizeof(*range) + n * sizeof(range->granules[0]));
	if (range) {
		range->bytes = rounded;
		range->asked_bytes = bytes;
		range->local = hb_usual_kind(granules);
	}
	return range;
}

/* Unmaps the first `n` granules, which have been mapped, and gives the first range->n back. */
static CUresult dissolve_range(struct hb_granules *granules, struct granule_range *range, size_t n)
{
	size_t mapped_bytes = 0;
	CUresult result = CUDA_SUCCESS;
	for (size_t i = 0; i < n; i++)
		mapped_bytes += range->granules[i].bytes;
	if (mapped_bytes)
		result = driver_of(granules)->unmap(range->base, mapped_bytes);
	/* Memory that is still mapped cannot be used again. */
	for (size_t i = 0; i < range->n; i++)
		if (result == CUDA_SUCCESS)
			hb_granule_put_away(granules, &range->granules[i]);
		else
			release_granule(granules, &range->granules[i]);
	if (range->base && result == CUDA_SUCCESS)
		result = driver_of(granules)->address_free(range->base, range->bytes);
	free(range);
	return result;
}

/* Gives a spare granule back, whose size is not that of the granule that has no room. False: there is none. */
static bool drop_spare(struct hb_granules *granules)
{
	struct granule spare;
	pthread_mutex_lock(&granules->lock);
	bool found = granules->spares.n > 0;
	if (found)
		spare = granules->spares.items[--granules->spares.n];
	pthread_mutex_unlock(&granules->lock);
	if (found)
		release_granule(granules, &spare);
	return found;
}

/* How much of an allocation may be on the device. */
struct local_room {
	bool over; /* the rest is on the host; false: all is on the device, whatever `bytes` says */
	size_t bytes;
};

/* When the device has refused once, the rest is on the host. */
static CUresult make_somewhere(struct hb_granules *granules, struct local_room *room, size_t bytes,
			       struct granule *made)
{
	const CUmemLocation local = {CU_MEM_LOCATION_TYPE_DEVICE, granules->config.device};
	CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
	if (!room->over || room->bytes >= bytes) {
		result = hb_granule_make(granules, &local, hb_usual_kind(granules), bytes, made);
		room->bytes = result == CUDA_SUCCESS ? room->bytes - bytes : 0;
	}
	if (!room->over || result != CUDA_ERROR_OUT_OF_MEMORY)
		return result;
	do
		result = hb_granule_make(granules, &granules->config.host, hb_usual_kind(granules), bytes, made);
	while (result == CUDA_ERROR_OUT_OF_MEMORY && drop_spare(granules));
	return result;
}

/* Creates and maps all granules. *n_mapped is set in any case. */
static CUresult fill_range(struct hb_granules *granules, struct granule_range *range, struct local_room *room,
			   size_t *n_mapped)
{
	size_t offset = 0;
	*n_mapped = 0;
	while (offset < range->bytes) {
		struct granule *granule = &range->granules[range->n];
		size_t bytes = range->bytes - offset;
		if (bytes > granules->config.granule_bytes)
			bytes = granules->config.granule_bytes;
		CUresult result = make_somewhere(granules, room, bytes, granule);
		if (result != CUDA_SUCCESS)
			return result;
		range->n++;
		result = driver_of(granules)->map(range->base + offset, bytes, 0, granule->handle, 0);
		if (result != CUDA_SUCCESS)
			return result;
		++*n_mapped;
		offset += bytes;
	}
	return hb_granules_set_access(granules, range->base, range->bytes);
}

static CUresult allocate_range(struct hb_granules *granules, size_t bytes, struct local_room *room, size_t *over_bytes,
			       CUdeviceptr *address)
{
	struct granule_range *range = new_range(granules, bytes);
	if (!range)
		return bytes ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_VALUE;
	size_t n_mapped = 0;
	CUresult result = driver_of(granules)->address_reserve(&range->base, range->bytes, 0, 0, 0);
	if (result != CUDA_SUCCESS)
		range->base = 0;
	else
		result = fill_range(granules, range, room, &n_mapped);
	CUdeviceptr base = range->base;
	*over_bytes = room->over ? hb_granules_count_on_host(range) : 0;
	if (result == CUDA_SUCCESS && !hb_granules_add_range(granules, range, *over_bytes))
		result = CUDA_ERROR_OUT_OF_MEMORY;
	if (result == CUDA_SUCCESS)
		*address = base;
	else
		(void)dissolve_range(granules, range, n_mapped);
	return result;
}

CUresult hb_granules_allocate(struct hb_granules *granules, size_t bytes, CUdeviceptr *address)
{
	size_t over_bytes;
	return allocate_range(granules, bytes, &(struct local_room){.over = false}, &over_bytes, address);
}

CUresult hb_granules_allocate_over(struct hb_granules *granules, size_t bytes, size_t local_bytes, size_t *over_bytes,
				   CUdeviceptr *address)
{
	return allocate_range(granules, bytes, &(struct local_room){true, local_bytes}, over_bytes, address);
}

CUresult hb_granules_release(struct hb_granules *granules, CUdeviceptr address, size_t counted_bytes,
			     size_t *over_bytes)
{
	size_t over = 0;
	struct granule_range *range = hb_granules_take_range(granules, address, false, counted_bytes, &over);
	if (over_bytes)
		*over_bytes = over;
	return range ? dissolve_range(granules, range, range->n) : CUDA_ERROR_INVALID_VALUE;
}

void hb_granules_return_piece(struct hb_granules *granules, const struct hb_granules_piece *piece)
{
	hb_granule_put_away(granules, &(struct granule){piece->handle, piece->bytes, piece->place, piece->ready});
}

/* Lists where allocations begin, in memory to be freed; NULL: out of memory. */
static CUdeviceptr *list_bases(struct hb_granules *granules, size_t *n)
{
	pthread_mutex_lock(&granules->lock);
	CUdeviceptr *bases = malloc((granules->n_ranges + 1) * sizeof(*bases));
	*n = 0;
	for (size_t i = 0; bases && i < granules->n_ranges; i++)
		if (!granules->ranges[i]->own)
			bases[(*n)++] = granules->ranges[i]->base;
	pthread_mutex_unlock(&granules->lock);
	return bases;
}

CUresult hb_granules_share_with_peer(struct hb_granules *granules, int peer)
{
	const CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, peer}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	CUresult result = CUDA_SUCCESS;
	size_t n;
	CUdeviceptr *bases = list_bases(granules, &n);
	for (size_t i = 0; i < n && result == CUDA_SUCCESS; i++) {
		struct hb_granules_range range;
		/* Another thread may free it meanwhile, which is then no failure. */
		if (hb_granules_pin(granules, bases[i], HB_STAY_PEERS) && hb_granules_find(granules, bases[i], &range))
			result = driver_of(granules)->set_access(
				bases[i], (range.bytes + HB_GRANULE_UNIT - 1) / HB_GRANULE_UNIT * HB_GRANULE_UNIT,
				&access, 1);
	}
	free(bases);
	return bases ? result : CUDA_ERROR_OUT_OF_MEMORY;
}

static size_t count_list(const struct granule_list *list)
{
	size_t bytes = 0;
	for (size_t i = 0; i < list->n; i++)
		bytes += list->items[i].bytes;
	return bytes;
}

void hb_granules_count(struct hb_granules *granules, struct hb_granules_bytes *counts)
{
	*counts = (struct hb_granules_bytes){0};
	pthread_mutex_lock(&granules->lock);
	for (size_t i = 0; i < granules->n_ranges; i++) {
		const struct granule_range *range = granules->ranges[i];
		counts->stays[range->stays] += range->bytes;
		counts->adopted += range->own ? range->bytes : 0;
		for (size_t k = 0; k < range->n; k++) {
			const struct granule *granule = &range->granules[k];
			if (hb_is_host(&granule->place))
				counts->host += granule->bytes;
			else if (granule->place.id != granules->config.device)
				counts->peer += granule->bytes;
			else {
				counts->local += granule->bytes;
				counts->movable += range->stays == HB_STAY_NOT ? granule->bytes : 0;
			}
		}
	}
	counts->over = granules->over_bytes;
	counts->spare = count_list(&granules->spares);
	counts->leaked = count_list(&granules->leaked) + hb_granule_moves_count_unfinished(granules);
	pthread_mutex_unlock(&granules->lock);
}

/* ---- spare granules on the host ---- */

void hb_granules_limit_host(struct hb_granules *granules, size_t bytes)
{
	pthread_mutex_lock(&granules->lock);
	granules->host_limit = bytes;
	pthread_mutex_unlock(&granules->lock);
}

static int compare_age(const void *a, const void *b)
{
	const struct granule_range *left = *(struct granule_range *const *)a,
				   *right = *(struct granule_range *const *)b;
	return left->serial < right->serial ? -1 : left->serial > right->serial;
}

static int compare_newness(const void *a, const void *b)
{
	return compare_age(b, a);
}

struct granule_range **hb_granules_list(const struct hb_granules *granules, bool newest_first, size_t *n)
{
	struct granule_range **list = malloc((granules->n_ranges + 1) * sizeof(struct granule_range *));
	*n = 0;
	for (size_t i = 0; list && i < granules->n_ranges; i++)
		if (granules->ranges[i]->stays == HB_STAY_NOT)
			list[(*n)++] = granules->ranges[i];
	if (list)
		qsort(list, *n, sizeof(struct granule_range *), newest_first ? compare_newness : compare_age);
	return list;
}

/* With the lock held. Counts the local granules that would move first, by size, as far as the limit allows spares for them. */
static bool count_wanted(const struct hb_granules *granules, size_t wanted[GRANULE_CLASSES])
{
	size_t n, in_use = granules->host_bytes - count_list(&granules->spares);
	size_t room = granules->host_limit > in_use ? granules->host_limit - in_use : 0;
	struct granule_range **newest = hb_granules_list(granules, true, &n);
	for (size_t i = 0; newest && i < n; i++)
		for (size_t k = 0; k < newest[i]->n; k++) {
			const struct granule *granule = &newest[i]->granules[k];
			if (hb_is_host(&granule->place))
				continue;
			bool fits = granule->bytes <= room;
			wanted[granule->bytes / HB_GRANULE_UNIT] += fits;
			room = fits ? room - granule->bytes : 0; /* moves skip no granule */
		}
	free(newest);
	return newest != NULL;
}

/* With the lock held. Removes a spare that is not wanted from the list; false: there is none. `wanted` then has what is still wanted. */
static bool take_unwanted(struct hb_granules *granules, size_t wanted[GRANULE_CLASSES], struct granule *unwanted)
{
	struct granule_list *spares = &granules->spares;
	for (size_t i = 0; i < spares->n; i++) {
		size_t *left = &wanted[spares->items[i].bytes / HB_GRANULE_UNIT];
		if (*left) {
			--*left;
			continue;
		}
		*unwanted = spares->items[i];
		spares->items[i] = spares->items[--spares->n];
		return true;
	}
	return false;
}

static CUresult create_spare(struct hb_granules *granules, size_t bytes)
{
	struct granule made;
	CUresult result = create_on_host(granules, bytes, &made);
	if (result != CUDA_SUCCESS)
		return result;
	bool usable = map_ready(granules, &made);
	if (usable)
		hb_granule_put_away(granules, &made);
	else
		release_granule(granules, &made);
	return usable ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN;
}

CUresult hb_granules_keep_spares(struct hb_granules *granules, bool *more)
{
	size_t wanted[GRANULE_CLASSES] = {0}, units = 0;
	struct granule unwanted;
	pthread_mutex_lock(&granules->lock);
	bool counted = count_wanted(granules, wanted);
	bool too_many = counted && take_unwanted(granules, wanted, &unwanted);
	pthread_mutex_unlock(&granules->lock);
	while (counted && !too_many && units < GRANULE_CLASSES && !wanted[units])
		units++;
	*more = too_many || (counted && units < GRANULE_CLASSES);
	if (too_many)
		release_granule(granules, &unwanted);
	else if (*more)
		return create_spare(granules, units * HB_GRANULE_UNIT);
	return counted ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}
