/* SPDX-License-Identifier: Apache-2.0 */
/* Recursive least squares; see rls.h. */
#include "server/scheduler/rls.h"

#include <math.h>
#include <string.h>

static void reset_covariance(struct hb_rls *rls)
{
	memset(rls->p, 0, sizeof rls->p);
	for (uint32_t i = 0; i < rls->n; i++)
		rls->p[i][i] = rls->p0;
}

void hb_rls_init(struct hb_rls *rls, uint32_t n, double forget, double p0)
{
	*rls = (struct hb_rls){.n = n < HB_RLS_MAX ? n : HB_RLS_MAX, .forget = forget, .p0 = p0};
	reset_covariance(rls);
}

static bool is_usable(double value)
{
	return isfinite(value) && fabs(value) <= HB_RLS_VALUE_MAX;
}

static bool is_sample_usable(const struct hb_rls *rls, const double *x, double y)
{
	bool ok = is_usable(y);
	for (uint32_t i = 0; i < rls->n; i++)
		ok &= is_usable(x[i]);
	return ok;
}

/* Computes P = (P - px px' / scale) / forget. */
static void update_covariance(struct hb_rls *rls, const double *px, double scale)
{
	for (uint32_t i = 0; i < rls->n; i++)
		for (uint32_t j = 0; j <= i; j++) {
			double value = (rls->p[i][j] - px[i] * px[j] / scale) / rls->forget;
			rls->p[i][j] = rls->p[j][i] = value;
		}
}

/* Limits the diagonal to p0. D P D with a diagonal matrix D keeps P symmetric and positive definite. */
static void bound_covariance(struct hb_rls *rls)
{
	for (uint32_t i = 0; i < rls->n; i++) {
		if (rls->p[i][i] <= rls->p0)
			continue;
		double shrink = sqrt(rls->p0 / rls->p[i][i]);
		for (uint32_t j = 0; j < rls->n; j++) {
			rls->p[i][j] *= shrink;
			rls->p[j][i] *= shrink;
		}
	}
}

static bool is_covariance_valid(const struct hb_rls *rls)
{
	for (uint32_t i = 0; i < rls->n; i++) {
		if (!(rls->p[i][i] > 0))
			return false;
		for (uint32_t j = 0; j < i; j++)
			if (!(rls->p[i][j] * rls->p[i][j] <= rls->p[i][i] * rls->p[j][j]))
				return false;
	}
	return true;
}

bool hb_rls_update(struct hb_rls *rls, const double *x, double y)
{
	double px[HB_RLS_MAX], scale = rls->forget;
	if (!is_sample_usable(rls, x, y)) {
		rls->refused++;
		return false;
	}
	for (uint32_t i = 0; i < rls->n; i++) {
		px[i] = 0;
		for (uint32_t j = 0; j < rls->n; j++)
			px[i] += rls->p[i][j] * x[j];
		scale += x[i] * px[i];
	}
	double error = y - hb_rls_predict(rls, x);
	for (uint32_t i = 0; i < rls->n; i++)
		rls->w[i] += px[i] / scale * error;
	update_covariance(rls, px, scale);
	bound_covariance(rls);
	if (!is_covariance_valid(rls)) {
		reset_covariance(rls);
		rls->resets++;
	}
	rls->updates++;
	return true;
}
