/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Outputs of a worker, from the memory that it shares with the server to the
 * requests of the batch. For backend_worker.c, with the dispatcher's lock. The
 * worker may write to its data meanwhile: what is read stays inside them.
 */
#ifndef HB_FRONT_WORKER_OUTPUTS_H
#define HB_FRONT_WORKER_OUTPUTS_H

#include "server/backends/worker_ring.h"
#include "server/kserve/inference.h"
#include "server/models/model_config.h"

/* Whether output `index` of a batch is as the model says and inside `room` bytes; `out` is the server's own copy. */
bool hb_worker_output_fits(const struct hb_model_config *config, uint32_t index, uint32_t items, uint64_t room,
			   const struct hb_worker_tensor *out);
/*
 * Copies the request's share of each output, all of which fit: `first` of the
 * batch's items were others'. Or ends it with the reason: no memory, one of its
 * items is among those the worker dropped (a bit each), or texts are missing.
 */
void hb_worker_outputs_answer(const struct hb_model_config *config, uint32_t items,
			      const struct hb_worker_tensor *outputs, const char *data, uint32_t dropped,
			      struct hb_inference *infer, uint32_t first);

#endif
