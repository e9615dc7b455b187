/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A limit on the connections of one client, so that no client can take all. Used
 * by HTTP and gRPC, with one object each. Any thread.
 *
 * A client on this machine is a user: the kernel names the user of a Unix socket
 * and of a TCP connection from this machine. Any other client is an IPv4 address,
 * or a network of 64 bits in IPv6, because one machine can choose its addresses
 * there.
 */
#ifndef HB_SERVER_PEER_LIMIT_H
#define HB_SERVER_PEER_LIMIT_H

#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

struct hb_peer_limit;
struct hb_peer_count; /* a client that has at least one connection */

/* `protocol` is for log lines; `most` is the limit. Returns NULL without memory. */
struct hb_peer_limit *hb_peer_limit_new(const char *protocol, uint32_t most);
/* Frees the object when no client has a connection. NULL is allowed. */
void hb_peer_limit_free(struct hb_peer_limit *limit);
/* Counts an accepted connection. Returns its client; NULL = the client has too many, or no memory is left. */
struct hb_peer_count *hb_peer_limit_enter(struct hb_peer_limit *limit, int fd);
/* Writes as which client the limit counts connections from an address of another machine. */
void hb_peer_describe_address(const struct sockaddr_storage *address, char *out, size_t size);
/* Ends what hb_peer_limit_enter() counted. NULL is allowed. */
void hb_peer_limit_leave(struct hb_peer_limit *limit, struct hb_peer_count *peer);

#endif
