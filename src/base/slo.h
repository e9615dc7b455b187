/* SPDX-License-Identifier: Apache-2.0 */
/* Text of a latency objective: "10ms", "p99<10ms" or (no quotes for a shell) "p99=10ms", "p99.9<10ms", "auto", "none". Used by the command line. */
#ifndef HB_BASE_SLO_H
#define HB_BASE_SLO_H

#include "base/error.h"

#include <stdint.h>

struct hb_slo {
	int64_t latency_ns; /* 0 = no objective, -1 = the daemon learns the objective */
	uint32_t share_ppm; /* share of requests that must meet the objective; 0 = not given */
};

/* Parses an objective. Returns 0 or -EINVAL; the error repeats the text. *slo is written only on success. */
int hb_slo_parse(const char *text, struct hb_slo *slo, struct hb_error *error);

#endif
