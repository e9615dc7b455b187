/* SPDX-License-Identifier: Apache-2.0 */
/* Shares of requests in time, and Jain's index; see fairness.h. */
#include "server/scheduler/fairness.h"

#define SHARE_WEIGHT (1.0 / 64)

void hb_in_time_share_note(struct hb_in_time_share *share, bool in_time)
{
	share->value += (share->known ? SHARE_WEIGHT : 1) * ((in_time ? 1 : 0) - share->value);
	share->known = true;
}

double hb_jain_index(const double *x, uint32_t n)
{
	double sum = 0, squares = 0;
	for (uint32_t i = 0; i < n; i++) {
		sum += x[i];
		squares += x[i] * x[i];
	}
	return squares > 0 ? sum * sum / (n * squares) : 1;
}
