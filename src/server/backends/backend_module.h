/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A back end that hb-serve loads at run time, because most installations do not
 * need it. The module is a shared object beside hb-serve and exports one symbol,
 * hb_backend_module. It links its own copy of the server's helper functions.
 */
#ifndef HB_SERVER_BACKEND_MODULE_H
#define HB_SERVER_BACKEND_MODULE_H

#include "server/backends/backend.h"

/* Differs between server and module when they were built from headers with other layouts. */
#define HB_BACKEND_INTERFACE \
	(sizeof(struct hb_inference) << 32 ^ sizeof(struct hb_model_config) << 16 ^ \
	 sizeof(struct hb_scheduler_provider_ops) << 8 ^ sizeof(struct hb_scheduler_batch))

struct hb_backend_module {
	size_t interface; /* HB_BACKEND_INTERFACE */
	struct hb_platform platform;
};

/* Defined by the module. */
extern const struct hb_backend_module hb_backend_module;

#endif
