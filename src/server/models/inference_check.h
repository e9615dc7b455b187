/* SPDX-License-Identifier: Apache-2.0 */
/* Compares an inference request with its model and prepares the outputs. Called by the protocols and by back ends. */
#ifndef HB_SERVER_INFERENCE_CHECK_H
#define HB_SERVER_INFERENCE_CHECK_H

#include "server/kserve/inference.h"
#include "server/models/model_config.h"

/*
 * Returns whether the names, data types, shapes and sizes of a request's tensors fit the model; a missing or unknown
 * tensor does not. Sets items and open_bytes, and reserves memory for the outputs. Returns HB_ANSWER_OK, or the answer that
 * was set with its reason.
 */
enum hb_answer hb_inference_check(struct hb_inference *infer, const struct hb_model_config *model);

/*
 * Allocates the outputs that the model has, for the request's items: shapes are set, data are zero. Open dimensions (-1)
 * become 1. False if there is no memory.
 */
bool hb_inference_make_outputs(struct hb_inference *infer, const struct hb_model_config *model);

#endif
