/* SPDX-License-Identifier: Apache-2.0 */
/* In place of tls.c in a build without GnuTLS (-Dtls=disabled): the options for TLS are refused. */
#include "server/security/tls.h"
#include "server/security/tls_session.h"

#include <errno.h>

int hb_tls_new(const struct hb_tls_config *config, struct hb_tls **out, struct hb_error *error)
{
	return hb_error_set(error, -ENOTSUP, "--tls-cert: this hb serve was built without TLS (meson option tls)");
}

/* hb_tls_new() makes none, so the other functions are not reached. */

void hb_tls_free(struct hb_tls *tls)
{
}

const char *hb_tls_cert_text(const struct hb_tls *tls)
{
	return NULL;
}

const char *hb_tls_key_text(const struct hb_tls *tls)
{
	return NULL;
}

int hb_tls_reload(struct hb_tls *tls, struct hb_error *error)
{
	return 0;
}

const char *hb_tls_priorities(void)
{
	return "";
}

void hb_tls_begin_http(struct hb_tls *tls, void *session, struct hb_tls_handshake *handshake, uint32_t *n_open)
{
}

void hb_tls_end_http(struct hb_tls_handshake *handshake)
{
}

void hb_tls_write_metrics(const struct hb_tls *tls, FILE *out)
{
}

struct hb_tls_session *hb_tls_session_new(struct hb_tls *tls, const struct hb_tls_session_calls *calls, void *argument)
{
	return NULL;
}

void hb_tls_session_free(struct hb_tls_session *session)
{
}

bool hb_tls_session_is_open(const struct hb_tls_session *session)
{
	return false;
}

bool hb_tls_session_receive(struct hb_tls_session *session, const void *data, size_t n)
{
	return false;
}

bool hb_tls_session_send(struct hb_tls_session *session, const void *data, size_t n)
{
	return false;
}
