/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What slack costs on LP's launch path: look, ask and went for a program of some
 * hundred kernels, without HP, beside it, and while a launch has to wait; and
 * what HP pays for a launch. `meson test --benchmark slack`; nothing is asserted.
 */
#include "base/clock.h"
#include "decide/spatial_high.h"
#include "decide/spatial_low.h"

#include <stdio.h>
#include <stdlib.h>

#define KERNELS 300
#define ROUNDS 20000
#define US INT64_C(1000)

static struct hb_spatial_board board;
static struct hb_spatial_high high;
static struct hb_spatial_stream stream;

static void launch(struct hb_spatial_low *low, uint32_t i, int64_t now_ns)
{
	struct hb_spatial_shape shape = {.key = hb_spatial_key(i % KERNELS, i % KERNELS, 1, 1, 128, 0),
					 .blocks = 64 + i % KERNELS,
					 .per_sm = 4,
					 .flags = HB_SPATIAL_MASKABLE};
	struct hb_spatial_view view;
	struct hb_spatial_answer answer;
	hb_spatial_look(&board, now_ns, &view);
	hb_spatial_ask(low, &stream, &view, now_ns, &shape, &answer);
	if (answer.verdict == HB_SPATIAL_WAIT)
		return;
	uint32_t mark = hb_spatial_went(low, &stream, now_ns, &answer);
	if (mark)
		hb_spatial_done(low, &stream, mark, now_ns + 29 * US, now_ns + 30 * US);
}

static void measure(struct hb_spatial_low *low, const char *what, bool closed)
{
	int64_t now_ns = 1000000 * US;
	hb_spatial_high_begin(&high, now_ns, 0);
	if (closed)
		board.beacons[0].allow_ns = 0;
	int64_t begin_ns = hb_clock_now_ns();
	for (uint32_t i = 0; i < ROUNDS; i++)
		launch(low, i, now_ns += 30 * US);
	printf("%-28s %5.0f ns a launch\n", what, (double)(hb_clock_now_ns() - begin_ns) / ROUNDS);
}

int main(void)
{
	struct hb_spatial_limits limits;
	struct hb_spatial_low *low = calloc(1, sizeof *low);
	if (!low)
		return 1;
	hb_spatial_limits_init(&limits, 132);
	hb_spatial_low_init(low, &limits);
	struct hb_spatial_beacon *none = 0;
	hb_spatial_high_init(&high, none, 132);
	measure(low, "no HP process, first rounds", false);
	measure(low, "no HP process", false);
	struct hb_spatial_beacon *beacon = hb_spatial_claim(&board, 1);
	hb_spatial_high_init(&high, beacon, 132);
	measure(low, "HP served, LP waits", true);
	beacon->allow_ns = 100000000;
	beacon->seen_ns = INT64_C(1000000000);
	measure(low, "HP served, LP beside it", false);
	int64_t begin_ns = hb_clock_now_ns();
	for (uint32_t i = 0; i < ROUNDS; i++)
		hb_spatial_high_launch(&high, i);
	printf("%-28s %5.1f ns a launch\n", "HP", (double)(hb_clock_now_ns() - begin_ns) / ROUNDS);
	free(low);
	return 0;
}
