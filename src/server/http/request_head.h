/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Strict checks of a request's head, for kserve_http.c. A proxy in front of the
 * server and the server must agree where each request ends; otherwise bytes of one
 * client's request are read as the request of another (request smuggling). So a
 * head that some programs read differently is refused.
 */
#ifndef HB_SERVER_REQUEST_HEAD_H
#define HB_SERVER_REQUEST_HEAD_H

#include <microhttpd.h>
#include <stdbool.h>

/*
 * Returns what is wrong with a head that has arrived, or NULL. Call it on the first call of the library's handler, with the
 * handler's arguments: the library keeps the head at `method` only until the body is read.
 */
const char *hb_request_head_find_error(struct MHD_Connection *connection, const char *method, const char *url,
				       const char *version);
/*
 * Returns whether a proxy may find another end of the body than the library: the body has chunks, and the library takes a
 * bare LF as the end of a line between them. Such a request must be the last of its connection.
 */
bool hb_request_body_end_is_unclear(struct MHD_Connection *connection);
/* Returns whether the target of a request line has only characters that a target may have. `target` is not decoded yet. */
bool hb_request_target_fits(const char *target);
/* Returns whether the head, as far as it has arrived, has a Content-Length that is not a number. */
bool hb_request_head_has_bad_length(struct MHD_Connection *connection);

#endif
