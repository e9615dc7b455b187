/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon's socket: accepts connections, reads one request at a time from
 * each and answers it. Memory is bounded: HB_CONNECTIONS_MAX connections with
 * one message each, and idle connections are closed.
 */
#ifndef HB_DAEMON_SOCKET_SERVER_H
#define HB_DAEMON_SOCKET_SERVER_H

#include "base/error.h"

#include <stdint.h>
#include <sys/types.h>

struct hb_daemon;
struct hb_gpu;
struct hb_server;
struct hb_tenancy;

/* Takes the lock of the socket first (daemon->lock). 0, or negative errno with *error. */
int hb_server_new(struct hb_daemon *daemon, struct hb_server **server, struct hb_error *error);
/* Closes all connections and removes the socket. */
void hb_server_free(struct hb_server *server);
/* Connections and descriptors of clients that are not closed yet. */
uint32_t hb_server_closing(const struct hb_server *server);
void hb_server_tick(struct hb_server *server, int64_t now_ns);
/* The MPS server runs or has failed: answers the registrations that waited for it. */
void hb_server_answer_registrations(struct hb_server *server);
/* The culprit of a fault was chosen: answers the BYE messages that waited for it. */
void hb_server_answer_faults(struct hb_server *server);
/* Answers the MEMORY of this HP tenant about this GPU: 0, or negative errno with a text. */
void hb_server_answer_memory(struct hb_server *server, const struct hb_gpu *gpu, const struct hb_tenancy *tenancy,
			     int code, const char *why);
/* The work of MPS clients has ended, or the time limit was reached: answers the TERMINATE that waited for it. */
void hb_server_answer_terminated(struct hb_server *server, uint64_t number);
/* The driver has reported the GPUs' processes: answers the status requests that waited for it. */
void hb_server_answer_status(struct hb_server *server);

/* The driver has reported how much memory the GPUs have: answers the PLACE messages that waited for it. */
void hb_server_answer_places(struct hb_server *server);
/* The name of this user has been looked up (user_names.h). */
void hb_server_name_found(struct hb_server *server, uid_t uid);

#endif
