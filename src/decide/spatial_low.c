/* SPDX-License-Identifier: Apache-2.0 */
/*
 * LP's side of the spatial engine: the decision at each launch and the window; see
 * spatial_low.h. No lock, no allocation, no clock.
 *
 * The decision, in this order
 *  1. Window. The predicted end of the work in flight must be near: `window_ns`; or
 *     `beside_ns` while HP is served or expected, `steady_ns` where HP's requests follow
 *     each other closely, `tight_ns` while HP allows nothing. The work that the counter
 *     has not confirmed, without the newest launch, must be little as well, so that too
 *     short predictions cannot pile up work.
 *  2. The credit of HP's tokens is open: LP launches on the entire GPU, as under MPS with
 *     priorities.
 *  3. HP allows nothing: LP waits while a request is served.
 *  4. HP is served, or its requests follow each other closely: LP launches masked. The
 *     reserve limits the harm of masked launches (spatial_high.h).
 *  5. A launch that cannot be masked starts if its price (its time beside HP * harm) fits
 *     into the allowance; else it waits. Where requests are far apart, long kernels are
 *     split if possible, also if only the price of a part fits.
 *  6. HP is absent: LP launches on the entire GPU. But a kernel whose blocks occupy their
 *     SMs for a time `hold` is masked if the expected harm is more than the mask costs.
 *     HP starts within `hold` with the probability hold / gap, and then waits for half
 *     of it:
 *
 *	weight * entry * hold^2 / (2 gap)  >  beside - duration
 */
#include "decide/spatial_kernel.h"

#include <string.h>

/* While waiting for its own work LP polls at least this often. */
#define LOOK_NS INT64_C(20000)
/* Above this, HP's delay for work in flight at its request's begin; see entry_ppm. */
#define ENTRY_PPM 500000
/* Blocks that occupy their SMs for a shorter time are never worth a mask without HP. */
#define HOLD_LEAST_NS 50000
/* The first launches of a kernel are masked also while HP is absent, because nothing is known of its blocks. */
#define MASKED_FIRST 4
/* A kernel is split only if it runs at least twice as long as a part. */
#define SPLIT_WORTH 2
/* Blocks outside a part take up to 1.25 ns each to exit. A part runs at least this many times as long as that. */
#define SPLIT_WORTH_STARTS 10

void hb_spatial_low_init(struct hb_spatial_low *low, const struct hb_spatial_limits *limits)
{
	memset(low, 0, sizeof *low);
	low->limits = *limits;
	low->entry_ppm = ENTRY_PPM;
}

/* --- the request, as LP sees it --- */

static void end_request(struct hb_spatial_low *low)
{
	memcpy(low->last, low->uses, low->n_uses * sizeof *low->uses);
	low->n_last = low->n_uses;
	low->n_uses = 0;
	low->spent_ns = 0;
}

static void note_view(struct hb_spatial_low *low, const struct hb_spatial_stream *stream,
		      const struct hb_spatial_view *view, int64_t now_ns)
{
	if (view->epoch != low->epoch) {
		low->epoch = view->epoch;
		if (low->present)
			end_request(low);
		low->present = view->present;
		low->allow_ns = view->present ? view->allow_ns : 0;
		int64_t left_ns = hb_spatial_in_flight_ns(stream, now_ns);
		if (view->present && left_ns)
			hb_spatial_note_use(low, HB_SPATIAL_KERNELS,
					    left_ns < INT32_MAX ? (uint32_t)left_ns : INT32_MAX, true);
	}
	if (view->outcome != low->outcome) {
		low->outcome = view->outcome;
		hb_spatial_note_excess(low, view->excess_ns);
	}
}

/* --- deciding --- */

static void wait_until(struct hb_spatial_low *low, struct hb_spatial_answer *answer, int64_t until_ns, bool for_high)
{
	answer->verdict = HB_SPATIAL_WAIT;
	answer->until_ns = until_ns;
	answer->for_high = for_high;
	if (for_high)
		low->counts.waits_high++;
	else
		low->counts.waits_window++;
}

static void answer_go(struct hb_spatial_answer *answer, uint32_t sms, uint32_t ns, int64_t price_ns)
{
	answer->verdict = HB_SPATIAL_GO;
	answer->sms = sms;
	answer->ns = ns;
	answer->price_ns = price_ns < UINT32_MAX ? (uint32_t)price_ns : UINT32_MAX;
	answer->part_ppm = HB_SPATIAL_PPM;
}

/* One launch and the knowledge about it. */
struct launch {
	const struct hb_spatial_kernel *kernel;
	uint32_t left_ppm;                     /* part of the grid that is left */
	uint32_t alone_ns, masked_ns, hold_ns; /* on the entire GPU; masked; of one block */
	bool known, maskable;
};

static uint32_t answer_part(uint64_t ns)
{
	return ns < INT32_MAX ? (uint32_t)ns : INT32_MAX;
}

static void predict_launch(const struct hb_spatial_low *low, const struct hb_spatial_kernel *kernel,
			   const struct hb_spatial_spot *spot, const struct hb_spatial_shape *shape,
			   struct launch *launch)
{
	uint32_t ns = spot->duration_ns     ? spot->duration_ns
		      : kernel->duration_ns ? kernel->duration_ns
					    : HB_SPATIAL_GUESS_NS;
	launch->kernel = kernel;
	launch->known = kernel->measured > 0;
	launch->maskable = low->limits.masks && (kernel->flags & HB_SPATIAL_MASKABLE) && kernel->reserve;
	launch->hold_ns = answer_part((uint64_t)ns * kernel->one_wave_q16 >> 16);
	launch->left_ppm = shape->left_ppm ? shape->left_ppm : HB_SPATIAL_PPM;
	if (shape->left_ppm)
		ns = answer_part((uint64_t)ns * shape->left_ppm / HB_SPATIAL_PPM);
	launch->alone_ns = ns;
	launch->masked_ns = answer_part((uint64_t)ns * kernel->stretch_q10 >> 10);
}

static void go_masked(struct hb_spatial_answer *answer, const struct launch *launch, int64_t price_ns)
{
	answer_go(answer, launch->kernel->sms, launch->masked_ns, price_ns);
	answer->slower = answer->beside || launch->masked_ns > launch->alone_ns;
}

/* A launch that ends before the request launches anything larger leaves free only what the next launches need. */
static void follow_next(const struct hb_spatial_low *low, const struct hb_spatial_stream *stream,
			const struct hb_spatial_view *view, int64_t now_ns, const struct launch *launch,
			struct hb_spatial_answer *answer)
{
	if (!answer->sms || view->next_until_ns <= now_ns)
		return;
	uint32_t sms = hb_spatial_sms_left(low, view->next);
	uint64_t ns = (uint64_t)launch->alone_ns * hb_spatial_stretch_q10(low, launch->kernel, sms) >> 10;
	int64_t left_ns = hb_spatial_in_flight_ns(stream, now_ns);
	if (!launch->known || sms <= answer->sms || ns > launch->masked_ns ||
	    now_ns + left_ns + (int64_t)ns > view->next_until_ns)
		return;
	answer->sms = sms;
	answer->ns = (uint32_t)ns;
}

/* Short kernels on few SMs or with short blocks hardly delay HP, so more of them may be in flight. */
static bool is_light(const struct hb_spatial_low *low, const struct launch *launch)
{
	return launch->known && launch->alone_ns <= low->limits.light_ns;
}

/* HP's requests follow each other so closely that removing the mask between them gains nothing. */
static bool is_close(const struct hb_spatial_low *low, const struct hb_spatial_view *view)
{
	return view->gap_ns && view->gap_ns < low->limits.close_ns;
}

/*
 * A request that began now would pay more for what may be in flight on the whole GPU than it allows. By the first guess of
 * that harm: what is learned later is of work that was masked.
 */
static bool is_dear(const struct hb_spatial_low *low, const struct hb_spatial_view *view)
{
	return view->granted && (uint64_t)view->entry_ns * HB_SPATIAL_PPM < (uint64_t)low->limits.window_ns * ENTRY_PPM;
}

/* LP is masked between HP's requests as well as beside them. */
static bool is_steady(const struct hb_spatial_low *low, const struct hb_spatial_view *view)
{
	return low->limits.masks && (is_close(low, view) || (is_dear(low, view) && !view->gaps));
}

/* Without masks a new request is protected only by little work in flight: as much as it allows. */
static int64_t unmasked_window(const struct hb_spatial_limits *limits, const struct hb_spatial_view *view,
			       int64_t window_ns)
{
	int64_t allowed_ns = (int64_t)view->entry_ns * HB_SPATIAL_PPM / ENTRY_PPM;
	int64_t most_ns = allowed_ns > limits->tight_ns ? allowed_ns : limits->tight_ns;
	return window_ns < most_ns ? window_ns : most_ns;
}

/* A reserve above the default shows that HP suffers, so its requests shall meet less work at their begin. */
static int64_t window_of(const struct hb_spatial_low *low, const struct hb_spatial_view *view)
{
	const struct hb_spatial_limits *limits = &low->limits;
	if (!view->granted)
		return limits->tight_ns;
	if (view->free)
		return limits->window_ns;
	if (view->idle || is_steady(low, view))
		return limits->steady_ns;
	int64_t window_ns = view->present || view->expected ? limits->beside_ns : limits->window_ns;
	if (!limits->masks)
		return unmasked_window(limits, view, window_ns);
	if (!view->present && is_dear(low, view))
		window_ns = limits->open_ns * (INT64_C(1) << view->gaps) / 2;
	return view->reserve > limits->sms * 3 / 8 ? window_ns / 4
	       : view->reserve > limits->sms / 4   ? window_ns / 2
						   : window_ns;
}

/* True: enough work is in flight. Light launches have their own window, so that the host can run ahead of them. */
static bool window_is_full(struct hb_spatial_low *low, const struct hb_spatial_stream *stream,
			   const struct hb_spatial_view *view, const struct launch *launch, int64_t now_ns,
			   struct hb_spatial_answer *answer)
{
	if (stream->sum_ns == stream->done_ns || !view->tenants)
		return false;
	const struct hb_spatial_limits *limits = &low->limits;
	int64_t window_ns = window_of(low, view);
	if (!launch->known && window_ns > limits->window_ns)
		window_ns = limits->window_ns; /* the duration is only a guess */
	if (view->present && !view->free && launch->left_ppm < HB_SPATIAL_PPM && window_ns > limits->tick_ns)
		window_ns = limits->tick_ns;
	int64_t left_ns = stream->ends_ns - now_ns;
	uint64_t light_ns = stream->light_ns - stream->light_done_ns;
	uint64_t heavy_ns = stream->sum_ns - stream->done_ns - light_ns - stream->heavy_ns;
	bool full = left_ns > window_ns || heavy_ns > 2 * (uint64_t)window_ns + limits->mark_ns;
	if (is_light(low, launch))
		full = light_ns > (view->granted ? limits->ahead_ns : limits->tight_ns);
	/* No mark says when the work behind the last mark is done; after its predicted end the next launch goes, and gets a mark. */
	if (stream->marked == stream->done && left_ns <= 0)
		full = false;
	if (!full && stream->marked - stream->done < HB_SPATIAL_MARKS - 1)
		return false;
	if (now_ns - stream->moved_at_ns > HB_SPATIAL_STUCK_NS) {
		low->counts.stuck++;
		return false;
	}
	int64_t wait_ns = left_ns > window_ns ? left_ns - window_ns : LOOK_NS;
	wait_until(low, answer, now_ns + (wait_ns < LOOK_NS ? wait_ns : LOOK_NS), false);
	return true;
}

/* While HP is absent: whether a mask costs LP less than the harm expected from a kernel with long blocks. */
static bool better_masked(const struct hb_spatial_low *low, const struct launch *launch,
			  const struct hb_spatial_view *view, bool expected)
{
	uint64_t hold_ns = launch->hold_ns;
	if (!launch->maskable)
		return false;
	if (launch->masked_ns <= launch->alone_ns)
		return true; /* the mask costs nothing, and HP may start */
	if (!launch->known && launch->kernel->seen < MASKED_FIRST)
		return true; /* its blocks may be long */
	if (hold_ns < HOLD_LEAST_NS)
		return false;
	if (expected || !view->granted)
		return true;
	if (!view->gap_ns)
		return false;
	uint64_t loss_ns = launch->masked_ns > launch->alone_ns ? launch->masked_ns - launch->alone_ns : 0;
	unsigned __int128 harm = (unsigned __int128)(hold_ns * hold_ns) * low->limits.weight * low->entry_ppm;
	return harm > (unsigned __int128)loss_ns * view->gap_ns * (2 * (uint64_t)HB_SPATIAL_PPM);
}

/*
 * While HP is absent: the launch keeps its SMs for longer than the window promises. A small reserve is enough for HP's first
 * kernel to start.
 */
static bool needs_standing_reserve(const struct hb_spatial_low *low, const struct launch *launch)
{
	return launch->maskable && launch->hold_ns > low->limits.standing_ns;
}

static void go_with_standing_reserve(const struct hb_spatial_low *low, const struct launch *launch,
				     struct hb_spatial_answer *answer)
{
	uint32_t sms = low->limits.standing_sms;
	answer_go(answer, sms, answer_part((uint64_t)launch->alone_ns * low->limits.sms / sms), 0);
	answer->slower = true;
}

/* The launch would still run, unmasked, when a request is expected to begin. Its own duration says how early it has to be masked. */
static bool meets_expected(const struct hb_spatial_stream *stream, const struct launch *launch,
			   const struct hb_spatial_view *view, int64_t now_ns)
{
	int64_t ends_ns = now_ns + hb_spatial_in_flight_ns(stream, now_ns) + launch->alone_ns;
	return view->expected || ends_ns > view->expect_ns;
}

static void decide_alone(const struct hb_spatial_low *low, const struct launch *launch,
			 const struct hb_spatial_view *view, bool expected, struct hb_spatial_answer *answer)
{
	if (better_masked(low, launch, view, expected))
		go_masked(answer, launch, 0);
	else if (needs_standing_reserve(low, launch))
		go_with_standing_reserve(low, launch, answer);
	else
		answer_go(answer, 0, launch->alone_ns, 0);
}

static int64_t price_of(uint32_t ns, uint32_t harm_ppm)
{
	return (int64_t)((uint64_t)ns * harm_ppm / HB_SPATIAL_PPM);
}

/* Returns the run time of a part of a long kernel that can be split; each part starts every block of the grid. 0 = unsplit. */
static uint32_t part_ns_of(const struct hb_spatial_low *low, const struct launch *launch, uint32_t ns)
{
	const struct hb_spatial_kernel *kernel = launch->kernel;
	uint64_t least_ns = SPLIT_WORTH_STARTS * (kernel->blocks + kernel->blocks / 4);
	uint32_t part_ns = low->limits.split_ns > least_ns ? low->limits.split_ns : answer_part(least_ns);
	if (!(kernel->flags & HB_SPATIAL_SPLITTABLE) || kernel->class != HB_SPATIAL_PLAIN ||
	    ns < (uint64_t)SPLIT_WORTH * part_ns || launch->hold_ns > part_ns)
		return 0;
	return part_ns;
}

/* Returns the next part of a launch and its price; `ns` and `price_ns` are those of all blocks that are left. */
struct spatial_part {
	uint32_t part_ns; /* 0: all */
	uint32_t part_ppm;
	int64_t price_ns;
};

static struct spatial_part find_part(const struct hb_spatial_low *low, const struct launch *launch, uint32_t ns,
				     int64_t price_ns)
{
	uint32_t part_ns = part_ns_of(low, launch, ns);
	if (!part_ns)
		return (struct spatial_part){.part_ppm = HB_SPATIAL_PPM, .price_ns = price_ns};
	uint32_t part_ppm = (uint32_t)((uint64_t)part_ns * HB_SPATIAL_PPM / ns);
	return (struct spatial_part){.part_ns = part_ns,
				     .part_ppm = part_ppm,
				     .price_ns = price_of(answer_part((uint64_t)price_ns), part_ppm)};
}

static void answer_split(struct hb_spatial_answer *answer, const struct launch *launch, const struct spatial_part *part)
{
	if (!part->part_ns)
		return;
	answer->verdict = HB_SPATIAL_SPLIT;
	answer->part = true;
	answer->price_ns = answer_part((uint64_t)part->price_ns);
	answer->part_ppm = (uint32_t)price_of(part->part_ppm, launch->left_ppm);
	answer->ns = part->part_ns;
}

/* Without a mask a launch runs on the entire GPU or waits. */
static void decide_whole(struct hb_spatial_low *low, const struct launch *launch, const struct hb_spatial_view *view,
			 struct hb_spatial_answer *answer)
{
	int64_t price_ns = price_of(launch->alone_ns, launch->kernel->harm_ppm[1]);
	struct spatial_part part = find_part(low, launch, launch->alone_ns, price_ns);
	/* With an allowance of 0 LP waits, whatever the price. */
	if (view->allow_ns > 0 && launch->known && part.price_ns <= view->allow_ns - low->spent_ns) {
		answer_go(answer, 0, launch->alone_ns, price_ns);
		answer_split(answer, launch, &part);
	} else {
		wait_until(low, answer, view->look_at_ns, true);
	}
}

static void decide_beside(struct hb_spatial_low *low, const struct launch *launch, const struct hb_spatial_view *view,
			  struct hb_spatial_answer *answer)
{
	int64_t masked_ns = price_of(launch->masked_ns, launch->kernel->harm_ppm[0]);
	struct spatial_part masked = find_part(low, launch, launch->masked_ns, masked_ns);
	if (!launch->maskable) {
		decide_whole(low, launch, view, answer);
	} else if (view->granted) {
		go_masked(answer, launch, masked_ns);
		if (!is_close(low, view))
			answer_split(answer, launch, &masked);
	} else {
		wait_until(low, answer, view->look_at_ns, true);
	}
}

/* Without marks LP cannot see that a small window has become free. */
static uint32_t mark_distance(const struct hb_spatial_low *low, const struct hb_spatial_view *view)
{
	uint32_t tight_ns = low->limits.tight_ns / 2;
	return view->granted || tight_ns > low->limits.mark_ns ? low->limits.mark_ns : tight_ns;
}

void hb_spatial_ask(struct hb_spatial_low *low, const struct hb_spatial_stream *stream,
		    const struct hb_spatial_view *view, int64_t now_ns, const struct hb_spatial_shape *shape,
		    struct hb_spatial_answer *answer)
{
	struct launch launch;
	note_view(low, stream, view, now_ns);
	uint32_t place = hb_spatial_place(low, shape), spot = hb_spatial_spot(low, stream->after, shape->key);
	struct hb_spatial_kernel *kernel = &low->kernels[place];
	if (kernel->reserve != view->reserve)
		hb_spatial_fit(low, kernel, view->reserve);
	predict_launch(low, kernel, &low->spots[spot], shape, &launch);
	*answer = (struct hb_spatial_answer){.kernel = place,
					     .spot = spot,
					     .beside = view->present,
					     .free = view->free,
					     .known = launch.known,
					     .light = is_light(low, &launch),
					     .mark_ns = mark_distance(low, view),
					     .part = shape->left_ppm != 0};
	if (shape->flags & HB_SPATIAL_FREE)
		answer_go(answer, 0, launch.alone_ns, 0);
	else if (window_is_full(low, stream, view, &launch, now_ns, answer))
		return;
	else if (view->free)
		answer_go(answer, 0, launch.alone_ns, 0);
	else if (view->present) {
		decide_beside(low, &launch, view, answer);
		follow_next(low, stream, view, now_ns, &launch, answer);
	} else if (launch.maskable && is_steady(low, view))
		go_masked(answer, &launch, 0);
	else
		decide_alone(low, &launch, view, meets_expected(stream, &launch, view, now_ns), answer);
}

void hb_spatial_whole(struct hb_spatial_low *low, uint32_t kernel)
{
	low->kernels[kernel].flags &= (uint8_t)~HB_SPATIAL_SPLITTABLE;
}
