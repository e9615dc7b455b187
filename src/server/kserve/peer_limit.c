/* SPDX-License-Identifier: Apache-2.0 */
/* See peer_limit.h. */
#include "server/kserve/peer_limit.h"

#include "base/clock.h"
#include "base/http_address.h"
#include "base/log.h"
#include "server/security/server_client.h"

#include <arpa/inet.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define PEER_BUCKETS 1024
#define LOG_EVERY_NS (60 * HB_NS_PER_S)

enum peer_kind { PEER_USER, PEER_IPV4, PEER_IPV6 };

struct peer_name {
	uint32_t kind;
	uint8_t bytes[16]; /* user's number, address, or the first 8 bytes of an address */
};

struct hb_peer_count {
	struct peer_name name;
	uint32_t n;
	struct hb_peer_count *next;
};

struct hb_peer_limit {
	char protocol[8];
	uint32_t most;
	pthread_mutex_t lock; /* guards the rest */
	int diagnosis;        /* netlink socket for questions about TCP connections; -1 = not available */
	int64_t logged_ns;
	struct hb_peer_count *buckets[PEER_BUCKETS];
};

/* ---- who the client is ---- */

/* Returns the address without port and family. */
static const uint8_t *find_address(const struct sockaddr_storage *end, size_t *bytes)
{
	bool is_v4 = end->ss_family == AF_INET;
	*bytes = is_v4 ? sizeof(struct in_addr) : sizeof(struct in6_addr);
	return is_v4 ? (const uint8_t *)&((const struct sockaddr_in *)end)->sin_addr
		     : (const uint8_t *)&((const struct sockaddr_in6 *)end)->sin6_addr;
}

static bool have_same_address(const struct sockaddr_storage *one, const struct sockaddr_storage *two)
{
	size_t bytes, more;
	const uint8_t *first = find_address(one, &bytes), *second = find_address(two, &more);
	return bytes == more && memcmp(first, second, bytes) == 0;
}

/*
 * Asks the kernel for the user who made the client's end of a TCP connection on this machine. False: not known. Only an
 * established connection counts: once the client has closed its end, the kernel names root.
 */
static bool find_user(const struct hb_peer_limit *limit, const struct sockaddr_storage *client,
		      const struct sockaddr_storage *server, uint32_t *user)
{
	size_t bytes;
	const uint8_t *from = find_address(client, &bytes), *to = find_address(server, &bytes);
	struct {
		struct nlmsghdr head;
		struct inet_diag_req_v2 body;
	} question = {
		.head = {.nlmsg_len = sizeof(question),
			 .nlmsg_type = SOCK_DIAG_BY_FAMILY,
			 .nlmsg_flags = NLM_F_REQUEST},
		.body = {.sdiag_family = (uint8_t)client->ss_family,
			 .sdiag_protocol = IPPROTO_TCP,
			 .idiag_states = UINT32_MAX,
			 .id = {.idiag_sport = ((const struct sockaddr_in *)client)
						       ->sin_port, /* sockaddr_in6 has the port at the same offset */
				.idiag_dport = ((const struct sockaddr_in *)server)->sin_port,
				.idiag_cookie = {INET_DIAG_NOCOOKIE, INET_DIAG_NOCOOKIE}}},
	};
	struct {
		struct nlmsghdr head;
		struct inet_diag_msg body;
		char more[512];
	} answer;
	memcpy(question.body.id.idiag_src, from, bytes);
	memcpy(question.body.id.idiag_dst, to, bytes);
	/* The kernel answers before send() returns. What an earlier question may have left there is dropped first. */
	while (recv(limit->diagnosis, &answer, sizeof(answer), MSG_DONTWAIT) > 0)
		;
	if (send(limit->diagnosis, &question, sizeof(question), MSG_NOSIGNAL) < 0)
		return false;
	ssize_t n = recv(limit->diagnosis, &answer, sizeof(answer), MSG_DONTWAIT);
	if (n < (ssize_t)(sizeof(answer.head) + sizeof(answer.body)) || answer.head.nlmsg_type != SOCK_DIAG_BY_FAMILY ||
	    answer.body.idiag_state != TCP_ESTABLISHED)
		return false;
	*user = answer.body.idiag_uid;
	return true;
}

/* An IPv4 client of a server that listens at [::] has an IPv6 address that contains its own (::ffff:192.0.2.1). */
static void name_address(const struct sockaddr_storage *client, struct peer_name *out)
{
	size_t bytes;
	const uint8_t *address = find_address(client, &bytes);
	bool is_mapped = client->ss_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED((const struct in6_addr *)address);
	bool is_v4 = client->ss_family == AF_INET || is_mapped;
	out->kind = is_v4 ? PEER_IPV4 : PEER_IPV6;
	memcpy(out->bytes, address + (is_mapped ? 12 : 0), is_v4 ? 4 : 8);
}

static bool identify_peer(const struct hb_peer_limit *limit, int fd, struct peer_name *out)
{
	struct sockaddr_storage client, server;
	socklen_t client_bytes = sizeof(client), server_bytes = sizeof(server);
	uint32_t user;
	*out = (struct peer_name){.kind = PEER_USER};
	if (getpeername(fd, (struct sockaddr *)&client, &client_bytes) < 0 ||
	    getsockname(fd, (struct sockaddr *)&server, &server_bytes) < 0)
		return false;
	if (client.ss_family == AF_UNIX) {
		const struct hb_client peer = hb_client_of_socket(fd);
		memcpy(out->bytes, &peer.uid, sizeof(peer.uid));
		return peer.kind == HB_CLIENT_UNIX;
	}
	bool local = hb_http_address_is_loopback(&client) || have_same_address(&client, &server);
	if (local && limit->diagnosis >= 0 && find_user(limit, &client, &server, &user))
		memcpy(out->bytes, &user, sizeof(user));
	else
		name_address(&client, out);
	return true;
}

static void describe_peer(const struct peer_name *name, char *out, size_t size)
{
	char address[INET6_ADDRSTRLEN] = "";
	uint32_t user;
	memcpy(&user, name->bytes, sizeof(user));
	if (name->kind == PEER_USER)
		snprintf(out, size, "user %u", user);
	else if (inet_ntop(name->kind == PEER_IPV4 ? AF_INET : AF_INET6, name->bytes, address, sizeof(address)))
		snprintf(out, size, "%s%s", address, name->kind == PEER_IPV4 ? "" : "/64");
}

void hb_peer_describe_address(const struct sockaddr_storage *address, char *out, size_t size)
{
	struct peer_name name = {.kind = PEER_USER};
	name_address(address, &name);
	describe_peer(&name, out, size);
}

/* ---- counting ---- */

static struct hb_peer_count **find_place(struct hb_peer_limit *limit, const struct peer_name *name)
{
	uint32_t hash = 2166136261u;
	for (size_t i = 0; i < sizeof(*name); i++)
		hash = (hash ^ ((const uint8_t *)name)[i]) * 16777619u;
	struct hb_peer_count **place = &limit->buckets[hash % PEER_BUCKETS];
	while (*place && memcmp(&(*place)->name, name, sizeof(*name)) != 0)
		place = &(*place)->next;
	return place;
}

static void log_refusal(struct hb_peer_limit *limit, const struct hb_peer_count *peer)
{
	int64_t now_ns = hb_clock_now_ns();
	char who[80] = "";
	if (limit->logged_ns && now_ns - limit->logged_ns < LOG_EVERY_NS)
		return;
	limit->logged_ns = now_ns;
	describe_peer(&peer->name, who, sizeof(who));
	hb_log_warning("%s: %s has %u connections, as many as one client may have (--connections-per-client): closed a "
		       "further one",
		       limit->protocol, who, peer->n);
}

static struct hb_peer_count *count_connection(struct hb_peer_limit *limit, const struct peer_name *name)
{
	struct hb_peer_count **place = find_place(limit, name), *peer = *place;
	if (!peer) {
		peer = *place = calloc(1, sizeof(*peer));
		if (!peer)
			return NULL;
		peer->name = *name;
	}
	if (peer->n == limit->most) {
		log_refusal(limit, peer);
		return NULL;
	}
	peer->n++;
	return peer;
}

struct hb_peer_count *hb_peer_limit_enter(struct hb_peer_limit *limit, int fd)
{
	struct peer_name name;
	pthread_mutex_lock(&limit->lock);
	struct hb_peer_count *peer = identify_peer(limit, fd, &name) ? count_connection(limit, &name) : NULL;
	pthread_mutex_unlock(&limit->lock);
	return peer;
}

void hb_peer_limit_leave(struct hb_peer_limit *limit, struct hb_peer_count *peer)
{
	if (!peer)
		return;
	pthread_mutex_lock(&limit->lock);
	if (--peer->n == 0) {
		*find_place(limit, &peer->name) = peer->next;
		free(peer);
	}
	pthread_mutex_unlock(&limit->lock);
}

struct hb_peer_limit *hb_peer_limit_new(const char *protocol, uint32_t most)
{
	struct hb_peer_limit *limit = calloc(1, sizeof(*limit));
	if (!limit)
		return NULL;
	snprintf(limit->protocol, sizeof(limit->protocol), "%s", protocol);
	limit->most = most;
	pthread_mutex_init(&limit->lock, NULL);
	limit->diagnosis = socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
	return limit;
}

void hb_peer_limit_free(struct hb_peer_limit *limit)
{
	if (!limit)
		return;
	if (limit->diagnosis >= 0)
		close(limit->diagnosis);
	pthread_mutex_destroy(&limit->lock);
	free(limit);
}
