/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What slack costs on LP's launch path: look, ask and went for a program of some
 * hundred kernels, without HP, beside it, and while a launch has to wait; and
 * what HP pays for a launch. `meson test --benchmark slack`; nothing is asserted.
 */
#include "base/clock.h"
#include "decide/slack_high.h"
#include "decide/slack_low.h"

#include <stdio.h>
#include <stdlib.h>

#define KERNELS 300
#define ROUNDS 20000
#define US INT64_C(1000)

static struct hb_slack_board board;
static struct hb_slack_high high;
static struct hb_slack_stream stream;

static void launch(struct hb_slack_low *low, uint32_t i, int64_t now_ns)
{
	struct hb_slack_shape shape = {.key = hb_slack_key(i % KERNELS, i % KERNELS, 1, 1, 128, 0),
				       .blocks = 64 + i % KERNELS,
				       .per_sm = 4,
				       .flags = HB_SLACK_MASKABLE};
	struct hb_slack_view view;
	struct hb_slack_answer answer;
	hb_slack_look(&board, now_ns, &view);
	hb_slack_ask(low, &stream, &view, now_ns, &shape, &answer);
	if (answer.verdict == HB_SLACK_WAIT)
		return;
	uint32_t mark = hb_slack_went(low, &stream, now_ns, &answer);
	if (mark)
		hb_slack_done(low, &stream, mark, now_ns + 29 * US, now_ns + 30 * US);
}

static void measure(struct hb_slack_low *low, const char *what, bool closed)
{
	int64_t now_ns = 1000000 * US;
	hb_slack_high_begin(&high, now_ns, 0);
	if (closed)
		board.beacons[0].allow_ns = 0;
	int64_t begin_ns = hb_clock_now_ns();
	for (uint32_t i = 0; i < ROUNDS; i++)
		launch(low, i, now_ns += 30 * US);
	printf("%-28s %5.0f ns a launch\n", what, (double)(hb_clock_now_ns() - begin_ns) / ROUNDS);
}

int main(void)
{
	struct hb_slack_limits limits;
	struct hb_slack_low *low = calloc(1, sizeof *low);
	if (!low)
		return 1;
	hb_slack_limits_init(&limits, 132);
	hb_slack_low_init(low, &limits);
	struct hb_slack_beacon *none = 0;
	hb_slack_high_init(&high, none, 132);
	measure(low, "no HP process, first rounds", false);
	measure(low, "no HP process", false);
	struct hb_slack_beacon *beacon = hb_slack_claim(&board, 1);
	hb_slack_high_init(&high, beacon, 132);
	measure(low, "HP served, LP waits", true);
	beacon->allow_ns = 100000000;
	beacon->seen_ns = INT64_C(1000000000);
	measure(low, "HP served, LP beside it", false);
	int64_t begin_ns = hb_clock_now_ns();
	for (uint32_t i = 0; i < ROUNDS; i++)
		hb_slack_high_launch(&high, i);
	printf("%-28s %5.1f ns a launch\n", "HP", (double)(hb_clock_now_ns() - begin_ns) / ROUNDS);
	free(low);
	return 0;
}
