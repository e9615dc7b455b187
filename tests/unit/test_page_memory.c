/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared pages: clients cannot resize them, other files are refused, and memory
 * sums are exact again after a crash.
 */
#include "daemon/page_memory.h"
#include "gate/gate.h"
#include "unit.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static struct hb_page *page;
static int fd = -1;

static int set_up(void **state)
{
	return hb_page_new(17, &page, &fd);
}

static int tear_down(void **state)
{
	hb_page_free(page, fd);
	fd = -1;
	return 0;
}

static void a_client_cannot_resize_or_unseal_a_page(void **state)
{
	assert_int_equal(ftruncate(fd, 0), -1);
	assert_int_equal(errno, EPERM);
	assert_int_equal(ftruncate(fd, 1 << 24), -1);
	assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), -1);
	assert_int_equal(errno, EPERM);
}

/* Only the mapping that the daemon made before the seal can write. */
static void no_client_can_map_a_gpu_page_writable(void **state)
{
	static const unsigned char uuid[16] = {1};
	struct hb_gpu_page *gpu;
	int gpu_fd;
	assert_int_equal(hb_gpu_page_new(uuid, &gpu, &gpu_fd), 0);
	assert_ptr_equal(mmap(NULL, sizeof *gpu, PROT_READ | PROT_WRITE, MAP_SHARED, gpu_fd, 0), MAP_FAILED);
	void *shown = mmap(NULL, sizeof *gpu, PROT_READ, MAP_SHARED, gpu_fd, 0);
	assert_ptr_not_equal(shown, MAP_FAILED);
	gpu->engine = HB_ENGINE_TURNS;
	assert_int_equal(((const struct hb_gpu_page *)shown)->engine, HB_ENGINE_TURNS);
	munmap(shown, sizeof *gpu);
	hb_gpu_page_free(gpu, gpu_fd);
}

static void a_page_is_taken_over_with_its_contents(void **state)
{
	struct hb_page *again;
	page->processes[5].counters[HB_COUNT_kernels] = 1234;
	assert_int_equal(hb_page_adopt(fd, &again), 0);
	assert_int_equal(again->processes[5].counters[HB_COUNT_kernels], 1234);
	assert_int_equal(again->tenant, 17);
	hb_page_free(again, -1);
}

static int adopt_of(size_t size, unsigned seals, bool contents)
{
	struct hb_page *got = NULL;
	int made = memfd_create("false", MFD_ALLOW_SEALING | MFD_CLOEXEC);
	assert_true(made >= 0);
	assert_int_equal(ftruncate(made, (off_t)size), 0);
	if (contents)
		assert_int_equal(pwrite(made, page, 64, 0), 64);
	assert_int_equal(fcntl(made, F_ADD_SEALS, seals), 0);
	int result = hb_page_adopt(made, &got);
	if (result == 0)
		hb_page_free(got, -1);
	close(made);
	return result;
}

static void other_files_are_refused_as_pages(void **state)
{
	const unsigned seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
	assert_int_equal(adopt_of(sizeof *page, seals, true), 0);
	assert_int_equal(adopt_of(sizeof *page, seals, false), -EPROTO);
	assert_int_equal(adopt_of(sizeof *page, F_SEAL_GROW | F_SEAL_SEAL, true), -EPROTO);
	assert_int_equal(adopt_of(sizeof *page - 4096, seals, true), -EPROTO);
	assert_int_equal(adopt_of(sizeof *page + 4096, seals, true), -EPROTO);
	int ends[2];
	struct hb_page *got;
	assert_int_equal(pipe(ends), 0);
	assert_int_equal(hb_page_adopt(ends[0], &got), -EPROTO);
	close(ends[0]);
	close(ends[1]);
	page->n_gpus = HB_PAGE_GPUS + 1;
	assert_int_equal(hb_page_adopt(fd, &got), -EPROTO);
}

static void slots_are_cleared_before_use(void **state)
{
	hb_page_slot_take(page, 0, 100, 1);
	page->processes[0].counters[3] = 9;
	page->processes[0].memory[0].used_bytes = 5;
	hb_gate_set((struct hb_gate *)page->processes[0].gates[2], HB_GATE_CLOSED, 0);
	hb_page_slot_free(page, 0);
	hb_page_slot_take(page, 0, 101, 2);
	assert_int_equal(page->processes[0].counters[3], 0);
	assert_int_equal(page->processes[0].memory[0].used_bytes, 0);
	assert_int_equal(page->processes[0].generation, 2);
	assert_int_equal(hb_gate_state((struct hb_gate *)page->processes[0].gates[2]), HB_GATE_OPEN);
	assert_int_equal(page->processes[0].pid, 101);
	assert_int_equal(page->processes[1].state, HB_PAGE_FREE);
}

/* Claims memory as the shim does, and stops after any step as a kill would. */
static void claim(uint32_t slot, uint64_t bytes, int steps)
{
	struct hb_page_process *process = &page->processes[slot];
	if (steps > 0)
		process->memory_pending++;
	if (steps > 1)
		page->gpus[0].used_bytes += bytes;
	if (steps > 2)
		process->memory[0].used_bytes += bytes;
	if (steps > 3)
		process->memory_pending--;
}

static void accounts_are_exact_after_a_death_at_any_step(void **state)
{
	for (int steps = 0; steps <= 4; steps++) {
		uint32_t survivor = 0, victim = 1;
		hb_page_slot_take(page, survivor, 1, 1);
		hb_page_slot_take(page, victim, 2, 2);
		claim(survivor, 1000, 4);
		claim(victim, 300, 4);
		claim(victim, 77, steps);
		hb_page_slot_free(page, victim);
		assert_true(hb_page_memory_repair(page, 0, false));
		assert_int_equal(page->gpus[0].used_bytes, 1000);
		hb_page_slot_free(page, survivor);
		assert_true(hb_page_memory_repair(page, 0, false));
		assert_int_equal(page->gpus[0].used_bytes, 0);
	}
}

static void a_repair_waits_for_an_open_claim(void **state)
{
	uint32_t survivor = 0;
	hb_page_slot_take(page, survivor, 1, 1);
	claim(survivor, 1000, 4);
	page->gpus[0].used_bytes += 300; /* of a process that has ended */
	claim(survivor, 50, 2);
	assert_false(hb_page_memory_settled(page));
	assert_false(hb_page_memory_repair(page, 0, false));
	assert_int_equal(page->gpus[0].used_bytes, 1350);
	page->processes[survivor].memory[0].used_bytes += 50;
	page->processes[survivor].memory_pending--;
	assert_true(hb_page_memory_repair(page, 0, false));
	assert_int_equal(page->gpus[0].used_bytes, 1050);
}

static void a_repair_ignores_a_claim_that_never_ends(void **state)
{
	uint32_t survivor = 0;
	hb_page_slot_take(page, survivor, 1, 1);
	claim(survivor, 1000, 1);
	page->gpus[0].used_bytes = 12345;
	assert_true(hb_page_memory_repair(page, 0, true));
	assert_int_equal(page->gpus[0].used_bytes, 0);
}

int main(void)
{
#define TEST(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		TEST(a_client_cannot_resize_or_unseal_a_page),
		TEST(no_client_can_map_a_gpu_page_writable),
		TEST(a_page_is_taken_over_with_its_contents),
		TEST(other_files_are_refused_as_pages),
		TEST(slots_are_cleared_before_use),
		TEST(accounts_are_exact_after_a_death_at_any_step),
		TEST(a_repair_waits_for_an_open_claim),
		TEST(a_repair_ignores_a_claim_that_never_ends),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
