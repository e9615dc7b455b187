/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads the head of an HTTP/1 request: as much of the protocol as a scraper and
 * a browser need to GET a page. Pure: no socket, no allocation. Used by
 * http_server.c.
 */
#ifndef HB_DAEMON_HTTP_REQUEST_H
#define HB_DAEMON_HTTP_REQUEST_H

#include <stdbool.h>
#include <stddef.h>

#define HB_HTTP_HEAD_MAX 8192 /* request line and headers together; a longer head is refused */
#define HB_HTTP_PATH_MAX 128
#define HB_HTTP_HOST_MAX 128

struct hb_http_request {
	char path[HB_HTTP_PATH_MAX]; /* without query; printable ASCII */
	char host[HB_HTTP_HOST_MAX]; /* of the Host header, without port; "" = none */
	bool head;                   /* HEAD: the answer has no body */
};

/*
 * Looks at what has come so far. 0 = the head is complete and *request filled,
 * -EAGAIN = more is needed, else the status to refuse it with (400, 405, 414,
 * 431, 505). Nothing beyond n is looked at.
 */
int hb_http_request_read(const char *text, size_t n, struct hb_http_request *request);

/*
 * Whether the Host header names this machine's loopback. A page of another site whose name was made to point at
 * 127.0.0.1 would otherwise read the answers in the user's browser.
 */
bool hb_http_host_is_loopback(const char *host);

/* "OK", "Not Found" and so on. */
const char *hb_http_reason(int status);

#endif
