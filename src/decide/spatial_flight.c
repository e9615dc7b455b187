/* SPDX-License-Identifier: Apache-2.0 */
/*
 * LP's side of the spatial engine: what is in flight, the marks behind launches, and the durations that they measure; see
 * spatial_low.h. No lock, no allocation, no clock.
 */
#include "decide/spatial_kernel.h"

/* A mark measures a duration if its time is known within an eighth, or within 2 us. */
#define EXACT_SHIFT 3
#define EXACT_NS 2000
/* Time from a launch on an empty stream to its first block. */
#define LAUNCH_NS 3000
/* A spot gets a mark each time until it was measured, or seen, this often. */
#define MEASURED_ENOUGH 4
#define SEEN_ENOUGH 16
#define SURVEY 4

int64_t hb_spatial_in_flight_ns(const struct hb_spatial_stream *stream, int64_t now_ns)
{
	if (stream->sum_ns == stream->done_ns)
		return 0;
	return stream->ends_ns > now_ns ? stream->ends_ns - now_ns : 0;
}

void hb_spatial_note_use(struct hb_spatial_low *low, uint32_t kernel, uint32_t ns, bool wide)
{
	/* The same kernel is often launched again soon (layers). The last entry is for kernels without an entry. */
	for (uint32_t i = 0; i < low->n_uses; i++) {
		struct hb_spatial_use *use = &low->uses[i];
		if ((use->kernel == kernel && use->wide == wide) || i == HB_SPATIAL_BESIDE - 1) {
			use->ns = use->ns < INT32_MAX - ns ? use->ns + ns : INT32_MAX;
			return;
		}
	}
	low->uses[low->n_uses++] = (struct hb_spatial_use){.kernel = kernel, .ns = ns, .wide = wide};
}

static void count_launch(struct hb_spatial_low *low, const struct hb_spatial_answer *answer)
{
	struct hb_spatial_kernel *kernel = &low->kernels[answer->kernel];
	kernel->used = ++low->launches;
	kernel->seen += kernel->seen < UINT32_MAX;
	if (answer->verdict == HB_SPATIAL_SPLIT)
		low->counts.split++;
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
	hb_spatial_note_use(low, answer->kernel, answer->ns, !answer->sms);
}

/* Notes which launches the next one follows. A split kernel counts once, after its last part. */
static void note_order(struct hb_spatial_stream *stream, uint64_t key)
{
	for (uint32_t i = HB_SPATIAL_AFTER - 1; i > 0; i--)
		stream->after[i] = stream->after[i - 1];
	stream->after[0] = key;
}

static bool is_unsure(const struct hb_spatial_spot *spot)
{
	return spot->measured < MEASURED_ENOUGH && spot->seen < SEEN_ENOUGH;
}

static uint32_t place_mark(struct hb_spatial_stream *stream)
{
	uint32_t value = ++stream->marked;
	if (!value)
		value = ++stream->marked; /* 0 means none */
	stream->next.sum_ns = stream->sum_ns;
	stream->next.light_ns = stream->light_ns;
	stream->marks[value & (HB_SPATIAL_MARKS - 1)] = stream->next;
	stream->next = (struct hb_spatial_mark){0};
	stream->next_ns = 0;
	return value;
}

uint32_t hb_spatial_went(struct hb_spatial_low *low, struct hb_spatial_stream *stream, int64_t now_ns,
			 const struct hb_spatial_answer *answer)
{
	bool empty = stream->sum_ns == stream->done_ns;
	struct hb_spatial_mark *next = &stream->next;
	count_launch(low, answer);
	if (empty || stream->ends_ns < now_ns)
		stream->ends_ns = now_ns + LAUNCH_NS;
	if (empty)
		stream->moved_at_ns = now_ns;
	if (!stream->next_ns)
		next->first_ns = now_ns;
	next->others_ns = stream->next_ns;
	next->own_ns = answer->ns;
	next->kernel = answer->kernel;
	next->spot = answer->spot;
	next->beside |= (uint8_t)(answer->slower | answer->beside << 1 | (answer->beside && answer->free) << 2);
	next->part |= answer->part || (stream->next_ns && !answer->known);
	stream->sum_ns += answer->ns;
	stream->ends_ns += answer->ns;
	stream->next_ns += answer->ns;
	if (answer->light)
		stream->light_ns += answer->ns;
	else
		stream->heavy_ns = answer->ns;
	struct hb_spatial_spot *spot = &low->spots[answer->spot];
	bool unsure = is_unsure(spot);
	spot->seen += spot->seen < UINT32_MAX;
	if (answer->verdict != HB_SPATIAL_SPLIT)
		note_order(stream, low->kernels[answer->kernel].key);
	if (unsure)
		low->survey = SURVEY;
	if (low->survey)
		low->survey--;
	/* A counter write follows each part, so that the next part goes when this one really ends. */
	bool due = unsure || low->survey || answer->verdict == HB_SPATIAL_SPLIT;
	if (!due && stream->next_ns < answer->mark_ns)
		return 0;
	if (stream->marked - stream->done >= HB_SPATIAL_MARKS - 1)
		return 0; /* no room for another mark; those in flight are enough */
	return place_mark(stream);
}

/* Bounds of the time between two marks. */
struct interval {
	int64_t least_ns, most_ns;
	bool exact;
};

/* The GPU began the first launch when it had arrived and the one before was done; it ended between two polls. */
static struct interval interval_of(const struct hb_spatial_stream *stream, const struct hb_spatial_mark *first,
				   int64_t looked_ns, int64_t now_ns)
{
	int64_t arrived_ns = first->first_ns + LAUNCH_NS, begin_ns = stream->done_from_ns, late_ns = stream->done_at_ns;
	if (begin_ns < arrived_ns)
		begin_ns = arrived_ns;
	if (late_ns < begin_ns)
		late_ns = begin_ns;
	struct interval interval = {.least_ns = looked_ns - late_ns, .most_ns = now_ns - begin_ns};
	if (interval.least_ns < 0)
		interval.least_ns = 0;
	int64_t doubt_ns = interval.most_ns - interval.least_ns;
	interval.exact = doubt_ns <= EXACT_NS || doubt_ns <= interval.most_ns >> EXACT_SHIFT;
	return interval;
}

/* The mark's last kernel took the interval without the other kernels; at most that if the end was noticed late. */
static void measure_mark(struct hb_spatial_low *low, const struct hb_spatial_mark *mark,
			 const struct interval *interval)
{
	int64_t own_ns = interval->most_ns - mark->others_ns;
	if (mark->part || own_ns <= 0)
		return;
	/* Beside HP masked kernels are measured, and those without limits, which take longer there than alone. */
	if (!mark->beside || (mark->beside & 4 && !(mark->beside & 1)))
		hb_spatial_note_duration(low, mark->kernel, mark->spot, own_ns, mark->beside || !interval->exact);
	else if ((mark->beside & 1) && !mark->others_ns)
		hb_spatial_note_masked(low, mark->kernel, mark->spot, own_ns, interval->exact);
}

/* Several marks took less time than predicted: kernels whose duration was a guess are shorter. */
static void shorten_predictions(struct hb_spatial_low *low, const struct hb_spatial_stream *stream, uint32_t value,
				uint64_t sum_ns, const struct interval *interval)
{
	uint64_t guessed_ns = 0, over_ns = sum_ns - (uint64_t)interval->most_ns;
	if (interval->most_ns <= 0 || sum_ns <= (uint64_t)interval->most_ns)
		return;
	for (uint32_t i = stream->done + 1; i - 1 != value; i++) {
		const struct hb_spatial_mark *mark = &stream->marks[i & (HB_SPATIAL_MARKS - 1)];
		guessed_ns += low->spots[mark->spot].measured ? 0 : mark->own_ns;
	}
	for (uint32_t i = stream->done + 1; guessed_ns && i - 1 != value; i++) {
		const struct hb_spatial_mark *mark = &stream->marks[i & (HB_SPATIAL_MARKS - 1)];
		uint64_t less_ns = over_ns < guessed_ns ? mark->own_ns * over_ns / guessed_ns : mark->own_ns;
		if (!low->spots[mark->spot].measured && !mark->part && !mark->beside)
			hb_spatial_note_duration(low, mark->kernel, mark->spot, (int64_t)(mark->own_ns - less_ns),
						 true);
	}
}

/* The newest heavy launch counts as done when all heavy launches are done. */
static void settle_marks(struct hb_spatial_stream *stream)
{
	uint64_t light_ns = stream->light_ns - stream->light_done_ns;
	if (stream->sum_ns - stream->done_ns - light_ns < stream->heavy_ns)
		stream->heavy_ns = (uint32_t)(stream->sum_ns - stream->done_ns - light_ns);
}

void hb_spatial_done(struct hb_spatial_low *low, struct hb_spatial_stream *stream, uint32_t value, int64_t looked_ns,
		     int64_t now_ns)
{
	uint32_t steps = value - stream->done;
	if (!steps || steps > stream->marked - stream->done)
		return; /* an old value, or one that was never written */
	const struct hb_spatial_mark *mark = &stream->marks[value & (HB_SPATIAL_MARKS - 1)];
	const struct hb_spatial_mark *first = &stream->marks[(stream->done + 1) & (HB_SPATIAL_MARKS - 1)];
	struct interval interval = interval_of(stream, first, looked_ns, now_ns);
	if (steps == 1)
		measure_mark(low, mark, &interval);
	else
		shorten_predictions(low, stream, value, mark->sum_ns - stream->done_ns, &interval);
	stream->done = value;
	stream->done_ns = mark->sum_ns;
	stream->light_done_ns = mark->light_ns;
	settle_marks(stream);
	stream->done_from_ns = looked_ns;
	stream->done_at_ns = stream->moved_at_ns = now_ns;
	int64_t left_ns = (int64_t)(stream->sum_ns - stream->done_ns);
	if (stream->ends_ns > now_ns + left_ns)
		stream->ends_ns = now_ns + left_ns;
	if (stream->ends_ns < looked_ns + left_ns)
		stream->ends_ns = looked_ns + left_ns;
}

void hb_spatial_idle(struct hb_spatial_stream *stream, int64_t now_ns)
{
	stream->done = stream->marked;
	stream->done_ns = stream->sum_ns;
	stream->light_done_ns = stream->light_ns;
	settle_marks(stream);
	stream->done_from_ns = stream->done_at_ns = now_ns;
	stream->ends_ns = stream->moved_at_ns = now_ns;
	stream->next = (struct hb_spatial_mark){0};
	stream->next_ns = 0;
}
