/* SPDX-License-Identifier: Apache-2.0 */
/*
 * LP's side of slack: the decision at each launch, the window, the marks; see
 * slack_low.h. Compiled into the core and the shim: no lock, no allocation, no
 * clock.
 *
 * The decision, in order
 *  1. Window. The predicted end of what is in flight must be near: `window_ns`,
 *     or `beside_ns` while HP is served or expected. And what is not confirmed by
 *     the counter, the newest launch aside, must be little: predictions that are
 *     too short cannot pile up work.
 *  2. HP is absent: go, on the whole GPU. But a kernel whose blocks hold their SMs
 *     for long is masked where the harm to expect is more than the mask costs:
 *     HP comes within hold with the probability hold / gap and then waits for half
 *     of it, so
 *	weight * entry * hold^2 / (2 gap)  >  beside - duration
 *  3. HP is served, and allows nothing (terms, closed window, no slack): wait.
 *  4. It allows something: on the whole GPU if the price fits and the mask would
 *     cost LP more than weight * (price - price masked); else masked if that price
 *     fits; else wait. The price of a launch is its time there * harm.
 */
#include "core/slack_kernel.h"

#include <string.h>

/* A mark is a measurement where its time is known to an eighth, or to 2 us. */
#define EXACT_SHIFT 3
#define EXACT_NS 2000
/* From a launch on an empty stream to its first block. */
#define LAUNCH_NS 3000
#define MEASURED_ENOUGH 4
#define SURVEY 64
/* While waiting for its own work LP looks at least this often. */
#define LOOK_NS INT64_C(20000)
/* Above this, HP's delay for work in flight at its request's begin; see entry_ppm. */
#define ENTRY_PPM 500000
/* A hold shorter than this is never worth a mask without HP. */
#define HOLD_LEAST_NS 50000
/* A slice is cut only from what is at least twice as long. */
#define SLICE_WORTH 2

void hb_slack_limits_init(struct hb_slack_limits *limits, uint32_t sms)
{
	*limits = (struct hb_slack_limits){
		.sms = sms,
		.window_ns = 60000,
		.beside_ns = 40000,
		.mark_ns = 30000,
		.slice_ns = 100000,
		.weight = 8,
		.masks = true,
	};
}

void hb_slack_low_init(struct hb_slack_low *low, const struct hb_slack_limits *limits)
{
	memset(low, 0, sizeof *low);
	low->limits = *limits;
	low->entry_ppm = ENTRY_PPM;
}

int64_t hb_slack_in_flight_ns(const struct hb_slack_stream *stream, int64_t now_ns)
{
	if (stream->sum_ns == stream->done_ns)
		return 0;
	return stream->ends_ns > now_ns ? stream->ends_ns - now_ns : 0;
}

/* --- the request, as LP sees it --- */

static void note_use(struct hb_slack_low *low, uint32_t kernel, uint32_t ns, bool wide)
{
	/* The same kernel again soon is common (layers); the last place takes what has none of its own. */
	for (uint32_t i = 0; i < low->n_uses; i++) {
		struct hb_slack_use *use = &low->uses[i];
		if ((use->kernel == kernel && use->wide == wide) || i == HB_SLACK_BESIDE - 1) {
			use->ns = use->ns < INT32_MAX - ns ? use->ns + ns : INT32_MAX;
			return;
		}
	}
	low->uses[low->n_uses++] = (struct hb_slack_use){.kernel = kernel, .ns = ns, .wide = wide};
}

static void end_request(struct hb_slack_low *low)
{
	memcpy(low->last, low->uses, low->n_uses * sizeof *low->uses);
	low->n_last = low->n_uses;
	low->n_uses = 0;
	low->spent_ns = 0;
}

static void note_view(struct hb_slack_low *low, const struct hb_slack_stream *stream, const struct hb_slack_view *view,
		      int64_t now_ns)
{
	if (view->epoch != low->epoch) {
		low->epoch = view->epoch;
		if (low->present)
			end_request(low);
		low->present = view->present;
		int64_t left_ns = hb_slack_in_flight_ns(stream, now_ns);
		if (view->present && left_ns)
			note_use(low, HB_SLACK_KERNELS, left_ns < INT32_MAX ? (uint32_t)left_ns : INT32_MAX, true);
	}
	if (view->outcome != low->outcome) {
		low->outcome = view->outcome;
		hb_slack_note_excess(low, view->excess_ns);
	}
}

/* --- deciding --- */

static void wait_until(struct hb_slack_low *low, struct hb_slack_answer *answer, int64_t until_ns, bool for_high)
{
	answer->verdict = HB_SLACK_WAIT;
	answer->until_ns = until_ns;
	answer->for_high = for_high;
	if (for_high)
		low->counts.waits_high++;
	else
		low->counts.waits_window++;
}

/* True: enough is in flight already. */
static bool window_is_full(struct hb_slack_low *low, const struct hb_slack_stream *stream,
			   const struct hb_slack_view *view, int64_t now_ns, struct hb_slack_answer *answer)
{
	if (stream->sum_ns == stream->done_ns)
		return false;
	int64_t window_ns = view->present || view->expected ? low->limits.beside_ns : low->limits.window_ns;
	int64_t left_ns = stream->ends_ns - now_ns;
	uint64_t unconfirmed_ns = stream->sum_ns - stream->done_ns - stream->newest_ns;
	bool many = unconfirmed_ns > 2 * (uint64_t)window_ns + low->limits.mark_ns ||
		    stream->marked - stream->done >= HB_SLACK_MARKS - 1;
	if (left_ns <= window_ns && !many)
		return false;
	if (now_ns - stream->moved_at_ns > HB_SLACK_STUCK_NS) {
		low->counts.stuck++;
		return false;
	}
	int64_t until_ns = left_ns > window_ns ? now_ns + left_ns - window_ns : now_ns + LOOK_NS;
	wait_until(low, answer, until_ns < now_ns + LOOK_NS ? until_ns : now_ns + LOOK_NS, false);
	return true;
}

static void go(struct hb_slack_answer *answer, uint32_t sms, uint32_t ns, int64_t price_ns)
{
	answer->verdict = HB_SLACK_GO;
	answer->sms = sms;
	answer->ns = ns;
	answer->price_ns = price_ns < UINT32_MAX ? (uint32_t)price_ns : UINT32_MAX;
	answer->part_ppm = HB_SLACK_PPM;
}

static uint32_t duration_of(const struct hb_slack_kernel *kernel)
{
	return kernel->duration_ns ? kernel->duration_ns : HB_SLACK_GUESS_NS;
}

/* While HP is absent: the harm to expect of a kernel that holds its SMs for long is more than its mask costs LP. */
static bool better_masked(const struct hb_slack_low *low, const struct hb_slack_kernel *kernel,
			  const struct hb_slack_view *view)
{
	uint32_t hold_ns = kernel->block_ns;
	if (hold_ns < HOLD_LEAST_NS)
		return false;
	if (view->expected)
		return true;
	if (!view->gap_ns)
		return false;
	uint32_t duration_ns = duration_of(kernel);
	uint64_t loss_ns = kernel->beside_ns > duration_ns ? kernel->beside_ns - duration_ns : 0;
	unsigned __int128 harm = (unsigned __int128)hold_ns * hold_ns * low->limits.weight * low->entry_ppm;
	return harm > (unsigned __int128)loss_ns * view->gap_ns * (2 * (uint64_t)HB_SLACK_PPM);
}

static bool can_mask(const struct hb_slack_low *low, const struct hb_slack_kernel *kernel)
{
	return low->limits.masks && (kernel->flags & HB_SLACK_MASKABLE) && kernel->reserve;
}

static void decide_alone(const struct hb_slack_low *low, const struct hb_slack_kernel *kernel,
			 const struct hb_slack_view *view, struct hb_slack_answer *answer)
{
	if (can_mask(low, kernel) && better_masked(low, kernel, view))
		go(answer, kernel->sms, kernel->beside_ns, 0);
	else
		go(answer, 0, duration_of(kernel), 0);
}

static int64_t price_of(uint32_t ns, uint32_t harm_ppm)
{
	return (int64_t)((uint64_t)ns * harm_ppm / HB_SLACK_PPM);
}

/* A long kernel whose grid can be cut: as much of it as fits in a slice. */
static void cut_slice(const struct hb_slack_low *low, const struct hb_slack_kernel *kernel,
		      struct hb_slack_answer *answer)
{
	uint32_t slice_ns = low->limits.slice_ns;
	if (!(kernel->flags & HB_SLACK_SLICEABLE) || kernel->class != HB_SLACK_PLAIN ||
	    answer->ns < (uint64_t)SLICE_WORTH * slice_ns || kernel->block_ns > slice_ns)
		return;
	answer->verdict = HB_SLACK_SLICE;
	answer->part_ppm = (uint32_t)((uint64_t)slice_ns * HB_SLACK_PPM / answer->ns);
	answer->price_ns = (uint32_t)price_of(answer->price_ns, answer->part_ppm);
	answer->ns = slice_ns;
}

static void decide_beside(struct hb_slack_low *low, const struct hb_slack_kernel *kernel,
			  const struct hb_slack_view *view, struct hb_slack_answer *answer)
{
	int64_t left_ns = view->allow_ns - low->spent_ns;
	uint32_t duration_ns = duration_of(kernel);
	int64_t wide_ns = price_of(duration_ns, kernel->harm_ppm[1]);
	bool maskable = can_mask(low, kernel);
	int64_t masked_ns = price_of(kernel->beside_ns, kernel->harm_ppm[0]);
	int64_t gain_ns = maskable ? (int64_t)kernel->beside_ns - duration_ns : (int64_t)duration_ns;
	int64_t extra_ns = maskable ? wide_ns - masked_ns : wide_ns;
	bool known = kernel->measured > 0;
	/* Nothing allowed is nothing, whatever a kernel was found to cost. */
	if (view->allow_ns > 0 && known && wide_ns <= left_ns && gain_ns >= low->limits.weight * extra_ns)
		go(answer, 0, duration_ns, wide_ns);
	else if (view->allow_ns > 0 && maskable && masked_ns <= left_ns)
		go(answer, kernel->sms, kernel->beside_ns, masked_ns);
	else
		wait_until(low, answer, view->look_at_ns, true);
	answer->known = known;
	if (answer->verdict == HB_SLACK_GO)
		cut_slice(low, kernel, answer);
}

void hb_slack_ask(struct hb_slack_low *low, const struct hb_slack_stream *stream, const struct hb_slack_view *view,
		  int64_t now_ns, const struct hb_slack_shape *shape, struct hb_slack_answer *answer)
{
	note_view(low, stream, view, now_ns);
	uint32_t place = hb_slack_place(low, shape);
	struct hb_slack_kernel *kernel = &low->kernels[place];
	if (kernel->reserve != view->reserve)
		hb_slack_fit(low, kernel, view->reserve);
	*answer = (struct hb_slack_answer){.kernel = place, .beside = view->present, .known = kernel->measured > 0};
	if (shape->flags & HB_SLACK_FREE)
		go(answer, 0, duration_of(kernel), 0);
	else if (window_is_full(low, stream, view, now_ns, answer))
		return;
	else if (view->present)
		decide_beside(low, kernel, view, answer);
	else
		decide_alone(low, kernel, view, answer);
}

/* --- what is in flight --- */

static void count_launch(struct hb_slack_low *low, const struct hb_slack_answer *answer)
{
	struct hb_slack_kernel *kernel = &low->kernels[answer->kernel];
	kernel->used = ++low->launches;
	kernel->seen += kernel->seen < UINT32_MAX;
	if (answer->verdict == HB_SLACK_SLICE)
		low->counts.sliced++;
	if (!answer->beside) {
		low->counts.free++;
		return;
	}
	low->counts.unknown += !answer->known;
	if (answer->sms)
		low->counts.beside++;
	else
		low->counts.wide++;
	low->spent_ns += answer->price_ns;
	note_use(low, answer->kernel, answer->ns, !answer->sms);
}

static uint32_t place_mark(struct hb_slack_stream *stream)
{
	uint32_t value = ++stream->marked;
	if (!value)
		value = ++stream->marked; /* 0 means none */
	stream->next.sum_ns = stream->sum_ns;
	stream->marks[value & (HB_SLACK_MARKS - 1)] = stream->next;
	stream->next = (struct hb_slack_mark){0};
	stream->next_ns = 0;
	return value;
}

uint32_t hb_slack_went(struct hb_slack_low *low, struct hb_slack_stream *stream, int64_t now_ns,
		       const struct hb_slack_answer *answer)
{
	bool empty = stream->sum_ns == stream->done_ns;
	struct hb_slack_mark *next = &stream->next;
	count_launch(low, answer);
	if (empty || stream->ends_ns < now_ns)
		stream->ends_ns = now_ns + LAUNCH_NS;
	if (empty) {
		stream->moved_at_ns = now_ns;
		next->dry_ns = now_ns;
	}
	next->others_ns = stream->next_ns;
	next->kernel = answer->kernel;
	next->beside |= (uint8_t)((answer->sms ? 1 : 0) | (answer->beside ? 2 : 0));
	next->part |= answer->verdict == HB_SLACK_SLICE || (stream->next_ns && !answer->known);
	stream->sum_ns += answer->ns;
	stream->ends_ns += answer->ns;
	stream->next_ns += answer->ns;
	stream->newest_ns = answer->ns;
	bool unsure = low->kernels[answer->kernel].measured < MEASURED_ENOUGH;
	if (unsure)
		low->survey = SURVEY;
	if (low->survey)
		low->survey--;
	if (!unsure && !low->survey && stream->next_ns < low->limits.mark_ns)
		return 0;
	if (stream->marked - stream->done >= HB_SLACK_MARKS - 1)
		return 0; /* no room; those in flight say enough */
	return place_mark(stream);
}

/* The mark's last kernel took what the interval has beyond the others. */
static void measure(struct hb_slack_low *low, const struct hb_slack_mark *mark, int64_t took_ns)
{
	int64_t own_ns = took_ns - mark->others_ns;
	bool masked = mark->beside & 1;
	if (mark->part || own_ns <= 0)
		return;
	/* Beside HP a kernel on the whole GPU says nothing; masked it says what masked ones take there. */
	if (mark->beside == 2 || (masked && mark->others_ns))
		return;
	hb_slack_note_duration(low, mark->kernel, own_ns, masked);
}

void hb_slack_done(struct hb_slack_low *low, struct hb_slack_stream *stream, uint32_t value, int64_t looked_ns,
		   int64_t now_ns)
{
	uint32_t steps = value - stream->done;
	if (!steps || steps > stream->marked - stream->done)
		return; /* nothing new, or not a value that was given out */
	const struct hb_slack_mark *mark = &stream->marks[value & (HB_SLACK_MARKS - 1)];
	int64_t from_ns = mark->dry_ns ? mark->dry_ns + LAUNCH_NS : stream->done_at_ns;
	int64_t took_ns = now_ns - from_ns, doubt_ns = looked_ns ? now_ns - looked_ns : INT64_MAX;
	bool exact = doubt_ns <= EXACT_NS || doubt_ns <= took_ns >> EXACT_SHIFT;
	if (steps == 1 && from_ns && exact && took_ns > 0)
		measure(low, mark, took_ns);
	stream->done = value;
	stream->done_ns = mark->sum_ns;
	stream->done_at_ns = exact ? now_ns : 0;
	stream->moved_at_ns = now_ns;
	stream->ends_ns = now_ns + (int64_t)(stream->sum_ns - stream->done_ns);
}

void hb_slack_idle(struct hb_slack_stream *stream, int64_t now_ns)
{
	stream->done = stream->marked;
	stream->done_ns = stream->sum_ns;
	stream->done_at_ns = 0;
	stream->ends_ns = stream->moved_at_ns = now_ns;
	stream->next = (struct hb_slack_mark){0};
	stream->next_ns = 0;
}
