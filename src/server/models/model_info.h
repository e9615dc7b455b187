/* SPDX-License-Identifier: Apache-2.0 */
/* Names that HTTP and gRPC report of a model and of the server, as Triton spells them. Pure. */
#ifndef HB_SERVER_MODEL_INFO_H
#define HB_SERVER_MODEL_INFO_H

#include "server/models/dispatch.h"

/* Extensions of KServe v2 that the server has; NULL-terminated. */
extern const char *const hb_model_info_extensions[];
/* Returns the text "hummingbird_PLATFORM". */
const char *hb_model_info_platform(const struct hb_model_config *model);
/* Returns the model's state in the repository index, such as "READY". */
const char *hb_model_info_state(const struct hb_served_model *model);
/* Returns the name of the place that a demand comes from: "default", "typed", "measured" or "recorded". */
const char *hb_model_info_origin(enum hb_demand_origin origin);

#endif
