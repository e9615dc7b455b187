/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Answers status requests of the daemon's socket. One document serves all connections that wait for one when it is made;
 * making and sending them takes a limited share of the loop's time, and the documents that slow clients have not read a
 * limited amount of memory. The loop's thread only.
 */
#ifndef HB_DAEMON_STATUS_ANSWERS_H
#define HB_DAEMON_STATUS_ANSWERS_H

#include "daemon/server_connection.h"

/* A client asks for the status: it is answered later. */
void hb_status_answers_ask(struct hb_connection *connection);
/* The driver has reported the GPUs' processes: all connections that wait for that are answered soon. */
void hb_status_answers_go(struct hb_server *server);
/* Answers the connections for which the driver takes too long. */
void hb_status_answers_tick(struct hb_server *server, int64_t now_ns);

#endif
