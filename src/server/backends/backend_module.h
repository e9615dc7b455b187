/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A back end that hb-serve loads at run time, because most installations do not
 * need it. The module is a shared object beside hb-serve and exports one symbol,
 * hb_backend_module. It links its own copy of the server's helper functions.
 */
#ifndef HB_SERVER_BACKEND_MODULE_H
#define HB_SERVER_BACKEND_MODULE_H

#include "server/backends/backend.h"

/*
 * The module is loaded only if its number equals the server's. The numbers differ when the two were built from headers
 * in which these structs have other sizes.
 */
#define HB_BACKEND_INTERFACE \
	(sizeof(struct hb_inference) << 32 ^ sizeof(struct hb_model_config) << 16 ^ \
	 sizeof(struct hb_scheduler_provider_ops) << 8 ^ sizeof(struct hb_scheduler_batch))

struct hb_backend_module {
	size_t interface; /* HB_BACKEND_INTERFACE */
	struct hb_platform platform;
};

/* The symbol that the module exports and the server looks up. */
extern const struct hb_backend_module hb_backend_module;

#endif
