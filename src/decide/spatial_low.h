/* SPDX-License-Identifier: Apache-2.0 */
/*
 * LP's side of the spatial engine (spatial.h): decides for each launch whether it starts
 * now, on how many SMs, unsplit or in parts, or waits; and limits the GPU time in flight.
 * One struct for each LP process and GPU, 130 KiB, all zeros before init. One caller at a
 * time: a process with several launching threads uses a lock.
 *
 *	hb_spatial_look(board, now, &view);
 *	hb_spatial_ask(low, stream, &view, now, &shape, &answer);
 *	GO     launch with answer.sms (0 = no mask), then
 *	       mark = hb_spatial_went(low, stream, now, &answer);
 *	       if (mark) make the GPU write `mark` to the stream's counter behind the launch
 *	SPLIT  the same for a part of the grid: answer.part_ppm of the blocks, about
 *	       answer.ns. Then ask again for the rest; or call hb_spatial_whole() if the
 *	       kernel turns out not to be splittable, and ask again
 *	WAIT   ask again at answer.until_ns, or when the board or the counter changes
 *
 *	hb_spatial_done(low, stream, value, looked_ns, now) whenever the counter was read
 *
 * Waits are bounded. LP waits for HP only while a request is served by an active process,
 * and for its own work only while more than the window is in flight. If the counter does
 * not change for HB_SPATIAL_STUCK_NS, the window lets launches pass.
 *
 * Cost: ask and went together some 50 ns (two table look-ups, no division); some 100 ns
 * more for an unknown kernel or after HP has changed its reserve.
 */
#ifndef HB_DECIDE_SPATIAL_LOW_H
#define HB_DECIDE_SPATIAL_LOW_H

#include "decide/spatial.h"

#define HB_SPATIAL_KERNELS \
	1024 /* power of two; a new kernel replaces the one of 8 neighbours that was not used for longest */
#define HB_SPATIAL_SPOTS 4096 /* power of two; a new spot replaces the old one */
#define HB_SPATIAL_AFTER 4    /* number of launches before it that identify a spot */
#define HB_SPATIAL_MARKS 64   /* counter writes in flight on one stream; power of two */
#define HB_SPATIAL_BESIDE 64  /* kernels beside one request whose harm is learned separately */
#define HB_SPATIAL_STUCK_NS INT64_C(2000000000)

/* A launch as the caller sees it. Equal keys mean equal shapes: hb_spatial_key(). */
struct hb_spatial_shape {
	uint64_t key;      /* never 0 */
	uint64_t blocks;   /* of the grid; 0 = not known (a graph, a library's own call) */
	uint32_t per_sm;   /* blocks that one SM holds; 0 = not known */
	uint32_t flags;    /* enum hb_spatial_flag */
	uint32_t left_ppm; /* split grid: share of the blocks not launched yet; 0 = all */
};
enum hb_spatial_flag {
	HB_SPATIAL_MASKABLE = 1,   /* the launch can have a mask */
	HB_SPATIAL_SPLITTABLE = 2, /* the kernel can be split */
	HB_SPATIAL_CLUSTER = 4,
	HB_SPATIAL_FREE = 8, /* must not wait or be masked, and is only counted (copies, captures) */
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
	HB_SPATIAL_PLAIN,      /* several waves of blocks */
	HB_SPATIAL_PERSISTENT, /* one wave on more than half of the SMs: behind a mask it takes two waves */
	HB_SPATIAL_SMALL,      /* one wave on few SMs */
	HB_SPATIAL_CLASSES
};

/* Knowledge about a kernel with a launch shape. One cache line. */
struct hb_spatial_kernel {
	uint64_t key;
	uint64_t blocks;
	uint32_t seen;         /* number of launches, saturating */
	uint32_t used;         /* launch counter at the last use */
	uint32_t duration_ns;  /* on the entire GPU, at any place in the program; 0 = not known */
	uint32_t measured;     /* measurements in duration_ns, saturating */
	uint32_t stretch_q10;  /* how much longer it runs behind the mask, times 1024 */
	uint32_t one_wave_q16; /* time of one block as a share of the kernel, times 65536 */
	uint16_t sms;          /* size of its mask: at most the GPU without the reserve, and no more than it can use */
	uint16_t reserve;      /* the reserve for which stretch and sms were computed */
	uint16_t per_sm;
	uint8_t class;
	uint8_t flags;
	/* HP's delay for each ns of the kernel beside HP, in ppm: masked, and on the entire GPU. */
	uint32_t harm_ppm[2];
	uint32_t unused[2];
};
_Static_assert(sizeof(struct hb_spatial_kernel) == 64, "a kernel is one cache line");

/*
 * A place in the program: a kernel after certain other launches. Libraries launch the
 * same kernel with the same grid for problems of very different size (a persistent GEMM
 * always has as many blocks as the GPU has SMs); the launches before distinguish them.
 */
struct hb_spatial_spot {
	uint32_t tag; /* the upper part of the key; 0 = unused */
	uint32_t duration_ns;
	uint32_t measured;
	uint32_t seen;
};

/* A counter write behind a launch. */
struct hb_spatial_mark {
	uint64_t sum_ns;       /* predicted time of the stream's launches up to here */
	uint64_t light_ns;     /* predicted time of light launches up to here */
	int64_t first_ns;      /* time of the first launch since the mark before */
	uint32_t kernel, spot; /* the last launch before the mark, which the mark measures */
	uint32_t others_ns;    /* predicted time of the other launches since the mark before */
	uint32_t own_ns;       /* of the last */
	uint8_t beside; /* some launches were masked (1), started while HP was served (2), or did so without limits (4) */
	bool part;      /* some launches were parts or had no prediction */
};

/* One stream of LP. Zeros before its first use. */
struct hb_spatial_stream {
	uint64_t sum_ns;                  /* predicted time of all launches so far */
	uint64_t done_ns;                 /* predicted time of launches known to be done */
	int64_t ends_ns;                  /* predicted end of the work in flight */
	int64_t moved_at_ns;              /* when the stream was last seen to make progress */
	int64_t done_from_ns, done_at_ns; /* the last mark was reached between these times */
	uint64_t light_ns, light_done_ns; /* sum_ns and done_ns of light launches */
	uint32_t heavy_ns;                /* predicted time of the newest launch that is not light */
	uint32_t marked, done;            /* counter values: last mark written, last mark seen */
	struct hb_spatial_mark next;      /* launches since the last mark */
	uint32_t next_ns;                 /* predicted time of those launches */
	uint64_t after[HB_SPATIAL_AFTER]; /* keys of the last launches */
	struct hb_spatial_mark marks[HB_SPATIAL_MARKS];
};

/* A kernel that ran beside the present request. */
struct hb_spatial_use {
	uint32_t kernel; /* place in the table; HB_SPATIAL_KERNELS = work in flight when the request began */
	uint32_t ns;
	bool wide;
};

struct hb_spatial_counts {
	uint64_t free, beside, wide; /* launches: without HP, beside HP masked, beside HP on the entire GPU */
	uint64_t split;
	uint64_t waits_high, waits_window; /* numbers of WAIT answers */
	uint64_t unknown;                  /* launches beside HP of kernels that were never measured */
	uint64_t evicted, stuck, lessons;
};

struct hb_spatial_limits {
	uint32_t sms;
	uint32_t window_ns; /* predicted time in flight beyond which launches wait, without HP */
	uint32_t
		open_ns; /* window where a new request may be delayed by more than it allows; doubles with each step of `gaps` */
	uint32_t ahead_ns;     /* window of light launches, counted separately */
	uint32_t light_ns;     /* launches no longer than this are light */
	uint32_t beside_ns;    /* window while a request is served or expected */
	uint32_t steady_ns;    /* window where requests follow each other closely and all launches are masked */
	uint32_t tight_ns;     /* window while HP allows nothing, so that its next request meets little work */
	uint32_t close_ns;     /* mean gap below which requests follow each other closely */
	uint32_t mark_ns;      /* most predicted time between two marks */
	uint32_t split_ns;     /* longest part of a split kernel beside HP */
	uint32_t tick_ns;      /* the next part is launched when at most this much is in flight */
	uint32_t standing_ns;  /* while HP is absent, launches whose blocks run longer than this ... */
	uint32_t standing_sms; /* ... leave the standing reserve free: they run on this number of SMs */
	uint32_t weight;       /* LP time in ns that 1 ns of HP is worth when a mask is weighed */
	bool masks;            /* false: masks do not work here, so only kernels with little harm run beside HP */
};

struct hb_spatial_low {
	struct hb_spatial_limits limits;
	struct hb_spatial_counts counts;
	uint32_t launches;
	/* the present request as LP sees it */
	uint32_t epoch, outcome;
	bool present;
	int64_t spent_ns; /* part of the allowance used up */
	int64_t allow_ns; /* allowance at the begin of the request */
	uint32_t survey;  /* number of next launches that get a mark each */
	uint32_t n_uses;
	struct hb_spatial_use uses[HB_SPATIAL_BESIDE];
	uint32_t n_last; /* entries in last[]: LP's work beside the previous request, kept until its excess is known */
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
	uint32_t price_ns;     /* part of the allowance that the launch uses */
	bool beside;           /* a request is served now */
	bool free;             /* the credit of HP's tokens is open: no limits */
	bool known;            /* ns was measured */
	bool part;             /* only a part of the grid */
	bool light;            /* the launch is light */
	bool slower;           /* the mask makes it slower, or may do so */
	uint32_t mark_ns;      /* GO, SPLIT: a mark follows when more than this has no mark yet */
	uint32_t part_ppm;     /* SPLIT: share of the grid's blocks; GO: 1000000 */
	bool for_high;         /* WAIT: for HP; false = for LP's own work in flight */
	int64_t until_ns;      /* WAIT: ask again at this time */
};

/* SMs that launches with long blocks leave free while HP is idle. */
uint32_t hb_spatial_standing_reserve(uint32_t sms);
/* The limits that ship (defaults.def), for a GPU with `sms` SMs. */
void hb_spatial_limits_init(struct hb_spatial_limits *limits, uint32_t sms);
/* The number of SMs became known later. */
void hb_spatial_limits_set_sms(struct hb_spatial_limits *limits, uint32_t sms);
/*
 * Computes all windows from one: window_ns beside and between requests; half where a new
 * request may be delayed by more than it allows; four times where all launches are
 * masked; a sixteenth while HP allows nothing. A mark is written after each eighth, or after half of that sixteenth.
 */
void hb_spatial_limits_set_window(struct hb_spatial_limits *limits, uint32_t window_ns);
void hb_spatial_low_init(struct hb_spatial_low *low, const struct hb_spatial_limits *limits);
/* May be called again for the same launch. Learns from the view. */
void hb_spatial_ask(struct hb_spatial_low *low, const struct hb_spatial_stream *stream,
		    const struct hb_spatial_view *view, int64_t now_ns, const struct hb_spatial_shape *shape,
		    struct hb_spatial_answer *answer);
/* The kernel cannot be split after all. */
void hb_spatial_whole(struct hb_spatial_low *low, uint32_t kernel);
/* The launch was made. Returns the mark to write to the stream's counter behind it; 0 = none. */
uint32_t hb_spatial_went(struct hb_spatial_low *low, struct hb_spatial_stream *stream, int64_t now_ns,
			 const struct hb_spatial_answer *answer);
/*
 * The counter has `value` at now_ns and was smaller at looked_ns (0 = not known). If these
 * times are close, this is a measurement; else it only shows what is done.
 */
void hb_spatial_done(struct hb_spatial_low *low, struct hb_spatial_stream *stream, uint32_t value, int64_t looked_ns,
		     int64_t now_ns);
/* The program has waited for the stream: nothing is in flight. */
void hb_spatial_idle(struct hb_spatial_stream *stream, int64_t now_ns);
/* Returns what is known about a kernel; NULL = nothing. */
const struct hb_spatial_kernel *hb_spatial_find(const struct hb_spatial_low *low, uint64_t key);
/* Predicted time in flight. */
int64_t hb_spatial_in_flight_ns(const struct hb_spatial_stream *stream, int64_t now_ns);

#endif
