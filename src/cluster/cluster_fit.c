/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the bound of a pair's loss that spends a bound of the fleet's mean loss; see hb_cluster_fit() in cluster_sim.h. */
#include "cluster/pair_choices.h"

/* Runs with the setup. Returns 1: the mean loss is within `loss`; 0: it is not; or a negative errno. */
static int try_bounds(const struct hb_cluster_setup *setup, double loss, struct hb_error *error)
{
	struct hb_cluster_result tried;
	int rc = hb_cluster_run(setup, &tried, error);
	return rc ? rc : tried.loss <= loss;
}

int hb_cluster_fit(struct hb_cluster_setup *setup, double loss, struct hb_cluster_result *result,
		   struct hb_error *error)
{
	double low = 0, high = 1;
	setup->most_loss = 1;
	setup->n_higher = 0;
	int fits = try_bounds(setup, loss, error);
	if (fits)
		return fits < 0 ? fits : hb_cluster_run(setup, result, error);
	while (fits >= 0 && high - low > 1e-6) {
		setup->most_loss = (low + high) / 2;
		fits = try_bounds(setup, loss, error);
		*(fits > 0 ? &low : &high) = setup->most_loss;
	}
	setup->most_loss = low;
	setup->higher_loss = high;
	uint32_t few = 0, many = HB_CLUSTER_PROGRAMS;
	while (fits >= 0 && many - few > 1) {
		setup->n_higher = (few + many) / 2;
		fits = try_bounds(setup, loss, error);
		*(fits > 0 ? &few : &many) = setup->n_higher;
	}
	setup->n_higher = few;
	return fits < 0 ? fits : hb_cluster_run(setup, result, error);
}
