/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The virtual-time simulator: programs (program.c) on the GPU model, scheduled by the
 * core and by the modules of src/decide. A run is a loop over the next event of the
 * GPU, of the core's timers, or of a program (its host thread, a sign, its takeover
 * thread). Events of one time happen in this order: GPU, core, programs by index. So
 * a run is exact and repeatable.
 */
#include "sim/simulation.h"

#include "base/clock.h"
#include "core/engine_auto_rule.h"
#include "decide/defaults.h"
#include "sim/intervals.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define PROGRESS_EVERY_NS INT64_C(500000000)
/* An LP program alone is strictly periodic, so a short run shows its speed. */
#define LOW_ALONE_SECONDS 3.0
/* Length of the trial of each engine in mode `auto`. */
#define TRIAL_SECONDS 2.0
/* Share of requests that have to be within the p99 alone. */
#define AUTO_TARGET_PPM HB_DEFAULT_ATTAINMENT_PPM
/* An overloaded service gets this many times the span of its arrivals to serve them all. */
#define OVERRUN 20

void hb_simulation_span(struct hb_simulation *simulation, enum hb_span_kind kind, uint32_t tenant, const char *name,
			int64_t start_ns, int64_t end_ns)
{
	if (end_ns < simulation->span_from_ns || start_ns >= simulation->span_to_ns)
		return;
	if (simulation->n_spans >= simulation->options->spans_max) {
		simulation->spans_truncated = true;
		return;
	}
	if (simulation->n_spans == simulation->spans_capacity) {
		size_t capacity = simulation->spans_capacity ? 2 * simulation->spans_capacity : 4096;
		struct hb_span *grown = realloc(simulation->spans, capacity * sizeof *grown);
		if (!grown) {
			simulation->failure = -ENOMEM;
			return;
		}
		simulation->spans = grown;
		simulation->spans_capacity = capacity;
	}
	simulation->spans[simulation->n_spans++] = (struct hb_span){
		.start_ns = start_ns, .end_ns = end_ns, .name = name, .kind = (uint8_t)kind, .tenant = (uint8_t)tenant};
}

static int open_contexts(struct hb_simulation *simulation)
{
	const struct hb_mode *mode = &simulation->mode;
	int shared = -1;
	for (uint32_t i = 0; i < simulation->n_programs; i++) {
		bool high = i < simulation->n_high;
		bool joins = mode->mps || (mode->mps_low && !high);
		struct hb_gpu_model_context params = {
			.slice_ns = high ? mode->high_slice_ns : mode->low_slice_ns,
			.mps = joins,
		};
		/* A single LP tenant gets no MPS server, as in the daemon. */
		if (mode->mps_low && simulation->n_programs - simulation->n_high == 1)
			params.mps = false;
		int id = joins && shared >= 0 ? shared : hb_gpu_model_add_context(simulation->model, &params);
		if (id < 0)
			return id;
		if (joins)
			shared = id;
		simulation->context_of[i] = id;
	}
	return 0;
}

static int add_tenants(struct hb_simulation *simulation)
{
	const struct hb_sim_options *options = simulation->options;
	simulation->programs = calloc(simulation->n_programs, sizeof *simulation->programs);
	if (!simulation->programs)
		return -ENOMEM;
	uint32_t wanted = simulation->n_programs;
	simulation->n_programs = 0;
	for (uint32_t i = 0; i < wanted; i++) {
		bool high = i < simulation->n_high;
		const struct hb_sim_tenant *tenant = high ? &options->high[i] : &options->low[i - simulation->n_high];
		simulation->n_programs = i + 1;
		int result = hb_program_init(&simulation->programs[i], simulation, tenant, i, high, simulation->error);
		if (result < 0)
			return result;
		struct hb_event event = {.kind = HB_EVENT_TENANT_ADD};
		event.tenant_add.priority = high ? HB_PRIORITY_HIGH : HB_PRIORITY_LOW;
		event.tenant_add.slo_ns = high && tenant->slo_ns > 0 ? tenant->slo_ns : 0;
		event.tenant_add.slo_auto = high && tenant->slo_ns < 0;
		event.tenant_add.weight = tenant->weight;
		event.tenant_add.copy_weight = tenant->copy_weight;
		memcpy(event.tenant_add.name.text, tenant->label, sizeof event.tenant_add.name.text - 1);
		hb_simulation_post(simulation, &simulation->programs[i], &event);
	}
	return simulation->failure;
}

static void take_completions(struct hb_simulation *simulation)
{
	struct hb_gpu_model_completion done;
	while (hb_gpu_model_pop(simulation->model, &done)) {
		struct hb_program *program = &simulation->programs[hb_cookie_program(done.cookie)];
		if (done.cookie & HB_COOKIE_TAKEOVER) {
			hb_simulation_span(simulation, HB_SPAN_TAKEOVER, program->id, "takeover", done.start_ns,
					   done.end_ns);
			continue;
		}
		const struct hb_gpu_model_work *work = &program->works[hb_cookie_op(done.cookie)];
		bool copy = work->kind == HB_GPU_MODEL_COPY_H2D || work->kind == HB_GPU_MODEL_COPY_D2H;
		hb_simulation_span(simulation, copy ? HB_SPAN_COPY : HB_SPAN_KERNEL, program->id,
				   program->graph ? "graph" : work->name, done.start_ns, done.end_ns);
		hb_program_completed(simulation, program, &done);
	}
	struct hb_gpu_model_switch change;
	while (hb_gpu_model_pop_switch(simulation->model, &change)) {
		uint32_t tenant = 0;
		for (uint32_t i = simulation->n_programs; i-- > 0;)
			if (simulation->context_of[i] == change.to_context)
				tenant = i;
		hb_simulation_span(simulation, HB_SPAN_SWITCH, tenant, "context switch", change.start_ns,
				   change.end_ns);
	}
}

static int64_t next_ns(const struct hb_simulation *simulation)
{
	int64_t next = hb_gpu_model_next_ns(simulation->model);
	int64_t core = simulation->passive ? INT64_MAX : hb_core_next_wake(simulation->core);
	next = core < next ? core : next;
	for (uint32_t i = 0; i < simulation->n_programs; i++) {
		const struct hb_program *program = &simulation->programs[i];
		int64_t hint = hb_simulation_next_hint_ns(program);
		next = program->wake_ns < next ? program->wake_ns : next;
		next = hint < next ? hint : next;
		int64_t takeover = hb_simulation_next_takeover_ns(program);
		next = takeover < next ? takeover : next;
		next = program->bytes_ns < next ? program->bytes_ns : next;
	}
	return next;
}

static bool requests_left(const struct hb_simulation *simulation)
{
	for (uint32_t i = 0; i < simulation->n_high; i++) {
		const struct hb_program *program = &simulation->programs[i];
		bool waits = program->state == PROGRAM_WAITS_ARRIVAL && program->next_arrival_ns == INT64_MAX;
		if (program->state != PROGRAM_DONE && !waits)
			return true;
	}
	return false;
}

static void report_progress(const struct hb_simulation *simulation, int64_t *last_ns)
{
	int64_t now = hb_clock_now_ns();
	if (!simulation->options->progress || now - *last_ns < PROGRESS_EVERY_NS)
		return;
	*last_ns = now;
	fprintf(stderr, "%s: %.1f of %.1f s simulated\n", simulation->mode.name, (double)simulation->now_ns / 1e9,
		(double)simulation->end_ns / 1e9);
}

static void step_program(struct hb_simulation *simulation, struct hb_program *program)
{
	if (hb_simulation_next_takeover_ns(program) <= simulation->now_ns)
		hb_simulation_step_takeover(simulation, program);
	if (program->bytes_ns <= simulation->now_ns)
		hb_simulation_report_bytes(simulation, program);
	if (hb_simulation_next_hint_ns(program) <= simulation->now_ns)
		hb_simulation_give_hints(simulation, program);
	if (program->wake_ns <= simulation->now_ns)
		hb_program_step(simulation, program);
}

static int run_loop(struct hb_simulation *simulation)
{
	int64_t reported_ns = hb_clock_now_ns();
	uint32_t count = 0;
	for (;;) {
		int64_t next = next_ns(simulation);
		if (next > simulation->end_ns && (!requests_left(simulation) || next == INT64_MAX))
			break;
		if (next > OVERRUN * simulation->end_ns)
			break;
		simulation->now_ns = next > simulation->now_ns ? next : simulation->now_ns;
		hb_gpu_model_advance(simulation->model, simulation->now_ns);
		take_completions(simulation);
		if (!simulation->passive && hb_core_next_wake(simulation->core) <= simulation->now_ns)
			hb_simulation_step_core(simulation);
		for (uint32_t i = 0; i < simulation->n_programs; i++) {
			struct hb_program *program = &simulation->programs[i];
			step_program(simulation, program);
		}
		if (simulation->failure)
			return simulation->failure;
		if ((++count & 0xffff) == 0)
			report_progress(simulation, &reported_ns);
	}
	if (simulation->now_ns < simulation->end_ns)
		simulation->now_ns = simulation->end_ns;
	hb_gpu_model_advance(simulation->model, simulation->now_ns);
	return 0;
}

static int compare_values(const void *a, const void *b)
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
	qsort(program->latency_ns, program->n_latency, sizeof *program->latency_ns, compare_values);
	snprintf(out->workload, sizeof out->workload, "%s", program->tenant->label);
	out->rate_per_s = program->closed ? 0 : hb_arrivals_rate_per_s(program->arrivals.of[0]);
	out->requests = program->n_latency;
	out->latency_ns = program->latency_ns;
	program->latency_ns = NULL;
	out->end_ns = program->end_ns;
	program->end_ns = NULL;
	out->p50_ns = percentile(out->latency_ns, out->requests, 0.5);
	out->p90_ns = percentile(out->latency_ns, out->requests, 0.9);
	out->p99_ns = percentile(out->latency_ns, out->requests, 0.99);
	out->max_ns = out->requests ? out->latency_ns[out->requests - 1] : 0;
	out->attainment = program->judged ? (double)program->met / (double)program->judged : 1;
}

/* Complete iterations per second; a part of one if none was completed. */
static double low_rate(const struct hb_simulation *simulation, const struct hb_program *program)
{
	double span = (double)(program->last_end_ns - program->begun_ns) / 1e9;
	if (program->iterations && span > 0)
		return (double)program->iterations / span;
	double part = (double)program->op / program->workload->iterations[program->iteration].n_ops;
	return part / ((double)simulation->now_ns / 1e9);
}

static int fill_intervals(struct hb_simulation *simulation, struct hb_sim_result *result)
{
	int code = hb_intervals_init(result, simulation->options);
	const struct hb_program *high = &simulation->programs[0];
	if (!code && simulation->n_high)
		code = hb_intervals_add_high(result, simulation->options, high->latency_ns, high->end_ns,
					     high->n_latency);
	for (uint32_t i = 0; i < result->n_low; i++) {
		struct hb_program *low = &simulation->programs[simulation->n_high + i];
		result->low[i].busy_ns = low->busy_ns;
		low->busy_ns = NULL;
	}
	return code;
}

static int fill_result(struct hb_simulation *simulation, struct hb_sim_result *result)
{
	*result = (struct hb_sim_result){
		.seconds = simulation->options->seconds,
		.seed = simulation->options->seed,
		.n_high = simulation->n_high,
		.n_low = simulation->n_programs - simulation->n_high,
	};
	memcpy(result->gpu, simulation->spec.name, sizeof result->gpu);
	memcpy(result->sharing, simulation->mode.name, sizeof result->sharing);
	int code = fill_intervals(simulation, result); /* before the latencies are sorted */
	for (uint32_t i = 0; i < simulation->n_high; i++)
		fill_high(&result->high[i], &simulation->programs[i]);
	for (uint32_t i = simulation->n_high; i < simulation->n_programs; i++) {
		struct hb_sim_low *low = &result->low[i - simulation->n_high];
		snprintf(low->workload, sizeof low->workload, "%s", simulation->programs[i].tenant->label);
		low->iterations_per_s = low_rate(simulation, &simulation->programs[i]);
	}
	if (simulation->now_ns > 0)
		result->gpu_busy = (double)hb_gpu_model_busy_ns(simulation->model) / (double)simulation->now_ns;
	result->spans = simulation->spans;
	result->n_spans = simulation->n_spans;
	result->spans_truncated = simulation->spans_truncated;
	simulation->spans = NULL;
	return code;
}

static int set_up_simulation(struct hb_simulation *simulation)
{
	simulation->model = hb_gpu_model_new(&simulation->spec);
	if (!simulation->model)
		return -ENOMEM;
	int result = hb_simulation_open_core(simulation);
	if (!result)
		result = open_contexts(simulation);
	return result ? result : add_tenants(simulation);
}

/* Runs all tenants of `options` together in one mode. */
static int run_once(const struct hb_sim_options *options, const struct hb_mode *mode, const struct hb_gpu_spec *spec,
		    struct hb_sim_result *result, struct hb_error *error)
{
	struct hb_simulation simulation = {
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
	int code = set_up_simulation(&simulation);
	if (!code)
		code = run_loop(&simulation);
	if (!code && (code = fill_result(&simulation, result)))
		hb_sim_result_fini(result);
	for (uint32_t i = 0; simulation.programs && i < simulation.n_programs; i++)
		hb_program_fini(&simulation.programs[i]);
	free(simulation.programs);
	free(simulation.spans);
	hb_core_free(simulation.core);
	hb_gpu_model_free(simulation.model);
	return code;
}

/* Computes the attainment of a learned SLO, which applies to each request. */
static void set_attainment(struct hb_sim_high *high)
{
	uint64_t met = 0;
	for (; met < high->requests && high->slo_ns && high->latency_ns[met] <= high->slo_ns;)
		met++;
	high->attainment = high->slo_ns && high->requests ? (double)met / (double)high->requests : 1;
}

/* Runs one tenant alone; SLOs and relative speeds refer to this run. */
static int run_alone(const struct hb_sim_options *options, const struct hb_gpu_spec *spec, bool high, uint32_t index,
		     struct hb_sim_result *result, struct hb_error *error)
{
	struct hb_mode native;
	hb_mode_parse("timeslice", &native, NULL);
	struct hb_sim_options alone = *options;
	alone.n_high = high;
	alone.n_low = !high;
	alone.interval_ns = 0;
	if (high) {
		alone.high[0] = options->high[index];
	} else {
		alone.low[0] = options->low[index];
		alone.low[0].host_percent = 0; /* alone, all of its memory fits */
	}
	if (!high && alone.seconds > LOW_ALONE_SECONDS)
		alone.seconds = LOW_ALONE_SECONDS;
	/* The same arrivals as among the others: see hb_program_init(). */
	alone.seed = options->seed + (high ? index : 0);
	return run_once(&alone, &native, spec, result, error);
}

/* GPU time of a mean iteration. */
static double busy_of_iteration(const struct hb_workload *workload)
{
	double busy_ns = 0;
	for (uint32_t op = 0; op < workload->n_ops; op++)
		busy_ns += (double)workload->ops[op].duration_ns;
	return busy_ns / workload->n_iterations;
}

static int compare_with_alone(const struct hb_sim_options *options, const struct hb_gpu_spec *spec,
			      struct hb_sim_result *result, struct hb_error *error)
{
	for (uint32_t i = 0; i < result->n_high; i++) {
		struct hb_sim_high *high = &result->high[i];
		high->slo_ns = options->high[i].slo_ns;
		if (high->slo_ns >= 0)
			continue;
		struct hb_sim_result alone;
		int code = run_alone(options, spec, true, i, &alone, error);
		if (code)
			return code;
		high->slo_ns = alone.high[0].p99_ns;
		hb_sim_result_fini(&alone);
		set_attainment(high);
	}
	for (uint32_t i = 0; i < result->n_low; i++) {
		struct hb_sim_result alone;
		int code = run_alone(options, spec, false, i, &alone, error);
		if (code)
			return code;
		result->low[i].relative = result->low[i].iterations_per_s / alone.low[0].iterations_per_s;
		if (result->n_intervals)
			hb_intervals_add_low(result, options, result->low[i].busy_ns,
					     alone.low[0].iterations_per_s *
						     busy_of_iteration(options->low[i].workload));
		hb_sim_result_fini(&alone);
	}
	return 0;
}

/* Runs each tenant on a GPU of its own. */
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
		one.n_high = 0; /* `sum` owns its latencies now */
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

/* Tries an engine in a short run and records the result. */
static int try_engine(const struct hb_sim_options *options, const struct hb_gpu_spec *spec, const char *const names[],
		      enum hb_engine_auto_choice engine, struct hb_choose *choose, struct hb_error *error)
{
	struct hb_sim_options trial = *options;
	struct hb_sim_result result;
	struct hb_mode mode;
	double attainment = 1, low = 0;
	if (trial.seconds > TRIAL_SECONDS)
		trial.seconds = TRIAL_SECONDS;
	trial.spans_max = 0;
	hb_mode_parse(names[engine], &mode, NULL);
	int code = run_once(&trial, &mode, spec, &result, error);
	if (code)
		return code;
	code = compare_with_alone(&trial, spec, &result, error);
	for (uint32_t i = 0; i < result.n_high; i++)
		attainment = result.high[i].attainment < attainment ? result.high[i].attainment : attainment;
	for (uint32_t i = 0; i < result.n_low; i++)
		low += result.low[i].relative;
	if (!code)
		hb_engine_auto_note(choose, engine, share_ppm(attainment), share_ppm(low), AUTO_TARGET_PPM, false);
	hb_sim_result_fini(&result);
	return code;
}

/* A trial under each simulation, then the one that was better. */
static int run_auto(const struct hb_sim_options *options, const struct hb_gpu_spec *spec, struct hb_sim_result *result,
		    struct hb_error *error)
{
	static const char *const names[] = {
		[HB_ENGINE_AUTO_TEMPORAL] = "temporal", [HB_ENGINE_AUTO_SPATIAL] = "spatial"};
	struct hb_choose choose = {0};
	struct hb_mode mode;
	for (uint32_t i = 0; i < HB_ENGINE_AUTO_ENGINES; i++) {
		enum hb_engine_auto_choice engine = hb_engine_auto_next(&choose, AUTO_TARGET_PPM, true);
		int code = try_engine(options, spec, names, engine, &choose, error);
		if (code)
			return code;
	}
	const char *chosen = names[hb_engine_auto_next(&choose, AUTO_TARGET_PPM, true)];
	hb_mode_parse(chosen, &mode, NULL);
	int code = run_once(options, &mode, spec, result, error);
	if (!code)
		snprintf(result->sharing, sizeof result->sharing, "auto:%s", chosen);
	return code;
}

static int compare_starts(const void *a, const void *b)
{
	const struct hb_span *left = a, *right = b;
	if (left->start_ns != right->start_ns)
		return left->start_ns < right->start_ns ? -1 : 1;
	return (left->kind > right->kind) - (left->kind < right->kind);
}

static int check_options(const struct hb_sim_options *options, struct hb_error *error)
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
	int code = check_options(options, error);
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
		qsort(made.spans, made.n_spans, sizeof *made.spans, compare_starts);
	made.wall_s = (double)(hb_clock_now_ns() - begun_ns) / 1e9;
	*result = made;
	return 0;
}
