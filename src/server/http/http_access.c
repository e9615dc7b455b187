/* SPDX-License-Identifier: Apache-2.0 */
/* Finds out who sent an HTTP request and whether the caller may make the call. See http_call.h; security/access.c decides. */
#include "base/http_address.h"
#include "server/http/http_call.h"

static const char *find_header(const struct hb_http_call *call, const char *name)
{
	return MHD_lookup_connection_value(call->connection, MHD_HEADER_KIND, name);
}

void hb_http_check_access(struct hb_http_call *call, const char *url, const char *method)
{
	const struct hb_kserve_http_config *config = &call->http->config;
	const union MHD_ConnectionInfo *fd = MHD_get_connection_info(call->connection,
								     MHD_CONNECTION_INFO_CONNECTION_FD);
	const union MHD_ConnectionInfo *address = MHD_get_connection_info(call->connection,
									  MHD_CONNECTION_INFO_CLIENT_ADDRESS);
	struct hb_access_request request = {
		.client = hb_client_of(address ? address->client_addr : NULL, fd ? fd->connect_fd : -1),
		.loopback_listener = hb_http_address_is_loopback(&config->address),
		.host = find_header(call, MHD_HTTP_HEADER_HOST),
		.origin = find_header(call, "Origin"),
		.authorization = find_header(call, MHD_HTTP_HEADER_AUTHORIZATION),
	};
	call->caller = hb_access_identify(config->access, &request);
	call->right = call->model ? HB_RIGHT_USE : hb_http_find_right(url, method);
	call->refusal = hb_access_check(config->access, &call->caller, call->right);
	if (call->refusal)
		call->refused = call->refusal == HB_REFUSED_TOKEN ? 401 : 403;
}
