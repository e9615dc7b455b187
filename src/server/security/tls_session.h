/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One TLS session of gRPC, between bytes of the socket and bytes of HTTP/2. It never waits: it takes the bytes that have
 * arrived, and passes on what the socket should send. Used by grpc_connection.c, on its loop.
 */
#ifndef HB_SERVER_TLS_SESSION_H
#define HB_SERVER_TLS_SESSION_H

#include "server/security/tls.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct hb_tls_session;

struct hb_tls_session_calls {
	/* Sends encrypted bytes to the client. Returns false without memory. */
	bool (*send)(void *argument, const void *data, size_t n);
	/* Takes decrypted bytes. Returns false: the session ends. */
	bool (*deliver)(void *argument, const uint8_t *data, size_t n);
};

/* Returns NULL without memory. */
struct hb_tls_session *hb_tls_session_new(struct hb_tls *tls, const struct hb_tls_session_calls *calls, void *argument);
/* Tells the client that the session ends (close_notify), if it is open. NULL is allowed. */
void hb_tls_session_free(struct hb_tls_session *session);
/* Returns whether the handshake is complete, and bytes can be sent. */
bool hb_tls_session_is_open(const struct hb_tls_session *session);
/* Takes bytes of the socket. Returns false if the session has ended or failed. */
bool hb_tls_session_receive(struct hb_tls_session *session, const void *data, size_t n);
/* Encrypts bytes and sends them. Returns false if the session has failed. */
bool hb_tls_session_send(struct hb_tls_session *session, const void *data, size_t n);

#endif
