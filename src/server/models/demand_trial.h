/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures the demand of a model (server/scheduler/demand.h) when it is loaded. A second worker of the model, of low priority,
 * runs batches of zeros: on a part of the SMs, alone, and beside hb-demand-tenant. One model is measured at a time. The trial
 * gives way to every request: a batch is started only while the server has none, and what a request disturbed is repeated.
 *
 * Part of the dispatcher; called with its lock, unless a function says otherwise.
 */
#ifndef HB_SERVER_DEMAND_TRIAL_H
#define HB_SERVER_DEMAND_TRIAL_H

#include "server/models/dispatch.h"

struct hb_demand_trial;

/*
 * Without the lock: looks the model up in the file of measured demands, or decides that it will be measured. The model is not
 * listed yet.
 */
void hb_demand_recall(const struct hb_dispatch *dispatch, struct hb_served_model *model);
/*
 * Replaces what a trial has measured and model.yaml does not say in the scheduler's description of a model, and notes where
 * each demand comes from.
 */
void hb_demand_describe(struct hb_served_model *model, struct hb_scheduler_model *described);
/* Continues the trial, and begins one if a model waits for it. */
void hb_demand_advance(struct hb_dispatch *dispatch, int64_t now_ns);
/* A request has begun to arrive: the trial stops for a while. */
void hb_demand_expect(struct hb_dispatch *dispatch, int64_t now_ns);
/* Returns when hb_demand_advance() must be called; INT64_MAX = there is no trial. */
int64_t hb_demand_next_ns(const struct hb_dispatch *dispatch, int64_t now_ns);
/* Ends the trial of a model that is being closed. */
void hb_demand_forget(struct hb_dispatch *dispatch, struct hb_served_model *model);

#endif
