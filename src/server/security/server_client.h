/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Identifies the client at the other end of a connection: by its user on a Unix socket, by the kind of its address
 * otherwise. Used by the protocols and by access.c.
 */
#ifndef HB_SERVER_SERVER_CLIENT_H
#define HB_SERVER_SERVER_CLIENT_H

#include <stdbool.h>
#include <sys/socket.h>
#include <sys/stat.h>

enum hb_client_kind { HB_CLIENT_REMOTE, HB_CLIENT_LOOPBACK, HB_CLIENT_UNIX };

struct hb_client {
	enum hb_client_kind kind;
	int fd;    /* the connection; valid while the request is answered */
	uid_t uid; /* user and group of a client on a Unix socket */
	gid_t gid;
};

/* Describes the client at `address`, which is connected by fd. */
struct hb_client hb_client_of(const struct sockaddr *address, int fd);
/* Describes the client at the other end of a socket. */
struct hb_client hb_client_of_socket(int fd);
/* Returns whether the user of a client on a Unix socket belongs to the group. */
bool hb_client_in_group(const struct hb_client *client, gid_t group);
/* Returns whether owner and mode of a file let the user of a client on a Unix socket read and write it. */
bool hb_client_may_write(const struct hb_client *client, const struct stat *file);

#endif
