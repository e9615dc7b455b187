/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How an HP process carries out its takeover plan, which foresight_plan.c decides:
 * what its takeover thread does when it runs, when the thread runs next, and how
 * long the takeover kernels stay after the process began to launch. Used by the
 * shim (takeover.c, takeover_thread.c) and by the simulator.
 *
 * Lingering. A takeover does not end with HP's first launch. The next launch
 * follows within some 30 us where a program continues to launch (Python takes 10
 * to 20 us for a call), and a gap of 6 us already costs two context switches. So
 * each launch renews the takeover for TAKEOVER_LINGER_NS, up to
 * TAKEOVER_LINGER_MOST_NS after the first launch (defaults.def).
 */
#ifndef HB_DECIDE_TAKEOVER_STEPS_H
#define HB_DECIDE_TAKEOVER_STEPS_H

#include "decide/process_foresight.h"

#include <stdatomic.h>

/* Duties of the thread that has changed the plan. */
struct hb_takeover_change {
	bool release;        /* let the GPU go now */
	int64_t call_for_ns; /* the takeover thread has to run at this time or earlier */
};
struct hb_takeover_change hb_takeover_compare(const struct hb_takeover_plan *before,
					      const struct hb_takeover_plan *after);

/* --- the takeover thread --- */

enum hb_takeover_step { HB_TAKEOVER_LEAVE, HB_TAKEOVER_TAKE, HB_TAKEOVER_LET_GO };

/* `acted`: the plan's takeover was carried out already. `doubtful`: a call may be waiting for the takeover kernels. */
enum hb_takeover_step hb_takeover_next_step(const struct hb_takeover_plan *plan, int64_t now_ns, bool acted,
					    bool lingering, bool doubtful);
/* When the thread runs next. `held`: takeover kernels are on the GPU. `prepared`: no context waits to be prepared. */
int64_t hb_takeover_wake_ns(const struct hb_takeover_plan *plan, int64_t now_ns, bool held, bool prepared);
/* The thread has to run exactly at wake_ns, because a takeover begins then. */
bool hb_takeover_wakes_exactly(const struct hb_takeover_plan *plan, int64_t wake_ns);

/* --- lingering --- */

/* Launches since the takeover began; 0 = there was none. Written by any thread of the process. */
struct hb_takeover_linger {
	_Atomic(int64_t) first_ns, last_ns;
};

/* --- the stream of the takeover kernels --- */

/*
 * Suppose a program replays a graph on a non-blocking stream. Once another non-blocking
 * stream of that context has run a kernel, the graph is slower until the context ends
 * (H200: 0.2 to 0.6 us a node, BERT 14 %). Kernels on the legacy default stream do not
 * cause this, and graphs that are replayed there do not suffer from it. So takeover
 * kernels run
 *  - on the legacy stream, if the process's last request began on a non-blocking stream,
 *    which does not wait for the legacy stream;
 *  - on streams of the shim, if requests have begun on blocking streams (the legacy
 *    stream is one) for TAKEOVER_STEADY_NS. A program that loads its model often uses
 *    the legacy stream at first and another one later;
 *  - nowhere before that, and before the first request.
 * How graphs behave on blocking streams that the program created was not measured.
 */
struct hb_takeover_apart {
	_Atomic(int64_t) blocking_since_ns; /* 0 = the last request began on a non-blocking stream */
	_Atomic(bool) known;                /* a request has begun */
};

enum hb_takeover_where { HB_TAKEOVER_NOWHERE, HB_TAKEOVER_ON_LEGACY, HB_TAKEOVER_ON_OWN };

/* A request begins on a stream that is non-blocking, or on another one. Any thread. */
void hb_takeover_note_begin(struct hb_takeover_apart *apart, bool non_blocking, int64_t now_ns);
/* NOWHERE: there is no takeover yet. */
enum hb_takeover_where hb_takeover_choose_where(const struct hb_takeover_apart *apart, int64_t now_ns);

enum hb_takeover_note {
	HB_TAKEOVER_RENEWED,       /* the takeover kernels stay TAKEOVER_LINGER_NS longer */
	HB_TAKEOVER_FIRST_RENEWED, /* so, and this is the first launch since the takeover began */
	HB_TAKEOVER_NOT_RENEWED,
};
enum hb_takeover_note hb_takeover_linger_note(struct hb_takeover_linger *linger, int64_t now_ns);
bool hb_takeover_linger_runs(const struct hb_takeover_linger *linger, int64_t now_ns);
/* A takeover begins: launches before it do not count. */
void hb_takeover_linger_reset(struct hb_takeover_linger *linger);

#endif
