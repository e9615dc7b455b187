/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parses the head of an HTTP/1 request, as far as a scraper and a browser need it
 * to GET a page. Pure: uses no socket and allocates nothing. Used by
 * http_server.c.
 */
#ifndef HB_DAEMON_HTTP_REQUEST_H
#define HB_DAEMON_HTTP_REQUEST_H

#include "base/http_host.h"

#include <stdbool.h>
#include <stddef.h>

#define HB_HTTP_HEAD_MAX 8192 /* request line and headers together; a longer head is refused */
#define HB_HTTP_PATH_MAX 128

struct hb_http_request {
	char path[HB_HTTP_PATH_MAX]; /* without query; printable ASCII */
	char host[HB_HTTP_HOST_MAX]; /* of the Host header, without port; "" = none */
	bool head;                   /* HEAD: the answer has no body */
};

/*
 * Parses the n bytes received so far. 0 = the head is complete and *request is
 * filled; -EAGAIN = more bytes are needed; otherwise the HTTP status with which to
 * refuse the request (400, 405, 414, 431, 505).
 */
int hb_http_request_read(const char *text, size_t n, struct hb_http_request *request);

/* The text of a status: "OK", "Not Found" and so on. */
const char *hb_http_reason(int status);

#endif
