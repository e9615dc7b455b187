/* SPDX-License-Identifier: Apache-2.0 */
/* The daemon's side of the shared pages; see page_memory.h. */
#include "daemon/page_memory.h"

#include "gate/gate.h"
#include "hummingbird/page_trace.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)
/* After the daemon's own mapping: no other process can map the page writable, or write to it in another way. */
#define GPU_PAGE_SEALS (SEALS | F_SEAL_FUTURE_WRITE)

_Static_assert(sizeof(struct hb_gate) <= HB_PAGE_GATE_BYTES, "a gate fits its place on the page");

/* Makes a sealed memfd of `room` bytes and maps the first `size` of them. */
static int make_memfd(const char *name, int seals, size_t size, size_t room, void **memory, int *fd)
{
	int made = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (made < 0)
		return -errno;
	void *mapped = MAP_FAILED;
	if (ftruncate(made, (off_t)room) == 0)
		mapped = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, made, 0);
	if (mapped == MAP_FAILED || fcntl(made, F_ADD_SEALS, seals) < 0) {
		int result = -errno;
		if (mapped != MAP_FAILED)
			munmap(mapped, size);
		close(made);
		return result;
	}
	*memory = mapped;
	*fd = made;
	return 0;
}

int hb_page_new(uint32_t tenant, struct hb_page **page, int *fd)
{
	void *memory;
	int result = make_memfd(HB_PAGE_FILE, SEALS, sizeof **page, sizeof **page + HB_TRACE_BYTES, &memory, fd);
	if (result < 0)
		return result;
	*page = memory;
	(*page)->magic = HB_PAGE_MAGIC;
	(*page)->version = HB_PAGE_VERSION;
	(*page)->size_bytes = sizeof **page;
	(*page)->tenant = tenant;
	return 0;
}

static int make_gpu_page(const unsigned char uuid[16], int seals, struct hb_gpu_page **page, int *fd)
{
	void *memory;
	int result = make_memfd("hb-gpu", seals, sizeof **page, sizeof **page, &memory, fd);
	if (result < 0)
		return result;
	*page = memory;
	(*page)->magic = HB_GPU_PAGE_MAGIC;
	(*page)->version = HB_PAGE_VERSION;
	(*page)->size_bytes = sizeof **page;
	memcpy((*page)->uuid, uuid, 16);
	return 0;
}

int hb_gpu_page_new(const unsigned char uuid[16], struct hb_gpu_page **page, int *fd)
{
	return make_gpu_page(uuid, GPU_PAGE_SEALS, page, fd);
}

int hb_previous_gpu_page_new(const unsigned char uuid[16], struct hb_gpu_page **page, int *fd)
{
	return make_gpu_page(uuid, SEALS, page, fd);
}

bool hb_page_is_sealed(int fd)
{
	int seals = fcntl(fd, F_GET_SEALS);
	return seals >= 0 && (seals & SEALS) == SEALS;
}

int hb_page_adopt(int fd, struct hb_page **page)
{
	struct stat found;
	if (!hb_page_is_sealed(fd))
		return -EPROTO;
	if (fstat(fd, &found) < 0 || !hb_page_size_is_known((size_t)found.st_size))
		return -EPROTO;
	struct hb_page *mapped = mmap(NULL, sizeof *mapped, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (mapped == MAP_FAILED)
		return -errno;
	if (mapped->magic != HB_PAGE_MAGIC || mapped->version != HB_PAGE_VERSION ||
	    mapped->size_bytes != sizeof *mapped || mapped->n_gpus > HB_PAGE_GPUS) {
		munmap(mapped, sizeof *mapped);
		return -EPROTO;
	}
	*page = mapped;
	return 0;
}

void hb_page_free(struct hb_page *page, int fd)
{
	if (page)
		munmap(page, sizeof *page);
	if (fd >= 0)
		close(fd);
}

void hb_gpu_page_free(struct hb_gpu_page *page, int fd)
{
	if (page)
		munmap(page, sizeof *page);
	if (fd >= 0)
		close(fd);
}

void hb_page_slot_take(struct hb_page *page, uint32_t slot, uint32_t pid, uint64_t start_ticks)
{
	struct hb_page_process *process = &page->processes[slot];
	uint32_t generation = process->generation;
	memset(process, 0, sizeof *process);
	for (size_t gpu_index = 0; gpu_index < HB_PAGE_GPUS; gpu_index++)
		hb_gate_init((struct hb_gate *)process->gates[gpu_index]);
	process->pid = pid;
	process->start_ticks = start_ticks;
	process->generation = generation + 1;
	atomic_store_explicit(&process->state, HB_PAGE_ACTIVE, memory_order_release);
}

void hb_page_slot_free(struct hb_page *page, uint32_t slot)
{
	atomic_store_explicit(&page->processes[slot].state, HB_PAGE_FREE, memory_order_release);
}

bool hb_page_memory_settled(struct hb_page *page)
{
	for (uint32_t i = 0; i < HB_PAGE_PROCESSES; i++) {
		struct hb_page_process *slot = &page->processes[i];
		if (slot->state == HB_PAGE_ACTIVE && atomic_load_explicit(&slot->memory_pending, memory_order_acquire))
			return false;
	}
	return true;
}

static uint64_t sum_memory(struct hb_page *page, uint32_t gpu_index)
{
	uint64_t sum = 0;
	for (uint32_t i = 0; i < HB_PAGE_PROCESSES; i++)
		if (page->processes[i].state == HB_PAGE_ACTIVE)
			sum += page->processes[i].memory[gpu_index].used_bytes;
	return sum;
}

bool hb_page_memory_repair(struct hb_page *page, uint32_t gpu_index, bool force)
{
	uint64_t before = page->gpus[gpu_index].used_bytes;
	bool settled = hb_page_memory_settled(page);
	uint64_t sum = sum_memory(page, gpu_index);
	/* If no claim was open before and after, and both sums agree, no process changed the sum in between. */
	settled = settled && hb_page_memory_settled(page) && sum_memory(page, gpu_index) == sum;
	if (!settled && !force)
		return false;
	return atomic_compare_exchange_strong(&page->gpus[gpu_index].used_bytes, &before, sum) || force;
}
