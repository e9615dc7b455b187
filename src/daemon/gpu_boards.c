/* SPDX-License-Identifier: Apache-2.0 */
/* The list of boards on a GPU page; see gpu_boards.h. */
#include "daemon/gpu_boards.h"

#include "daemon/daemon.h"
#include "decide/spatial.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

_Static_assert(sizeof(struct hb_spatial_beacon) <= HB_PAGE_BOARD_BYTES, "a beacon fits a board");

/* Makes the change visible to LP: who sees the new epoch sees the new entry. */
static void publish_entry(struct hb_gpu *gpu, uint32_t i)
{
	const struct hb_gpu_board *board = &gpu->boards[i];
	struct hb_page_board *entry = &gpu->page->boards[i];
	if (board->number) {
		entry->tenant = board->tenancy->number;
		entry->slot = board->slot;
		entry->generation = board->tenancy->page->processes[board->slot].generation;
	}
	atomic_store_explicit(&entry->number, board->number, memory_order_release);
	atomic_fetch_add_explicit(&gpu->page->boards_epoch, 1, memory_order_release);
}

static void drop_board(struct hb_gpu *gpu, uint32_t i)
{
	struct hb_gpu_board *board = &gpu->boards[i];
	munmap((void *)(uintptr_t)board->beacon, HB_PAGE_BOARD_BYTES);
	close(board->fd);
	*board = (struct hb_gpu_board){.number = 0};
	publish_entry(gpu, i);
}

void hb_gpu_drop_boards(struct hb_gpu *gpu, const struct hb_tenancy *tenancy, uint32_t slot)
{
	for (uint32_t i = 0; i < HB_PAGE_BOARDS; i++)
		if (gpu->boards[i].number && gpu->boards[i].tenancy == tenancy &&
		    (slot == HB_PAGE_PROCESSES || gpu->boards[i].slot == slot))
			drop_board(gpu, i);
}

void hb_gpu_free_boards(struct hb_gpu *gpu)
{
	for (uint32_t i = 0; i < HB_PAGE_BOARDS; i++)
		if (gpu->boards[i].number)
			drop_board(gpu, i);
}

static uint32_t count_boards(const struct hb_gpu *gpu, uid_t uid)
{
	uint32_t n = 0;
	for (uint32_t i = 0; i < HB_PAGE_BOARDS; i++)
		n += gpu->boards[i].number && gpu->boards[i].tenancy->peer.uid == uid;
	return n;
}

/* A free entry. If there is none, a user with few boards gets the entry of the user with most. HB_PAGE_BOARDS = none. */
static uint32_t find_entry(struct hb_gpu *gpu, uid_t uid)
{
	uint32_t most = count_boards(gpu, uid) + 1, found = HB_PAGE_BOARDS;
	for (uint32_t i = 0; i < HB_PAGE_BOARDS; i++) {
		if (!gpu->boards[i].number)
			return i;
		uint32_t n = count_boards(gpu, gpu->boards[i].tenancy->peer.uid);
		if (n > most) {
			most = n;
			found = i;
		}
	}
	if (found < HB_PAGE_BOARDS)
		drop_board(gpu, found);
	return found;
}

static bool has_board(const struct hb_gpu *gpu, const struct hb_tenancy *tenancy, uint32_t slot)
{
	for (uint32_t i = 0; i < HB_PAGE_BOARDS; i++)
		if (gpu->boards[i].number && gpu->boards[i].tenancy == tenancy && gpu->boards[i].slot == slot)
			return true;
	return false;
}

/* The seals come first: only memory files have them, and for other files further calls could block. */
static const void *map_board(int fd)
{
	struct stat found;
	int seals = fcntl(fd, F_GET_SEALS);
	if (seals < 0 || (seals & HB_BOARD_SEALS) != HB_BOARD_SEALS)
		return NULL;
	if (fstat(fd, &found) < 0 || found.st_size != HB_PAGE_BOARD_BYTES)
		return NULL;
	void *mapped = mmap(NULL, HB_PAGE_BOARD_BYTES, PROT_READ, MAP_SHARED, fd, 0);
	return mapped == MAP_FAILED ? NULL : mapped;
}

int hb_gpu_add_board(struct hb_gpu *gpu, struct hb_tenancy *tenancy, pid_t pid, int fd)
{
	uint32_t slot = hb_tenancy_find_slot(tenancy, pid);
	if (!hb_tenancy_is_high(tenancy) || !gpu->tenants[tenancy->index].is_present)
		return -EPERM;
	if (slot == HB_PAGE_PROCESSES || has_board(gpu, tenancy, slot))
		return slot == HB_PAGE_PROCESSES ? -ESRCH : -EEXIST;
	const void *mapped = map_board(fd);
	if (!mapped)
		return -EPROTO;
	int own_fd = fcntl(fd, F_DUPFD_CLOEXEC, 3), result = own_fd < 0 ? -errno : 0;
	uint32_t i = result < 0 ? HB_PAGE_BOARDS : find_entry(gpu, tenancy->peer.uid);
	if (i == HB_PAGE_BOARDS) {
		munmap((void *)(uintptr_t)mapped, HB_PAGE_BOARD_BYTES);
		if (own_fd >= 0)
			close(own_fd);
		return result < 0 ? result : -ENOSPC;
	}
	gpu->last_board += gpu->last_board == UINT32_MAX ? 2 : 1;
	gpu->boards[i] = (struct hb_gpu_board){
		.number = gpu->last_board, .tenancy = tenancy, .slot = slot, .fd = own_fd, .beacon = mapped};
	publish_entry(gpu, i);
	return 0;
}

int hb_gpu_find_board(const struct hb_gpu *gpu, uint32_t number)
{
	for (uint32_t i = 0; i < HB_PAGE_BOARDS; i++)
		if (number && gpu->boards[i].number == number)
			return gpu->boards[i].fd;
	return -ENOENT;
}
