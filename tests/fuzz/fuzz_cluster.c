/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: the inputs of `hb sim-cluster`. Each input is read as pods, as duties and as pairs; pods are then replayed. */
#include "cluster/cluster_sim.h"
#include "fuzz_file.h"

static const double duty[HB_DUTY_STEPS];
static struct hb_pair_model model;

static void replay_pods(const struct hb_pods *pods)
{
	static const struct hb_pair_model pairs = {
		.n = 1, .rows = {{.measured = true, .sharing = HB_PAIR_TEMPORAL, .loss = 0.01, .speed = 0.5}}};
	struct hb_cluster_result result;
	struct hb_error error;
	struct hb_cluster_setup setup = {.pods = pods,
					 .duty = duty,
					 .model = &pairs,
					 .rule = &hb_cluster_rules[HB_CLUSTER_RULES - 1],
					 .arrivals = HB_CLUSTER_LIMITED,
					 .n_gpus = 2,
					 .most_loss = 1,
					 .duty_factor = 1,
					 .truth = 1};
	if (hb_cluster_run(&setup, &result, &error) == 0)
		FUZZ_REQUIRE(result.gpus <= 2 && result.pods + result.skipped == pods->n);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct hb_error error = {0};
	struct hb_pods pods;
	double read_duty[HB_DUTY_STEPS];
	const char *path = fuzz_write(data, size);
	int code = hb_pods_read(&pods, path, &error);
	FUZZ_REQUIRE(code == 0 || *error.text);
	if (code == 0)
		replay_pods(&pods);
	hb_pods_fini(&pods);
	error.text[0] = '\0';
	code = hb_duty_read(read_duty, path, &error);
	FUZZ_REQUIRE(code == 0 || *error.text);
	error.text[0] = '\0';
	code = hb_pair_model_read(&model, path, &error);
	FUZZ_REQUIRE(code == 0 ? model.n > 0 : *error.text != '\0');
	return 0;
}
