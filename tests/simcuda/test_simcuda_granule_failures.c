/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every driver call of an allocation and of a move of granules fails once, or several
 * times in a row. Each time all bytes must be intact, and nothing may be left on the
 * GPUs or the host. A process that is killed at any call leaves nothing either; for
 * that the test runs itself again.
 */
#include "granules_rig.h"

#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

static void an_allocation_that_fails_leaves_nothing(void **state)
{
	uint64_t before = all_own_bytes();
	size_t host_before = count_host_room();
	struct hb_granules *granules = hb_granules_new(&granule_config);
	CUdeviceptr base = 0;
	bool failed = true;
	(void)state;
	for (long at = 0; failed; at++) {
		fail_calls(at, 1);
		CUresult result = hb_granules_allocate(granules, 2 * GRANULE + UNIT, &base);
		failed = failed_some();
		fail_none();
		assert_true(failed == (result != CUDA_SUCCESS));
		assert_int_equal(all_own_bytes() - before, failed ? 0 : 2 * GRANULE + UNIT);
	}
	CU(hb_granules_release(granules, base, 0, NULL));
	finish(granules, before, host_before);
}

/* When memory of the host is prepared for a move: never, before the failures, or during them. */
enum preparation { NOT_PREPARED, PREPARED_BEFORE, PREPARED_MEANWHILE };

static void prepare_host(struct hb_granules *granules)
{
	for (bool more = true; more;)
		if (hb_granules_keep_spares(granules, &more) != CUDA_SUCCESS)
			break;
}

/*
 * One allocation moves to the place and back, while the calls `at` to `at` + `times` - 1 fail. *reached: there was such a
 * call. A move that breaks is undone as soon as the driver works again.
 */
static void move_with_failures(const CUmemLocation *to, enum preparation preparation, long at, long times,
			       bool *reached)
{
	uint64_t before = all_own_bytes();
	size_t host_before = count_host_room();
	struct hb_granules *granules = hb_granules_new(&granule_config);
	struct allocation a = {.bytes = 2 * GRANULE + UNIT, .seed = (uint32_t)at};
	struct hb_granule_move *broken = NULL;
	hb_granules_limit_host(granules, 8 * GRANULE);
	CU(hb_granules_allocate(granules, a.bytes, &a.base));
	fill(&a);
	if (preparation == PREPARED_BEFORE)
		prepare_host(granules);
	fail_calls(at, times);
	if (preparation == PREPARED_MEANWHILE)
		prepare_host(granules);
	CUresult result = move_granules(granules, &local, to, 2 * GRANULE, &broken);
	*reached = failed_some();
	fail_none();
	if (broken) {
		CU(hb_granule_move_undo(broken));
		assert_false(hb_granule_move_is_broken(broken));
		hb_granule_move_end(broken);
	}
	assert_true(is_intact(&a));
	/* All or nothing. After a success, only what was to be given back may have failed. */
	struct hb_granules_bytes counts = count(granules);
	assert_int_equal(counts.local, result == CUDA_SUCCESS ? UNIT : a.bytes);
	assert_int_equal(counts.peer + counts.host, result == CUDA_SUCCESS ? 2 * GRANULE : 0);
	assert_true(*reached || (result == CUDA_SUCCESS && !counts.leaked));
	/* The next move works, in both directions, and takes back what was leaked. */
	if (result == CUDA_SUCCESS)
		CU(move_granules(granules, to, &local, a.bytes, NULL));
	CU(move_granules(granules, &local, to, a.bytes, NULL));
	assert_true(is_intact(&a));
	assert_int_equal(count(granules).leaked, 0);
	CU(hb_granules_release(granules, a.base, 0, NULL));
	finish(granules, before, host_before);
}

static void sweep_failures(const CUmemLocation *to, enum preparation preparation, long times)
{
	bool reached = true;
	long at = 0;
	for (; reached; at++)
		move_with_failures(to, preparation, at, times, &reached);
	/* The sweep met the calls of a complete move, which are fewer if host memory is mapped in advance. */
	assert_true(at > (preparation == PREPARED_BEFORE ? 10 : 15));
}

static void every_call_of_a_move_to_a_peer_may_fail(void **state)
{
	(void)state;
	sweep_failures(&peer, NOT_PREPARED, 1);
	sweep_failures(&peer, NOT_PREPARED, 4); /* undoing fails as well */
}

static void every_call_of_a_move_to_the_host_may_fail(void **state)
{
	(void)state;
	sweep_failures(&host, NOT_PREPARED, 1);
	sweep_failures(&host, NOT_PREPARED, 4);
	sweep_failures(&host, PREPARED_BEFORE, 1);
	sweep_failures(&host, PREPARED_MEANWHILE, 4);
}

/* --- a process that is killed at every step ------------------------------------------------------------- */

extern char **environ;
static const char *self;

/* The process that is killed moves memory to the peer, to the host and home. Its exit status is 0 if nothing stops it. */
static int run_mover(void)
{
	const CUmemLocation *route[] = {&local, &peer, &local, &host, &local};
	struct hb_granules *granules = hb_granules_new(&granule_config);
	CUcontext context;
	CUdeviceptr base;
	bool good = cuInit(0) == CUDA_SUCCESS && cuCtxCreate_v2(&context, 0, 0) == CUDA_SUCCESS;
	hb_granules_limit_host(granules, 2 * GRANULE);
	good = good && hb_granules_allocate(granules, 2 * GRANULE, &base) == CUDA_SUCCESS;
	for (int i = 0; good && i + 1 < 5; i++)
		good = move_granules(granules, route[i], route[i + 1], 2 * GRANULE, NULL) == CUDA_SUCCESS;
	good = good && hb_granules_release(granules, base, 0, NULL) == CUDA_SUCCESS;
	hb_granules_free(granules);
	return !good;
}

/* True: the process was killed at this call of the function; false: it made fewer calls, and ended well. */
static bool kill_mover(const char *function, int after)
{
	char mode[] = "mover", *arguments[] = {(char *)(uintptr_t)self, mode, NULL}, fault[128];
	pid_t pid;
	int status;
	snprintf(fault, sizeof fault, "%s:kill:after=%d", function, after);
	setenv("HB_SIM_FAIL", fault, 1);
	assert_int_equal(posix_spawn(&pid, self, NULL, NULL, arguments, environ), 0);
	unsetenv("HB_SIM_FAIL");
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true((WIFEXITED(status) && WEXITSTATUS(status) == 0) ||
		    (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL));
	return WIFSIGNALED(status);
}

static uint64_t free_bytes(void)
{
	uint64_t bytes = 0;
	for (int gpu = 0; gpu < 2; gpu++) {
		struct hb_sim_stats stats;
		CU(sim_test_table()->stats(gpu, &stats));
		bytes += stats.memory_free;
	}
	return bytes;
}

static void a_process_killed_at_any_step_leaves_nothing(void **state)
{
	const char *functions[] = {"cuMemAddressReserve",  "cuMemCreate", "cuMemMap",     "cuMemSetAccess",
				   "cuMemcpyDtoDAsync_v2", "cuMemUnmap",  "cuMemRelease", "cuMemAddressFree"};
	uint64_t before = free_bytes();
	size_t host_before = count_host_room();
	(void)state;
	for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
		int after = 0;
		while (kill_mover(functions[i], after))
			after++;
		assert_true(after >= 2); /* the function is called in every move */
		/* The broker sees the end of the connection; requests are answered in order, so a few suffice. */
		for (int k = 0; k < 10000 && free_bytes() != before; k++)
			;
		assert_int_equal(free_bytes(), before);
		assert_int_equal(count_host_room(), host_before);
	}
}

int main(int argc, char **argv)
{
	self = argv[0];
	if (argc > 1 && strcmp(argv[1], "mover") == 0)
		return run_mover();
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_allocation_that_fails_leaves_nothing),
		cmocka_unit_test(every_call_of_a_move_to_a_peer_may_fail),
		cmocka_unit_test(every_call_of_a_move_to_the_host_may_fail),
		cmocka_unit_test(a_process_killed_at_any_step_leaves_nothing),
	};
	return cmocka_run_group_tests(tests, begin_granules, sim_test_end);
}
