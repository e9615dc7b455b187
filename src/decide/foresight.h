/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Foresight: learns what comes after each sign that a process is about to use
 * the GPU, and says when to hold the GPU for it. One struct a process (or
 * tenant), fixed memory, no allocation, no clock, integers only: the same code
 * decides in the core (policy_temporal.c), in the simulator and, where 20 us
 * matter, in the process that saw the sign. Not thread safe: one caller at a
 * time.
 *
 * Idea. A context switch delays HP by switch_ns, unless holds were launched
 * ready_ns before HP's first kernel. A sign (a request's bytes, a call, the
 * period of arrivals, the end of HP's last kernel) comes some time T before
 * that kernel. T has a distribution, and some signs lead to nothing. From the
 * last HB_FORESIGHT_WINDOW outcomes of a sign we know the distribution as it is
 * now; a hold from s to e after the sign costs, summed over these outcomes,
 *
 *	came before s        HP waits the switch                LP loses nothing
 *	came at T in s..e    HP waits what is not hidden yet:   LP loses what it was kept
 *	                     switch * (ready - (T-s)) / ready   off beyond the switch it
 *	                     and 0 from s + ready on            pays anyway: T - s - switch
 *	came later, or never HP waits the switch (if it came)   LP loses e - s + 2 switches
 *
 * and we take the s and e with the least HP delay + weight * LP loss, or none
 * where holding never beats not holding. This is the expected loss of a decision
 * under the empirical distribution (plain decision theory; the window in place
 * of a decay is the same forgetting with exact samples, and lets s and e lie
 * between samples of any scale). Candidates for s are the sorted outcomes less
 * ready_ns (the cost is piecewise linear, its minimum lies at such a corner);
 * for each, one pass over the outcomes gives the best e. A plan must be for four
 * launches at least, lest it be for the one outcome that was the longest.
 *
 * Example. switch 190 us, ready 260 us, weight 0.1. Of 64 outcomes 60 lie evenly
 * between 300 and 420 us and 4 led to nothing. Holding from 40 us (300 - 260) to
 * 467 us (420 and a quarter of a switch) hides the switch for all 60: LP loses
 * 60 * (320 - 190) us by mean and 4 * (427 + 380) us, times 0.1 = 1.1 ms; not
 * holding costs HP 60 * 190 us = 11.4 ms. With 4 launches and 60 nothings it is
 * 60 * 807 us * 0.1 = 4.8 ms against 0.76 ms, and we do not hold.
 *
 * Four safeguards
 *  - Nothing is held for a sign with fewer than HB_FORESIGHT_LEAST outcomes. Only
 *    a hint that names its time (the client API) is believed from the start.
 *  - Budget: what a hold would cost LP if it were wrong is taken from a token
 *    bucket before it begins; when it was right all but what LP really lost is
 *    given back. So holds never cost more than the share budget_ppm of LP's time
 *    plus what was saved up (budget_cap_ns). A sign needs a bucket the fuller the
 *    more of its outcomes are misses, so the worst sign is throttled first.
 *  - The window forgets: after a change of load the sign fires by the new
 *    distribution within some tens of outcomes, and until then misses cost what
 *    the budget allows.
 *  - A sign that repeats within HB_FORESIGHT_MERGE_NS is one sign; later it is a
 *    new one and the first led to nothing. So 10,000 false signs a second are
 *    500 outcomes that say "nothing".
 *
 * After HP's last kernel (hb_foresight_idle) the GPU is still HP's. "Idle" is a
 * sign like others, with s = 0; LP loses T - 2 switches for a hit (it would have
 * paid both) and e for a miss. It is learned apart for the case that somebody
 * waits: signs worth a hold came from more than one place (`who`) since HP's last
 * start, or while HP was busy, or, where the place is not known, twice; each start
 * serves one of them. And apart for the first end of work after a start and for
 * later ones: a program that launches, waits, and launches again (the answer's
 * class) does so in every request, and comes back at once only after the first.
 * Where idle is seen later than the GPU is given away (idle_seen_ns > yield_ns: a
 * process sees it when it synchronizes) the end of work is a sign like others,
 * unless the process arranged for the GPU to be kept before it began to wait:
 * hb_foresight_keep_ns() says for how long that pays.
 *
 * Periodic arrivals are a sign whose base is the last start; its outcomes are
 * the intervals. Nothing has to be called periodic: a narrow distribution of
 * intervals makes a hold worth its cost, the exponential one of a Poisson
 * process never does.
 *
 * Bad at: signs of one identity that mean two things (a health check on the
 * request's socket): the mixture is learned, not the difference. Periods over 2 s.
 * Bytes that come in while HP is between two kernels of a request: their
 * outcome is the next kernel, not their own. Misses dearer than the mean says
 * (it minimises a mean, not a p99: lower weight_ppm for that).
 *
 * How to use
 *	hb_foresight_sign / _busy / _idle / _allow    when it happens
 *	hb_foresight_step                             when next_ns has come
 *	after each of them: compare hb_foresight_takeover_until_ns() with what is held:
 *	    became > 0: launch holds with the limit until - now; grew: raise the
 *	    limit; became 0: release.
 *  A process whose holds end by themselves at their limit need not call step for
 *  the end of a hold; the next call settles it.
 *
 * Files: foresight.c and foresight_plan.c need nothing but the C library and may
 * be compiled into any program; foresight_dump.c prints.
 *
 * Costs: _busy is on HP's first launch after idle: a loop over the pending
 * signs (two or three), no search, no sort. A plan is made anew on every fourth
 * outcome, on the path of a sign, in about 2 us.
 */
#ifndef HB_CORE_FORESIGHT_H
#define HB_CORE_FORESIGHT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* What a hint was read from. */
enum hb_sign { HB_SIGN_API, HB_SIGN_SOCKET, HB_SIGN_CALL, HB_SIGN_PERIOD, HB_SIGNS };

#define HB_FORESIGHT_SIGNS 64  /* identities at one time; the one not seen for longest makes room */
#define HB_FORESIGHT_WINDOW 64 /* outcomes of each */
#define HB_FORESIGHT_LEAST 16  /* outcomes before it is acted upon */
#define HB_FORESIGHT_MERGE_NS INT64_C(2000000)
#define HB_FORESIGHT_HORIZON_NS INT64_C(2000000000)    /* later launches have nothing to do with the sign */
#define HB_FORESIGHT_TAKEOVER_MAX_NS INT64_C(20000000) /* no single hold is planned longer */

/* An outcome that stands for "no launch came". */
#define HB_FORESIGHT_NONE INT32_MAX

/* Places of the signs that foresight sees by itself; those it is told of come behind them. */
enum {
	HB_FORESIGHT_PERIOD,
	HB_FORESIGHT_IDLE,         /* the first end of work since a start */
	HB_FORESIGHT_QUEUED,       /* ... and somebody waits */
	HB_FORESIGHT_LATER_IDLE,   /* another end, after a launch that followed at once */
	HB_FORESIGHT_LATER_QUEUED, /* ... and somebody waits */
	HB_FORESIGHT_FIRST_SOURCE
};

struct hb_foresight_costs {
	int64_t switch_ns;    /* one context switch, HP's delay without a hold */
	int64_t ready_ns;     /* a hold this early hides it all, late switches included */
	int64_t idle_seen_ns; /* hb_foresight_idle() is called this long after HP's last kernel has ended */
	int64_t yield_ns;     /* an idle context keeps the GPU this long by itself */
	int64_t soon_ns;      /* what a sign makes due within that time begins at once: waking up for it comes late */
	int64_t lead_ns, grace_ns; /* hold around the time a hint names while its source is not known well enough */
	uint32_t weight_ppm;       /* LP's time against HP's delay: what it loses by holds in vain */
	uint32_t kept_weight_ppm;  /* ... and by being kept off for longer than the switch before a launch that came */
	uint32_t budget_ppm;       /* share of LP's time that holds may cost */
	int64_t budget_cap_ns;     /* saved up at most */
};

/* One for all that share an LP: the tenants of a GPU, or a process that decides for itself. All-zero = empty. */
struct hb_foresight_budget {
	int64_t tokens_ns;
	int64_t since_ns;
	int64_t part_ppm; /* of one ns, not yet in tokens_ns */
	uint32_t busy;    /* HP tenants at work: LP's time stands still */
	bool begun;
};

/* When to hold, after the sign (or the time it named), and the share of outcomes for which that would be in vain. */
struct hb_foresight_plan {
	int32_t start_ns, end_ns; /* end <= start: do not hold */
	uint32_t miss_ppm;
};

/* An identity, what is known of it, and the attempt that runs: from the sign to the launch that answers it. */
struct hb_foresight_sign {
	int64_t used_ns;                         /* last seen */
	int64_t base_ns;                         /* of the attempt: the sign's time, or the time it named */
	int64_t start_ns, end_ns;                /* of the attempt's hold; end 0 = none is planned */
	int32_t outcome_ns[HB_FORESIGHT_WINDOW]; /* ring: launch - base; HB_FORESIGHT_NONE = none came */
	struct hb_foresight_plan plan;
	uint32_t seen;  /* outcomes ever, saturating */
	uint32_t stale; /* outcomes since the plan was made */
	enum hb_sign kind;
	bool timed; /* it names HP's start */
	bool fired; /* the attempt's hold has begun, or was given up */
};

struct hb_foresight_counts {
	uint64_t signs;
	uint64_t needless;  /* came while HP worked or a hold ran, or nothing was to be gained */
	uint64_t takeovers; /* begun */
	uint64_t hidden;    /* HP's launch found the switch done */
	uint64_t late;      /* a hold ran or was planned, and HP's launch came before the switch was over */
	uint64_t wrong;     /* ended without a launch */
	uint64_t throttled; /* not begun for want of budget */
	uint64_t lingers;   /* holds begun at HP's last kernel */
	uint64_t wrong_ns;  /* held by those; each also cost LP two switches */
};

struct hb_foresight {
	struct hb_foresight_costs costs;
	struct hb_foresight_budget *budget;
	struct hb_foresight_counts counts;
	uint64_t pending;                             /* bit set of signs with an attempt */
	int64_t idle_since_ns;                        /* -1 = never worked */
	int64_t start_ns;                             /* the last launch before which LP could have had the GPU */
	int64_t takeover_since_ns, takeover_until_ns; /* until 0 = nothing is held */
	int64_t reserved_ns;                          /* taken from the budget for the hold that runs */
	bool learns;                                  /* false: only hints that name a time count, as they are */
	bool allowed, busy, lingering;
	bool later;          /* HP's work is not the first since its start */
	uint64_t heard_from; /* since then, by signs worth a hold: a bit each (who % 64) */
	uint32_t heard;      /* ... by those that do not say who: 1, or 2 for more */
	uint32_t waiting;    /* heard before, and not served by that start */
	/* The plans of the ends of work, where the GPU is kept from before they are seen. */
	struct hb_foresight_plan keep[HB_FORESIGHT_FIRST_SOURCE];
	uint32_t n_signs;
	uint64_t sources[HB_FORESIGHT_SIGNS]; /* apart from the signs, so that a search reads 8 cache lines */
	struct hb_foresight_sign signs[HB_FORESIGHT_SIGNS];
};

/* The costs that ship; see defaults.def. */
void hb_foresight_costs_init(struct hb_foresight_costs *costs);

/* Nothing is known, nothing is held, holding is not allowed. `budget` outlives it. */
void hb_foresight_init(struct hb_foresight *foresight, const struct hb_foresight_costs *costs,
		       struct hb_foresight_budget *budget, bool learns);
/* The tenant leaves: gives back what it had taken from the budget. */
void hb_foresight_fini(struct hb_foresight *foresight, int64_t now_ns);

/*
 * Whether a hold can gain anything: LP is there, and no other HP tenant is at
 * work whose slices it would cost. A running hold ends when it cannot any more.
 */
void hb_foresight_allow(struct hb_foresight *foresight, int64_t now_ns, bool allowed);
/*
 * A sign was seen. `source`: what it is (descriptor class, call site). `who`: which one of its kind (a descriptor), so
 * that two that wait are told from one that is heard twice; 0 = not known. `expected_ns`: when it says HP starts; 0 = it
 * does not say.
 */
void hb_foresight_sign(struct hb_foresight *foresight, int64_t now_ns, enum hb_sign kind, uint64_t source, uint32_t who,
		       int64_t expected_ns);
/* HP's work in flight became some (its first launch after idle), and none. */
void hb_foresight_busy(struct hb_foresight *foresight, int64_t now_ns);
void hb_foresight_idle(struct hb_foresight *foresight, int64_t now_ns);
/*
 * For a process that sees the end of its work too late to keep the GPU: how long
 * it is worth keeping once the work that runs has ended; 0 = not. Who then
 * arranges for it calls hb_foresight_idle_kept() in place of hb_foresight_idle().
 */
int64_t hb_foresight_keep_ns(struct hb_foresight *foresight, int64_t now_ns);
void hb_foresight_idle_kept(struct hb_foresight *foresight, int64_t now_ns, int64_t keep_ns);
/* Begins and ends the holds that are due. */
void hb_foresight_step(struct hb_foresight *foresight, int64_t now_ns);
/* When step has something to do; INT64_MAX = not before the next event. */
int64_t hb_foresight_next_ns(const struct hb_foresight *foresight);

/* Until when the GPU is to be held; 0 = it is not. */
static inline int64_t hb_foresight_takeover_until_ns(const struct hb_foresight *foresight)
{
	return foresight->takeover_until_ns;
}

static inline uint32_t hb_foresight_known(const struct hb_foresight_sign *sign)
{
	return sign->seen < HB_FORESIGHT_WINDOW ? sign->seen : HB_FORESIGHT_WINDOW;
}

/* One line a sign: what is known of it and what it would do. */
void hb_foresight_dump(const struct hb_foresight *foresight, FILE *out);

#endif
