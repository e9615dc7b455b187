/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The text of GET /metrics: nv_inference_* as in Triton, and hb_serve_* for what
 * Triton lacks (priorities, deadlines, predictions).
 */
#ifndef HB_SERVER_SERVE_METRICS_H
#define HB_SERVER_SERVE_METRICS_H

#include "server/models/dispatch.h"
#include "server/security/access.h"
#include "server/security/tls.h"

/* Returns the text and its length; the caller frees it. `tls` is NULL without TLS. NULL = out of memory. */
char *hb_serve_metrics(struct hb_dispatch *dispatch, const struct hb_memory_budget *memory,
		       const struct hb_access *access, const struct hb_tls *tls, size_t *bytes);

#endif
