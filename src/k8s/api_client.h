/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests to the API server of Kubernetes, over HTTPS with the token of a service account. Each request is a connection of
 * its own, and waits: call it on a thread that may wait. Any thread. A build without GnuTLS has api_absent.c instead, in
 * which each request fails.
 */
#ifndef HB_K8S_API_CLIENT_H
#define HB_K8S_API_CLIENT_H

#include "base/error.h"

#include <jansson.h>

#define HB_API_ANSWER_MAX (4 << 20) /* bytes of an answer */

struct hb_api_server {
	const char *host, *port; /* host: a name or an address, without brackets */
	const char *credentials; /* folder of the files `token` and `ca.crt`, read for each request */
	int limit_ms;            /* for a whole request */
};

/*
 * Sends a request; `body` NULL = none. Returns the status of HTTP with *answer = the JSON of the answer (NULL: it is not
 * JSON), which the caller frees; or a negative errno with *error if there was no answer.
 */
int hb_api_request(const struct hb_api_server *server, const char *method, const char *path, const json_t *body,
		   json_t **answer, struct hb_error *error);
/* Writes why the server refused: "METHOD PATH: 403 forbidden: ...". */
void hb_api_refused(struct hb_error *error, const char *method, const char *path, int status, const json_t *answer);

#endif
