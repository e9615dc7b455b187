/* SPDX-License-Identifier: Apache-2.0 */
/* The options of `hb serve` that say who may use the server. Used by hb_serve.c. */
#ifndef HB_CLI_SERVE_SECURITY_H
#define HB_CLI_SERVE_SECURITY_H

#include "base/error.h"
#include "server/security/access.h"
#include "server/security/tls.h"
#include "server/security/unix_listener.h"

#include <getopt.h>

/* Codes of the options, beside those of hb_serve.c. */
enum serve_security_code {
	HB_SECURITY_FIRST = 1024,
#define HB_SECURITY_OPTION(code, name, argument) HB_SECURITY_##code,
#include "cli/serve_security.def"
#undef HB_SECURITY_OPTION
};

#define HB_SECURITY_USAGE \
	"  --http-socket PATH   serve HTTP on a Unix socket, too\n" \
	"  --grpc-socket PATH   serve gRPC on a Unix socket, too\n" \
	"  --socket-group GROUP  members of this group may connect to the Unix sockets (default:\n" \
	"                       only the server's own user and root)\n" \
	"  --control WHO        who may load and unload models and change the policy: none\n" \
	"                       (default), or a list of socket, token and loopback\n" \
	"  --operators LIST     users and @groups that may do this through a Unix socket, beside\n" \
	"                       the server's own user and root\n" \
	"  --shared-memory WHO  who may register regions of shared memory: none (default), or a\n" \
	"                       list of socket, token and loopback\n" \
	"  --shared-memory-prefix NAME  the names of these regions must begin with NAME\n" \
	"  --token-file FILE    all calls except health need a token (Authorization: Bearer) of\n" \
	"                       this file; SIGHUP reads it again\n" \
	"  --allowed-host NAME  answer to this name in Host and Origin, too (may be repeated)\n" \
	"  --tls-cert FILE      serve HTTP and gRPC with TLS and this certificate (PEM)\n" \
	"  --tls-key FILE       its private key (PEM), which others cannot read\n" \
	"  --tls-client-ca FILE  clients need a certificate that this authority signed (PEM)\n" \
	"  --insecure-network   serve other machines without encryption and tokens\n"

struct serve_security {
	struct hb_access_config access;
	const char *http_socket, *grpc_socket; /* NULL = none */
	gid_t socket_group;
	struct hb_tls_config tls; /* cert is NULL without TLS */
	bool insecure_network;
};

/* Stores an option. Returns 0, or negative errno with *error; -ENOENT: the code is of another file. */
int hb_serve_security_store(int code, const char *value, struct serve_security *security, struct hb_error *error);
/*
 * Checks whether the options fit together and to the addresses of HTTP and gRPC. Returns 0, or -EINVAL with *error.
 */
int hb_serve_security_check(const struct serve_security *security, const struct sockaddr_storage *http,
			    const struct sockaddr_storage *grpc, struct hb_error *error);

#endif
