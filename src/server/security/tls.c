/* SPDX-License-Identifier: Apache-2.0 */
/* See tls.h and tls_session.h. */
#include "server/security/tls.h"

#include "base/log.h"
#include "base/prom_text.h"
#include "server/security/secret_file.h"
#include "server/security/tls_session.h"

#include <errno.h>
#include <gnutls/gnutls.h>
#include <gnutls/x509.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define PRIORITIES "NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2"
#define KEY_FORBIDDEN 037 /* Debian's group ssl-cert may read keys */
#define FILE_FORBIDDEN 022
#define RECORD_BYTES (16 * 1024)

enum tls_protocol { TLS_HTTP, TLS_GRPC, TLS_PROTOCOLS };

struct tls_text {
	char *text;
	size_t bytes;
};

struct tls_files {
	struct tls_text cert, key, client_ca;
};

struct hb_tls_credentials {
	_Atomic uint32_t users; /* sessions, and 1 while it is the present one */
	gnutls_certificate_credentials_t gnutls;
};

struct hb_tls {
	struct hb_tls_config config;
	struct tls_files first;
	gnutls_priority_t priorities;
	pthread_mutex_t lock; /* guards present */
	struct hb_tls_credentials *present;
};

struct hb_tls_session {
	gnutls_session_t session;
	struct hb_tls_credentials *credentials;
	struct hb_tls_session_calls calls;
	void *argument;
	const uint8_t *in; /* bytes of the socket that the library has not taken */
	size_t in_bytes;
	bool open;
};

/* Counts of handshakes, of all sessions of the process. */
static struct {
	_Atomic uint64_t done, failed;
} counts[TLS_PROTOCOLS];

static void count_handshake(enum tls_protocol protocol, bool done)
{
	atomic_fetch_add_explicit(done ? &counts[protocol].done : &counts[protocol].failed, 1, memory_order_relaxed);
}

/* ---- credentials ---- */

static void drop_credentials(struct hb_tls_credentials *credentials)
{
	if (!credentials || atomic_fetch_sub(&credentials->users, 1) != 1)
		return;
	if (credentials->gnutls)
		gnutls_certificate_free_credentials(credentials->gnutls);
	free(credentials);
}

static struct hb_tls_credentials *take_credentials(struct hb_tls *tls)
{
	pthread_mutex_lock(&tls->lock);
	struct hb_tls_credentials *credentials = tls->present;
	atomic_fetch_add(&credentials->users, 1);
	pthread_mutex_unlock(&tls->lock);
	return credentials;
}

static void free_files(struct tls_files *files)
{
	hb_secret_free(files->cert.text, files->cert.bytes);
	hb_secret_free(files->key.text, files->key.bytes);
	hb_secret_free(files->client_ca.text, files->client_ca.bytes);
}

static int read_files(const struct hb_tls_config *config, struct tls_files *out, struct hb_error *error)
{
	int result = hb_secret_file_read(config->cert, FILE_FORBIDDEN, &out->cert.text, &out->cert.bytes, error);
	if (result == 0)
		result = hb_secret_file_read(config->key, KEY_FORBIDDEN, &out->key.text, &out->key.bytes, error);
	if (result == 0 && config->client_ca)
		result = hb_secret_file_read(config->client_ca, FILE_FORBIDDEN, &out->client_ca.text,
					     &out->client_ca.bytes, error);
	return result;
}

static int load_files(const struct hb_tls_config *config, const struct tls_files *files,
		      gnutls_certificate_credentials_t *out, struct hb_error *error)
{
	const gnutls_datum_t cert = {(unsigned char *)files->cert.text, (unsigned)files->cert.bytes};
	const gnutls_datum_t key = {(unsigned char *)files->key.text, (unsigned)files->key.bytes};
	const gnutls_datum_t ca = {(unsigned char *)files->client_ca.text, (unsigned)files->client_ca.bytes};
	if (gnutls_certificate_allocate_credentials(out) < 0)
		return hb_error_set(error, -ENOMEM, "out of memory");
	int code = gnutls_certificate_set_x509_key_mem(*out, &cert, &key, GNUTLS_X509_FMT_PEM);
	if (code < 0)
		return hb_error_set(error, -EINVAL, "%s, %s: no certificate in PEM format with its private key: %s",
				    config->cert, config->key, gnutls_strerror(code));
	if (!ca.data)
		return 0;
	code = gnutls_certificate_set_x509_trust_mem(*out, &ca, GNUTLS_X509_FMT_PEM);
	if (code > 0)
		return 0;
	return hb_error_set(error, -EINVAL, "%s: no certificate in PEM format: %s", config->client_ca,
			    code < 0 ? gnutls_strerror(code) : "the file contains none");
}

/* Replaces the present credentials by those of the files. */
static int replace_credentials(struct hb_tls *tls, const struct tls_files *files, struct hb_error *error)
{
	struct hb_tls_credentials *fresh = calloc(1, sizeof(*fresh));
	if (!fresh)
		return hb_error_set(error, -ENOMEM, "out of memory");
	fresh->users = 1;
	int result = load_files(&tls->config, files, &fresh->gnutls, error);
	if (result == 0) {
		pthread_mutex_lock(&tls->lock);
		struct hb_tls_credentials *old = tls->present;
		tls->present = fresh;
		fresh = old;
		pthread_mutex_unlock(&tls->lock);
	}
	drop_credentials(fresh);
	return result;
}

int hb_tls_reload(struct hb_tls *tls, struct hb_error *error)
{
	struct tls_files files = {.cert.text = NULL};
	int result = read_files(&tls->config, &files, error);
	if (result == 0)
		result = replace_credentials(tls, &files, error);
	free_files(&files);
	return result;
}

int hb_tls_new(const struct hb_tls_config *config, struct hb_tls **out, struct hb_error *error)
{
	struct hb_tls *tls = calloc(1, sizeof(*tls));
	if (!tls)
		return hb_error_set(error, -ENOMEM, "out of memory");
	tls->config = *config;
	pthread_mutex_init(&tls->lock, NULL);
	int result = read_files(config, &tls->first, error);
	if (result == 0 && gnutls_priority_init(&tls->priorities, PRIORITIES, NULL) < 0)
		result = hb_error_set(error, -ENOMEM, "out of memory");
	if (result == 0)
		result = replace_credentials(tls, &tls->first, error);
	if (result < 0) {
		hb_tls_free(tls);
		return result;
	}
	*out = tls;
	return 0;
}

void hb_tls_free(struct hb_tls *tls)
{
	if (!tls)
		return;
	drop_credentials(tls->present);
	if (tls->priorities)
		gnutls_priority_deinit(tls->priorities);
	free_files(&tls->first);
	pthread_mutex_destroy(&tls->lock);
	free(tls);
}

const char *hb_tls_cert_text(const struct hb_tls *tls)
{
	return tls->first.cert.text;
}

const char *hb_tls_key_text(const struct hb_tls *tls)
{
	return tls->first.key.text;
}

const char *hb_tls_priorities(void)
{
	return PRIORITIES;
}

/* ---- rules of a session ---- */

static void end_handshake(struct hb_tls_handshake *handshake, bool done)
{
	if (!handshake->n_open)
		return;
	--*handshake->n_open;
	handshake->n_open = NULL;
	count_handshake(TLS_HTTP, done);
}

/* The session's database pointer holds the handshake: the server stores no sessions, so it needs no database. */
static int note_http_handshake(gnutls_session_t session, unsigned type, unsigned when, unsigned incoming,
			       const gnutls_datum_t *message)
{
	if (incoming)
		end_handshake(gnutls_db_get_ptr(session), true);
	return 0;
}

void hb_tls_end_http(struct hb_tls_handshake *handshake)
{
	end_handshake(handshake, false);
	drop_credentials(handshake->credentials);
	handshake->credentials = NULL;
}

/* Without a valid certificate of the client, the handshake fails. A certificate that names its purposes must name clients. */
static void require_certificate(gnutls_session_t session)
{
	static gnutls_typed_vdata_st purpose[] = {
		{GNUTLS_DT_KEY_PURPOSE_OID, (unsigned char *)GNUTLS_KP_TLS_WWW_CLIENT, 0}};
	gnutls_certificate_server_set_request(session, GNUTLS_CERT_REQUIRE);
	gnutls_session_set_verify_cert2(session, purpose, 1, 0);
}

void hb_tls_begin_http(struct hb_tls *tls, void *session, struct hb_tls_handshake *handshake, uint32_t *n_open)
{
	static const gnutls_datum_t protocol = {(unsigned char *)"http/1.1", 8};
	handshake->n_open = n_open;
	++*n_open;
	gnutls_db_set_ptr(session, handshake);
	handshake->credentials = take_credentials(tls);
	gnutls_credentials_set(session, GNUTLS_CRD_CERTIFICATE, handshake->credentials->gnutls);
	gnutls_handshake_set_hook_function(session, GNUTLS_HANDSHAKE_FINISHED, GNUTLS_HOOK_POST, note_http_handshake);
	gnutls_alpn_set_protocols(session, &protocol, 1, 0);
	if (tls->config.client_ca)
		require_certificate(session);
}

/* ---- sessions of gRPC ---- */

static ssize_t pull_bytes(gnutls_transport_ptr_t session_, void *out, size_t size)
{
	struct hb_tls_session *session = session_;
	size_t n = size < session->in_bytes ? size : session->in_bytes;
	if (n == 0) {
		gnutls_transport_set_errno(session->session, EAGAIN);
		return -1;
	}
	memcpy(out, session->in, n);
	session->in += n;
	session->in_bytes -= n;
	return (ssize_t)n;
}

static ssize_t push_bytes(gnutls_transport_ptr_t session_, const void *data, size_t n)
{
	struct hb_tls_session *session = session_;
	if (session->calls.send(session->argument, data, n))
		return (ssize_t)n;
	gnutls_transport_set_errno(session->session, ENOMEM);
	return -1;
}

static int init_session(struct hb_tls_session *session, struct hb_tls *tls)
{
	static const gnutls_datum_t protocol = {(unsigned char *)"h2", 2};
	int code = gnutls_init(&session->session, GNUTLS_SERVER | GNUTLS_NONBLOCK | GNUTLS_NO_SIGNAL);
	if (code < 0)
		return code;
	gnutls_transport_set_ptr(session->session, session);
	gnutls_transport_set_pull_function(session->session, pull_bytes);
	gnutls_transport_set_push_function(session->session, push_bytes);
	if (tls->config.client_ca)
		require_certificate(session->session);
	session->credentials = take_credentials(tls);
	code = gnutls_priority_set(session->session, tls->priorities);
	if (code == 0)
		code = gnutls_credentials_set(session->session, GNUTLS_CRD_CERTIFICATE, session->credentials->gnutls);
	if (code == 0)
		code = gnutls_alpn_set_protocols(session->session, &protocol, 1, GNUTLS_ALPN_MANDATORY);
	return code;
}

struct hb_tls_session *hb_tls_session_new(struct hb_tls *tls, const struct hb_tls_session_calls *calls, void *argument)
{
	struct hb_tls_session *session = calloc(1, sizeof(*session));
	if (!session)
		return NULL;
	session->calls = *calls;
	session->argument = argument;
	if (init_session(session, tls) < 0) {
		hb_tls_session_free(session);
		return NULL;
	}
	return session;
}

void hb_tls_session_free(struct hb_tls_session *session)
{
	if (!session)
		return;
	if (session->open)
		gnutls_bye(session->session, GNUTLS_SHUT_WR);
	else
		count_handshake(TLS_GRPC, false);
	if (session->session)
		gnutls_deinit(session->session);
	drop_credentials(session->credentials);
	free(session);
}

bool hb_tls_session_is_open(const struct hb_tls_session *session)
{
	return session->open;
}

/* Continues the handshake with the bytes that have arrived. Returns false if it failed. */
static bool shake_hands(struct hb_tls_session *session)
{
	gnutls_datum_t protocol;
	int code;
	do
		code = gnutls_handshake(session->session);
	while (code < 0 && code != GNUTLS_E_AGAIN && !gnutls_error_is_fatal(code));
	if (code == GNUTLS_E_AGAIN)
		return true;
	/* HTTP/2 over TLS needs ALPN; a client that offers no protocol is none of gRPC. */
	if (code == 0)
		code = gnutls_alpn_get_selected_protocol(session->session, &protocol);
	if (code < 0) {
		hb_log_info("grpc: TLS handshake: %s", gnutls_strerror(code));
		return false;
	}
	session->open = true;
	count_handshake(TLS_GRPC, true);
	return true;
}

bool hb_tls_session_receive(struct hb_tls_session *session, const void *data, size_t n)
{
	uint8_t plain[RECORD_BYTES];
	session->in = data;
	session->in_bytes = n;
	if (!session->open && !shake_hands(session))
		return false;
	while (session->open) {
		ssize_t got = gnutls_record_recv(session->session, plain, sizeof(plain));
		if (got == GNUTLS_E_AGAIN)
			break;
		if (got == GNUTLS_E_INTERRUPTED || got == GNUTLS_E_WARNING_ALERT_RECEIVED)
			continue;
		if (got <= 0 || !session->calls.deliver(session->argument, plain, (size_t)got))
			return false;
	}
	return true;
}

bool hb_tls_session_send(struct hb_tls_session *session, const void *data, size_t n)
{
	const char *at = data;
	while (n > 0) {
		ssize_t sent = gnutls_record_send(session->session, at, n);
		if (sent <= 0)
			return false;
		at += sent;
		n -= (size_t)sent;
	}
	return true;
}

/* ---- metrics ---- */

void hb_tls_write_metrics(const struct hb_tls *tls, FILE *out)
{
	static const char *const names[TLS_PROTOCOLS] = {[TLS_HTTP] = "http", [TLS_GRPC] = "grpc"};
	char label[64];
	hb_prom_family(out, "hb_serve_tls_handshakes_total", HB_PROM_COUNTER,
		       "TLS handshakes that have ended, by protocol and outcome");
	for (int i = 0; i < 2 * TLS_PROTOCOLS; i++) {
		int protocol = i / 2;
		bool failed = i % 2;
		snprintf(label, sizeof(label), "protocol=\"%s\",outcome=\"%s\"", names[protocol],
			 failed ? "failed" : "done");
		hb_prom_count(out, "hb_serve_tls_handshakes_total", label,
			      atomic_load(failed ? &counts[protocol].failed : &counts[protocol].done));
	}
}
