/* SPDX-License-Identifier: Apache-2.0 */
/* Text of a latency objective: "10ms", "p99<10ms" or (no quotes for a shell) "p99=10ms", "p99.9<10ms", "auto", "none". Used by the command line. */
#ifndef HB_BASE_SLO_H
#define HB_BASE_SLO_H

#include "base/error.h"

#include <stdint.h>

struct hb_slo {
	int64_t latency_ns; /* 0 = none, -1 = learn it */
	uint32_t share_ppm; /* of requests that must meet it; 0 = not given */
};

/* Returns 0 or -EINVAL; the error repeats the text. *slo written only on success. */
int hb_slo_parse(const char *text, struct hb_slo *slo, struct hb_error *error);

#endif
