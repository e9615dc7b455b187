/* SPDX-License-Identifier: Apache-2.0 */
/* Answers the requests of clients. Called by socket_server.c. */
#ifndef HB_DAEMON_SERVER_REQUESTS_H
#define HB_DAEMON_SERVER_REQUESTS_H

#include "daemon/server_connection.h"

/*
 * Serves the request in server->message. The caller closes the descriptors that came with it. 0, or negative errno: then
 * the connection has to be dropped.
 */
int hb_request_serve(struct hb_connection *connection, const struct hb_wire_fds *fds);
/* Answers the BYE of this tenant's supervisor. */
int hb_request_answer_bye(struct hb_connection *connection, uint32_t tenant);

/* Answers the PLACE that the connection keeps, with what is known now. 0, or negative errno as above. */
int hb_request_answer_place(struct hb_connection *connection);

#endif
