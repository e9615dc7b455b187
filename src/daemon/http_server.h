/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A small HTTP server in the daemon's event loop: GET and HEAD, one request for
 * each connection. The limits below bound the number of connections (a new one
 * closes the oldest), the size of a request's head and the time of a connection.
 * Only the answer is allocated. Used by metrics_http.c.
 */
#ifndef HB_DAEMON_HTTP_SERVER_H
#define HB_DAEMON_HTTP_SERVER_H

#include "base/http_address.h"
#include "daemon/shared_text.h"

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#define HB_HTTP_CONNECTIONS_MAX 16
#define HB_HTTP_LIMIT_NS INT64_C(5000000000) /* from accepting a connection to the last byte; then it is closed */
#define HB_HTTP_ADDRESS_MAX 80

struct hb_http_answer {
	int status;       /* 200 unless the handler changes it; 0 = the handler is called again in the next tick */
	const char *type; /* Content-Type */
	struct hb_shared_text *body; /* the server drops it; NULL = the text of the status */
};

/* Fills the answer to a request for `path`. Called in the loop; must not block. */
typedef void hb_http_handler(void *argument, const char *path, struct hb_http_answer *answer);

struct hb_http;

/* Listens on the address. 0, or negative errno with *error. */
int hb_http_new(uv_loop_t *loop, const struct sockaddr_storage *address, hb_http_handler *handler, void *argument,
		struct hb_http **http, struct hb_error *error);
void hb_http_free(struct hb_http *http);
/* The address and port on which the server listens. */
const char *hb_http_address(const struct hb_http *http);
/* Calls the handler again for requests that wait, and closes connections that are over their time limit. Call it often. */
void hb_http_tick(struct hb_http *http, int64_t now_ns);

#endif
