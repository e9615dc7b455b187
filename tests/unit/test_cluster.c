/* SPDX-License-Identifier: Apache-2.0 */
/* The replay of a cluster: what it counts for pods whose outcome is known, and the order of its events. */
#include "base/rng.h"
#include "cluster/cluster_sim.h"
#include "cluster/event_heap.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#define HOUR_S 3600.0
#define OURS (&hb_cluster_rules[HB_CLUSTER_RULES - 1])
#define EXCLUSIVE (&hb_cluster_rules[0])

static const double idle[HB_DUTY_STEPS];

/* Each service loses 0.01, or 0.2 beside LLM training; jobs run at 0.5 of alone. */
static const struct hb_pair_model model = {
	.n = 2,
	.rows = {{.measured = true, .sharing = HB_PAIR_TEMPORAL, .low = HB_PAIR_TRAINING, .loss = 0.01, .speed = 0.5},
		 {.measured = true,
		  .sharing = HB_PAIR_SPATIAL,
		  .low = HB_PAIR_LLM_TRAINING,
		  .loss = 0.2,
		  .speed = 0.5}},
};

static struct hb_pod service(double created_s, double run_s)
{
	return (struct hb_pod){
		.created_s = created_s, .run_s = run_s, .n_gpus = 1, .milli = 1000, .class = HB_POD_HIGH};
}

static struct hb_pod job(double created_s, double run_s)
{
	return (struct hb_pod){.created_s = created_s, .run_s = run_s, .n_gpus = 1, .milli = 500, .class = HB_POD_LOW};
}

static struct hb_pod whole(double created_s, double run_s, uint16_t n_gpus)
{
	return (struct hb_pod){.created_s = created_s, .run_s = run_s, .n_gpus = n_gpus, .class = HB_POD_WHOLE};
}

static struct hb_cluster_result run(struct hb_pod *list, uint32_t n, const struct hb_cluster_rule *rule,
				    enum hb_cluster_arrivals arrivals, uint32_t n_gpus, double most_loss, double truth)
{
	struct hb_pods pods = {.pods = list, .n = n};
	struct hb_cluster_setup setup = {.pods = &pods,
					 .duty = idle,
					 .model = &model,
					 .rule = rule,
					 .arrivals = arrivals,
					 .n_gpus = n_gpus,
					 .most_loss = most_loss,
					 .duty_factor = 1,
					 .truth = truth};
	struct hb_cluster_result result;
	struct hb_error error;
	assert_int_equal(hb_cluster_run(&setup, &result, &error), 0);
	return result;
}

static void assert_near(double a, double b)
{
	if (fabs(a - b) > 1e-9)
		fail_msg("%.12f is not %.12f", a, b);
}

/* A job of an hour beside a service of an hour does half of its work there, and the rest alone at full speed. */
static void a_job_speeds_up_when_the_service_ends(void **state)
{
	struct hb_pod pods[] = {service(0, HOUR_S), job(0, HOUR_S)};
	struct hb_cluster_result r = run(pods, 2, OURS, HB_CLUSTER_RECORDED, 0, 0.05, 1);
	assert_int_equal(r.gpus, 1);
	assert_near(r.gpu_hours, 1.5);
	assert_near(r.harvested_hours, 0.5);
	assert_near(r.low_hours, 1);
	assert_near(r.completion_mean, 1.5);
	/* Both ways of sharing are as fast here, but only one stays within the bound. */
	assert_near(r.loss, 0.01);
	assert_int_equal(r.shared_high, 1);
	(void)state;
}

/* The service lost 0.01 in the quarter of its life in which the job ran. */
static void a_loss_counts_while_they_share(void **state)
{
	struct hb_pod pods[] = {service(0, 2 * HOUR_S), job(HOUR_S, HOUR_S / 4)};
	struct hb_cluster_result r = run(pods, 2, OURS, HB_CLUSTER_RECORDED, 0, 0.05, 1);
	assert_near(r.loss, 0.0025);
	assert_near(r.completion_mean, 2);
	r = run(pods, 2, OURS, HB_CLUSTER_RECORDED, 0, 0.05, 1.2);
	assert_near(r.loss, 0.012 * (HOUR_S / 4 / 0.4) / (2 * HOUR_S)); /* a fifth slower, and a fifth more loss */
	(void)state;
}

static void a_pair_beyond_the_bound_does_not_share(void **state)
{
	struct hb_pod pods[] = {service(0, HOUR_S), job(0, HOUR_S)};
	struct hb_cluster_result r = run(pods, 2, OURS, HB_CLUSTER_RECORDED, 0, 0.001, 1);
	assert_int_equal(r.gpus, 2);
	assert_near(r.loss, 0);
	assert_near(r.completion_mean, 1);
	r = run(pods, 2, EXCLUSIVE, HB_CLUSTER_RECORDED, 0, 1, 1);
	assert_int_equal(r.gpus, 2);
	assert_near(r.gpu_hours, 2);
	(void)state;
}

/* All services have the same predicted loss, twice the bound: half of them may share, although no bound for all allows that. */
static void the_fleet_uses_its_whole_bound(void **state)
{
	enum { PROGRAMS = HB_PAIR_SERVICES * HB_DUTY_STEPS };
	static struct hb_pod list[2 * PROGRAMS];
	for (uint32_t i = 0; i < PROGRAMS; i++) {
		list[i] = service(0, HOUR_S);
		list[i].service = (uint8_t)(i / HB_DUTY_STEPS);
		list[i].duty = (uint8_t)(i % HB_DUTY_STEPS);
		list[PROGRAMS + i] = job(0, HOUR_S);
	}
	struct hb_pods pods = {.pods = list, .n = 2 * PROGRAMS};
	struct hb_cluster_setup setup = {.pods = &pods,
					 .duty = idle,
					 .model = &model,
					 .rule = OURS,
					 .arrivals = HB_CLUSTER_AT_ONCE,
					 .duty_factor = 1,
					 .truth = 1};
	struct hb_cluster_result result;
	struct hb_error error;
	assert_int_equal(hb_cluster_fit(&setup, 0.00501, &result, &error), 0);
	assert_int_equal(result.shared_high, PROGRAMS / 2);
	assert_int_equal(result.gpus, 2 * PROGRAMS - PROGRAMS / 2);
	assert_near(result.loss, 0.005);
	assert_int_equal(hb_cluster_fit(&setup, 0.02, &result, &error), 0);
	assert_int_equal(result.gpus, PROGRAMS);
	(void)state;
}

/* On one GPU: without sharing a service evicts the job, which begins again; with sharing it joins the job. */
static void services_evict_only_where_they_may_not_share(void **state)
{
	struct hb_pod pods[] = {job(0, HOUR_S), service(HOUR_S / 2, HOUR_S)};
	struct hb_cluster_result r = run(pods, 2, EXCLUSIVE, HB_CLUSTER_LIMITED, 1, 1, 1);
	assert_int_equal(r.evictions, 1);
	assert_near(r.lost_hours, 0.5);
	assert_near(r.completion_mean, 2.5);
	assert_int_equal(r.high_waited, 0);
	r = run(pods, 2, OURS, HB_CLUSTER_LIMITED, 1, 0.05, 1);
	assert_int_equal(r.evictions, 0);
	assert_near(r.completion_mean, 1.5); /* half alone, half of it at half speed */
	(void)state;
}

static void jobs_wait_in_their_order(void **state)
{
	struct hb_pod pods[] = {job(0, HOUR_S), job(0, HOUR_S), job(0, HOUR_S)};
	struct hb_cluster_result r = run(pods, 3, EXCLUSIVE, HB_CLUSTER_LIMITED, 1, 1, 1);
	assert_near(r.wait_mean_s, HOUR_S);
	assert_near(r.completion_most, 3);
	assert_int_equal(r.unfinished, 0);
	(void)state;
}

/* On one GPU: the second service waits for the first, and the job runs beside both. */
static void visits_say_when_and_where(void **state)
{
	struct hb_pod list[] = {service(0, HOUR_S), job(HOUR_S / 2, HOUR_S), service(HOUR_S / 2, HOUR_S),
				service(0, -1)};
	struct hb_pods pods = {.pods = list, .n = 4};
	struct hb_cluster_visit visits[4];
	struct hb_cluster_setup setup = {.pods = &pods,
					 .duty = idle,
					 .model = &model,
					 .rule = OURS,
					 .arrivals = HB_CLUSTER_LIMITED,
					 .n_gpus = 1,
					 .most_loss = 0.05,
					 .duty_factor = 1,
					 .truth = 1,
					 .visits = visits};
	static const double starts[] = {0, HOUR_S / 2, HOUR_S}, ends[] = {HOUR_S, 2 * HOUR_S + HOUR_S / 4, 2 * HOUR_S};
	struct hb_cluster_result result;
	struct hb_error error;
	assert_int_equal(hb_cluster_run(&setup, &result, &error), 0);
	for (int i = 0; i < 3; i++) {
		assert_near(visits[i].start_s, starts[i]);
		assert_near(visits[i].end_s, ends[i]);
		assert_int_equal(visits[i].gpu, 0);
	}
	assert_true(visits[3].start_s < 0);
	(void)state;
}

/* A pod on two GPUs waits for both, and shares none. */
static void pods_on_several_gpus_keep_them(void **state)
{
	struct hb_pod pods[] = {service(0, HOUR_S), whole(0, HOUR_S, 2), job(0, HOUR_S), job(HOUR_S / 4, HOUR_S)};
	struct hb_cluster_result r = run(pods, 4, OURS, HB_CLUSTER_RECORDED, 0, 0.05, 1);
	assert_int_equal(r.gpus, 4);
	r = run(pods, 4, OURS, HB_CLUSTER_LIMITED, 2, 0.05, 1);
	assert_int_equal(r.gpus, 2);
	assert_int_equal(r.high_waited, 1);
	assert_int_equal(r.unfinished, 0);
	(void)state;
}

static void without_time_every_pod_counts(void **state)
{
	struct hb_pod pods[] = {service(0, -1), job(0, -1), job(0, -1)};
	struct hb_cluster_result r = run(pods, 3, OURS, HB_CLUSTER_AT_ONCE, 0, 0.05, 1);
	assert_int_equal(r.gpus, 2);
	assert_near(r.loss, 0.01);
	r = run(pods, 3, OURS, HB_CLUSTER_RECORDED, 0, 0.05, 1);
	assert_int_equal(r.skipped, 3);
	(void)state;
}

/* Whatever the pods: no work is lost or invented, and sharing never needs more GPUs than it saves. */
static void work_is_kept(void **state)
{
	struct hb_rng rng;
	hb_rng_init(&rng, 7, 7);
	for (int round = 0; round < 50; round++) {
		struct hb_pod pods[80];
		double work_s = 0, at_s = 0;
		for (int i = 0; i < 80; i++) {
			double run_s = (double)hb_rng_below(&rng, 5000);
			uint64_t what = hb_rng_below(&rng, 9);
			at_s += (double)hb_rng_below(&rng, 300);
			pods[i] = what < 4 ? service(at_s, run_s) : what < 8 ? job(at_s, run_s) : whole(at_s, run_s, 3);
			pods[i].service = (uint8_t)hb_rng_below(&rng, HB_PAIR_SERVICES);
			pods[i].milli = (uint16_t)(100 * (1 + hb_rng_below(&rng, 10)));
			work_s += pods[i].class == HB_POD_LOW ? run_s : 0;
		}
		for (uint32_t rule = 0; rule < HB_CLUSTER_RULES; rule++)
			for (uint32_t n_gpus = 0; n_gpus < 12; n_gpus += 4) {
				struct hb_cluster_result r = run(pods, 80, &hb_cluster_rules[rule],
								 n_gpus ? HB_CLUSTER_LIMITED : HB_CLUSTER_RECORDED,
								 n_gpus, 1, 1);
				if (fabs(r.low_hours - work_s / 3600) > 1e-6)
					fail_msg("rule %u: %f hours of work, not %f", rule, r.low_hours, work_s / 3600);
				assert_int_equal(r.unfinished, 0);
				assert_true(!n_gpus || r.gpus <= n_gpus);
				assert_true(r.worst_loss >= r.loss - 1e-9 && r.worst_loss <= 1);
			}
	}
	(void)state;
}

static void events_come_in_order(void **state)
{
	struct hb_event_heap heap = {0};
	struct hb_cluster_event event;
	struct hb_rng rng;
	hb_rng_init(&rng, 3, 3);
	for (uint32_t i = 0; i < 5000; i++)
		assert_int_equal(
			hb_event_push(&heap, (struct hb_cluster_event){.time_s = (double)hb_rng_below(&rng, 100),
								       .subject = i}),
			0);
	double last_s = -1;
	uint32_t last = 0, n = 0;
	for (; hb_event_pop(&heap, &event); n++) {
		assert_true(event.time_s > last_s || (event.time_s == last_s && event.subject > last));
		last_s = event.time_s;
		last = event.subject;
	}
	assert_int_equal(n, 5000);
	hb_event_heap_fini(&heap);
	(void)state;
}

static void the_model_prefers_near_rows(void **state)
{
	static const struct hb_pair_model two = {
		.n = 2,
		.rows = {{.measured = true, .sharing = HB_PAIR_TEMPORAL, .duty = 0, .loss = 0, .speed = 0.9},
			 {.measured = true, .sharing = HB_PAIR_TEMPORAL, .duty = 1, .loss = 0.5, .speed = 0.1}}};
	struct hb_pair_prediction near = hb_pair_predict(&two, HB_PAIR_TEMPORAL, HB_PAIR_EAGER, HB_PAIR_TRAINING, 0);
	struct hb_pair_prediction middle = hb_pair_predict(&two, HB_PAIR_TEMPORAL, HB_PAIR_EAGER, HB_PAIR_TRAINING,
							   0.5);
	assert_true(near.loss < 0.01 && near.speed > 0.89);
	assert_near(middle.loss, 0.25);
	assert_near(middle.speed, 0.5);
	assert_near(hb_pair_predict(&two, HB_PAIR_SPATIAL, 0, 0, 0).loss, 1); /* nothing is known */
	assert_near(hb_pair_hold_out(&two, HB_PAIR_TEMPORAL).loss, 0.5);      /* each is predicted by the other */
	(void)state;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_job_speeds_up_when_the_service_ends),
		cmocka_unit_test(a_loss_counts_while_they_share),
		cmocka_unit_test(a_pair_beyond_the_bound_does_not_share),
		cmocka_unit_test(the_fleet_uses_its_whole_bound),
		cmocka_unit_test(services_evict_only_where_they_may_not_share),
		cmocka_unit_test(jobs_wait_in_their_order),
		cmocka_unit_test(visits_say_when_and_where),
		cmocka_unit_test(pods_on_several_gpus_keep_them),
		cmocka_unit_test(without_time_every_pod_counts),
		cmocka_unit_test(work_is_kept),
		cmocka_unit_test(events_come_in_order),
		cmocka_unit_test(the_model_prefers_near_rows),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
