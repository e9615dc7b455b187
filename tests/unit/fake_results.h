/* SPDX-License-Identifier: Apache-2.0 */
/* Results as a run would leave them, made up, for tests of what shows them. */
#ifndef HB_TESTS_FAKE_RESULTS_H
#define HB_TESTS_FAKE_RESULTS_H

#include "sim/result.h"

#define FAKE_MODES 12

/* FAKE_MODES results of `n_high` services and `n_low` others, with spans of a few requests. Release with fake_results_free(). */
struct hb_sim_result *fake_results_new(uint32_t n_high, uint32_t n_low);
void fake_results_free(struct hb_sim_result *results);

#endif
