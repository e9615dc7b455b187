/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The boards of the spatial engine (struct hb_page_board). An HP process makes its
 * own board and gives it to the daemon. An LP process maps the boards that the GPU
 * page lists, read-only, each at a fixed place: a new board is mapped over the old
 * one, so threads may look meanwhile and nothing is freed. All of this happens in
 * the shim's own thread (drain.c) and in calls that are slow anyway. A launch only
 * compares two numbers; while they differ, an HP process that LP cannot see yet may
 * be at work, and LP assumes so for a while (hb_spatial_assumes_unknown()).
 */
#include "base/clock.h"
#include "base/map_over.h"
#include "decide/spatial.h"
#include "protocol/daemon_client.h"
#include "shim/shim.h"
#include "shim/shim_spatial.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Time until a failed exchange with the daemon is repeated; doubled each time. */
#define AGAIN_NS (100 * HB_NS_PER_MS)
#define AGAIN_MOST_NS (32 * HB_NS_PER_S)

struct known_boards {
	_Atomic(unsigned char *) places;         /* LP: one page for each entry of the list; NULL = none mapped yet */
	hb_page_u32 n;                           /* places to look at */
	hb_page_u32 epoch;                       /* hb_gpu_page.boards_epoch for which the boards are mapped */
	hb_page_i64 unknown_since;               /* see hb_spatial_assumes_unknown() */
	_Atomic(struct hb_spatial_beacon *) own; /* HP; NULL = none yet */
	uint32_t numbers[HB_PAGE_BOARDS];        /* of the boards mapped at the places; guarded by `exchanging` */
};
static struct known_boards known[HB_PAGE_GPUS];
static pthread_mutex_t exchanging = PTHREAD_MUTEX_INITIALIZER;
static _Atomic(int64_t) exchange_again_ns;
static int64_t again_ns = AGAIN_NS; /* guarded by `exchanging` */

/* ---- at launches ---- */

/* Called before the boards are read: if they are those of the list here, they are so afterwards. */
static bool misses_boards(const struct hb_place *place, unsigned gpu, int64_t now_ns)
{
	struct known_boards *boards = &known[gpu];
	uint32_t epoch = atomic_load_explicit(&boards->epoch, memory_order_acquire);
	uint32_t listed = atomic_load_explicit(&place->gpus[gpu]->boards_epoch, memory_order_acquire);
	return hb_spatial_assumes_unknown(&boards->unknown_since, epoch, listed, now_ns) && !hb_daemon_silent(place);
}

bool hb_shim_spatial_sees_high(const struct hb_place *place, unsigned gpu, int64_t now_ns)
{
	if (misses_boards(place, gpu, now_ns))
		return true;
	const void *places = atomic_load_explicit(&known[gpu].places, memory_order_acquire);
	uint32_t n = places ? atomic_load_explicit(&known[gpu].n, memory_order_relaxed) : 0;
	/* The boards of a silent daemon may be those of processes that have ended. */
	return hb_daemon_silent(place) ? hb_spatial_present(places, HB_PAGE_BOARD_BYTES, n, now_ns)
				       : hb_spatial_has_high(places, HB_PAGE_BOARD_BYTES, n);
}

void hb_shim_spatial_look(const struct hb_place *place, unsigned gpu, int64_t now_ns, uint32_t sms,
			  struct hb_spatial_view *view)
{
	bool misses = misses_boards(place, gpu, now_ns);
	const void *places = atomic_load_explicit(&known[gpu].places, memory_order_acquire);
	uint32_t n = places ? atomic_load_explicit(&known[gpu].n, memory_order_relaxed) : 0;
	hb_spatial_look_at(places, HB_PAGE_BOARD_BYTES, n, now_ns, view);
	if (misses)
		hb_spatial_view_add_unknown(view, sms);
}

struct hb_spatial_beacon *hb_shim_spatial_own_beacon(unsigned gpu)
{
	return atomic_load_explicit(&known[gpu].own, memory_order_acquire);
}

/* ---- the exchange with the daemon ---- */

static bool is_spatial(const struct hb_place *place, unsigned gpu)
{
	uint32_t features = atomic_load_explicit(&place->page->features, memory_order_relaxed);
	return place->gpus[gpu] && (features & HB_FEATURE_BOARDS) &&
	       atomic_load_explicit(&place->page->gpus[gpu].engine, memory_order_relaxed) == HB_ENGINE_SPATIAL;
}

/* Whether the GPU page lists the board of this process. */
static bool is_listed(const struct hb_place *place, unsigned gpu)
{
	uint32_t slot = (uint32_t)(place->process - place->page->processes);
	for (unsigned i = 0; i < HB_PAGE_BOARDS; i++) {
		const struct hb_page_board *entry = &place->gpus[gpu]->boards[i];
		if (atomic_load_explicit(&entry->number, memory_order_acquire) && entry->slot == slot &&
		    entry->tenant == place->page->tenant && entry->generation == place->process->generation)
			return true;
	}
	return false;
}

static bool needs_exchange(const struct hb_place *place, unsigned gpu)
{
	if (!is_spatial(place, gpu))
		return false;
	if (hb_tenant_is_high())
		return !is_listed(place, gpu);
	return atomic_load(&place->gpus[gpu]->boards_epoch) != atomic_load(&known[gpu].epoch);
}

/* A board that an earlier daemon listed is replaced by a new one at the same address, because its descriptor is closed. */
static int give_board(const struct hb_place *place, unsigned gpu, int socket)
{
	struct hb_error error;
	void *beacon = atomic_load(&known[gpu].own);
	int fd = hb_board_make(&beacon, sizeof(struct hb_spatial_beacon));
	if (fd < 0)
		return fd;
	atomic_store_explicit(&known[gpu].own, beacon, memory_order_release);
	int result = hb_client_give_board(socket, hb_tenant_token(), place->page->gpus[gpu].uuid, fd, &error);
	close(fd);
	return result;
}

static bool reserve_places(struct known_boards *boards)
{
	if (atomic_load(&boards->places))
		return true;
	void *memory = mmap(NULL, HB_PAGE_BOARDS * HB_PAGE_BOARD_BYTES, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED)
		return false;
	atomic_store_explicit(&boards->places, memory, memory_order_release);
	return true;
}

/* Maps the board of this entry, or zeros, which are no HP process. */
static int map_place(const struct hb_place *place, unsigned gpu, unsigned i, uint32_t number, int socket)
{
	struct hb_error error;
	void *at = atomic_load(&known[gpu].places) + (size_t)i * HB_PAGE_BOARD_BYTES;
	int result = -ENOENT;
	if (number)
		result = hb_client_map_board(socket, hb_tenant_token(), place->page->gpus[gpu].uuid, number, at,
					     &error);
	if (result == -ENOENT) { /* gone: if only since a moment ago, the epoch has changed again */
		if (hb_map_over(at, HB_PAGE_BOARD_BYTES, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1) == MAP_FAILED)
			return -errno;
		result = 0;
		number = 0;
	}
	if (result == 0)
		known[gpu].numbers[i] = number;
	return result;
}

static int fetch_boards(const struct hb_place *place, unsigned gpu, int socket)
{
	struct known_boards *boards = &known[gpu];
	uint32_t epoch = atomic_load_explicit(&place->gpus[gpu]->boards_epoch, memory_order_acquire), n = 0;
	for (unsigned i = 0; i < HB_PAGE_BOARDS; i++) {
		uint32_t number = atomic_load_explicit(&place->gpus[gpu]->boards[i].number, memory_order_acquire);
		if (number == boards->numbers[i])
			continue;
		int result = reserve_places(boards) ? map_place(place, gpu, i, number, socket) : -ENOMEM;
		if (result < 0)
			return result;
	}
	for (unsigned i = 0; i < HB_PAGE_BOARDS; i++)
		if (boards->numbers[i])
			n = i + 1;
	atomic_store_explicit(&boards->n, n, memory_order_relaxed);
	atomic_store_explicit(&boards->epoch, epoch, memory_order_release);
	atomic_store_explicit(&boards->unknown_since, 0, memory_order_relaxed);
	return 0;
}

void hb_shim_spatial_exchange_boards(int socket)
{
	const struct hb_place *place = hb_place();
	int result = 0;
	if (!place->page || pthread_mutex_trylock(&exchanging) != 0)
		return;
	for (unsigned gpu = 0; result == 0 && gpu < place->page->n_gpus && gpu < HB_PAGE_GPUS; gpu++)
		if (needs_exchange(place, gpu))
			result = hb_tenant_is_high() ? give_board(place, gpu, socket)
						     : fetch_boards(place, gpu, socket);
	again_ns = result == 0 ? AGAIN_NS : again_ns < AGAIN_MOST_NS ? 2 * again_ns : AGAIN_MOST_NS;
	atomic_store(&exchange_again_ns, result == 0 ? 0 : hb_clock_now_ns() + again_ns);
	pthread_mutex_unlock(&exchanging);
}

void hb_shim_spatial_update_boards(const struct hb_place *place)
{
	bool needed = false;
	for (unsigned gpu = 0; place->page && gpu < place->page->n_gpus && gpu < HB_PAGE_GPUS; gpu++)
		needed |= needs_exchange(place, gpu);
	if (!needed || hb_clock_now_ns() < atomic_load(&exchange_again_ns) || hb_daemon_silent(place))
		return;
	int socket = hb_tenant_connect();
	if (socket < 0) {
		atomic_store(&exchange_again_ns, hb_clock_now_ns() + AGAIN_NS);
		return;
	}
	hb_shim_spatial_exchange_boards(socket);
	close(socket);
}

void hb_shim_spatial_boards_leave_in_child(void)
{
	for (unsigned gpu = 0; gpu < HB_PAGE_GPUS; gpu++) {
		unsigned char *places = atomic_load(&known[gpu].places);
		struct hb_spatial_beacon *own = atomic_load(&known[gpu].own);
		if (places)
			munmap(places, HB_PAGE_BOARDS * HB_PAGE_BOARD_BYTES);
		if (own)
			munmap(own, HB_PAGE_BOARD_BYTES);
	}
	memset(known, 0, sizeof known);
	atomic_store(&exchange_again_ns, 0);
	again_ns = AGAIN_NS;
	pthread_mutex_init(&exchanging, NULL);
}
