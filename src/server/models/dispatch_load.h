/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests to load a model, which can take minutes. They wait in one queue. The
 * loading thread opens the models one after the other and does not wait for one to
 * become ready before it opens the next. Requests for one model that wait together
 * load it once. Used by HTTP and gRPC; dispatch_load.c is a part of the dispatcher.
 */
#ifndef HB_SERVER_DISPATCH_LOAD_H
#define HB_SERVER_DISPATCH_LOAD_H

#include "base/error.h"
#include "server/models/dispatch.h"

#define HB_LOADS_MAX 64 /* requests that wait at the same time */

enum hb_load_state {
	HB_LOAD_QUEUED,
	HB_LOAD_DRAINS, /* its model.yaml was read; batches of the loaded model still run */
	HB_LOAD_WAITS,  /* the model was opened and is not ready yet */
	HB_LOAD_ENDED,
};

/* A request to load a model. It has two holders: who made it, and the dispatcher while it is in the queue. */
struct hb_load {
	char name[HB_MODEL_NAME_MAX];
	/* Called once when the request has ended, on any thread, without the dispatcher's lock. */
	void (*done)(struct hb_load *load);
	void *owner;
	int result; /* the outcome: 0, or negative errno with `error` */
	struct hb_error error;

	/* For dispatch_load.c. */
	atomic_uint holders;
	enum hb_load_state state;
	bool reported; /* done() was called or will be called by who has set this */
	uint64_t serial;
	uint64_t last_joined;          /* state DRAINS: requests up to this serial wait for this one */
	int64_t until_ns;              /* when the request has waited too long */
	struct hb_served_model *model; /* state DRAINS: the model that will be opened */
	struct hb_load *next;
};

/* Creates a request with one holder. Returns NULL without memory. */
struct hb_load *hb_load_new(const char *name, void (*done)(struct hb_load *load), void *owner);
/* Removes one holder; the last one frees the request. NULL is allowed. */
void hb_load_free(struct hb_load *load);

/*
 * Loads a model. Returns 0: done() will be called; or -EAGAIN (too many requests wait), -ESHUTDOWN, with *error. Loading a
 * loaded model reads its model.yaml again; if that is valid, the running batches may end first, within drain_ns.
 */
int hb_dispatch_load(struct hb_dispatch *dispatch, struct hb_load *load, struct hb_error *error);
/*
 * Ends a request whose client has gone; done() is called, unless the request has ended already. If the model was opened, it
 * continues to load.
 */
void hb_dispatch_cancel_load(struct hb_dispatch *dispatch, struct hb_load *load);
/* Returns how many requests wait. */
uint32_t hb_dispatch_waiting_loads(struct hb_dispatch *dispatch);

#endif
