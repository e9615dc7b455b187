/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The predictor of `serve`: when will a batch be done that shares the link and
 * the GPU with others? After Strait; docs/serving-scheduler.md has the formulas. Pure: no
 * clock, no allocation, one caller at a time. Callers: the scheduler (scheduler.c),
 * the evaluation harness, which runs several side by side.
 *
 * A batch goes through three stages: copy in, run, copy out. Told of every
 * change of stage, the predictor knows which batches are where. Three parts:
 *
 *	run alone      by model and batch size, online quantiles (solo_time.h)
 *	transfer       latency + bytes / rate, learned; the processes (a model and a
 *	               priority each) that copy in one direction share the link
 *	               equally, but for the latency; the copies of one go in turn
 *	interference   a running batch is slower by s * w . features(who else runs),
 *	               w learned by recursive least squares (rls.h), one w for each
 *	               priority; s, how sensitive its model is, by least squares
 *
 * Both rates of progress depend only on the set of batches in flight, so between
 * two changes of the set everything progresses linearly: a forecast goes from
 * change to change (forecast.c), and so does what is learned: a batch that had
 * company for a third of its work has seen a third of that company's features.
 *
 * Every prediction has an error estimate: how much later than predicted one in
 * ten like it came, from the last outcomes with as much company.
 */
#ifndef HB_SCHEDULER_PREDICTOR_H
#define HB_SCHEDULER_PREDICTOR_H

#include "server/scheduler/rls.h"
#include "server/scheduler/solo_time.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HB_SCHEDULER_MODELS_MAX 64
#define HB_SCHEDULER_FLIGHTS_MAX 32 /* batches on the GPU and the link at one time */
#define HB_FORECAST_MAX 64          /* those, and planned ones */
#define HB_SCHEDULER_CROWD_MAX 4    /* errors are kept apart for 0, 1, 2 and more batches beside */
#define HB_INTERFERENCE_FEATURES 5

enum hb_scheduler_priority { HB_SCHEDULER_HIGH, HB_SCHEDULER_LOW, HB_SCHEDULER_PRIORITIES };
enum hb_scheduler_stage { HB_STAGE_IN, HB_STAGE_RUN, HB_STAGE_OUT, HB_STAGES };

/* What is known of a model when it is loaded. Demands are shares (0..1) of the GPU's SMs and memory bandwidth. */
struct hb_scheduler_model {
	char name[64];
	uint32_t max_items;         /* of one batch, 1..HB_SCHEDULER_BATCH_MAX */
	uint32_t slots;             /* batches of both priorities at one time; 0 = as many as the scheduler allows */
	uint64_t room_bytes;        /* for what requests of a batch bring that has no fixed size; 0 = any amount */
	double in_bytes, out_bytes; /* over the link, an item; 0 = no such stage is reported */
	double run_guess_ns;        /* until it was measured */
	double sm_demand[2];        /* of a batch of 1 and of max_items, alone */
	double memory_demand[2];
	double stop_share; /* of a batch's run that still goes on once the batch is held, on average; 0 = it cannot be held */
};

/* Which parts are on: the others answer as if every batch were alone. */
struct hb_predictor_parts {
	bool transfer, interference;
};

/* A batch as the predictor sees it, in flight or planned. */
struct hb_flow {
	uint32_t model, items;
	enum hb_scheduler_priority priority;
	enum hb_scheduler_stage stage;
	bool live;                 /* has work left */
	bool waits;                /* planned: begins when no high-priority batch is in flight */
	bool paused;               /* its run stands once left_ns has come down to stops_ns */
	uint32_t crowd;            /* batches beside it when it began */
	uint32_t turn;             /* counts stages that began: the copies of one process go in this order */
	double left_ns[HB_STAGES]; /* of each stage, as if alone */
	double stops_ns;           /* held: left_ns of its run where it stands */
	double sm, memory;         /* demands */
	double link_use[2];        /* part of each copy's time alone in which it uses the link; the rest is latency */
	double finish_ns;          /* forecast: from now */
};

struct hb_flight {
	struct hb_flow flow;
	int64_t begun_ns, stage_ns;
	double predicted_ns; /* from begin to end, when it began */
	bool was_paused;     /* when it ends was decided, so nothing is learned from when */
	double whole_ns[HB_STAGES];
	double company_ns;                            /* it ran beside others */
	double done_ns[HB_STAGES];                    /* of each stage, as if alone */
	double features_ns[HB_INTERFERENCE_FEATURES]; /* each times the work done under it */
};

struct hb_forecast {
	uint32_t n, turns;
	uint32_t slot[HB_FORECAST_MAX]; /* of flights; UINT32_MAX = planned */
	struct hb_flow flow[HB_FORECAST_MAX];
};

struct hb_predictor {
	struct hb_predictor_parts parts;
	uint32_t n_models, turns;
	int64_t now_ns;
	struct hb_scheduler_model models[HB_SCHEDULER_MODELS_MAX];
	struct hb_solo_time solo[HB_SCHEDULER_MODELS_MAX];
	struct hb_rls link[2]; /* us = w . (1, MB): in, out */
	struct hb_rls slowdown[HB_SCHEDULER_PRIORITIES];
	struct hb_sensitivity {
		double yx, xx; /* sums with forgetting: slowdown as it was times as it is said, the latter squared */
	} sensitivity[HB_SCHEDULER_MODELS_MAX][HB_SCHEDULER_PRIORITIES];
	struct hb_quantile_ring late[HB_SCHEDULER_PRIORITIES][HB_SCHEDULER_CROWD_MAX];
	double error[HB_SCHEDULER_PRIORITIES][HB_SCHEDULER_CROWD_MAX]; /* what `late` says: hb_predictor_error() */
	struct hb_quantile_ring off;                                   /* sizes of the last errors, relative */
	struct hb_flight flights[HB_SCHEDULER_FLIGHTS_MAX];
	uint64_t ended;
};

/* Large (1 MiB): allocate it. */
void hb_predictor_init(struct hb_predictor *predictor, struct hb_predictor_parts parts);
/* The model's number; -EINVAL, -ENOSPC. */
int hb_predictor_add_model(struct hb_predictor *predictor, const struct hb_scheduler_model *model);
/* The number stands for another model from now on, of which nothing is known. 0, -EINVAL, -EBUSY (a batch is in flight). */
int hb_predictor_replace_model(struct hb_predictor *predictor, uint32_t number, const struct hb_scheduler_model *model);

/* A batch was run alone, when the model was loaded: ns of each stage. */
void hb_predictor_profiled(struct hb_predictor *predictor, uint32_t model, uint32_t items,
			   const double stage_ns[HB_STAGES]);

/* What happened, in order of time. `slot` < HB_SCHEDULER_FLIGHTS_MAX names the flight; one that was not begun is ignored. */
void hb_predictor_begin(struct hb_predictor *predictor, int64_t now_ns, uint32_t slot, uint32_t model, uint32_t items,
			enum hb_scheduler_priority priority);
/* It has entered `stage`. */
void hb_predictor_stage(struct hb_predictor *predictor, int64_t now_ns, uint32_t slot, enum hb_scheduler_stage stage);
/* Its run is to stand as soon as it can, or goes on. One that cannot be held is ignored. */
void hb_predictor_pause(struct hb_predictor *predictor, int64_t now_ns, uint32_t slot, bool paused);
/* It has ended; `whole` false: it was cut off, nothing is learned. Nor from stages that were not told apart. */
void hb_predictor_end(struct hb_predictor *predictor, int64_t now_ns, uint32_t slot, bool complete);

/* As if alone: copy in, run and copy out, together. */
struct hb_estimate hb_predictor_alone(const struct hb_predictor *predictor, uint32_t model, uint32_t items);
double hb_predictor_transfer_ns(const struct hb_predictor *predictor, enum hb_scheduler_stage stage, double bytes);
/* The part of a transfer of that time in which the link is used, 0..1. */
double hb_predictor_link_use(const struct hb_predictor *predictor, enum hb_scheduler_stage stage, double transfer_ns);
/* Relative: what the last outcomes of that priority and so much company say. */
double hb_predictor_error(const struct hb_predictor *predictor, enum hb_scheduler_priority priority, uint32_t crowd);

/*
 * Forecasts: begin with what is in flight, add what is planned, run. `waits`
 * plans a batch of the queue: it begins when the high-priority ones before it
 * have ended; without it a batch begins now. Batches that are held go on when no
 * high-priority one is left. add returns its place in f->flow,
 * or HB_FORECAST_MAX when there is no room (it is left out).
 */
void hb_forecast_begin(struct hb_predictor *predictor, int64_t now_ns, struct hb_forecast *forecast);
uint32_t hb_forecast_add(const struct hb_predictor *predictor, struct hb_forecast *forecast, uint32_t model,
			 uint32_t items, enum hb_scheduler_priority priority, bool waits);
/* As if a batch of the forecast were held from now on, or were not; one that cannot be held is left as it is. */
void hb_forecast_pause(const struct hb_predictor *predictor, struct hb_forecast *forecast, uint32_t index, bool paused);
/* Told of every flow when it finishes, in order of time; true: no need to go on. */
struct hb_forecast_watch {
	bool (*enough)(void *self, const struct hb_flow *finished);
	void *self;
};

/* Sets every flow's finish_ns. False: `watch` (or NULL) had heard enough before that. */
bool hb_forecast_run(const struct hb_predictor *predictor, struct hb_forecast *forecast,
		     const struct hb_forecast_watch *watch);
/* The error estimate of a flow's finish, after run. */
double hb_forecast_error_ns(const struct hb_predictor *predictor, const struct hb_forecast *forecast, uint32_t index);
/* Work done in a unit of time, batches alone doing one each: over 1 = sharing gains. Of the running set plus those that begin now. */
double hb_forecast_speed(const struct hb_predictor *predictor, const struct hb_forecast *forecast);
/* The same if such a batch began now, too; the forecast is left as it was. */
double hb_forecast_speed_with(const struct hb_predictor *predictor, struct hb_forecast *forecast, uint32_t model,
			      uint32_t items, enum hb_scheduler_priority priority);

/* How much more, or less, than others of its priority a model suffers from the same company; 1 = as they do. */
double hb_predictor_sensitivity(const struct hb_predictor *predictor, uint32_t model,
				enum hb_scheduler_priority priority);
/* forecast.c, for predictor.c: one that should have ended by now has a little left yet. */
void hb_flight_overdue(struct hb_flight *flight);
/* Its run stands, held, after `goes_on_ns` more of its work; 0 = it cannot be held. */
void hb_flow_pause(struct hb_flow *flow, double goes_on_ns, bool paused);
/* Work until it stands for being held; 0 = it stands, or does not stop. */
double hb_flow_stops_after(const struct hb_flow *flow);
/* How fast each of at most HB_FORECAST_MAX flows progresses, and the features of those that run. */
void hb_flows_rate(const struct hb_predictor *predictor, struct hb_flow *flow, uint32_t n, double *rate,
		   double (*features)[HB_INTERFERENCE_FEATURES]);

#endif
