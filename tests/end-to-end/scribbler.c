/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A hostile LP tenant, for test_stack_scribbler.py:
 *   scribbler SOCKET     joins the daemon and writes random values into every field that it can map, until a line arrives
 *                        on its standard input
 *   scribbler --model old|new
 *                        the negative control: a bystander with the rules of the previous pages (one GPU page that all
 *                        tenants can write to) or of the present ones, in one process with the same writer
 * It first tries every way to write to the GPU page and to the boards of others, and reports "writable: N".
 */
#include "base/clock.h"
#include "base/rng.h"
#include "decide/spatial.h"
#include "hummingbird/page_trace.h"
#include "protocol/daemon_client.h"
#include "simcuda/sim_rm_abi.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define TIMEOUT_MS 60000
#define GIB (UINT64_C(1) << 30)

static struct hb_rng rng;

static uint64_t any_value(void)
{
	static const uint64_t values[] = {0,
					  1,
					  2,
					  UINT64_MAX,
					  UINT64_C(1) << 62,
					  UINT64_C(1) << 40,
					  UINT64_C(0x0000000100000001),
					  UINT64_C(0xffffffff00000001)};
	uint64_t random = hb_rng_u64(&rng);
	uint64_t now_ns = (uint64_t)hb_clock_now_ns();
	switch (random % 4) {
	case 0:
		return random * UINT64_C(0x9e3779b97f4a7c15);
	case 1:
		return now_ns + (random >> 8) % 1000000000 - 500000000;
	default:
		return values[(random >> 8) % (sizeof values / sizeof values[0])];
	}
}

/* Writes n random values of 4 or 8 bytes at random places. */
static void scribble(void *memory, size_t bytes, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		uint64_t value = any_value();
		size_t at = hb_rng_u64(&rng) % (bytes / 8) * 8;
		unsigned char *to = (unsigned char *)memory + at;
		if (value & 4)
			atomic_store((_Atomic(uint32_t) *)(to + (value & 8 ? 4 : 0)), (uint32_t)(value >> 3));
		else
			atomic_store((_Atomic(uint64_t) *)to, value);
	}
}

/* --- a tenant of a daemon ------------------------------------------------------------------- */

struct scribbler {
	const char *path;
	struct hb_tenant_options options;
	struct hb_membership member;
	unsigned writable; /* pages of others that could be mapped writable */
};

static int connect_daemon(const struct scribbler *scribbler)
{
	struct hb_error error;
	return hb_client_open(scribbler->path, TIMEOUT_MS, &error);
}

static int join_daemon(struct scribbler *scribbler)
{
	struct hb_error error = {""};
	int fd = connect_daemon(scribbler);
	if (fd < 0)
		return fd;
	int result = hb_client_register(fd, &scribbler->options, &scribbler->member, NULL, 0, &error);
	close(fd);
	return result;
}

/* Asks for memory, gives a board of its own and tries to write to those of HP. */
static void try_requests(struct scribbler *scribbler)
{
	static unsigned char at[HB_PAGE_BOARD_BYTES] __attribute__((aligned(HB_PAGE_BOARD_BYTES)));
	static void *board;
	struct hb_error error;
	const unsigned char *token = scribbler->options.token, *uuid = scribbler->options.uuids[0];
	int fd = connect_daemon(scribbler);
	if (fd < 0)
		return;
	hb_client_ask_memory(fd, token, uuid, any_value(), &error);
	int own = hb_board_make(&board, 0);
	if (own >= 0 && hb_client_give_board(fd, token, uuid, own, &error) == 0)
		scribbler->writable++; /* it would be HP for others */
	if (own >= 0)
		close(own);
	const struct hb_gpu_page *gpu = scribbler->member.gpus[0];
	for (unsigned i = 0; gpu && i < HB_PAGE_BOARDS; i++)
		if (gpu->boards[i].number &&
		    hb_client_map_board(fd, token, uuid, gpu->boards[i].number, at, &error) == 0)
			scribbler->writable += mprotect(at, sizeof at, PROT_READ | PROT_WRITE) == 0;
	if (mmap(at, sizeof at, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED)
		abort();
	close(fd);
}

static void try_gpu_page(struct scribbler *scribbler)
{
	void *gpu = (void *)(uintptr_t)scribbler->member.gpus[0];
	if (gpu && mprotect(gpu, sizeof(struct hb_gpu_page), PROT_READ | PROT_WRITE) == 0) {
		scribbler->writable++;
		scribble(gpu, sizeof(struct hb_gpu_page), 64);
	}
}

static void write_own_page(struct scribbler *scribbler)
{
	struct hb_page *page = scribbler->member.page;
	struct hb_page_process *process = &page->processes[scribbler->member.slot];
	scribble(page, sizeof *page, 64);
	scribble(process, sizeof *process, 64);
	scribble(&page->gpus[0], sizeof page->gpus[0], 16);
	hb_page_u32 *doorbell = &page->gpus[0].doorbell;
	atomic_fetch_add(doorbell, 1);
	syscall(SYS_futex, doorbell, FUTEX_WAKE, 1, NULL, NULL, 0);
	if (atomic_load(&page->recording))
		return;
	void *rings = mmap(NULL, HB_TRACE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, scribbler->member.page_fd,
			   HB_TRACE_OFFSET);
	if (rings == MAP_FAILED)
		return;
	scribble(rings, HB_TRACE_BYTES, 64);
	munmap(rings, HB_TRACE_BYTES);
}

static bool is_told_to_end(void)
{
	struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
	return poll(&input, 1, 0) != 0;
}

static int run_tenant(const char *path)
{
	static struct scribbler scribbler = {.member = HB_MEMBERSHIP_NONE};
	scribbler.path = path;
	scribbler.options = (struct hb_tenant_options){
		.flags = HB_REGISTER_SIMULATED | HB_REGISTER_MPS, .n_gpus = 1, .totals = {1}, .command = "scribbler"};
	memcpy(scribbler.options.token, "scribbler", 9);
	sim_gpu_uuid(0, scribbler.options.uuids[0]);
	int result;
	while ((result = join_daemon(&scribbler)) == -EAGAIN) /* it has just started */
		usleep(50000);
	if (result < 0)
		return 1;
	try_gpu_page(&scribbler);
	try_requests(&scribbler);
	printf("scribbling\n");
	fflush(stdout);
	for (unsigned round = 0; !is_told_to_end(); round++) {
		write_own_page(&scribbler);
		if (round % 1000 == 999) {
			try_gpu_page(&scribbler);
			try_requests(&scribbler);
			join_daemon(&scribbler);
		}
		if (round % 50 == 49)
			usleep(100); /* leaves the CPU to the programs that are looked at */
	}
	printf("writable: %u\n", scribbler.writable);
	return 0;
}

/* --- the negative control -------------------------------------------------------------------- */

/* The part of the former GPU page that every tenant could write to. */
struct shared_page {
	_Atomic(uint64_t) low_used_bytes;
	struct hb_spatial_board board;
};

/* A bystander that uses 1 GiB of 100, and is without any HP. */
struct model {
	bool old;
	struct shared_page shared; /* old rules: all tenants write to it */
	struct hb_page_gpu own;    /* new rules: the bystander's page; only the daemon and the bystander write to it */
	unsigned char places[HB_PAGE_BOARD_BYTES]; /* new rules: the boards that the daemon lists: none */
	unsigned char hostile[8192];               /* the hostile tenant's own page */
};

static bool can_allocate(const struct model *model, uint64_t bytes)
{
	uint64_t used = model->old ? model->shared.low_used_bytes : model->own.used_bytes;
	uint64_t limit = model->old ? 100 * GIB : model->own.low_lease_bytes;
	return bytes <= limit && used <= limit - bytes;
}

static bool may_launch(const struct model *model, int64_t now_ns)
{
	if (model->old)
		return !hb_spatial_present(model->shared.board.beacons, sizeof(struct hb_spatial_beacon),
					   HB_SPATIAL_BEACONS, now_ns);
	return !hb_spatial_present(model->places, HB_PAGE_BOARD_BYTES, 1, now_ns);
}

static int run_model(const char *which)
{
	static struct model model;
	unsigned refused = 0, held = 0;
	model.old = strcmp(which, "old") == 0;
	model.shared.low_used_bytes = model.own.used_bytes = GIB;
	model.own.low_lease_bytes = 100 * GIB;
	for (int round = 0; round < 2000; round++) {
		scribble(model.hostile, sizeof model.hostile, 64);
		if (model.old)
			scribble(&model.shared, sizeof model.shared, 64);
		refused += !can_allocate(&model, GIB);
		held += !may_launch(&model, hb_clock_now_ns());
	}
	printf("refused: %u, held: %u\n", refused, held);
	return 0;
}

int main(int argc, char **argv)
{
	hb_rng_init(&rng, (uint64_t)getpid(), 0);
	if (argc == 3 && strcmp(argv[1], "--model") == 0)
		return run_model(argv[2]);
	if (argc == 2)
		return run_tenant(argv[1]);
	fprintf(stderr, "usage: see the top of scribbler.c\n");
	return 2;
}
