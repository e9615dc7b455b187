/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies the outputs of a batch from a worker's shared memory to the requests.
 * Called by lane_copy.c. The worker may write to the memory at the same time, so sizes found there never lead outside of it.
 */
#ifndef HB_SERVER_WORKER_OUTPUTS_H
#define HB_SERVER_WORKER_OUTPUTS_H

#include "server/backends/worker_ring.h"
#include "server/kserve/inference.h"
#include "server/models/model_config.h"

/*
 * Returns whether output `index` of a batch has the model's type and shape and is within `room` bytes. `out` is a
 * private copy.
 */
bool hb_worker_output_fits(const struct hb_model_config *config, uint32_t index, uint32_t items, uint64_t room,
			   const struct hb_worker_tensor *out);
/*
 * Copies the request's part of each output; its items begin at item `first` of
 * the batch. All outputs passed hb_worker_output_fits(). Returns 0; -ENOMEM;
 * -ENOBUFS: the server's memory for requests has no room for outputs of variable
 * size; -ENOSPC: one of its items has a bit in `dropped`; -EINVAL: BYTES output number
 * *wrong has too few elements.
 */
int hb_worker_outputs_copy(const struct hb_model_config *config, uint32_t items, const struct hb_worker_tensor *outputs,
			   const char *data, uint32_t dropped, struct hb_inference *infer, uint32_t first,
			   uint32_t *wrong);
/* Fails a request because of such a result. */
void hb_worker_outputs_refuse(const struct hb_model_config *config, int result, uint32_t wrong,
			      struct hb_inference *infer);

#endif
