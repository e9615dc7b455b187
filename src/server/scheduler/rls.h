/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Recursive least squares with forgetting: learns the weights w in y = w . x from
 * one sample (x, y) at a time. Fixed size, no allocation, no clock. The predictor
 * uses it for the interference of batches and for the speed of the link.
 *
 * One update, with forgetting factor f (1 = never forgets):
 *
 *	k = P x / (f + x' P x)      gain
 *	w = w + k (y - w . x)
 *	P = (P - k (P x)') / f
 *
 * Safe with any input. Samples that are not finite or above HB_RLS_VALUE_MAX are
 * refused and counted. Forgetting lets P grow without bound in directions that
 * samples never have, so the diagonal of P is limited to its initial value p0;
 * rows and columns are scaled together, which keeps P positive definite. If
 * rounding makes P invalid nevertheless, P is reset and w stays.
 */
#ifndef HB_SCHEDULER_RLS_H
#define HB_SCHEDULER_RLS_H

#include <stdbool.h>
#include <stdint.h>

#define HB_RLS_MAX 6
#define HB_RLS_VALUE_MAX 1e9

struct hb_rls {
	uint32_t n; /* features, at most HB_RLS_MAX */
	double forget;
	double p0; /* initial and largest diagonal element of P (variance of a weight) */
	double w[HB_RLS_MAX];
	double p[HB_RLS_MAX][HB_RLS_MAX]; /* n x n, symmetric */
	uint64_t updates, refused, resets;
};

/* Sets all weights to 0. `forget` in (0, 1], p0 > 0. */
void hb_rls_init(struct hb_rls *rls, uint32_t n, double forget, double p0);
static inline double hb_rls_predict(const struct hb_rls *rls, const double *x)
{
	double sum = 0;
	for (uint32_t i = 0; i < rls->n; i++)
		sum += rls->w[i] * x[i];
	return sum;
}
/* Learns one sample. False: the sample was refused and nothing has changed. */
bool hb_rls_update(struct hb_rls *rls, const double *x, double y);

#endif
