/* SPDX-License-Identifier: Apache-2.0 */
/* See serve_security.h. */
#include "cli/serve_security.h"

#include "base/http_address.h"

#include <errno.h>
#include <grp.h>
#include <string.h>

static int store_who(const char *option, const char *value, unsigned *to, struct hb_error *error)
{
	if (hb_access_parse_to(value, to) == 0)
		return 0;
	return hb_error_set(error, -EINVAL, "--%s takes none, or a list of socket, token and loopback", option);
}

static int store_prefix(const char *value, struct serve_security *security, struct hb_error *error)
{
	if (!value[0] || strchr(value, '/') || strlen(value) >= sizeof(security->access.prefix))
		return hb_error_set(error, -EINVAL,
				    "--shared-memory-prefix takes 1 to %d characters, and none of them is a slash",
				    HB_ACCESS_PREFIX_MAX - 1);
	strcpy(security->access.prefix, value);
	return 0;
}

static int store_host(const char *value, struct hb_access_config *access, struct hb_error *error)
{
	char *host = access->hosts[access->n_hosts];
	if (access->n_hosts == HB_ACCESS_LIST_MAX)
		return hb_error_set(error, -EINVAL, "--allowed-host can be given %d times", HB_ACCESS_LIST_MAX);
	if (!hb_http_host_read(value, strlen(value), host) || !host[0] || strcmp(host, value) != 0)
		return hb_error_set(error, -EINVAL,
				    "--allowed-host takes the name of a host without a port, as in gpu.example");
	access->n_hosts++;
	return 0;
}

static int store_group(const char *value, gid_t *out, struct hb_error *error)
{
	const struct group *group = getgrnam(value);
	if (!group)
		return hb_error_set(error, -EINVAL, "--socket-group: there is no group '%.64s'", value);
	*out = group->gr_gid;
	return 0;
}

/* AF_UNSPEC: the server does not listen on an address. */
static bool is_local(const struct sockaddr_storage *address)
{
	return address->ss_family == AF_UNSPEC || hb_http_address_is_loopback(address);
}

int hb_serve_security_store(int code, const char *value, struct serve_security *security, struct hb_error *error)
{
	struct hb_access_config *access = &security->access;
	switch (code) {
	case HB_SECURITY_CONTROL:
		return store_who("control", value, &access->control, error);
	case HB_SECURITY_SHARED_MEMORY:
		return store_who("shared-memory", value, &access->shared_memory, error);
	case HB_SECURITY_PREFIX:
		return store_prefix(value, security, error);
	case HB_SECURITY_TOKEN_FILE:
		access->token_file = value;
		return 0;
	case HB_SECURITY_OPERATORS:
		return hb_access_parse_operators(value, access, error);
	case HB_SECURITY_ALLOWED_HOST:
		return store_host(value, access, error);
	case HB_SECURITY_HTTP_SOCKET:
		security->http_socket = value;
		return 0;
	case HB_SECURITY_GRPC_SOCKET:
		security->grpc_socket = value;
		return 0;
	case HB_SECURITY_SOCKET_GROUP:
		return store_group(value, &security->socket_group, error);
	case HB_SECURITY_TLS_CERT:
		security->tls.cert = value;
		return 0;
	case HB_SECURITY_TLS_KEY:
		security->tls.key = value;
		return 0;
	case HB_SECURITY_TLS_CLIENT_CA:
		security->tls.client_ca = value;
		return 0;
	case HB_SECURITY_INSECURE_NETWORK:
		security->insecure_network = true;
		return 0;
	default:
		return -ENOENT;
	}
}

int hb_serve_security_check(const struct serve_security *security, const struct sockaddr_storage *http,
			    const struct sockaddr_storage *grpc, struct hb_error *error)
{
	const struct hb_access_config *access = &security->access;
	bool is_protected = security->tls.cert && (security->tls.client_ca || access->token_file);
	bool has_socket = security->http_socket || security->grpc_socket;
	if (((access->control | access->shared_memory) & HB_TO_SOCKET) && !has_socket)
		return hb_error_set(error, -EINVAL,
				    "--control socket and --shared-memory socket need --http-socket or --grpc-socket");
	if ((access->n_users || access->n_groups) && !(access->control & HB_TO_SOCKET))
		return hb_error_set(error, -EINVAL, "--operators needs --control socket");
	if (security->socket_group != HB_NO_GROUP && !has_socket)
		return hb_error_set(error, -EINVAL, "--socket-group needs --http-socket or --grpc-socket");
	if (((access->control | access->shared_memory) & HB_TO_TOKEN) && !access->token_file)
		return hb_error_set(error, -EINVAL, "--control token and --shared-memory token need --token-file FILE");
	if ((access->shared_memory & (HB_TO_TOKEN | HB_TO_LOOPBACK)) && !access->prefix[0])
		return hb_error_set(
			error, -EINVAL,
			"--shared-memory token and --shared-memory loopback need --shared-memory-prefix NAME: "
			"otherwise a client could use the shared memory of other programs");
	if (!security->tls.cert != !security->tls.key || (security->tls.client_ca && !security->tls.cert))
		return hb_error_set(error, -EINVAL,
				    "--tls-cert and --tls-key are given together; --tls-client-ca needs both");
	if (!(is_local(http) && is_local(grpc)) && !is_protected && !security->insecure_network)
		return hb_error_set(
			error, -EINVAL,
			"other machines can reach the address of --http or --grpc: give --tls-cert and --tls-key with "
			"--token-file or --tls-client-ca, or --insecure-network if all of the network may use the "
			"server");
	return 0;
}
