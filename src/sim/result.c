/* SPDX-License-Identifier: Apache-2.0 */
/* Owning functions of results; see result.h. */
#include "sim/result.h"

#include <stdlib.h>

void hb_sim_result_fini(struct hb_sim_result *result)
{
	if (!result)
		return;
	for (uint32_t i = 0; i < result->n_high; i++) {
		free(result->high[i].latency_ns);
		free(result->high[i].end_ns);
	}
	for (uint32_t i = 0; i < result->n_low; i++)
		free(result->low[i].busy_ns);
	free(result->intervals);
	free(result->spans);
	*result = (struct hb_sim_result){.n_high = 0};
}
