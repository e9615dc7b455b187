/* SPDX-License-Identifier: Apache-2.0 */
/* See api_client.h: the functions of a build without GnuTLS. */
#include "k8s/api_client.h"

#include <errno.h>

int hb_api_request(const struct hb_api_server *server, const char *method, const char *path, const json_t *body,
		   json_t **answer, struct hb_error *error)
{
	return hb_error_set(error, -ENOTSUP, "this build has no TLS (GnuTLS), which the API server needs");
}

void hb_api_refused(struct hb_error *error, const char *method, const char *path, int status, const json_t *answer)
{
	hb_error_format(error, "%s %s: %d", method, path, status);
}
