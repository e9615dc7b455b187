/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the answer of an HTTP/1.1 server that closes the connection after it. Pure: no socket, no clock. */
#ifndef HB_K8S_HTTP_ANSWER_H
#define HB_K8S_HTTP_ANSWER_H

#include <stddef.h>

struct hb_api_reply {
	int status;       /* such as 200 */
	const char *body; /* in the buffer */
	size_t body_bytes;
};

/*
 * Reads a whole answer. A body in chunks is joined in the buffer. Returns 0, or -EBADMSG: it is not HTTP/1.x, or not complete,
 * and then *answer is unchanged.
 */
int hb_http_answer_parse(char *buffer, size_t bytes, struct hb_api_reply *answer);

#endif
