/* SPDX-License-Identifier: Apache-2.0 */
/* See server_client.h. */
#include "server/security/server_client.h"

#include "base/http_address.h"

#include <netinet/in.h>
#include <string.h>

#define GROUPS_MAX 1024 /* a user with more groups counts as a member of none but the first */

/* A client whose user cannot be read counts as one of another machine, which may do least. */
static struct hb_client describe_local(int fd)
{
	struct ucred peer;
	socklen_t bytes = sizeof(peer);
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) < 0)
		return (struct hb_client){.kind = HB_CLIENT_REMOTE, .fd = fd};
	return (struct hb_client){.kind = HB_CLIENT_UNIX, .fd = fd, .uid = peer.uid, .gid = peer.gid};
}

struct hb_client hb_client_of(const struct sockaddr *address, int fd)
{
	struct sockaddr_storage copy = {.ss_family = AF_UNSPEC};
	struct hb_client client = {.kind = HB_CLIENT_REMOTE, .fd = fd};
	if (address && address->sa_family == AF_UNIX)
		return describe_local(fd);
	if (address && address->sa_family == AF_INET)
		memcpy(&copy, address, sizeof(struct sockaddr_in));
	else if (address && address->sa_family == AF_INET6)
		memcpy(&copy, address, sizeof(struct sockaddr_in6));
	if (copy.ss_family != AF_UNSPEC && hb_http_address_is_loopback(&copy))
		client.kind = HB_CLIENT_LOOPBACK;
	return client;
}

struct hb_client hb_client_of_socket(int fd)
{
	struct sockaddr_storage address = {.ss_family = AF_UNSPEC};
	socklen_t bytes = sizeof(address);
	getpeername(fd, (struct sockaddr *)&address, &bytes);
	return hb_client_of((struct sockaddr *)&address, fd);
}

bool hb_client_in_group(const struct hb_client *client, gid_t group)
{
	gid_t groups[GROUPS_MAX];
	socklen_t bytes = sizeof(groups);
	if (client->gid == group)
		return true;
	if (getsockopt(client->fd, SOL_SOCKET, SO_PEERGROUPS, groups, &bytes) < 0)
		return false;
	for (size_t i = 0; i < bytes / sizeof(*groups); i++)
		if (groups[i] == group)
			return true;
	return false;
}

bool hb_client_may_write(const struct hb_client *client, const struct stat *file)
{
	if (client->uid == 0)
		return true;
	/* Like the kernel: the first class that fits decides. */
	mode_t needed = file->st_uid == client->uid                ? S_IRUSR | S_IWUSR
			: hb_client_in_group(client, file->st_gid) ? S_IRGRP | S_IWGRP
								   : S_IROTH | S_IWOTH;
	return (file->st_mode & needed) == needed;
}
