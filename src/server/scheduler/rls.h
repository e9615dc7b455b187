/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Recursive least squares with forgetting: learns w in y = w . x from samples
 * that come one by one. Fixed size, no allocation, no clock. Used by the
 * predictor for the interference of batches and for the speed of the link.
 *
 * One update, with forgetting factor f (1 = never forgets):
 *
 *	k = P x / (f + x' P x)      gain
 *	w = w + k (y - w . x)
 *	P = (P - k (P x)') / f
 *
 * Safe with any input. Samples that are not finite or beyond HB_RLS_VALUE_MAX
 * are refused and counted; x = 0 teaches nothing. Forgetting makes P grow
 * without end in directions that samples do not show; so no diagonal of P gets
 * over what it began with (rows and columns are scaled together, which keeps P
 * positive). Should rounding break P nevertheless, it begins anew and w stays.
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
	double p0; /* first and largest variance of a weight */
	double w[HB_RLS_MAX];
	double p[HB_RLS_MAX][HB_RLS_MAX];
	uint64_t updates, refused, resets;
};

/* All weights 0. `forget` in (0, 1], p0 > 0. */
void hb_rls_init(struct hb_rls *rls, uint32_t n, double forget, double p0);
static inline double hb_rls_predict(const struct hb_rls *rls, const double *x)
{
	double sum = 0;
	for (uint32_t i = 0; i < rls->n; i++)
		sum += rls->w[i] * x[i];
	return sum;
}
/* False: refused, nothing has changed. */
bool hb_rls_update(struct hb_rls *rls, const double *x, double y);

#endif
