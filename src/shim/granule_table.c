/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of a device's ranges (granules.h): look-up by any thread, and the
 * changes that exclude a range from moves (pin, free, disown). It makes no driver call.
 */
#include "shim/granules_priv.h"

#include <stdlib.h>
#include <string.h>

/* With the lock held. Returns the index of the first range that begins above the address. */
static size_t find_above(const struct hb_granules *granules, CUdeviceptr address)
{
	size_t low = 0, high = granules->n_ranges;
	while (low < high) {
		size_t middle = (low + high) / 2;
		if (granules->ranges[middle]->base <= address)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

struct granule_range *hb_granules_find_range(const struct hb_granules *granules, CUdeviceptr address)
{
	size_t i = find_above(granules, address);
	struct granule_range *range = i ? granules->ranges[i - 1] : NULL;
	return range && address - range->base < range->bytes ? range : NULL;
}

bool hb_granules_add_range(struct hb_granules *granules, struct granule_range *range, size_t over_bytes)
{
	pthread_mutex_lock(&granules->lock);
	bool fits = granules->n_ranges < granules->room;
	if (!fits) {
		size_t room = granules->room ? 2 * granules->room : 64;
		struct granule_range **bigger = realloc(granules->ranges, room * sizeof(struct granule_range *));
		if (bigger) {
			granules->ranges = bigger;
			granules->room = room;
			fits = true;
		}
	}
	if (fits) {
		size_t i = find_above(granules, range->base);
		memmove(&granules->ranges[i + 1], &granules->ranges[i],
			(granules->n_ranges - i) * sizeof(struct granule_range *));
		granules->ranges[i] = range;
		granules->n_ranges++;
		range->serial = granules->next_serial++;
		granules->over_bytes += over_bytes;
	}
	pthread_mutex_unlock(&granules->lock);
	return fits;
}

size_t hb_granules_count_on_host(const struct granule_range *range)
{
	size_t bytes = 0;
	for (size_t i = 0; i < range->n; i++)
		bytes += hb_is_host(&range->granules[i].place) ? range->granules[i].bytes : 0;
	return bytes;
}

/* With the lock held. Takes off what is not counted. Returns how much, at most so many bytes. */
static size_t take_over(struct hb_granules *granules, size_t bytes)
{
	size_t over = bytes < granules->over_bytes ? bytes : granules->over_bytes;
	granules->over_bytes -= over;
	return over;
}

size_t hb_granules_count_over(struct hb_granules *granules, size_t bytes)
{
	pthread_mutex_lock(&granules->lock);
	size_t over = take_over(granules, bytes);
	pthread_mutex_unlock(&granules->lock);
	return over;
}

/* With the lock held. Returns 1 + the index of the range of this sort that begins at the address; 0: there is none. */
static size_t find_base(const struct hb_granules *granules, CUdeviceptr address, bool own)
{
	size_t i = find_above(granules, address);
	return i && granules->ranges[i - 1]->base == address && granules->ranges[i - 1]->own == own ? i : 0;
}

struct granule_range *hb_granules_take_range(struct hb_granules *granules, CUdeviceptr address, bool own,
					     size_t counted_bytes, size_t *over_bytes)
{
	pthread_mutex_lock(&granules->lock);
	size_t i = find_base(granules, address, own);
	if (i)
		hb_granule_move_leave_out(granules, granules->ranges[i - 1]);
	/* Another thread may have freed it during the wait; then this call is one free too many. */
	i = find_base(granules, address, own);
	struct granule_range *range = i ? granules->ranges[i - 1] : NULL;
	if (range) {
		memmove(&granules->ranges[i - 1], &granules->ranges[i],
			(granules->n_ranges - i) * sizeof(struct granule_range *));
		granules->n_ranges--;
		size_t on_host = hb_granules_count_on_host(range);
		*over_bytes = take_over(granules, on_host < counted_bytes ? on_host : counted_bytes);
	}
	pthread_mutex_unlock(&granules->lock);
	return range;
}

bool hb_granules_adopt(struct hb_granules *granules, CUdeviceptr address, const struct hb_granules_piece *piece)
{
	bool fits = piece->bytes && piece->bytes <= HB_GRANULE_BYTES_MAX && piece->bytes % HB_GRANULE_UNIT == 0;
	struct granule_range *range = fits ? calloc(1, sizeof(*range) + sizeof(range->granules[0])) : NULL;
	if (!range)
		return false;
	range->base = address;
	range->bytes = range->asked_bytes = piece->bytes;
	range->own = true;
	range->local = piece->local;
	range->n = 1;
	range->granules[0] = (struct granule){piece->handle, piece->bytes, piece->place, piece->ready};
	bool added = hb_granules_add_range(granules, range, 0);
	if (!added)
		free(range);
	return added;
}

bool hb_granules_disown(struct hb_granules *granules, CUdeviceptr address, struct hb_granules_piece *piece)
{
	size_t none;
	struct granule_range *range = hb_granules_take_range(granules, address, true, 0, &none);
	if (!range)
		return false;
	const struct granule *granule = &range->granules[0];
	*piece = (struct hb_granules_piece){granule->handle, range->bytes, granule->place, range->local,
					    granule->ready};
	free(range);
	return true;
}

bool hb_granules_find(struct hb_granules *granules, CUdeviceptr address, struct hb_granules_range *found)
{
	pthread_mutex_lock(&granules->lock);
	const struct granule_range *range = hb_granules_find_range(granules, address);
	bool inside = range && !range->own && address - range->base < range->asked_bytes;
	if (inside)
		*found = (struct hb_granules_range){range->base, range->asked_bytes, range->stays};
	pthread_mutex_unlock(&granules->lock);
	return inside;
}

bool hb_granules_pin(struct hb_granules *granules, CUdeviceptr address, enum hb_granules_stay why)
{
	pthread_mutex_lock(&granules->lock);
	struct granule_range *range = hb_granules_find_range(granules, address);
	if (range)
		hb_granule_move_leave_out(granules, range);
	range = hb_granules_find_range(granules, address);
	if (range)
		range->stays = why;
	pthread_mutex_unlock(&granules->lock);
	return range != NULL;
}

bool hb_granules_is_home(struct hb_granules *granules, CUdeviceptr address)
{
	bool home = true;
	pthread_mutex_lock(&granules->lock);
	const struct granule_range *range = hb_granules_find_range(granules, address);
	for (size_t i = 0; range && i < range->n; i++)
		home &= hb_is_home(granules, &range->granules[i].place);
	pthread_mutex_unlock(&granules->lock);
	return home;
}

size_t hb_granules_part(struct hb_granules *granules, CUdeviceptr address, size_t index,
			CUmemGenericAllocationHandle *handle, size_t *bytes)
{
	size_t n = 0;
	pthread_mutex_lock(&granules->lock);
	const struct granule_range *range = hb_granules_find_range(granules, address);
	if (range && !range->own && range->base == address && index < range->n) {
		*handle = range->granules[index].handle;
		*bytes = range->granules[index].bytes;
		n = range->n;
	}
	pthread_mutex_unlock(&granules->lock);
	return n;
}
