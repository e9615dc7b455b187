/* SPDX-License-Identifier: Apache-2.0 */
/*
 * LP's side of slack (spatial.h): decides for each launch whether it goes now, on
 * how many SMs, unsplit or in parts, or waits; and keeps a bounded amount of GPU
 * time in flight. One struct a LP process and GPU, 130 KiB, all zeros before
 * init. One caller at a time: callers with several launching threads guard it.
 *
 *	hb_spatial_look(board, now, &view);
 *	hb_spatial_ask(low, stream, &view, now, &shape, &answer);
 *	GO     launch with answer.sms (0 = no mask), then
 *	       mark = hb_spatial_went(low, stream, now, &answer);
 *	       if (mark) write the value `mark` to the stream's counter behind the launch
 *	SPLIT  the same for a part of the grid of about answer.ns, `answer.part_ppm` of the blocks; then ask again for
 *	       what is left; or hb_spatial_whole() where it turns out that it cannot be cut, and ask again
 *	WAIT   not before answer.until_ns, or when the board or the counter changes; then ask again
 *
 *	hb_spatial_done(low, stream, value, looked_ns, now) whenever the counter was read
 *
 * A wait is bounded: with the counter read at each look, LP waits for HP while
 * a request is served (and a beacon that is silent counts as none), and for its
 * own work while more than the window is in flight. Where the counter stands
 * still longer than HB_SPATIAL_STUCK_NS the window lets launches through.
 *
 * Cost: ask and went together some 50 ns (a probe of two tables, no division);
 * an unknown kernel, or one whose HP changed its reserve, some 100 ns more.
 */
#ifndef HB_CORE_SLACK_LOW_H
#define HB_CORE_SLACK_LOW_H

#include "decide/spatial.h"

#define HB_SPATIAL_KERNELS 1024 /* power of two; the one that was used longest ago among 8 neighbours makes room */
#define HB_SPATIAL_SPOTS 4096   /* power of two; a new one takes the place of the old */
#define HB_SPATIAL_AFTER 4      /* launches before it that make a spot */
#define HB_SPATIAL_MARKS 64     /* counter writes in flight on one stream; power of two */
#define HB_SPATIAL_BESIDE 64    /* kernels of one request whose harm is learned apart */
#define HB_SPATIAL_STUCK_NS INT64_C(2000000000)

/* What the caller knows of a launch. Equal keys mean equal shapes: hb_spatial_key(). */
struct hb_spatial_shape {
	uint64_t key;      /* never 0 */
	uint64_t blocks;   /* of the grid; 0 = not known (a graph, a library's own call) */
	uint32_t per_sm;   /* blocks that one SM holds; 0 = not known */
	uint32_t flags;    /* enum hb_spatial_flag */
	uint32_t left_ppm; /* of a split grid: share of the blocks that is left; 0 = all */
};
enum hb_spatial_flag {
	HB_SPATIAL_MASKABLE = 1,   /* its launch can carry a mask */
	HB_SPATIAL_SPLITTABLE = 2, /* the kernel can be split */
	HB_SPATIAL_CLUSTER = 4,
	HB_SPATIAL_FREE = 8, /* not to be held back or masked whatever happens; counted only (copies, captures) */
};

static inline uint64_t hb_spatial_key(uint64_t function, uint32_t grid_x, uint32_t grid_y, uint32_t grid_z,
				      uint32_t threads, uint32_t shared_bytes)
{
	uint64_t hash = (function ^ grid_x) * UINT64_C(0x9e3779b97f4a7c15);
	hash = (hash ^ hash >> 29 ^ (uint64_t)grid_y << 32 ^ grid_z) * UINT64_C(0xbf58476d1ce4e5b9);
	hash = (hash ^ hash >> 32 ^ (uint64_t)threads << 32 ^ shared_bytes) * UINT64_C(0x94d049bb133111eb);
	return (hash ^ hash >> 31) | 1;
}

enum hb_spatial_class {
	HB_SPATIAL_UNKNOWN,    /* blocks or occupancy not known */
	HB_SPATIAL_PLAIN,      /* several waves: its blocks come and go */
	HB_SPATIAL_PERSISTENT, /* one wave on more than half of the SMs: a mask makes two rounds of it */
	HB_SPATIAL_SMALL,      /* one wave on few SMs */
	HB_SPATIAL_CLASSES
};

/* What is known of a kernel and launch shape. One cache line. */
struct hb_spatial_kernel {
	uint64_t key;
	uint64_t blocks;
	uint32_t seen;         /* launches, saturating */
	uint32_t used;         /* by the launch counter */
	uint32_t duration_ns;  /* on the whole GPU, wherever in the program; 0 = not known */
	uint32_t measured;     /* measurements in duration_ns, saturating */
	uint32_t stretch_q10;  /* masked, times 1024 */
	uint32_t one_wave_q16; /* share of its time that a block runs, times 65536 */
	uint16_t sms;          /* masked: never more than the GPU less the reserve, and no more than it gains from */
	uint16_t reserve;      /* for which stretch and sms were made */
	uint16_t per_sm;
	uint8_t class;
	uint8_t flags;
	/* HP's delay for each ns of it beside HP, in ppm: masked and on the whole GPU. */
	uint32_t harm_ppm[2];
	uint32_t unused[2];
};
_Static_assert(sizeof(struct hb_spatial_kernel) == 64, "a kernel is one cache line");

/*
 * A place in the program: a kernel after certain others. Libraries launch the
 * same kernel with the same grid for problems of very different size (a
 * persistent GEMM always has as many blocks as the GPU has SMs), and what tells
 * them apart is what they follow.
 */
struct hb_spatial_spot {
	uint32_t tag; /* the rest of its key; 0 = unused */
	uint32_t duration_ns;
	uint32_t measured;
	uint32_t seen;
};

/* A counter write behind a launch. */
struct hb_spatial_mark {
	uint64_t sum_ns;       /* the stream's predicted time up to here */
	uint64_t light_ns;     /* of light launches */
	int64_t first_ns;      /* the first launch since the mark before */
	uint32_t kernel, spot; /* the last launch before it: this mark measures that one */
	uint32_t others_ns;    /* predicted time of the others since the mark before */
	uint32_t own_ns;       /* of the last */
	uint8_t beside;        /* some of them were masked (1), or went while HP was there (2) */
	bool part;             /* some of them were parts or had no prediction */
};

/* One in-order queue of LP. Zeros before its first use. */
struct hb_spatial_stream {
	uint64_t sum_ns;                  /* predicted time of all launches so far */
	uint64_t done_ns;                 /* of those known to be done */
	int64_t ends_ns;                  /* when what is in flight should be done */
	int64_t moved_at_ns;              /* something was launched on the empty stream, or was seen to be done */
	int64_t done_from_ns, done_at_ns; /* between these times the last mark was reached */
	uint64_t light_ns, light_done_ns; /* the same of light launches alone */
	uint32_t heavy_ns;                /* predicted time of the newest launch that is not light */
	uint32_t marked, done;            /* last mark given out, last seen: values of the counter */
	struct hb_spatial_mark next;      /* being filled: launches since the last mark */
	uint32_t next_ns;                 /* their predicted time */
	uint64_t after[HB_SPATIAL_AFTER]; /* keys of the last launches */
	struct hb_spatial_mark marks[HB_SPATIAL_MARKS];
};

/* Kernels run beside the request that is being served, and what they should cost it. */
struct hb_spatial_use {
	uint32_t kernel; /* place in the table; HB_SPATIAL_KERNELS = what was in flight when the request began */
	uint32_t ns;
	bool wide;
};

struct hb_spatial_counts {
	uint64_t free, beside, wide; /* launches: without HP, beside it masked, beside it on the whole GPU */
	uint64_t split;
	uint64_t waits_high, waits_window; /* answers, not launches */
	uint64_t unknown;                  /* of those that went beside HP: never measured */
	uint64_t evicted, stuck, lessons;
};

struct hb_spatial_limits {
	uint32_t sms;
	uint32_t window_ns; /* predicted time in flight beyond which launches wait, without HP */
	uint32_t
		open_ns; /* the same where a request that begins may meet more than it allows; twice as much with each step */
	uint32_t ahead_ns;  /* the same for light launches, counted apart */
	uint32_t light_ns;  /* launches no longer than this are light */
	uint32_t beside_ns; /* the same while a request is served or expected */
	uint32_t steady_ns; /* the same where requests follow each other closely: all is masked, little can harm */
	uint32_t tight_ns;  /* the same while HP allows nothing: of what was in flight its next request meets little */
	uint32_t close_ns;  /* gaps between requests shorter than this on the mean are close */
	uint32_t mark_ns;   /* a counter write at the latest after so much predicted time */
	uint32_t split_ns;  /* longest part of a split kernel beside HP */
	uint32_t tick_ns;   /* the next part goes when at most this much is in flight, whatever the window */
	uint32_t weight;    /* LP's ns that one ns of HP is worth when a mask is weighed */
	bool masks;         /* false: this GPU, driver or build cannot: beside HP only what harms little runs */
};

struct hb_spatial_low {
	struct hb_spatial_limits limits;
	struct hb_spatial_counts counts;
	uint32_t launches;
	/* the request as LP saw it */
	uint32_t epoch, outcome;
	bool present;
	int64_t spent_ns; /* of its allowance */
	int64_t allow_ns; /* that, when it began */
	uint32_t survey;  /* so many launches more get a mark each */
	uint32_t n_uses;
	struct hb_spatial_use uses[HB_SPATIAL_BESIDE];
	uint32_t n_last; /* of the request before, whose excess is about to be known */
	struct hb_spatial_use last[HB_SPATIAL_BESIDE];
	uint32_t entry_ppm; /* HP's delay for each ns of LP that was in flight when its request began */
	struct hb_spatial_kernel kernels[HB_SPATIAL_KERNELS];
	struct hb_spatial_spot spots[HB_SPATIAL_SPOTS];
};

enum hb_spatial_verdict { HB_SPATIAL_GO, HB_SPATIAL_WAIT, HB_SPATIAL_SPLIT };

struct hb_spatial_answer {
	enum hb_spatial_verdict verdict;
	uint32_t sms;          /* GO, SPLIT: 0 = the entire GPU, no mask */
	uint32_t kernel, spot; /* their places in the tables */
	uint32_t ns;           /* predicted */
	uint32_t price_ns;     /* of the allowance */
	bool beside;           /* while a request is served */
	bool known;            /* ns was measured */
	bool part;             /* not the whole grid */
	bool light;            /* short */
	bool slower;           /* by its mask, or it may be */
	uint32_t part_ppm;     /* SPLIT: share of the grid's blocks; GO: 1000000 */
	bool for_high;         /* WAIT: for HP; else for its own work in flight */
	int64_t until_ns;      /* WAIT: look again then at the latest */
};

/* The limits that ship (defaults.def), for a GPU with `sms` SMs. */
void hb_spatial_limits_init(struct hb_spatial_limits *limits, uint32_t sms);
/*
 * Sets all windows from one: window_ns beside and between requests; half of it where a request that begins may meet more
 * than it allows; four times as much where all launches are masked; an eighth while HP allows nothing. A mark is written
 * after each eighth.
 */
void hb_spatial_limits_set_window(struct hb_spatial_limits *limits, uint32_t window_ns);
void hb_spatial_low_init(struct hb_spatial_low *low, const struct hb_spatial_limits *limits);
/* Changes nothing that a second ask would see, but for learning from the view. */
void hb_spatial_ask(struct hb_spatial_low *low, const struct hb_spatial_stream *stream,
		    const struct hb_spatial_view *view, int64_t now_ns, const struct hb_spatial_shape *shape,
		    struct hb_spatial_answer *answer);
/* The kernel cannot be cut after all. */
void hb_spatial_whole(struct hb_spatial_low *low, uint32_t kernel);
/* The launch was made. The value to write to the stream's counter behind it; 0 = none is needed. */
uint32_t hb_spatial_went(struct hb_spatial_low *low, struct hb_spatial_stream *stream, int64_t now_ns,
			 const struct hb_spatial_answer *answer);
/*
 * The counter reads `value` at now_ns; at looked_ns (0 = not known) it was still
 * less. A narrow bracket is a measurement; a wide one only tells what is done.
 */
void hb_spatial_done(struct hb_spatial_low *low, struct hb_spatial_stream *stream, uint32_t value, int64_t looked_ns,
		     int64_t now_ns);
/* Nothing of the stream is in flight (the program waited for it). */
void hb_spatial_idle(struct hb_spatial_stream *stream, int64_t now_ns);
/* A duration measured otherwise (events, a profile), on the whole GPU. */
void hb_spatial_learn(struct hb_spatial_low *low, const struct hb_spatial_shape *shape, int64_t duration_ns);
/* NULL = not known. */
const struct hb_spatial_kernel *hb_spatial_find(const struct hb_spatial_low *low, uint64_t key);
/* Predicted time in flight. */
int64_t hb_spatial_in_flight_ns(const struct hb_spatial_stream *stream, int64_t now_ns);

#endif
