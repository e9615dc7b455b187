/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The predictor of the serving scheduler: when does a batch end that shares the
 * host link and the GPU with other batches? The approach is from Strait;
 * docs/serving-scheduler.md has the formulas. Pure: no clock, no allocation, one
 * caller at a time. Callers: scheduler.c, and the evaluation (src/simserving),
 * which runs several predictors side by side.
 *
 * A batch goes through three stages: copy in, run, copy out. The caller reports
 * every change of stage. The prediction has three parts:
 *
 *	run alone      time by model and batch size, online quantiles (solo_time.h)
 *	transfer       time alone = latency + bytes / rate, both learned. Processes
 *	               (one for each model and priority) that copy in the same
 *	               direction share the link equally during the non-latency part.
 *	               Copies of one process follow one another.
 *	interference   time = time alone * (1 + s * w . features(other batches)).
 *	               w: learned by recursive least squares (rls.h), one vector for
 *	               each priority. s: sensitivity of the model, by least squares.
 *
 * The progress rates depend only on the set of batches in flight. Between two
 * changes of that set every batch progresses linearly, so a forecast steps from
 * change to change (forecast.c). Learning does the same: a batch that ran beside
 * others for a third of its work has seen a third of their features.
 *
 * Every prediction has an error estimate: the 0.9 quantile of the relative
 * lateness of recent batches that began beside as many other batches.
 */
#ifndef HB_SCHEDULER_PREDICTOR_H
#define HB_SCHEDULER_PREDICTOR_H

#include "server/scheduler/demand.h"
#include "server/scheduler/rls.h"
#include "server/scheduler/solo_time.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HB_SCHEDULER_MODELS_MAX 64
#define HB_SCHEDULER_FLIGHTS_MAX 32 /* batches in flight at one time */
#define HB_FORECAST_MAX 64          /* batches in flight and planned batches */
#define HB_PREDICTOR_BESIDE_MAX 4   /* errors are learned separately for 0, 1, 2 and 3 or more other batches */
#define HB_INTERFERENCE_FEATURES 5

enum hb_scheduler_priority { HB_SCHEDULER_HIGH, HB_SCHEDULER_LOW, HB_SCHEDULER_PRIORITIES };
/* The three phases of a batch: it copies its inputs in, runs, and copies its outputs out. */
enum hb_scheduler_stage { HB_STAGE_IN, HB_STAGE_RUN, HB_STAGE_OUT, HB_STAGES };

/* Properties of a model, known when it is loaded. Demands are shares (0..1) of the GPU's SMs and memory bandwidth. */
struct hb_scheduler_model {
	char name[64];
	uint32_t max_items;         /* items of one batch, 1..HB_SCHEDULER_BATCH_MAX */
	uint32_t slots;             /* batches of both priorities in flight; 0 = the scheduler's limit */
	uint64_t room_bytes;        /* sum of hb_scheduler_request.room_bytes in one batch; 0 = no limit */
	double in_bytes, out_bytes; /* copied per item; 0 = that stage is not reported */
	double run_guess_ns;        /* run time of one item, used until one was measured */
	double sm_demand[2];        /* demand of a batch of 1 item and of a batch of max_items, alone */
	double memory_demand[2];
	double stop_share; /* mean share of a run that still executes after a pause; 0 = cannot be paused */
};

/* Parts of the predictor that are on. Without a part, batches do not delay each other there. */
struct hb_predictor_parts {
	bool transfer, interference;
};

/* The work of one batch, in flight or planned. */
struct hb_flow {
	uint32_t model, items;
	enum hb_scheduler_priority priority;
	enum hb_scheduler_stage stage;
	bool live;                 /* has work left */
	bool waits;                /* planned: begins when no high-priority batch copies in or runs */
	bool paused;               /* the batch's run stops when left_ns has fallen to stop_ns */
	uint32_t beside;           /* other batches in flight when it began */
	uint32_t turn;             /* number of its stage in the order of begin; copies of a process follow it */
	double left_ns[HB_STAGES]; /* work left in each stage, as time alone */
	double stop_ns;            /* if paused: left_ns of the run at which the run stops */
	double sm, memory;         /* demands */
	double link_use[2];        /* share of the time of copy in, copy out that uses the link; the rest is latency */
	double finish_ns;          /* result of a forecast: time from now until the batch ends */
};

struct hb_flight {
	struct hb_flow flow;
	int64_t begun_ns, stage_ns;
	double predicted_ns;        /* time from begin to end, predicted at the begin */
	bool was_paused;            /* the scheduler chose when it ends, so nothing is learned from its end */
	double total_ns[HB_STAGES]; /* work of each stage, as time alone */
	double company_ns;          /* time in which it ran beside other batches */
	double done_ns[HB_STAGES];  /* work done in each stage, as time alone */
	double features_ns[HB_INTERFERENCE_FEATURES]; /* sum of feature * work done while it had that value */
};

struct hb_forecast {
	uint32_t n, turns;
	uint32_t slot[HB_FORECAST_MAX]; /* index of the flight; UINT32_MAX = planned batch */
	struct hb_flow flow[HB_FORECAST_MAX];
};

struct hb_predictor {
	struct hb_predictor_parts parts;
	uint32_t n_models, turns;
	int64_t now_ns;
	struct hb_scheduler_model models[HB_SCHEDULER_MODELS_MAX];
	struct hb_solo_time solo[HB_SCHEDULER_MODELS_MAX];
	struct hb_rls link[2]; /* copy in, copy out: time in us = w . (1, MB) */
	struct hb_rls slowdown[HB_SCHEDULER_PRIORITIES];
	struct hb_sensitivity {
		double yx, xx; /* sums with forgetting, y = observed and x = predicted slowdown */
	} sensitivity[HB_SCHEDULER_MODELS_MAX][HB_SCHEDULER_PRIORITIES];
	struct hb_quantile_ring late[HB_SCHEDULER_PRIORITIES][HB_PREDICTOR_BESIDE_MAX]; /* actual / predicted - 1 */
	double error[HB_SCHEDULER_PRIORITIES][HB_PREDICTOR_BESIDE_MAX]; /* stored results of hb_predictor_error() */
	struct hb_quantile_ring error_size;                             /* |actual / predicted - 1| of all batches */
	struct hb_flight flights[HB_SCHEDULER_FLIGHTS_MAX];
	uint64_t ended;
};

/* Initializes a predictor. The struct is large (1 MiB): do not put it on the stack. */
void hb_predictor_init(struct hb_predictor *predictor, struct hb_predictor_parts parts);
/* Adds a model. Returns its number, -EINVAL or -ENOSPC. */
int hb_predictor_add_model(struct hb_predictor *predictor, const struct hb_scheduler_model *model);
/*
 * Gives the number to another model; forgets what was learned. Returns 0, -EINVAL, -EBUSY (a batch of it is in flight).
 */
int hb_predictor_replace_model(struct hb_predictor *predictor, uint32_t number, const struct hb_scheduler_model *model);
/* Changes the demand of a model; what was learned stays. Returns 0, -EINVAL, -EBUSY (batches of the model are in flight). */
int hb_predictor_set_demand(struct hb_predictor *predictor, uint32_t number, const struct hb_demand *demand);

/* Learns from a batch that was run alone when the model was loaded: ns of each stage. */
void hb_predictor_profiled(struct hb_predictor *predictor, uint32_t model, uint32_t items,
			   const double stage_ns[HB_STAGES]);

/*
 * Functions that report events of batches, in order of time. `slot` < HB_SCHEDULER_FLIGHTS_MAX names the flight. Events
 * of a slot in which no batch was begun are ignored.
 */
void hb_predictor_begin(struct hb_predictor *predictor, int64_t now_ns, uint32_t slot, uint32_t model, uint32_t items,
			enum hb_scheduler_priority priority);
/* Reports that the batch has entered `stage`. */
void hb_predictor_stage(struct hb_predictor *predictor, int64_t now_ns, uint32_t slot, enum hb_scheduler_stage stage);
/*
 * Reports that the batch is paused (its run stops after stop_share of its time) or resumed. Ignored if the model cannot
 * be paused.
 */
void hb_predictor_pause(struct hb_predictor *predictor, int64_t now_ns, uint32_t slot, bool paused);
/*
 * Reports that the batch has ended. Nothing is learned if it failed (`complete` false), or from stages that were not
 * reported.
 */
void hb_predictor_end(struct hb_predictor *predictor, int64_t now_ns, uint32_t slot, bool complete);

/* Returns the time of a batch alone: copy in, run and copy out. */
struct hb_estimate hb_predictor_alone(const struct hb_predictor *predictor, uint32_t model, uint32_t items);
double hb_predictor_transfer_ns(const struct hb_predictor *predictor, enum hb_scheduler_stage stage, double bytes);
/* Returns the share (0..1) of a transfer's time alone in which it uses the link; the rest is latency. */
double hb_predictor_link_use(const struct hb_predictor *predictor, enum hb_scheduler_stage stage, double transfer_ns);
/*
 * Returns the error estimate, relative to the predicted time, of batches of that priority that began beside `beside`
 * others.
 */
double hb_predictor_error(const struct hb_predictor *predictor, enum hb_scheduler_priority priority, uint32_t beside);

/*
 * Functions that make a forecast: begin it with the batches in flight, add planned
 * batches, and run it. A batch added with `waits` is one of the queue: it begins when no high-priority batch
 * copies in or runs; otherwise it begins now. Paused batches resume when no
 * high-priority batch is left. hb_forecast_add() returns the index in flow[], or
 * HB_FORECAST_MAX when there is no room (the batch is left out).
 */
void hb_forecast_begin(const struct hb_predictor *predictor, int64_t now_ns, struct hb_forecast *forecast);
uint32_t hb_forecast_add(const struct hb_predictor *predictor, struct hb_forecast *forecast, uint32_t model,
			 uint32_t items, enum hb_scheduler_priority priority, bool waits);
/* Pauses or resumes a batch in the forecast, now. No effect on a batch that cannot be paused. */
void hb_forecast_pause(const struct hb_predictor *predictor, struct hb_forecast *forecast, uint32_t index, bool paused);
/* A function that is called for every flow that finishes, in order of time. It returns true to stop the forecast. */
struct hb_forecast_watch {
	bool (*enough)(void *self, const struct hb_flow *finished);
	void *self;
};

/* Computes every flow's finish_ns. False: `watch` (may be NULL) stopped the forecast. */
bool hb_forecast_run(const struct hb_predictor *predictor, struct hb_forecast *forecast,
		     const struct hb_forecast_watch *watch);
/* Returns the error estimate of a flow's finish_ns. Call after hb_forecast_run(). */
double hb_forecast_error_ns(const struct hb_predictor *predictor, const struct hb_forecast *forecast, uint32_t index);
/*
 * Returns the sum of the run rates (1 = as fast as alone) of all batches in flight and all that begin now, as if all
 * were in their run stage. More than the sum without a batch = that batch makes the GPU do more work.
 */
double hb_forecast_speed(const struct hb_predictor *predictor, const struct hb_forecast *forecast);
/* Returns hb_forecast_speed() with one more batch that begins now. The forecast is unchanged afterwards. */
double hb_forecast_speed_with(const struct hb_predictor *predictor, struct hb_forecast *forecast, uint32_t model,
			      uint32_t items, enum hb_scheduler_priority priority);

/*
 * Returns the slowdown of a model relative to the average model of its priority beside the same batches; 1 = average.
 */
double hb_predictor_sensitivity(const struct hb_predictor *predictor, uint32_t model,
				enum hb_scheduler_priority priority);
/* Functions of forecast.c for predictor.c. */
/* Gives a batch that should already have ended a little work, so that it is not forecast as ended. */
void hb_flight_overdue(struct hb_flight *flight);
/* Pauses or resumes the run. A paused run stops after `still_ns` more work; 0 = it cannot be paused. */
void hb_flow_pause(struct hb_flow *flow, double still_ns, bool paused);
/* Returns the work until a paused run stops; 0 = the run has stopped already, or is not paused. */
double hb_flow_work_to_stop(const struct hb_flow *flow);
/* Computes the progress rate of each of n <= HB_FORECAST_MAX flows, and the features (or NULL) of those that run. */
void hb_flows_rate(const struct hb_predictor *predictor, struct hb_flow *flow, uint32_t n, double *rate,
		   double (*features)[HB_INTERFERENCE_FEATURES]);

#endif
