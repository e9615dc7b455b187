/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The virtual-time simulator: programs (program.c) on the GPU model, decided by
 * the scheduling core. One run is a loop over the next thing to happen: a
 * program's host thread, the GPU, the core's timer, a hint. Things of one time
 * happen in that order: GPU, core, programs by index; so a run is exact and
 * repeatable.
 */
#include "sim/simulation.h"

#include "base/clock.h"
#include "core/engine_auto_rule.h"
#include "decide/defaults.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define PROGRESS_EVERY_NS INT64_C(500000000)
/* LP alone is strictly periodic: this long shows its pace. */
#define LOW_ALONE_SECONDS 3.0
/* How long each engine is tried by `auto`. */
#define TRIAL_SECONDS 2.0
/* Share of requests within the p99 alone. */
#define AUTO_TARGET_PPM HB_DEFAULT_ATTAINMENT_PPM
/* An overloaded service may take this many times the span of its arrivals to answer them all. */
#define OVERRUN 20

void hb_simulation_span(struct hb_simulation *engine, enum hb_span_kind kind, uint32_t tenant, const char *name,
			int64_t start_ns, int64_t end_ns)
{
	if (end_ns < engine->span_from_ns || start_ns >= engine->span_to_ns)
		return;
	if (engine->n_spans >= engine->options->spans_max) {
		engine->spans_truncated = true;
		return;
	}
	if (engine->n_spans == engine->spans_capacity) {
		size_t capacity = engine->spans_capacity ? 2 * engine->spans_capacity : 4096;
		struct hb_span *grown = realloc(engine->spans, capacity * sizeof *grown);
		if (!grown) {
			engine->failure = -ENOMEM;
			return;
		}
		engine->spans = grown;
		engine->spans_capacity = capacity;
	}
	engine->spans[engine->n_spans++] = (struct hb_span){
		.start_ns = start_ns, .end_ns = end_ns, .name = name, .kind = (uint8_t)kind, .tenant = (uint8_t)tenant};
}

static int open_contexts(struct hb_simulation *engine)
{
	const struct hb_mode *mode = &engine->mode;
	int shared = -1;
	for (uint32_t i = 0; i < engine->n_programs; i++) {
		bool high = i < engine->n_high;
		bool joins = mode->mps || (mode->mps_low && !high);
		struct hb_gpu_model_context params = {
			.slice_ns = high ? mode->high_slice_ns : mode->low_slice_ns,
			.mps = joins,
		};
		/* An MPS server with one client costs as much as with many, but nobody starts one for a single LP tenant. */
		if (mode->mps_low && engine->n_programs - engine->n_high == 1)
			params.mps = false;
		int id = joins && shared >= 0 ? shared : hb_gpu_model_add_context(engine->model, &params);
		if (id < 0)
			return id;
		if (joins)
			shared = id;
		engine->context_of[i] = id;
	}
	return 0;
}

static int add_tenants(struct hb_simulation *engine)
{
	const struct hb_sim_options *options = engine->options;
	engine->programs = calloc(engine->n_programs, sizeof *engine->programs);
	if (!engine->programs)
		return -ENOMEM;
	uint32_t wanted = engine->n_programs;
	engine->n_programs = 0;
	for (uint32_t i = 0; i < wanted; i++) {
		bool high = i < engine->n_high;
		const struct hb_sim_tenant *tenant = high ? &options->high[i] : &options->low[i - engine->n_high];
		engine->n_programs = i + 1;
		int result = hb_program_init(&engine->programs[i], engine, tenant, i, high, engine->error);
		if (result < 0)
			return result;
		struct hb_event event = {.kind = HB_EVENT_TENANT_ADD};
		event.tenant_add.priority = high ? HB_PRIORITY_HIGH : HB_PRIORITY_LOW;
		event.tenant_add.slo_ns = high && tenant->slo_ns > 0 ? tenant->slo_ns : 0;
		event.tenant_add.slo_auto = high && tenant->slo_ns < 0;
		memcpy(event.tenant_add.name.text, tenant->label, sizeof event.tenant_add.name.text - 1);
		hb_simulation_post(engine, &engine->programs[i], &event);
	}
	return engine->failure;
}

static void take_completions(struct hb_simulation *engine)
{
	struct hb_gpu_model_completion done;
	while (hb_gpu_model_pop(engine->model, &done)) {
		struct hb_program *program = &engine->programs[hb_cookie_program(done.cookie)];
		if (done.cookie & HB_COOKIE_TAKEOVER) {
			hb_simulation_span(engine, HB_SPAN_HOLD, program->id, "takeover", done.start_ns, done.end_ns);
			continue;
		}
		const struct hb_gpu_model_work *work = &program->works[hb_cookie_op(done.cookie)];
		bool copy = work->kind == HB_GPU_MODEL_COPY_H2D || work->kind == HB_GPU_MODEL_COPY_D2H;
		hb_simulation_span(engine, copy ? HB_SPAN_COPY : HB_SPAN_KERNEL, program->id,
				   program->tenant->graph ? "graph" : work->name, done.start_ns, done.end_ns);
		hb_program_completed(engine, program, &done);
	}
	struct hb_gpu_model_switch change;
	while (hb_gpu_model_pop_switch(engine->model, &change)) {
		uint32_t tenant = 0;
		for (uint32_t i = engine->n_programs; i-- > 0;)
			if (engine->context_of[i] == change.to_context)
				tenant = i;
		hb_simulation_span(engine, HB_SPAN_SWITCH, tenant, "context switch", change.start_ns, change.end_ns);
	}
}

static int64_t next_ns(const struct hb_simulation *engine)
{
	int64_t next = hb_gpu_model_next_ns(engine->model);
	int64_t core = engine->passive ? INT64_MAX : hb_core_next_wake(engine->core);
	next = core < next ? core : next;
	for (uint32_t i = 0; i < engine->n_programs; i++) {
		const struct hb_program *program = &engine->programs[i];
		int64_t hint = hb_simulation_next_hint_ns(program);
		next = program->wake_ns < next ? program->wake_ns : next;
		next = hint < next ? hint : next;
		int64_t takeover = hb_simulation_next_takeover_ns(program);
		next = takeover < next ? takeover : next;
		next = program->bytes_ns < next ? program->bytes_ns : next;
	}
	return next;
}

static bool requests_left(const struct hb_simulation *engine)
{
	for (uint32_t i = 0; i < engine->n_high; i++) {
		const struct hb_program *program = &engine->programs[i];
		bool waits = program->state == PROGRAM_WAITS_ARRIVAL && program->next_arrival_ns == INT64_MAX;
		if (program->state != PROGRAM_DONE && !waits)
			return true;
	}
	return false;
}

static void report_progress(const struct hb_simulation *engine, int64_t *last_ns)
{
	int64_t now = hb_clock_now_ns();
	if (!engine->options->progress || now - *last_ns < PROGRESS_EVERY_NS)
		return;
	*last_ns = now;
	fprintf(stderr, "%s: %.1f of %.1f s simulated\n", engine->mode.name, (double)engine->now_ns / 1e9,
		(double)engine->end_ns / 1e9);
}

static void step_program(struct hb_simulation *engine, struct hb_program *program)
{
	if (hb_simulation_next_takeover_ns(program) <= engine->now_ns)
		hb_simulation_step_takeover(engine, program);
	if (program->bytes_ns <= engine->now_ns)
		hb_simulation_report_bytes(engine, program);
	if (hb_simulation_next_hint_ns(program) <= engine->now_ns)
		hb_simulation_give_hints(engine, program);
	if (program->wake_ns <= engine->now_ns)
		hb_program_step(engine, program);
}

static int run_loop(struct hb_simulation *engine)
{
	int64_t told_ns = hb_clock_now_ns();
	uint32_t count = 0;
	for (;;) {
		int64_t next = next_ns(engine);
		if (next > engine->end_ns && (!requests_left(engine) || next == INT64_MAX))
			break;
		if (next > OVERRUN * engine->end_ns)
			break;
		engine->now_ns = next > engine->now_ns ? next : engine->now_ns;
		hb_gpu_model_advance(engine->model, engine->now_ns);
		take_completions(engine);
		if (!engine->passive && hb_core_next_wake(engine->core) <= engine->now_ns)
			hb_simulation_step_core(engine);
		for (uint32_t i = 0; i < engine->n_programs; i++) {
			struct hb_program *program = &engine->programs[i];
			step_program(engine, program);
		}
		if (engine->failure)
			return engine->failure;
		if ((++count & 0xffff) == 0)
			report_progress(engine, &told_ns);
	}
	if (engine->now_ns < engine->end_ns)
		engine->now_ns = engine->end_ns;
	hb_gpu_model_advance(engine->model, engine->now_ns);
	return 0;
}

static int by_value(const void *a, const void *b)
{
	int64_t left = *(const int64_t *)a, right = *(const int64_t *)b;
	return (left > right) - (left < right);
}

static int64_t percentile(const int64_t *sorted, size_t n, double share)
{
	size_t at = (size_t)((double)n * share);
	return n ? sorted[at < n ? at : n - 1] : 0;
}

static void fill_high(struct hb_sim_high *out, struct hb_program *program)
{
	qsort(program->latency_ns, program->n_latency, sizeof *program->latency_ns, by_value);
	snprintf(out->workload, sizeof out->workload, "%s", program->tenant->label);
	out->rate_per_s = program->arrivals ? hb_arrivals_rate_per_s(program->arrivals) : 0;
	out->requests = program->n_latency;
	out->latency_ns = program->latency_ns;
	program->latency_ns = NULL;
	out->p50_ns = percentile(out->latency_ns, out->requests, 0.5);
	out->p90_ns = percentile(out->latency_ns, out->requests, 0.9);
	out->p99_ns = percentile(out->latency_ns, out->requests, 0.99);
	out->max_ns = out->requests ? out->latency_ns[out->requests - 1] : 0;
}

/* Whole iterations over the time they took; a part of one where none was finished. */
static double low_rate(const struct hb_simulation *engine, const struct hb_program *program)
{
	double span = (double)(program->last_end_ns - program->begun_ns) / 1e9;
	if (program->iterations && span > 0)
		return (double)program->iterations / span;
	double part = (double)program->op / program->workload->iterations[program->iteration].n_ops;
	return part / ((double)engine->now_ns / 1e9);
}

static void fill_result(struct hb_simulation *engine, struct hb_sim_result *result)
{
	*result = (struct hb_sim_result){
		.seconds = engine->options->seconds,
		.seed = engine->options->seed,
		.n_high = engine->n_high,
		.n_low = engine->n_programs - engine->n_high,
	};
	memcpy(result->gpu, engine->spec.name, sizeof result->gpu);
	memcpy(result->sharing, engine->mode.name, sizeof result->sharing);
	for (uint32_t i = 0; i < engine->n_high; i++)
		fill_high(&result->high[i], &engine->programs[i]);
	for (uint32_t i = engine->n_high; i < engine->n_programs; i++) {
		struct hb_sim_low *low = &result->low[i - engine->n_high];
		snprintf(low->workload, sizeof low->workload, "%s", engine->programs[i].tenant->label);
		low->iterations_per_s = low_rate(engine, &engine->programs[i]);
	}
	if (engine->now_ns > 0)
		result->gpu_busy = (double)hb_gpu_model_busy_ns(engine->model) / (double)engine->now_ns;
	result->spans = engine->spans;
	result->n_spans = engine->n_spans;
	result->spans_truncated = engine->spans_truncated;
	engine->spans = NULL;
}

static int set_up(struct hb_simulation *engine)
{
	engine->model = hb_gpu_model_new(&engine->spec);
	if (!engine->model)
		return -ENOMEM;
	int result = hb_simulation_open_core(engine);
	if (!result)
		result = open_contexts(engine);
	return result ? result : add_tenants(engine);
}

/* All tenants of `options` together under one mode; nothing about baselines. */
static int run_once(const struct hb_sim_options *options, const struct hb_mode *mode, const struct hb_gpu_spec *spec,
		    struct hb_sim_result *result, struct hb_error *error)
{
	struct hb_simulation engine = {
		.options = options,
		.mode = *mode,
		.spec = *spec,
		.error = error,
		.n_high = options->n_high,
		.n_programs = options->n_high + options->n_low,
		.end_ns = options->lead_ns + (int64_t)(options->seconds * 1e9),
		.span_from_ns = options->spans_from_ns,
		.span_to_ns = options->spans_to_ns,
	};
	int code = set_up(&engine);
	if (!code)
		code = run_loop(&engine);
	if (!code)
		fill_result(&engine, result);
	for (uint32_t i = 0; engine.programs && i < engine.n_programs; i++)
		hb_program_fini(&engine.programs[i]);
	free(engine.programs);
	free(engine.spans);
	hb_core_free(engine.core);
	hb_gpu_model_free(engine.model);
	return code;
}

static void set_attainment(struct hb_sim_high *high, int64_t slo_ns)
{
	uint64_t met = 0;
	high->slo_ns = slo_ns;
	for (; met < high->requests && slo_ns && high->latency_ns[met] <= slo_ns;)
		met++;
	high->attainment = slo_ns && high->requests ? (double)met / (double)high->requests : 1;
}

/* One tenant by itself: what SLOs and relative speeds refer to. */
static int run_alone(const struct hb_sim_options *options, const struct hb_gpu_spec *spec, bool high, uint32_t index,
		     struct hb_sim_result *result, struct hb_error *error)
{
	struct hb_mode native;
	hb_mode_parse("timeslice", &native, NULL);
	struct hb_sim_options alone = *options;
	alone.n_high = high;
	alone.n_low = !high;
	if (high)
		alone.high[0] = options->high[index];
	else
		alone.low[0] = options->low[index];
	if (!high && alone.seconds > LOW_ALONE_SECONDS)
		alone.seconds = LOW_ALONE_SECONDS;
	/* The same arrivals as among the others: see hb_program_init(). */
	alone.seed = options->seed + (high ? index : 0);
	return run_once(&alone, &native, spec, result, error);
}

static int compare_with_alone(const struct hb_sim_options *options, const struct hb_gpu_spec *spec,
			      struct hb_sim_result *result, struct hb_error *error)
{
	for (uint32_t i = 0; i < result->n_high; i++) {
		int64_t slo = options->high[i].slo_ns;
		if (slo < 0) {
			struct hb_sim_result alone;
			int code = run_alone(options, spec, true, i, &alone, error);
			if (code)
				return code;
			slo = alone.high[0].p99_ns;
			hb_sim_result_fini(&alone);
		}
		set_attainment(&result->high[i], slo);
	}
	for (uint32_t i = 0; i < result->n_low; i++) {
		struct hb_sim_result alone;
		int code = run_alone(options, spec, false, i, &alone, error);
		if (code)
			return code;
		result->low[i].relative = result->low[i].iterations_per_s / alone.low[0].iterations_per_s;
		hb_sim_result_fini(&alone);
	}
	return 0;
}

/* Each tenant on a GPU of its own. */
static int run_exclusive(const struct hb_sim_options *options, const struct hb_mode *mode,
			 const struct hb_gpu_spec *spec, struct hb_sim_result *result, struct hb_error *error)
{
	struct hb_sim_result sum = {.seconds = options->seconds, .seed = options->seed};
	memcpy(sum.gpu, spec->name, sizeof sum.gpu);
	memcpy(sum.sharing, mode->name, sizeof sum.sharing);
	uint32_t tenants = options->n_high + options->n_low;
	for (uint32_t i = 0; i < tenants; i++) {
		bool high = i < options->n_high;
		struct hb_sim_result one;
		int code = run_alone(options, spec, high, high ? i : i - options->n_high, &one, error);
		if (code) {
			hb_sim_result_fini(&sum);
			return code;
		}
		if (high)
			sum.high[sum.n_high++] = one.high[0];
		else
			sum.low[sum.n_low++] = one.low[0];
		sum.gpu_busy += one.gpu_busy / tenants;
		one.n_high = 0; /* its latencies are ours now */
		if (i == 0) {
			sum.spans = one.spans;
			sum.n_spans = one.n_spans;
			sum.spans_truncated = one.spans_truncated;
			one.spans = NULL;
		}
		hb_sim_result_fini(&one);
	}
	*result = sum;
	return 0;
}

static uint32_t share_ppm(double share)
{
	return share > 0 ? (uint32_t)(share * 1e6 + 0.5) : 0;
}

/* One life under an engine; what it showed is noted. */
static int try_engine(const struct hb_sim_options *options, const struct hb_gpu_spec *spec, const char *const names[],
		      enum hb_choose_engine engine, struct hb_choose *choose, struct hb_error *error)
{
	struct hb_sim_options life = *options;
	struct hb_sim_result result;
	struct hb_mode mode;
	double attainment = 1, low = 0;
	if (life.seconds > TRIAL_SECONDS)
		life.seconds = TRIAL_SECONDS;
	life.spans_max = 0;
	hb_mode_parse(names[engine], &mode, NULL);
	int code = run_once(&life, &mode, spec, &result, error);
	if (code)
		return code;
	code = compare_with_alone(&life, spec, &result, error);
	for (uint32_t i = 0; i < result.n_high; i++)
		attainment = result.high[i].attainment < attainment ? result.high[i].attainment : attainment;
	for (uint32_t i = 0; i < result.n_low; i++)
		low += result.low[i].relative;
	if (!code)
		hb_choose_note(choose, engine, share_ppm(attainment), share_ppm(low), AUTO_TARGET_PPM);
	hb_sim_result_fini(&result);
	return code;
}

/* A life under each engine, then the one that was better. */
static int run_auto(const struct hb_sim_options *options, const struct hb_gpu_spec *spec, struct hb_sim_result *result,
		    struct hb_error *error)
{
	static const char *const names[] = {[HB_CHOOSE_TEMPORAL] = "temporal", [HB_CHOOSE_SPATIAL] = "spatial"};
	struct hb_choose choose = {0};
	struct hb_mode mode;
	for (uint32_t i = 0; i < HB_CHOOSE_ENGINES; i++) {
		enum hb_choose_engine engine = hb_choose_next(&choose, AUTO_TARGET_PPM, true);
		int code = try_engine(options, spec, names, engine, &choose, error);
		if (code)
			return code;
	}
	const char *chosen = names[hb_choose_next(&choose, AUTO_TARGET_PPM, true)];
	hb_mode_parse(chosen, &mode, NULL);
	int code = run_once(options, &mode, spec, result, error);
	if (!code)
		snprintf(result->sharing, sizeof result->sharing, "auto:%s", chosen);
	return code;
}

static int by_start(const void *a, const void *b)
{
	const struct hb_span *left = a, *right = b;
	if (left->start_ns != right->start_ns)
		return left->start_ns < right->start_ns ? -1 : 1;
	return (left->kind > right->kind) - (left->kind < right->kind);
}

static int check(const struct hb_sim_options *options, struct hb_error *error)
{
	if (options->n_high + options->n_low == 0)
		return hb_error_set(error, -EINVAL, "no tenant: give at least one --high or --low");
	if (options->n_high > HB_SIM_TENANTS_MAX || options->n_low > HB_SIM_TENANTS_MAX)
		return hb_error_set(error, -EINVAL, "more than %d tenants of one priority", HB_SIM_TENANTS_MAX);
	if (!(options->seconds > 0) || options->seconds > 1e6)
		return hb_error_set(error, -EINVAL, "seconds must be above 0 and at most 1000000, not %g",
				    options->seconds);
	if (options->lead_ns < 0)
		return hb_error_set(error, -EINVAL, "the lead must not be negative");
	if (!(options->host_noise >= 0))
		return hb_error_set(error, -EINVAL, "the host's noise must not be negative");
	return 0;
}

int hb_sim_run(const struct hb_sim_options *options, struct hb_sim_result *result, struct hb_error *error)
{
	struct hb_mode mode;
	struct hb_gpu_spec spec;
	struct hb_sim_result made;
	int64_t begun_ns = hb_clock_now_ns();
	int code = check(options, error);
	if (!code)
		code = hb_mode_parse(options->sharing, &mode, error);
	if (!code)
		code = hb_gpu_spec_load(options->gpu ? options->gpu : "h200", &spec, error);
	if (code)
		return code;
	if (mode.automatic)
		code = run_auto(options, &spec, &made, error);
	else if (mode.exclusive)
		code = run_exclusive(options, &mode, &spec, &made, error);
	else
		code = run_once(options, &mode, &spec, &made, error);
	if (code) {
		if (error && code == -ENOMEM)
			hb_error_set(error, code, "out of memory");
		return code;
	}
	code = compare_with_alone(options, &spec, &made, error);
	if (code) {
		hb_sim_result_fini(&made);
		return code;
	}
	if (made.n_spans)
		qsort(made.spans, made.n_spans, sizeof *made.spans, by_start);
	made.wall_s = (double)(hb_clock_now_ns() - begun_ns) / 1e9;
	*result = made;
	return 0;
}
