/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Foresight: learns how long after each sign a process uses the GPU, and decides when
 * to take the GPU over for it. One struct for each process, fixed memory, no
 * allocation, no clock, integers only. The shim runs it in HP processes and the
 * simulator in its HP programs (process_foresight.h). Not thread safe: one caller at a
 * time.
 *
 * Idea. A context switch delays HP by switch_ns, unless takeover kernels were launched
 * ready_ns before HP's first kernel. A sign (the bytes of a request, a call, the period
 * of arrivals, the end of HP's last kernel) precedes that kernel by a time T. T varies,
 * and some signs are followed by no launch. The last HB_FORESIGHT_WINDOW outcomes of a
 * sign are its present distribution. A takeover from s to e after the sign costs, summed
 * over these outcomes:
 *
 *	launch before s      HP waits for the switch              LP loses nothing
 *	launch at T in s..e  HP waits for the part not hidden:    LP loses the time without
 *	                     switch * (ready - (T-s)) / ready,    GPU beyond the switch that
 *	                     0 from s + ready on                  it pays anyway: T - s - switch
 *	later, or no launch  HP waits for the switch (if it       LP loses e - s + 2 switches
 *	                     launches)
 *
 * The plan is the s and e with the least HP delay + kept weight * LP's loss in hits +
 * weight * LP's loss in vain, or no takeover if that costs less. This is the expected
 * loss under the empirical distribution. The window replaces a decay: it forgets as
 * well, and keeps exact samples. Candidates for s are the sorted outcomes minus ready_ns (the cost is piecewise linear, so its minimum is
 * at such a corner); for each, one pass over the outcomes gives the best e. A plan has to
 * cover four launches at least, so that it is not made for the longest outcome alone.
 *
 * Example. switch 190 us, ready 260 us, weight 0.1, kept weight 0.05. Of 64 outcomes 60
 * are evenly between 300 and 420 us, 4 had no launch. A takeover from 40 us (300 - 260) to 467 us (420 plus a
 * quarter of a switch) hides the switch for all 60: LP loses 60 * (320 - 190) us on
 * average in hits and 4 * (427 + 380) us in vain, weighted 0.71 ms; without a takeover HP
 * loses 60 * 190 us = 11.4 ms. With 4 launches and 60 outcomes without one the takeover costs
 * 60 * 807 us * 0.1 = 4.8 ms against 0.76 ms, so there is none.
 *
 * Safeguards
 *  - A sign with fewer than HB_FORESIGHT_LEAST outcomes causes no takeover. Only a hint
 *    that names its time (client API) is trusted from the start.
 *  - Budget: the price of a takeover in vain is taken from a token bucket before it
 *    begins. If HP launches, all but LP's real loss is given back. If HP kept the GPU
 *    after its work, the charge is LP's loss beyond one switch. So takeovers cost LP at
 *    most budget_ppm of its time, plus what was saved (budget_cap_ns), plus gaps that are
 *    too short for LP anyway. HP that keeps the GPU and then launches adds one switch to
 *    the bucket, because that is the time it did not wait: a service that is always
 *    present leaves no idle time in which the bucket could fill. A sign with more misses
 *    needs a fuller bucket, so the worst sign is throttled first.
 *  - The window forgets: after a change of load the plan follows within some tens of
 *    outcomes. Until then the budget limits the cost of misses.
 *  - A sign that repeats within HB_FORESIGHT_MERGE_NS counts as one sign. Later it is a
 *    new sign, and the first had no launch. So 10,000 false signs a second are 500
 *    outcomes without a launch.
 *
 * The end of work. After HP's last kernel (hb_foresight_idle) HP still has the GPU. This
 * is a sign like others with s = 0; LP loses T - 2 switches for a hit (it would have paid
 * both) and e for a miss. Four kinds of ends are learned separately:
 *  - whether another request waits. That is assumed if, since HP's last start, signs worth
 *    a takeover came from two places (`who`), or twice without a place, or while HP was
 *    busy. Each start of HP removes one waiting request.
 *  - whether it is the first end after a start or a later one: a program that launches,
 *    waits and launches again does so in every request.
 * Each kind of work (hb_foresight_work) has these four, so a text and the requests that
 * follow it do not share their gaps.
 * A process sees the end of its work when it synchronizes, later than the GPU is given
 * away (idle_seen_ns > yield_ns). So the GPU can be kept only if the process arranged
 * that before it began to wait; hb_foresight_keep_ns() says for how long that pays.
 *
 * Periodic arrivals are a sign whose base is the last start; its outcomes are the
 * intervals. A narrow distribution of intervals makes a takeover worth its cost, the
 * exponential one of a Poisson process never does.
 *
 * Bad at: signs of one identity with two meanings (a health check on the requests'
 * socket); only the mixture is learned. Periods over 2 s. Bytes that arrive between two
 * kernels of a request: their outcome is the next kernel. Tails: it minimises a mean, not
 * a p99 (lower weight_ppm for that).
 *
 * Use: call hb_foresight_sign/_busy/_idle/_allow when it happens, and _step at next_ns.
 * After each call compare hb_foresight_takeover_until_ns() with its old value: from 0 to a
 * time means take over, a later time means stay longer, 0 means release.
 *
 * Files: foresight.c (signs, attempts, budget), foresight_plan.c (arithmetic of a plan),
 * foresight_share.c (budget of several processes).
 *
 * Cost: _busy is called at HP's first launch after idle. It is one loop over the pending
 * signs (two or three). A plan is computed on every fourth outcome, at a sign, in 2 us.
 */
#ifndef HB_DECIDE_FORESIGHT_H
#define HB_DECIDE_FORESIGHT_H

#include <stdbool.h>
#include <stdint.h>

/* Kinds of signs. */
enum hb_sign { HB_SIGN_API, HB_SIGN_SOCKET, HB_SIGN_CALL, HB_SIGN_PERIOD, HB_SIGNS };

#define HB_FORESIGHT_SIGNS 64  /* identities remembered; a new one replaces the one unseen for longest */
#define HB_FORESIGHT_WINDOW 64 /* outcomes remembered of each */
#define HB_FORESIGHT_LEAST 16  /* outcomes before a sign may cause a takeover */
#define HB_FORESIGHT_MERGE_NS INT64_C(2000000)
#define HB_FORESIGHT_HORIZON_NS INT64_C(2000000000)    /* a later launch does not belong to the sign */
#define HB_FORESIGHT_TAKEOVER_MAX_NS INT64_C(20000000) /* longest takeover */

/* The outcome of a sign that no launch followed. */
#define HB_FORESIGHT_NONE INT32_MAX

#define HB_FORESIGHT_WORKS 4 /* kinds of work */
/* Slots of the signs that foresight sees itself. Slots of reported signs follow them. */
enum {
	HB_FORESIGHT_PERIOD,
	HB_FORESIGHT_IDLE,         /* the first end of work after a start */
	HB_FORESIGHT_QUEUED,       /* the same, and another request waits */
	HB_FORESIGHT_LATER_IDLE,   /* another end of work, after a launch soon after the one before */
	HB_FORESIGHT_LATER_QUEUED, /* the same, and another request waits */
	HB_FORESIGHT_END_KINDS,    /* the first slot of the next kind of work: each kind has the four slots above */
	HB_FORESIGHT_FIRST_SOURCE = HB_FORESIGHT_IDLE + 4 * HB_FORESIGHT_WORKS
};

struct hb_foresight_costs {
	int64_t switch_ns;    /* duration of a context switch: HP's delay without a takeover */
	int64_t ready_ns;     /* a takeover this early hides the switch completely, also a slow one */
	int64_t idle_seen_ns; /* hb_foresight_idle() is called this long after the end of HP's last kernel */
	int64_t yield_ns;     /* an idle context keeps the GPU for this long by itself */
	int64_t soon_ns; /* a takeover due within this time of its sign begins at once, because a thread wakes late */
	int64_t lead_ns,
		grace_ns;    /* takeover around the time that a hint names, until its source is known well enough */
	uint32_t weight_ppm; /* weight of LP time lost to takeovers in vain, against HP's delay */
	uint32_t kept_weight_ppm; /* weight of LP time lost before a launch, beyond the switch */
	uint32_t budget_ppm;      /* share of LP's time that takeovers may cost */
	int64_t budget_cap_ns;    /* most that can be saved */
};

/* The token bucket of one process. Zeros = a new one. */
struct hb_foresight_budget {
	int64_t tokens_ns;
	int64_t since_ns;
	int64_t part_ppm; /* fraction of a ns that is not yet in tokens_ns */
	uint32_t busy;    /* HP at work: the bucket does not fill */
	bool begun;
};

/* A takeover relative to the sign (or the time it named), and the share of outcomes for which it is in vain. */
struct hb_foresight_plan {
	int32_t start_ns, end_ns; /* end <= start: no takeover */
	uint32_t miss_ppm;
};

/* One identity: its outcomes, its plan, and the pending attempt, from the sign to the launch that follows. */
struct hb_foresight_sign {
	int64_t used_ns;                         /* when the sign was seen last */
	int64_t base_ns;                         /* of the attempt: time of the sign, or the time it named */
	int64_t start_ns, end_ns;                /* takeover of the attempt; end 0 = none is planned */
	int32_t outcome_ns[HB_FORESIGHT_WINDOW]; /* ring: launch - base; HB_FORESIGHT_NONE = no launch */
	struct hb_foresight_plan plan;
	uint32_t seen;  /* number of outcomes so far, saturating */
	uint32_t stale; /* outcomes since the plan was computed */
	enum hb_sign kind;
	bool timed; /* the sign names the time of HP's start */
	bool fired; /* the attempt's takeover has begun, or was given up */
};

struct hb_foresight_counts {
	uint64_t signs;
	uint64_t needless;  /* signs while HP worked or a takeover ran, or without LP */
	uint64_t takeovers; /* begun */
	uint64_t hidden;    /* HP's launch found the switch done */
	uint64_t late;      /* a takeover ran or was planned, and HP launched before the switch was over */
	uint64_t wrong;     /* takeovers that ended without a launch */
	uint64_t throttled; /* takeovers not begun because the budget was used up */
	uint64_t lingers;   /* takeovers begun at HP's last kernel */
	uint64_t wrong_ns;  /* duration of wrong takeovers; each also cost LP two switches */
};

struct hb_foresight {
	struct hb_foresight_costs costs;
	struct hb_foresight_budget *budget;
	struct hb_foresight_counts counts;
	uint64_t pending;      /* bit set of signs with a pending attempt */
	int64_t idle_since_ns; /* -1 = HP never worked */
	int64_t start_ns;      /* last launch that followed an idle time in which LP could have the GPU */
	int64_t takeover_since_ns, takeover_until_ns; /* until 0 = no takeover */
	int64_t reserved_ns;                          /* taken from the budget for the present takeover */
	bool allowed;                                 /* takeovers ahead of requests */
	bool may_keep;                                /* HP may also keep the GPU after its work */
	bool busy, lingering;
	bool later;          /* HP's work is not the first after its start */
	uint32_t work;       /* kind of HP's work, set by hb_foresight_work() */
	uint64_t heard_from; /* places of signs worth a takeover since then: one bit each (who % 64) */
	uint32_t heard;      /* the same for signs without a place: 1, or 2 for more */
	uint32_t waiting;    /* requests announced before that start and not served by it */
	/* Plans for keeping the GPU after each kind of end of work. */
	struct hb_foresight_plan keep[HB_FORESIGHT_FIRST_SOURCE];
	uint32_t n_signs;
	uint64_t sources[HB_FORESIGHT_SIGNS]; /* separate from the signs, so that a search reads 8 cache lines */
	struct hb_foresight_sign signs[HB_FORESIGHT_SIGNS];
};

/* The costs that ship; see defaults.def. */
void hb_foresight_costs_init(struct hb_foresight_costs *costs);

/* Starts without knowledge; takeovers are not allowed yet. `budget` must live as long. */
void hb_foresight_init(struct hb_foresight *foresight, const struct hb_foresight_costs *costs,
		       struct hb_foresight_budget *budget);

/*
 * Allows or forbids takeovers, and keeping the GPU after HP's work. Takeovers gain nothing without LP. Another HP tenant that
 * works would wait for a GPU that is kept, or taken over for longer than HB_DEFAULT_TAKEOVER_BESIDE_NS. A present takeover ends
 * when it is forbidden, and if HP may not keep the GPU, at most that long after this call.
 */
void hb_foresight_allow(struct hb_foresight *foresight, int64_t now_ns, bool allowed, bool may_keep);
/* Changes the rate of the budget; the time until now_ns counts at the old rate. */
void hb_foresight_set_budget(struct hb_foresight *foresight, int64_t now_ns, uint32_t budget_ppm);
/*
 * A sign was seen. `source` identifies it (class of a descriptor, call site). `who` is
 * its place (a descriptor), which distinguishes two waiting requests from one request
 * with two signs; 0 = not known. `expected_ns` is the time of HP's start that the sign
 * names; 0 = it names none.
 */
void hb_foresight_sign(struct hb_foresight *foresight, int64_t now_ns, enum hb_sign kind, uint64_t source, uint32_t who,
		       int64_t expected_ns);
/* The kind of the work in flight, below HB_FORESIGHT_WORKS: the ends of each are learned apart. */
void hb_foresight_work(struct hb_foresight *foresight, uint32_t kind);
/* HP launches for the first time after idle; HP has no work in flight any more. */
void hb_foresight_busy(struct hb_foresight *foresight, int64_t now_ns);
void hb_foresight_idle(struct hb_foresight *foresight, int64_t now_ns);
/*
 * For a process that sees the end of its work too late to keep the GPU: returns how
 * long keeping it pays once the present work has ended; 0 = not at all. After arranging
 * that, the process calls hb_foresight_idle_kept() instead of hb_foresight_idle().
 */
int64_t hb_foresight_keep_ns(struct hb_foresight *foresight, int64_t now_ns);
void hb_foresight_idle_kept(struct hb_foresight *foresight, int64_t now_ns, int64_t keep_ns);
/*
 * For a process that has no GPU to take over, but can announce its next request (spatial_high.h): whether a launch is expected, and
 * when. If several are expected, the one that may come first counts. Takeovers need not be allowed.
 */
struct hb_foresight_expected {
	int64_t from_ns, until_ns;
};
bool hb_foresight_expects(const struct hb_foresight *foresight, int64_t now_ns, struct hb_foresight_expected *expected);
/* The costs of a mask in place of a takeover; see defaults.def. */
void hb_foresight_mask_costs_init(struct hb_foresight_costs *costs);
/* Begins and ends takeovers that are due. */
void hb_foresight_step(struct hb_foresight *foresight, int64_t now_ns);
/* When hb_foresight_step() is due; INT64_MAX = not before the next event. */
int64_t hb_foresight_next_ns(const struct hb_foresight *foresight);

/* End of the present takeover; 0 = none. */
static inline int64_t hb_foresight_takeover_until_ns(const struct hb_foresight *foresight)
{
	return foresight->takeover_until_ns;
}

static inline uint32_t hb_foresight_known(const struct hb_foresight_sign *sign)
{
	return sign->seen < HB_FORESIGHT_WINDOW ? sign->seen : HB_FORESIGHT_WINDOW;
}

#endif
