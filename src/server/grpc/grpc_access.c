/* SPDX-License-Identifier: Apache-2.0 */
/* Finds out who makes a gRPC call and whether the caller may make it. See grpc_call.h; security/access.c decides. */
#include "base/http_address.h"
#include "grpc/grpc_text.h"
#include "server/grpc/grpc_connection.h"

#include <stdlib.h>
#include <string.h>

void hb_grpc_headers_free(struct hb_grpc_headers *headers)
{
	if (headers)
		explicit_bzero(headers, sizeof(*headers));
	free(headers);
}

void hb_grpc_headers_read(struct hb_grpc_headers *headers, const uint8_t *name, size_t name_length,
			  const uint8_t *value, size_t length)
{
	if (hb_grpc_header_is_named(name, name_length, ":authority"))
		hb_grpc_header_copy(headers->authority, sizeof(headers->authority), value, length);
	else if (hb_grpc_header_is_named(name, name_length, "host") && !headers->authority[0])
		hb_grpc_header_copy(headers->authority, sizeof(headers->authority), value, length);
	else if (hb_grpc_header_is_named(name, name_length, "origin"))
		hb_grpc_header_copy(headers->origin, sizeof(headers->origin), value, length);
	else if (hb_grpc_header_is_named(name, name_length, "authorization"))
		hb_grpc_header_copy(headers->authorization, sizeof(headers->authorization), value, length);
}

bool hb_grpc_check_access(struct hb_grpc_call *call, enum hb_right right)
{
	struct hb_access *access = call->grpc->config.access;
	const struct hb_grpc_headers *headers = call->headers;
	struct hb_access_request request = {
		.client = hb_grpc_connection_client(call->connection),
		.loopback_listener = hb_http_address_is_loopback(&call->grpc->config.address),
	};
	if (headers) {
		request.host = headers->authority;
		request.origin = headers->origin[0] ? headers->origin : NULL;
		request.authorization = headers->authorization;
	}
	call->caller = hb_access_identify(access, &request);
	hb_grpc_headers_free(call->headers);
	call->headers = NULL;
	enum hb_refusal refusal = hb_access_check(access, &call->caller, right);
	if (refusal)
		hb_grpc_fail(call, refusal == HB_REFUSED_TOKEN ? GRPC_UNAUTHENTICATED : GRPC_PERMISSION_DENIED, "%s",
			     hb_access_text(access, refusal));
	return !refusal;
}
