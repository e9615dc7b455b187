/* SPDX-License-Identifier: Apache-2.0 */
/* Artificial results of runs, for tests of the code that shows results. */
#ifndef HB_TESTS_FAKE_RESULTS_H
#define HB_TESTS_FAKE_RESULTS_H

#include "sim/result.h"

#define FAKE_MODES 12

/* Creates FAKE_MODES results of `n_high` services and `n_low` low-priority programs, with spans of a few requests. Release with fake_results_free(). */
struct hb_sim_result *fake_results_new(uint32_t n_high, uint32_t n_low);
void fake_results_free(struct hb_sim_result *results);

#endif
