/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A small HTTP server in the daemon's event loop: GET and HEAD, one request a
 * connection. Bounded: so many connections (one more cuts off the oldest), a
 * head of so many bytes, so many seconds; the answer is the only memory that is
 * allocated. Used by metrics_http.c. It knows nothing of what it serves.
 */
#ifndef HB_DAEMON_HTTP_SERVER_H
#define HB_DAEMON_HTTP_SERVER_H

#include "base/http_address.h"

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#define HB_HTTP_CONNECTIONS_MAX 16
#define HB_HTTP_LIMIT_NS INT64_C(5000000000) /* from accept to the last byte; then it is cut off */
#define HB_HTTP_ADDRESS_MAX 80

struct hb_http_answer {
	int status;         /* 200 until changed */
	const char *type;   /* Content-Type */
	char *body;         /* from malloc, freed by the server; NULL = the status' reason as text */
	size_t body_length; /* of body */
};

/* Called in the loop; must not block. */
typedef void hb_http_handler(void *argument, const char *path, struct hb_http_answer *answer);

struct hb_http;

/* Listens. 0, or negative errno with *error. */
int hb_http_new(uv_loop_t *loop, const struct sockaddr_storage *address, hb_http_handler *handler, void *argument,
		struct hb_http **http, struct hb_error *error);
void hb_http_free(struct hb_http *http);
/* The address it listens on, with the port that was found. */
const char *hb_http_address(const struct hb_http *http);
/* Cuts off connections that are over their time; call it every second or so. */
void hb_http_tick(struct hb_http *http, int64_t now_ns);

#endif
