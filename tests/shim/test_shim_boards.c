/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Boards of the spatial engine in a process, over the simulated driver: an HP process
 * makes its own, an LP process fetches those of HP. The test plays the daemon and the
 * other process.
 */
#include "base/clock.h"
#include "decide/spatial.h"
#include "shim_spatial_rig.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- in the child ---- */

static void launch(void)
{
	OK(CU(cuLaunchKernel)(spatial_look, 264, 1, 1, 512, 1, 1, 0, spatial_stream, NULL, NULL));
}

static unsigned sms_of_a_launch(void)
{
	atomic_store(&spatial_sms_seen, 0);
	launch();
	OK(CU(cuStreamSynchronize)(spatial_stream));
	return atomic_load(&spatial_sms_seen);
}

/* The board that the shim has made for this process. */
static const struct hb_spatial_beacon *own_beacon(void)
{
	char line[512];
	uintptr_t at = 0;
	FILE *maps = fopen("/proc/self/maps", "r");
	CHECK(maps);
	while (!at && fgets(line, sizeof line, maps))
		if (strstr(line, "memfd:hb-board"))
			at = (uintptr_t)strtoull(line, NULL, 16);
	fclose(maps);
	CHECK(at);
	return (const struct hb_spatial_beacon *)at; /* NOLINT(performance-no-int-to-ptr) */
}

static void serve_a_request(void)
{
	spatial_begin();
	const struct hb_spatial_beacon *own = own_beacon();
	CHECK(own->owner == 0);
	launch();
	CHECK(own->owner == SPATIAL_PID);
	CHECK(own->word & 1);
	CHECK(own->reserve > 0);
	OK(CU(cuStreamSynchronize)(spatial_stream));
	CHECK(!(own->word & 1));
	CHECK(spatial_count_of(HB_COUNT_requests) == 1);
	spatial_end();
}

/* ---- in the test ---- */

static void a_request_of_high_is_on_its_board(void **state)
{
	spatial_host.page->priority = HB_PAGE_HIGH;
	spatial_run(serve_a_request);
	assert_int_equal(spatial_host.boards_given, 1);
	assert_int_equal(spatial_host.boards_fetched, 0);
}

/* Nothing is at work that LP could see; but a board is listed that LP has not mapped yet. */
static void launch_beside_an_unknown_board(void)
{
	spatial_begin();
	CHECK(sms_of_a_launch() == 132);
	hb_page_host_list_board(&spatial_host);
	CHECK(sms_of_a_launch() < 132);
	spatial_end();
}

static void low_leaves_sms_to_high_before_it_knows_its_board(void **state)
{
	spatial_host.gpu->high_at_work = 0;
	spatial_host.last_board = spatial_host.gpu->boards[0].number;
	spatial_run(launch_beside_an_unknown_board);
	assert_int_equal(spatial_host.boards_fetched, 1);
}

static void wait_for_the_new_board(void)
{
	spatial_begin();
	hb_page_host_list_board(&spatial_host);
	while (sms_of_a_launch() != 132) /* the shim's own thread fetches it */
		usleep(1000);
	spatial_end();
}

static void low_fetches_a_new_board_though_it_only_launches(void **state)
{
	spatial_host.gpu->high_at_work = 0;
	spatial_run(wait_for_the_new_board);
	assert_int_equal(spatial_host.boards_fetched, 2);
}

/* A hint says when the next request begins; the process takes nothing over, but LP reads it on the board. */
static void give_a_hint(void)
{
	void (*hint)(int64_t) = (void (*)(int64_t))hb_test_shim_symbol("hb_shim_hint");
	spatial_begin();
	const struct hb_spatial_beacon *own = own_beacon();
	launch();
	OK(CU(cuStreamSynchronize)(spatial_stream));
	int64_t next_ns = hb_clock_now_ns() + HB_NS_PER_S;
	hint(next_ns);
	CHECK(own->expect_ns > next_ns);
	CHECK(own->expect_ns - (int64_t)own->expect_for_us * 1000 < next_ns);
	launch();
	CHECK(!own->expect_ns);
	OK(CU(cuStreamSynchronize)(spatial_stream));
	CHECK(spatial_count_of(HB_COUNT_takeovers) == 0);
	spatial_end();
}

static void a_hint_announces_the_next_request_on_the_board(void **state)
{
	spatial_host.page->priority = HB_PAGE_HIGH;
	spatial_run(give_a_hint);
}

/* An HP process exists but has been idle for long: the first launches of a kernel are masked, the others are not. */
static void launch_beside_an_idle_board(void)
{
	spatial_begin();
	CHECK(sms_of_a_launch() < 132);
	for (int i = 0; i < 8; i++)
		sms_of_a_launch();
	CHECK(sms_of_a_launch() == 132);
	spatial_end();
}

static void low_masks_what_it_does_not_know_beside_idle_high(void **state)
{
	struct hb_spatial_beacon *board = spatial_host.board;
	spatial_host.gpu->high_at_work = 0;
	board->owner = SPATIAL_PID;
	board->reserve = 32;
	board->word = 2;
	board->seen_ns = 1;
	spatial_run(launch_beside_an_idle_board);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, spatial_set_up, spatial_tear_down)
	const struct CMUnitTest tests[] = {
		TEST(a_request_of_high_is_on_its_board),
		TEST(a_hint_announces_the_next_request_on_the_board),
		TEST(low_masks_what_it_does_not_know_beside_idle_high),
		TEST(low_leaves_sms_to_high_before_it_knows_its_board),
		TEST(low_fetches_a_new_board_though_it_only_launches),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
