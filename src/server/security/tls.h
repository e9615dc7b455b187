/* SPDX-License-Identifier: Apache-2.0 */
/*
 * TLS of both protocols, with GnuTLS: the certificate and the rules for sessions. libmicrohttpd makes the sessions of HTTP
 * by itself, with the rules of hb_tls_begin_http(); gRPC uses tls_session.h. A build without GnuTLS has tls_absent.c
 * instead, in which hb_tls_new() fails. Sessions keep the certificate with which they began.
 */
#ifndef HB_SERVER_TLS_H
#define HB_SERVER_TLS_H

#include "base/error.h"

#include <stdint.h>
#include <stdio.h>

struct hb_tls;
struct hb_tls_credentials; /* a certificate that at least one session uses */

/* Paths of PEM files. */
struct hb_tls_config {
	const char *cert, *key;
	const char *client_ca; /* clients need a certificate that this authority signed; NULL = they need none */
};

/* Reads and checks the files. Returns 0, or negative errno with *error. */
int hb_tls_new(const struct hb_tls_config *config, struct hb_tls **out, struct hb_error *error);
void hb_tls_free(struct hb_tls *tls);
/*
 * Reads the files again, for new sessions. On an error the certificates stay as they were. Returns 0, or negative errno with
 * *error. One caller at a time.
 */
int hb_tls_reload(struct hb_tls *tls, struct hb_error *error);

/* The first files and the priorities for libmicrohttpd, which does not start without them. */
const char *hb_tls_cert_text(const struct hb_tls *tls);
const char *hb_tls_key_text(const struct hb_tls *tls);
const char *hb_tls_priorities(void);
/* The handshake of a session of libmicrohttpd; all zeros until it begins. */
struct hb_tls_handshake {
	uint32_t *n_open; /* a number of handshakes that have begun and not ended; this one is counted */
	struct hb_tls_credentials *credentials;
};

/* Sets certificate and rules of a new session (a gnutls_session_t) before its handshake, and adds that to *n_open. */
void hb_tls_begin_http(struct hb_tls *tls, void *session, struct hb_tls_handshake *handshake, uint32_t *n_open);
/* Call on the same thread when the connection has ended. */
void hb_tls_end_http(struct hb_tls_handshake *handshake);

/* Appends the counters of sessions to the metrics. */
void hb_tls_write_metrics(const struct hb_tls *tls, FILE *out);

#endif
