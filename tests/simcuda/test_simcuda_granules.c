/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Granules (shim/granules.h) over the simulated driver: memory moves to a peer, to
 * the host and back under fixed addresses, beside threads that allocate and free.
 */
#include "granules_rig.h"

#include "base/rng.h"

#include <pthread.h>

static void an_allocation_is_made_of_granules(void **state)
{
	uint64_t before = all_own_bytes();
	size_t host_before = count_host_room();
	struct hb_granules *granules = hb_granules_new(&granule_config);
	struct hb_granules_range found;
	struct allocation a = {.bytes = 2 * GRANULE + UNIT / 2, .seed = 3}, b = {.bytes = UNIT, .seed = 4};
	CUdeviceptr none;
	(void)state;
	CU(hb_granules_allocate(granules, a.bytes, &a.base));
	CU(hb_granules_allocate(granules, b.bytes, &b.base));
	assert_int_equal(all_own_bytes() - before, 2 * GRANULE + UNIT + UNIT);
	assert_int_equal(count(granules).local, 2 * GRANULE + UNIT + UNIT);
	fill(&a);
	fill(&b);
	assert_true(is_intact(&a) && is_intact(&b));
	assert_true(hb_granules_find(granules, a.base + a.bytes - 1, &found));
	assert_true(found.base == a.base && found.bytes == a.bytes && found.stays == HB_STAY_NOT);
	assert_false(
		hb_granules_find(granules, a.base + a.bytes, &found)); /* what was rounded up is not the program's */
	assert_false(hb_granules_find(granules, 4096, &found));
	CU_FAILS(hb_granules_allocate(granules, 0, &none), CUDA_ERROR_INVALID_VALUE);
	CU_FAILS(hb_granules_allocate(granules, SIZE_MAX, &none), CUDA_ERROR_OUT_OF_MEMORY);
	CU_FAILS(hb_granules_allocate(granules, (size_t)1 << 40, &none), CUDA_ERROR_OUT_OF_MEMORY);
	CU_FAILS(hb_granules_release(granules, a.base + UNIT, 0, NULL), CUDA_ERROR_INVALID_VALUE);
	CU(hb_granules_release(granules, a.base, 0, NULL));
	CU_FAILS(hb_granules_release(granules, a.base, 0, NULL), CUDA_ERROR_INVALID_VALUE);
	CU(hb_granules_release(granules, b.base, 0, NULL));
	finish(granules, before, host_before);
	assert_null(hb_granules_new(
		&(struct hb_granule_config){.driver = granule_config.driver, .granule_bytes = UNIT + 1}));
}

static void memory_moves_and_returns(void **state)
{
	uint64_t before = all_own_bytes();
	size_t host_before = count_host_room();
	struct hb_granules *granules = hb_granules_new(&granule_config);
	struct allocation old = {.bytes = 3 * GRANULE, .seed = 1}, young = {.bytes = GRANULE + UNIT, .seed = 2};
	CUfunction add_one = sim_test_function("add_one");
	(void)state;
	hb_granules_limit_host(granules, 8 * GRANULE);
	CU(hb_granules_allocate(granules, old.bytes, &old.base));
	CU(hb_granules_allocate(granules, young.bytes, &young.base));
	fill(&old);
	fill(&young);
	uint64_t local_before = own_bytes(0), peer_before = own_bytes(1);
	/* The newest first, whole granules: all of the young allocation's and one of the old one's. */
	CU(move_granules(granules, &local, &peer, GRANULE + UNIT + 1, NULL));
	assert_int_equal(own_bytes(0), local_before - 2 * GRANULE - UNIT);
	assert_int_equal(own_bytes(1), peer_before + 2 * GRANULE + UNIT);
	assert_true(is_intact(&old) && is_intact(&young));
	/* A kernel writes to what is remote now. */
	CU(cuLaunchKernel(add_one, 1, 1, 1, 32, 1, 1, 0, NULL, (void *[]){&old.base}, NULL));
	CU(cuCtxSynchronize());
	/* All that is left, though more was asked for. */
	CU(move_granules(granules, &local, &host, 100 * GRANULE, NULL));
	assert_int_equal(count(granules).host, 2 * GRANULE);
	/* The GPU keeps page tables of what is on the host. */
	assert_int_equal(own_bytes(0), local_before - old.bytes - young.bytes + 2 * GRANULE / 512);
	assert_true(is_intact(&young));
	CU_FAILS(move_granules(granules, &local, &host, 1, NULL), CUDA_ERROR_NOT_FOUND);
	/* The oldest return first. */
	CU(move_granules(granules, &peer, &local, GRANULE, NULL));
	assert_true(hb_granules_is_home(granules, young.base) == false && count(granules).peer == GRANULE + UNIT);
	CU(move_granules(granules, &peer, &local, 100 * GRANULE, NULL));
	CU(move_granules(granules, &host, &local, 100 * GRANULE, NULL));
	/* The move to the peer has left something to unmap. */
	assert_int_equal(own_bytes(1), peer_before + 2 * GRANULE + UNIT);
	hb_granule_moves_finish(granules);
	assert_int_equal(own_bytes(0), local_before);
	assert_int_equal(own_bytes(1), peer_before);
	uint32_t word = word_of(old.seed, 0) + 1;
	CU(cuMemcpyDtoH_v2(&word, old.base, 4));
	assert_int_equal(word, word_of(old.seed, 0) + 1);
	CU(cuMemsetD32_v2(old.base, word - 1, 1));
	assert_true(is_intact(&old) && is_intact(&young));
	CU(hb_granules_release(granules, old.base, 0, NULL));
	CU(hb_granules_release(granules, young.base, 0, NULL));
	finish(granules, before, host_before);
}

static void a_full_place_stops_a_move_before_it_begins(void **state)
{
	uint64_t before = all_own_bytes();
	size_t host_before = count_host_room();
	struct hb_granules *granules = hb_granules_new(&granule_config);
	struct allocation a = {.bytes = 4 * GRANULE, .seed = 7};
	CUmemGenericAllocationHandle hog;
	size_t left;
	(void)state;
	CU(hb_granules_allocate(granules, a.bytes, &a.base));
	fill(&a);
	hb_granules_limit_host(granules, 3 * GRANULE);
	CU_FAILS(move_granules(granules, &local, &host, a.bytes, NULL), CUDA_ERROR_OUT_OF_MEMORY);
	assert_int_equal(count(granules).local, a.bytes);
	assert_true(is_intact(&a));
	CU(move_granules(granules, &local, &host, 2 * GRANULE, NULL)); /* what fits, fits */
	hb_granules_limit_host(granules, GRANULE); /* what moved may stay, spares have to go, nothing is added */
	for (bool more = true; more;)
		CU(hb_granules_keep_spares(granules, &more));
	assert_int_equal(count(granules).host, 2 * GRANULE);
	assert_int_equal(count(granules).spare, 0);
	CU_FAILS(move_granules(granules, &local, &host, UNIT, NULL), CUDA_ERROR_OUT_OF_MEMORY);
	CU(move_granules(granules, &host, &local, a.bytes, NULL));
	assert_true(is_intact(&a));
	struct hb_sim_stats stats;
	CU(sim_test_table()->stats(1, &stats));
	left = stats.memory_free;
	const CUmemAllocationProp on_peer = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = peer};
	CU(cuMemCreate(&hog, (left - 2 * GRANULE) / UNIT * UNIT, &on_peer, 0));
	CU_FAILS(move_granules(granules, &local, &peer, a.bytes, NULL), CUDA_ERROR_OUT_OF_MEMORY);
	CU(move_granules(granules, &local, &peer, 2 * GRANULE, NULL));
	assert_true(is_intact(&a));
	CU(cuMemRelease(hog));
	CU(hb_granules_release(granules, a.base, 0, NULL));
	finish(granules, before, host_before);
}

static void spares_make_a_move_to_the_host_free_of_pinning(void **state)
{
	uint64_t before = all_own_bytes();
	size_t host_before = count_host_room();
	struct hb_granules *granules = hb_granules_new(&granule_config);
	struct allocation a = {.bytes = 2 * GRANULE + UNIT, .seed = 8}, b = {.bytes = 3 * GRANULE, .seed = 9};
	bool more = true;
	(void)state;
	CU(hb_granules_allocate(granules, b.bytes, &b.base));
	CU(hb_granules_allocate(granules, a.bytes, &a.base));
	fill(&a);
	hb_granules_limit_host(granules, 4 * GRANULE);
	uint64_t unmapped = own_bytes(0);
	while (more)
		CU(hb_granules_keep_spares(granules, &more));
	assert_int_equal(count(granules).spare, 3 * GRANULE + UNIT); /* a, and what of b fits the limit */
	assert_int_equal(own_bytes(0) - unmapped,
			 (3 * GRANULE + UNIT) / 512); /* page tables: it is mapped in advance */
	long created = atomic_load(&n_created_on_host);
	CU(move_granules(granules, &local, &host, a.bytes, NULL));
	assert_int_equal(atomic_load(&n_created_on_host), created);
	assert_int_equal(count(granules).spare, GRANULE);
	assert_true(is_intact(&a));
	CU(move_granules(granules, &host, &local, a.bytes, NULL)); /* the memory becomes spare again */
	assert_int_equal(count(granules).spare, 3 * GRANULE + UNIT);
	assert_true(is_intact(&a));
	/* Spares follow the allocations. */
	CU(hb_granules_release(granules, a.base, 0, NULL));
	for (more = true; more;)
		CU(hb_granules_keep_spares(granules, &more));
	assert_int_equal(count(granules).spare, 3 * GRANULE);
	hb_granules_pin(granules, b.base, HB_STAY_SHARED);
	for (more = true; more;)
		CU(hb_granules_keep_spares(granules, &more));
	assert_int_equal(count(granules).spare, 0);
	CU(hb_granules_release(granules, b.base, 0, NULL));
	finish(granules, before, host_before);
}

/* Moves take the newest granules first and skip none, so what is prepared for an older one would be of no use. */
static void spares_skip_no_granule(void **state)
{
	uint64_t before = all_own_bytes();
	size_t host_before = count_host_room();
	struct hb_granules *granules = hb_granules_new(&granule_config);
	struct allocation old = {.bytes = UNIT, .seed = 10}, young = {.bytes = 2 * GRANULE, .seed = 11};
	(void)state;
	CU(hb_granules_allocate(granules, old.bytes, &old.base));
	CU(hb_granules_allocate(granules, young.bytes, &young.base));
	hb_granules_limit_host(granules, GRANULE + UNIT);
	for (bool more = true; more;)
		CU(hb_granules_keep_spares(granules, &more));
	assert_int_equal(count(granules).spare, GRANULE);
	CU(move_granules(granules, &local, &host, count(granules).spare, NULL));
	CU(hb_granules_release(granules, old.base, 0, NULL));
	CU(hb_granules_release(granules, young.base, 0, NULL));
	finish(granules, before, host_before);
}

static void allocations_leave_a_move_that_is_prepared(void **state)
{
	uint64_t before = all_own_bytes();
	size_t host_before = count_host_room();
	struct hb_granules *granules = hb_granules_new(&granule_config);
	struct allocation freed = {.bytes = GRANULE, .seed = 1}, pinned = {.bytes = GRANULE, .seed = 2},
			  moved = {.bytes = GRANULE, .seed = 3};
	struct hb_granule_move *move, *second;
	(void)state;
	CU(hb_granules_allocate(granules, freed.bytes, &freed.base));
	CU(hb_granules_allocate(granules, pinned.bytes, &pinned.base));
	CU(hb_granules_allocate(granules, moved.bytes, &moved.base));
	fill(&pinned);
	fill(&moved);
	CU(hb_granule_move_begin(granules, &local, &peer, 3 * GRANULE, &move));
	CU_FAILS(hb_granule_move_begin(granules, &local, &peer, GRANULE, &second),
		 CUDA_ERROR_NOT_FOUND); /* all move already */
	assert_int_equal(hb_granule_move_bytes(move), 3 * GRANULE);
	CU_FAILS(hb_granule_move_exchange(move), CUDA_ERROR_INVALID_VALUE); /* nothing is copied */
	CU(hb_granules_release(granules, freed.base, 0, NULL));
	assert_true(hb_granules_pin(granules, pinned.base, HB_STAY_SHARED));
	assert_int_equal(hb_granule_move_bytes(move), GRANULE);
	CU(hb_granule_move_copy(move, NULL));
	CU(cuStreamSynchronize(NULL));
	CU(hb_granule_move_poll(move));
	CU(hb_granule_move_exchange(move));
	hb_granule_move_end(move);
	struct hb_granules_bytes counts = count(granules);
	assert_int_equal(counts.peer, GRANULE);
	assert_int_equal(counts.local, GRANULE);
	assert_int_equal(counts.stays[HB_STAY_SHARED], GRANULE);
	assert_true(is_intact(&pinned) && is_intact(&moved));
	CU_FAILS(move_granules(granules, &local, &peer, GRANULE, NULL), CUDA_ERROR_NOT_FOUND); /* it stays */
	CU(hb_granules_release(granules, pinned.base, 0, NULL));
	CU(hb_granules_release(granules, moved.base, 0, NULL));
	finish(granules, before, host_before);
}

static void copy_and_wait(struct hb_granule_move *move)
{
	CU(hb_granule_move_copy(move, NULL));
	CU(cuStreamSynchronize(NULL));
	CU(hb_granule_move_poll(move));
}

/* One is copied while the other is exchanged. */
static void two_moves_take_different_granules(void **state)
{
	uint64_t before = all_own_bytes();
	size_t host_before = count_host_room();
	struct hb_granules *granules = hb_granules_new(&granule_config);
	struct allocation parts[3] = {
		{.bytes = GRANULE, .seed = 1}, {.bytes = GRANULE, .seed = 2}, {.bytes = GRANULE, .seed = 3}};
	struct hb_granule_move *first, *second, *third;
	(void)state;
	for (int i = 0; i < 3; i++) {
		CU(hb_granules_allocate(granules, parts[i].bytes, &parts[i].base));
		fill(&parts[i]);
	}
	CU(hb_granule_move_begin(granules, &local, &peer, GRANULE, &first));
	CU(hb_granule_move_begin(granules, &local, &peer, GRANULE, &second));
	CU_FAILS(hb_granule_move_begin(granules, &local, &peer, GRANULE, &third), CUDA_ERROR_NOT_READY);
	copy_and_wait(first);
	copy_and_wait(second);
	CU(hb_granule_move_exchange(first));
	hb_granule_move_end(first);
	CU(hb_granule_move_begin(granules, &local, &peer, 3 * GRANULE, &third));
	assert_int_equal(hb_granule_move_bytes(third), GRANULE); /* the only one left */
	CU(hb_granule_move_exchange(second));
	hb_granule_move_end(second);
	hb_granule_move_end(third); /* given up */
	assert_int_equal(count(granules).peer, 2 * GRANULE);
	assert_int_equal(count(granules).local, GRANULE);
	CU(move_granules(granules, &local, &peer, GRANULE, NULL)); /* it can move later */
	CU(move_granules(granules, &peer, &local, 3 * GRANULE, NULL));
	assert_int_equal(count(granules).local, 3 * GRANULE);
	for (int i = 0; i < 3; i++) {
		assert_true(is_intact(&parts[i]));
		CU(hb_granules_release(granules, parts[i].base, 0, NULL));
	}
	finish(granules, before, host_before);
}

/* Creates and maps memory as a program does that calls cuMemCreate itself. */
static struct hb_granules_piece make_piece(CUdeviceptr *address)
{
	const CUmemAccessDesc access = {local, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	const CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = local};
	struct hb_granules_piece piece = {.bytes = 3 * UNIT, .place = local};
	CU(cuMemCreate(&piece.handle, piece.bytes, &properties, 0));
	CU(cuMemAddressReserve(address, piece.bytes, 0, 0, 0));
	CU(cuMemMap(*address, piece.bytes, 0, piece.handle, 0));
	CU(cuMemSetAccess(*address, piece.bytes, &access, 1));
	return piece;
}

static void adopted_memory_moves_until_it_is_disowned(void **state)
{
	uint64_t before = all_own_bytes();
	size_t host_before = count_host_room();
	struct hb_granules *granules = hb_granules_new(&granule_config);
	struct allocation own = {.bytes = 3 * UNIT, .seed = 5};
	struct hb_granules_range found;
	CUmemAllocationProp properties;
	(void)state;
	hb_granules_limit_host(granules, 8 * GRANULE);
	struct hb_granules_piece piece = make_piece(&own.base);
	fill(&own);
	assert_true(hb_granules_adopt(granules, own.base, &piece));
	assert_false(hb_granules_find(granules, own.base, &found));
	CU_FAILS(hb_granules_release(granules, own.base, 0, NULL), CUDA_ERROR_INVALID_VALUE);
	CU(hb_granules_share_with_peer(granules, 1)); /* does not concern it */
	CU(move_granules(granules, &local, &peer, UNIT, NULL));
	assert_true(count(granules).peer == 3 * UNIT && count(granules).adopted == 3 * UNIT && is_intact(&own));
	CU(move_granules(granules, &peer, &local, UNIT, NULL));
	assert_true(hb_granules_disown(granules, own.base, &piece));
	assert_false(hb_granules_disown(granules, own.base, &piece));
	CU(cuMemGetAllocationPropertiesFromHandle(&properties, piece.handle)); /* as the program created it */
	assert_int_equal(properties.requestedHandleTypes, 0);
	CU_FAILS(move_granules(granules, &local, &host, UNIT, NULL), CUDA_ERROR_NOT_FOUND);
	assert_true(hb_granules_adopt(granules, own.base, &piece));
	CU(move_granules(granules, &local, &host, UNIT, NULL));
	assert_true(is_intact(&own) && hb_granules_disown(granules, own.base, &piece));
	assert_int_equal(piece.place.type, host.type);
	CU(cuMemUnmap(own.base, own.bytes));
	CU(cuMemAddressFree(own.base, own.bytes));
	hb_granules_return_piece(granules, &piece);
	assert_int_equal(count(granules).spare, 3 * UNIT);
	finish(granules, before, host_before);
}

/* A copy behind a long kernel does not end in time; the move is given up, and the program continues with the old memory. */
static void a_move_can_be_given_up_while_it_copies(void **state)
{
	uint64_t before = all_own_bytes();
	size_t host_before = count_host_room();
	struct hb_granules *granules = hb_granules_new(&granule_config);
	struct allocation a = {.bytes = 2 * GRANULE, .seed = 11};
	struct hb_granule_move *move;
	uint64_t ns = 200000000;
	(void)state;
	CU(hb_granules_allocate(granules, a.bytes, &a.base));
	fill(&a);
	CU(hb_granule_move_begin(granules, &local, &peer, a.bytes, &move));
	LAUNCH(NULL, "wait_us", &ns);
	CU(hb_granule_move_copy(move, NULL));
	CU_FAILS(hb_granule_move_poll(move), CUDA_ERROR_NOT_READY);
	CU_FAILS(hb_granule_move_exchange(move), CUDA_ERROR_INVALID_VALUE);
	hb_granule_move_end(move); /* waits for the copies, which read and write memory of this move */
	assert_int_equal(cuStreamQuery(NULL), CUDA_SUCCESS);
	assert_int_equal(count(granules).local, a.bytes);
	assert_true(is_intact(&a));
	CU(hb_granules_release(granules, a.base, 0, NULL));
	finish(granules, before, host_before);
}

/* --- threads: allocations and frees beside moves and counting ----------------------------------------- */

struct worker_run {
	struct hb_granules *granules;
	pthread_rwlock_t calls; /* read: a driver call of the program; write: the mover holds the program back */
	atomic_bool over;
	atomic_int wrong;
};

static void *work(void *argument)
{
	struct worker_run *run = argument;
	struct allocation mine[4] = {0};
	struct hb_rng rng;
	hb_rng_init(&rng, 1, (uint64_t)(uintptr_t)mine);
	(void)cuCtxSetCurrent(sim_test_context());
	while (!atomic_load(&run->over)) {
		struct allocation *a = &mine[hb_rng_below(&rng, 4)];
		pthread_rwlock_rdlock(&run->calls);
		if (a->base) {
			atomic_fetch_add(&run->wrong, !is_intact(a));
			atomic_fetch_add(&run->wrong,
					 hb_granules_release(run->granules, a->base, 0, NULL) != CUDA_SUCCESS);
			a->base = 0;
		} else {
			a->bytes = UNIT * (1 + hb_rng_below(&rng, 3));
			a->seed = (uint32_t)hb_rng_u64(&rng);
			if (hb_granules_allocate(run->granules, a->bytes, &a->base) == CUDA_SUCCESS)
				fill(a);
			else
				a->base = 0;
		}
		pthread_rwlock_unlock(&run->calls);
		struct hb_granules_bytes counts;
		hb_granules_count(run->granules, &counts);
	}
	for (int i = 0; i < 4; i++)
		if (mine[i].base)
			atomic_fetch_add(&run->wrong,
					 !is_intact(&mine[i]) ||
						 hb_granules_release(run->granules, mine[i].base, 0, NULL));
	return NULL;
}

/* Frees without asking the mover, as a program does whose call is not held back; it has to wait for the move by itself. */
static void *free_and_allocate(void *argument)
{
	struct worker_run *run = argument;
	(void)cuCtxSetCurrent(sim_test_context());
	while (!atomic_load(&run->over)) {
		CUdeviceptr base;
		if (hb_granules_allocate(run->granules, UNIT, &base) != CUDA_SUCCESS ||
		    hb_granules_release(run->granules, base, 0, NULL) != CUDA_SUCCESS)
			atomic_fetch_add(&run->wrong, 1);
	}
	return NULL;
}

static int move_once(struct worker_run *run, const CUmemLocation *from, const CUmemLocation *to, CUstream stream)
{
	struct hb_granule_move *move;
	bool more;
	(void)hb_granules_keep_spares(run->granules, &more);
	CUresult result = hb_granule_move_begin(run->granules, from, to, 2 * GRANULE, &move);
	if (result != CUDA_SUCCESS)
		return 0;
	pthread_rwlock_wrlock(&run->calls);
	result = hb_granule_move_copy(move, stream);
	while (result == CUDA_SUCCESS && (result = hb_granule_move_poll(move)) == CUDA_ERROR_NOT_READY)
		result = CUDA_SUCCESS;
	if (result == CUDA_SUCCESS)
		result = hb_granule_move_exchange(move);
	pthread_rwlock_unlock(&run->calls);
	hb_granule_move_end(move);
	return result == CUDA_SUCCESS;
}

static void moves_disturb_no_other_thread(void **state)
{
	uint64_t before = all_own_bytes();
	size_t host_before = count_host_room();
	struct worker_run run = {.granules = hb_granules_new(&granule_config)};
	const CUmemLocation *places[] = {&local, &peer, &host};
	pthread_t threads[3];
	CUstream stream;
	int moved = 0;
	(void)state;
	/* Else the programs, which take the lock again at once, never let the mover in. */
	pthread_rwlockattr_t fair;
	pthread_rwlockattr_init(&fair);
	pthread_rwlockattr_setkind_np(&fair, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
	pthread_rwlock_init(&run.calls, &fair);
	hb_granules_limit_host(run.granules, 4 * GRANULE);
	CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	for (int i = 0; i < 3; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, i < 2 ? work : free_and_allocate, &run), 0);
	for (int i = 0; moved < 12; i++)
		moved += move_once(&run, places[i % 3], places[(i + 1 + i / 3 % 2) % 3], stream);
	atomic_store(&run.over, true);
	for (int i = 0; i < 3; i++)
		pthread_join(threads[i], NULL);
	assert_int_equal(atomic_load(&run.wrong), 0);
	CU(cuStreamDestroy_v2(stream));
	pthread_rwlock_destroy(&run.calls);
	finish(run.granules, before, host_before);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_allocation_is_made_of_granules),
		cmocka_unit_test(memory_moves_and_returns),
		cmocka_unit_test(a_full_place_stops_a_move_before_it_begins),
		cmocka_unit_test(spares_make_a_move_to_the_host_free_of_pinning),
		cmocka_unit_test(spares_skip_no_granule),
		cmocka_unit_test(allocations_leave_a_move_that_is_prepared),
		cmocka_unit_test(two_moves_take_different_granules),
		cmocka_unit_test(adopted_memory_moves_until_it_is_disowned),
		cmocka_unit_test(a_move_can_be_given_up_while_it_copies),
		cmocka_unit_test(moves_disturb_no_other_thread),
	};
	return cmocka_run_group_tests(tests, begin_granules, sim_test_end);
}
