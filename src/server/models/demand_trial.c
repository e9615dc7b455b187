/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The steps of a demand trial; see demand_trial.h. The MPS server of low priority limits a client to a part of the SMs, but
 * only from its start, so the worker is started twice. Before any batch, hb-demand-tenant with the same limit measures which
 * part of the SMs it gets (the probe). If that is more than half, no limit is in force, for example because there is no MPS
 * server, and the trial ends.
 */
#include "server/models/demand_trial.h"

#include "base/clock.h"
#include "base/log.h"
#include "server/backends/demand_process.h"
#include "server/models/demand_batch.h"
#include "server/models/demand_file.h"
#include "server/models/dispatch_priv.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Share of the SMs in the limited run. MPS rounds it up to complete pairs of SMs; the probe finds what it really is. */
#define SM_PERCENT 12
/* If the limited tenant has a larger share, the limit is not in force. */
#define SM_PART_MOST 0.5
/*
 * Each time is the shortest of this many batches, after others that do not count: other programs and the host can only
 * lengthen a batch. Only a pause of the tenant can shorten it, so a batch beside a tenant that paused does not count.
 */
#define SAMPLES 5
#define WARM_UP 2
/* Time without a request before the next batch. It doubles with each batch that a request has disturbed. */
#define QUIET_NS (20 * HB_NS_PER_MS)
#define QUIET_MAX_NS (5 * HB_NS_PER_S)
#define POLL_NS (5 * HB_NS_PER_MS)
/* On the part of the SMs a batch takes this many times as long at most. */
#define LIMIT_FACTOR 16
/* Batches that are not measured after this time will not be, because the GPU or the server is too busy. */
#define STEP_LIMIT_NS (600 * HB_NS_PER_S)
#define TENANT_LIMIT_NS (120 * HB_NS_PER_S)

enum demand_step {
	STEP_TENANT,         /* hb-demand-tenant starts and measures the GPU and the link */
	STEP_LIMIT,          /* a second one finds which part of the SMs the limit leaves */
	STEP_LIMITED_WORKER, /* the worker starts with that limit */
	STEP_LIMITED,        /* batches */
	STEP_WORKER,         /* the worker starts without a limit */
	STEP_ALONE,          /* batches */
	STEP_BESIDE,         /* batches beside the tenant, which needs no bandwidth */
	STEP_BESIDE_MEMORY,  /* batches beside the tenant, which needs all bandwidth */
	STEPS
};

struct hb_demand_trial {
	struct hb_served_model *model;
	struct hb_model_config config; /* of the trial's worker */
	struct hb_backend_shared shared;
	enum demand_step step;
	bool begun; /* the processes of the step were started */
	int64_t step_ns;
	struct hb_demand_process tenant, limited;
	struct hb_demand_probe probe;
	double sm_part;
	struct hb_backend backend; /* ops NULL = closed */
	struct hb_demand_batch batch;
	bool disturbed; /* a request arrived since the batch began */
	uint32_t gaps;  /* hb_demand_process_gaps() when it began */
	bool busy;      /* a request was in the server at busy_ns */
	int64_t busy_ns, quiet_ns;
	uint32_t size, n, warm; /* size 0: a batch of one item; 1: the largest */
	double samples[HB_STAGES][SAMPLES];
	double run_ns[2][STEPS], copy_ns[HB_STAGES][2];
	bool copies[HB_STAGES];
};

/* ---- what the scheduler gets ---- */

static bool is_measurable(const struct hb_dispatch *dispatch, const struct hb_model_config *config)
{
	return dispatch->measures && config->measure_demand &&
	       hb_worker_gpu_there((enum hb_worker_gpu)dispatch->gpus->shared.gpu) &&
	       (config->platform == HB_PLATFORM_worker || config->platform == HB_PLATFORM_onnxruntime) &&
	       !(config->n_sm_share && config->n_memory_share);
}

void hb_demand_recall(const struct hb_dispatch *dispatch, struct hb_served_model *model)
{
	static atomic_flag warned = ATOMIC_FLAG_INIT;
	struct hb_served_demand *demand = &model->demand;
	struct hb_error error = {.text = ""};
	char gpu[128];
	hb_model_config_settle(&model->config, hb_worker_gpu_there((enum hb_worker_gpu)dispatch->gpus->shared.gpu));
	if (!is_measurable(dispatch, &model->config))
		return;
	hb_worker_gpu_name((enum hb_worker_gpu)dispatch->gpus->shared.gpu, gpu, sizeof(gpu));
	demand->digest = hb_demand_digest(&model->config, gpu);
	int result = hb_demand_file_find(dispatch->demands_file, demand->digest, &demand->measured, &error);
	demand->is_measured = result == 0;
	demand->is_wanted = result < 0;
	if (result < 0 && result != -ENOENT && !atomic_flag_test_and_set(&warned))
		hb_log_warning("%s: demands are measured again", error.text);
}

static enum hb_demand_origin choose_origin(const struct hb_served_model *model, bool typed)
{
	return model->config.platform == HB_PLATFORM_trace ? HB_DEMAND_RECORDED
	       : typed                                     ? HB_DEMAND_WRITTEN
	       : model->demand.is_measured                 ? HB_DEMAND_FROM_TRIAL
							   : HB_DEMAND_DEFAULT;
}

void hb_demand_describe(struct hb_served_model *model, struct hb_scheduler_model *described)
{
	const struct hb_model_config *config = &model->config;
	struct hb_served_demand *demand = &model->demand;
	demand->sm = choose_origin(model, config->n_sm_share > 0);
	demand->memory = choose_origin(model, config->n_memory_share > 0);
	demand->transfer = choose_origin(model, config->n_transfer > 0);
	if (demand->sm == HB_DEMAND_FROM_TRIAL)
		memcpy(described->sm_demand, demand->measured.sm, sizeof(described->sm_demand));
	if (demand->memory == HB_DEMAND_FROM_TRIAL)
		memcpy(described->memory_demand, demand->measured.memory, sizeof(described->memory_demand));
	if (demand->transfer == HB_DEMAND_FROM_TRIAL) {
		described->in_bytes = demand->measured.in_bytes;
		described->out_bytes = demand->measured.out_bytes;
	}
	memcpy(demand->used.sm, described->sm_demand, sizeof(demand->used.sm));
	memcpy(demand->used.memory, described->memory_demand, sizeof(demand->used.memory));
	demand->used.in_bytes = described->in_bytes;
	demand->used.out_bytes = described->out_bytes;
}

/* Gives the measured demand to the schedulers, which have no request of the model now. */
static void use_demand(struct hb_dispatch *dispatch, struct hb_served_model *model)
{
	struct hb_scheduler_model described = hb_scheduler_predictor(dispatch->gpus->scheduler)->models[model->number];
	hb_demand_describe(model, &described);
	for (struct hb_served_gpu *gpu = dispatch->gpus; gpu != dispatch->gpus_end; gpu++)
		if (hb_scheduler_set_demand(gpu->scheduler, model->number, &model->demand.used) == 0)
			hb_journal_demand(gpu->journal, model->number, &model->demand.used);
}

/* ---- begin and end ---- */

static bool is_idle(const struct hb_dispatch *dispatch)
{
	return hb_dispatch_admitted(dispatch, HB_SCHEDULER_HIGH) == 0 &&
	       hb_dispatch_admitted(dispatch, HB_SCHEDULER_LOW) == 0;
}

static struct hb_served_model *find_wanted(const struct hb_dispatch *dispatch)
{
	for (uint32_t i = 0; i < dispatch->n_models && !dispatch->ending; i++)
		if (dispatch->models[i]->demand.is_wanted && dispatch->models[i]->state == HB_SERVED_MODEL_READY)
			return dispatch->models[i];
	return NULL;
}

/* Returns the first GPU that has a replica of the model. */
static const struct hb_served_gpu *find_gpu(const struct hb_dispatch *dispatch, uint32_t number)
{
	const struct hb_served_gpu *gpu = dispatch->gpus;
	while (gpu + 1 != dispatch->gpus_end && !gpu->backends[number].ops)
		gpu++;
	return gpu;
}

static void begin_trial(struct hb_dispatch *dispatch, struct hb_served_model *model, int64_t now_ns)
{
	struct hb_demand_trial *trial = calloc(1, sizeof(*trial));
	struct hb_error error = {.text = "out of memory"};
	if (!trial || hb_demand_batch_init(&trial->batch, &model->config, &error) < 0) {
		hb_log_warning("model %s: its demand is not measured: %s", model->config.name, error.text);
		model->demand.is_wanted = false;
		free(trial);
		return;
	}
	trial->model = model;
	trial->config = model->config;
	trial->config.priority = HB_SCHEDULER_LOW;
	trial->config.replicas = 1;
	trial->config.limit_ns *= LIMIT_FACTOR;
	trial->shared = find_gpu(dispatch, model->number)->shared;
	trial->busy_ns = trial->step_ns = now_ns;
	trial->quiet_ns = QUIET_NS;
	trial->tenant.memory = trial->limited.memory = -1;
	dispatch->trial = trial;
	hb_log_info("model %s: its demand is being measured", model->config.name);
}

static void close_worker(struct hb_dispatch *dispatch, struct hb_demand_trial *trial)
{
	if (!trial->backend.ops)
		return;
	hb_backend_watch(dispatch, &trial->backend, false);
	trial->backend.ops->close(trial->backend.self);
	trial->backend = (struct hb_backend){.ops = NULL};
}

static void end_trial(struct hb_dispatch *dispatch)
{
	struct hb_demand_trial *trial = dispatch->trial;
	close_worker(dispatch, trial);
	hb_demand_process_end(&trial->tenant);
	hb_demand_process_end(&trial->limited);
	hb_demand_batch_fini(&trial->batch);
	trial->model->demand.is_wanted = false;
	dispatch->trial = NULL;
	free(trial);
}

void hb_demand_forget(struct hb_dispatch *dispatch, struct hb_served_model *model)
{
	if (dispatch->trial && dispatch->trial->model == model)
		end_trial(dispatch);
	model->demand.is_wanted = false;
}

/* ---- steps without batches. They return 1 when the step is done, 0 = not yet, negative errno with *error ---- */

static int start_tenant(struct hb_demand_trial *trial, struct hb_demand_process *tenant, uint32_t percent, uint32_t sms,
			struct hb_error *error)
{
	const struct hb_backend_shared *shared = &trial->shared;
	const struct hb_worker_place place = {.gpu = (enum hb_worker_gpu)shared->gpu,
					      .device = shared->n_gpus > 1 ? (int)shared->index : -1,
					      .sm_percent = percent};
	return hb_demand_process_start(tenant, &trial->config, &place, sms, error);
}

static int await_tenant(const struct hb_demand_trial *trial, struct hb_demand_process *tenant,
			struct hb_demand_probe *probe, int64_t now_ns, struct hb_error *error)
{
	int result = hb_demand_process_poll(tenant, probe, error);
	if (result == 0 && now_ns - trial->step_ns > TENANT_LIMIT_NS)
		return hb_error_set(error, -ETIMEDOUT, "hb-demand-tenant is not ready after %d s",
				    (int)(TENANT_LIMIT_NS / HB_NS_PER_S));
	return result;
}

static int find_limit(struct hb_demand_trial *trial, int64_t now_ns, struct hb_error *error)
{
	struct hb_demand_probe limited;
	int result = await_tenant(trial, &trial->limited, &limited, now_ns, error);
	if (result <= 0)
		return result;
	hb_demand_process_end(&trial->limited);
	trial->sm_part = trial->probe.probe_ns / limited.probe_ns;
	if (trial->sm_part > SM_PART_MOST)
		return hb_error_set(
			error, -ENOTSUP,
			"a program of low priority cannot be limited to a part of the SMs: there is no MPS server");
	return 1;
}

static int open_worker(struct hb_dispatch *dispatch, struct hb_demand_trial *trial, uint32_t percent,
		       struct hb_error *error)
{
	const struct hb_platform *platform = trial->config.platform == HB_PLATFORM_onnxruntime ? &hb_backend_onnx
											       : &hb_backend_worker;
	close_worker(dispatch, trial);
	trial->shared.sm_percent = percent;
	int result = platform->open(&trial->config, &trial->shared, &trial->backend, error);
	if (result == 0)
		hb_backend_watch(dispatch, &trial->backend, true);
	return result;
}

static bool is_lost(const struct hb_backend *backend)
{
	return *backend->state == HB_SERVED_MODEL_FAILED || *backend->state == HB_SERVED_MODEL_RESTARTING ||
	       *backend->restarts > 0;
}

static int await_worker(const struct hb_demand_trial *trial)
{
	return hb_served_replica_runs(&trial->backend);
}

static int begin_step(struct hb_dispatch *dispatch, struct hb_demand_trial *trial, struct hb_error *error)
{
	switch (trial->step) {
	case STEP_TENANT:
		return start_tenant(trial, &trial->tenant, 0, 0, error);
	case STEP_LIMIT:
		return start_tenant(trial, &trial->limited, SM_PERCENT, trial->probe.sms, error);
	case STEP_LIMITED_WORKER:
		return open_worker(dispatch, trial, SM_PERCENT, error);
	case STEP_WORKER:
		return open_worker(dispatch, trial, 0, error);
	default:
		return 0;
	}
}

/* ---- batches ---- */

static enum hb_demand_mode mode_of(enum demand_step step)
{
	return step == STEP_BESIDE ? HB_DEMAND_COMPUTE : step == STEP_BESIDE_MEMORY ? HB_DEMAND_MEMORY : HB_DEMAND_IDLE;
}

static uint32_t most_items(const struct hb_demand_trial *trial)
{
	return trial->config.max_batch > 1 ? (uint32_t)trial->config.max_batch : 1;
}

static int start_batch(struct hb_demand_trial *trial, int64_t now_ns, struct hb_error *error)
{
	struct hb_demand_probe probe;
	int result = await_tenant(trial, &trial->tenant, &probe, now_ns, error);
	hb_demand_process_set_mode(&trial->tenant, mode_of(trial->step));
	if (result < 0 || !hb_demand_process_runs(&trial->tenant, mode_of(trial->step)))
		return result < 0 ? result : 0;
	trial->disturbed = false;
	trial->gaps = hb_demand_process_gaps(&trial->tenant);
	return hb_demand_batch_start(&trial->batch, &trial->config, &trial->backend,
				     trial->size ? most_items(trial) : 1, hb_clock_now_ns(), error);
}

static double find_least(const double samples[SAMPLES])
{
	double least = samples[0];
	for (int i = 1; i < SAMPLES; i++)
		least = samples[i] < least ? samples[i] : least;
	return least;
}

/* Stores the times of this size, and continues with the next size. Returns 1 after the last size. */
static int complete_size(struct hb_demand_trial *trial)
{
	trial->run_ns[trial->size][trial->step] = find_least(trial->samples[HB_STAGE_RUN]);
	for (int stage = HB_STAGE_IN; stage <= HB_STAGE_OUT && trial->step == STEP_ALONE; stage += 2)
		trial->copy_ns[stage][trial->size] = find_least(trial->samples[stage]);
	trial->n = trial->warm = 0;
	trial->size++;
	if (trial->size == 1 && most_items(trial) > 1)
		return 0;
	trial->size = 0;
	return 1;
}

/* Takes the times of a batch that has ended. */
static int take_result(struct hb_demand_trial *trial, const struct hb_demand_batch_result *result,
		       struct hb_error *error)
{
	if (trial->disturbed || !hb_demand_process_runs(&trial->tenant, mode_of(trial->step))) {
		trial->quiet_ns = 2 * trial->quiet_ns < QUIET_MAX_NS ? 2 * trial->quiet_ns : QUIET_MAX_NS;
		return 0;
	}
	if (!result->complete)
		return hb_error_set(error, -EIO, "a batch of zeros failed: %s", result->why);
	trial->quiet_ns = QUIET_NS;
	if (hb_demand_process_gaps(&trial->tenant) != trial->gaps)
		return 0;
	if (trial->warm++ < WARM_UP)
		return 0;
	for (int stage = 0; stage < HB_STAGES; stage++)
		trial->samples[stage][trial->n] = result->stage_ns[stage];
	memcpy(trial->copies, result->copies, sizeof(trial->copies));
	return ++trial->n == SAMPLES ? complete_size(trial) : 0;
}

/* ---- the result ---- */

static double sum_tensors(const struct hb_tensor_spec *specs, uint32_t n)
{
	double bytes = 0;
	for (uint32_t i = 0; i < n; i++)
		bytes += (double)hb_tensor_spec_bytes(&specs[i]);
	return bytes;
}

/* Returns the bytes of a copy stage, 0 if the worker does not report it. */
static double infer_copy(const struct hb_demand_trial *trial, enum hb_scheduler_stage stage, double tensor_bytes)
{
	int back = stage == HB_STAGE_OUT;
	const struct hb_demand_link link = {trial->probe.latency_ns[back], trial->probe.bytes_per_ns[back]};
	return trial->copies[stage]
		       ? hb_demand_infer_transfer(&link, trial->copy_ns[stage], most_items(trial), tensor_bytes)
		       : 0;
}

static int infer_demand(const struct hb_demand_trial *trial, struct hb_demand *out)
{
	struct hb_demand found = {.in_bytes = 0};
	for (uint32_t size = 0; size < 2; size++) {
		const double *run_ns = trial->run_ns[most_items(trial) > 1 ? size : 0];
		const struct hb_demand_times times = {.alone = run_ns[STEP_ALONE],
						      .limited = run_ns[STEP_LIMITED],
						      .sm_part = trial->sm_part,
						      .beside = run_ns[STEP_BESIDE],
						      .beside_memory = run_ns[STEP_BESIDE_MEMORY]};
		int result = hb_demand_infer(&times, &found.sm[size], &found.memory[size]);
		if (result < 0)
			return result;
	}
	found.in_bytes = infer_copy(trial, HB_STAGE_IN, sum_tensors(trial->config.inputs, trial->config.n_inputs));
	found.out_bytes = infer_copy(trial, HB_STAGE_OUT, sum_tensors(trial->config.outputs, trial->config.n_outputs));
	*out = found;
	return 0;
}

/* Gives the result to all ready models with the same digest: a model may be served with both priorities under two names. */
static void share_measured(struct hb_dispatch *dispatch, const struct hb_demand_record *record)
{
	for (uint32_t i = 0; i < dispatch->n_models; i++) {
		struct hb_served_model *model = dispatch->models[i];
		if (!model->demand.is_wanted || model->demand.digest != record->digest ||
		    model->state != HB_SERVED_MODEL_READY)
			continue;
		model->demand.measured = record->demand;
		model->demand.is_measured = true;
		model->demand.is_wanted = false;
		use_demand(dispatch, model);
	}
}

static int complete_trial(struct hb_dispatch *dispatch, struct hb_error *error)
{
	const struct hb_demand_trial *trial = dispatch->trial;
	struct hb_served_model *model = trial->model;
	struct hb_demand found;
	if (infer_demand(trial, &found) < 0)
		return hb_error_set(error, -EINVAL, "its times are impossible");
	hb_demand_round(&found);
	struct hb_demand_record record = {.digest = model->demand.digest, .demand = found};
	snprintf(record.name, sizeof(record.name), "%s", model->config.name);
	hb_demand_file_save(dispatch->demands_file, &record);
	hb_log_info("model %s: measured sm_share [%.2f, %.2f], memory_share [%.2f, %.2f], transfer [%.0f, %.0f] bytes",
		    model->config.name, found.sm[0], found.sm[1], found.memory[0], found.memory[1], found.in_bytes,
		    found.out_bytes);
	share_measured(dispatch, &record);
	end_trial(dispatch);
	return 0;
}

/* ---- the trial ---- */

/* Continues the step while no batch runs. Returns 1 when it is done. */
static int advance_step(struct hb_dispatch *dispatch, struct hb_demand_trial *trial, int64_t now_ns,
			struct hb_error *error)
{
	int result = trial->begun ? 0 : begin_step(dispatch, trial, error);
	trial->begun = true;
	if (result < 0)
		return result;
	switch (trial->step) {
	case STEP_TENANT:
		return await_tenant(trial, &trial->tenant, &trial->probe, now_ns, error);
	case STEP_LIMIT:
		return find_limit(trial, now_ns, error);
	case STEP_LIMITED_WORKER:
	case STEP_WORKER:
		return await_worker(trial);
	default:
		return start_batch(trial, now_ns, error);
	}
}

static void note_step_done(struct hb_demand_trial *trial, int64_t now_ns)
{
	trial->step++;
	trial->begun = false;
	trial->step_ns = now_ns;
}

/* A request is in the server, or the model is not ready: nothing of the trial may use the GPU. */
static void give_way(struct hb_demand_trial *trial, int64_t now_ns)
{
	trial->busy_ns = now_ns;
	trial->disturbed = true;
	hb_demand_process_set_mode(&trial->tenant, HB_DEMAND_IDLE);
	if (trial->backend.ops)
		hb_demand_batch_cancel(&trial->batch, &trial->backend, now_ns);
}

void hb_demand_expect(struct hb_dispatch *dispatch, int64_t now_ns)
{
	if (dispatch->trial)
		give_way(dispatch->trial, now_ns);
}

/* Takes the events of the worker. Returns 1 when the step is done, 0, or negative errno with *error. */
static int poll_worker(struct hb_demand_trial *trial, int64_t now_ns, struct hb_error *error)
{
	struct hb_demand_batch_result ended;
	if (!trial->backend.ops)
		return 0;
	bool has_ended = hb_demand_batch_poll(&trial->batch, &trial->backend, now_ns, &ended);
	if (is_lost(&trial->backend))
		return hb_error_set(error, -EPIPE, "%s", trial->backend.why_failed);
	return has_ended ? take_result(trial, &ended, error) : 0;
}

/* Returns whether the step consists of batches. */
static bool has_batches(const struct hb_demand_trial *trial)
{
	return trial->step == STEP_LIMITED || trial->step >= STEP_ALONE;
}

static int advance_trial(struct hb_dispatch *dispatch, struct hb_demand_trial *trial, int64_t now_ns,
			 struct hb_error *error)
{
	trial->busy = !is_idle(dispatch) || trial->model->state != HB_SERVED_MODEL_READY;
	if (trial->busy)
		give_way(trial, now_ns);
	int result = poll_worker(trial, now_ns, error);
	if (result == 1)
		note_step_done(trial, now_ns);
	if (result == 0 && has_batches(trial) && now_ns - trial->step_ns > STEP_LIMIT_NS)
		return hb_error_set(error, -ETIMEDOUT, "the GPU or the server was too busy for %d s",
				    (int)(STEP_LIMIT_NS / HB_NS_PER_S));
	if (result < 0 || trial->busy || trial->batch.infer || now_ns - trial->busy_ns < trial->quiet_ns)
		return result < 0 ? result : 0;
	if (trial->step == STEPS)
		return complete_trial(dispatch, error);
	result = advance_step(dispatch, trial, now_ns, error);
	if (result == 1)
		note_step_done(trial, now_ns);
	return result < 0 ? result : 0;
}

void hb_demand_advance(struct hb_dispatch *dispatch, int64_t now_ns)
{
	struct hb_error error = {.text = ""};
	struct hb_served_model *wanted = dispatch->trial ? NULL : find_wanted(dispatch);
	if (wanted)
		begin_trial(dispatch, wanted, now_ns);
	if (!dispatch->trial || advance_trial(dispatch, dispatch->trial, now_ns, &error) == 0)
		return;
	hb_log_warning("model %s: its demand could not be measured: %s", dispatch->trial->config.name, error.text);
	end_trial(dispatch);
}

int64_t hb_demand_next_ns(const struct hb_dispatch *dispatch, int64_t now_ns)
{
	const struct hb_demand_trial *trial = dispatch->trial;
	if (!trial)
		return find_wanted(dispatch) ? now_ns + POLL_NS : INT64_MAX;
	if (!trial->busy)
		return now_ns + POLL_NS;
	/* The end of the last request continues the trial; until then only limits count. */
	int64_t limit_ns = has_batches(trial) ? trial->step_ns + STEP_LIMIT_NS + 1 : INT64_MAX;
	int64_t worker_ns = trial->backend.ops ? trial->backend.ops->next_ns(trial->backend.self) : INT64_MAX;
	return worker_ns < limit_ns ? worker_ns : limit_ns;
}
