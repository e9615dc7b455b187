/* SPDX-License-Identifier: Apache-2.0 */
/* See peer_limit.h. */
#include "server/kserve/peer_limit.h"

#include "base/clock.h"
#include "base/log.h"

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

/* An address of either family, as the kernel's diagnosis wants it. */
struct tcp_end {
	uint16_t family, port;
	uint32_t address[4];
};

static bool read_end(int fd, int (*get)(int fd, struct sockaddr *address, socklen_t *size), struct tcp_end *out)
{
	struct sockaddr_storage address;
	socklen_t size = sizeof(address);
	const struct sockaddr_in *v4 = (const struct sockaddr_in *)&address;
	const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)&address;
	if (get(fd, (struct sockaddr *)&address, &size) < 0)
		return false;
	*out = (struct tcp_end){.family = address.ss_family};
	if (address.ss_family == AF_INET) {
		out->port = v4->sin_port;
		memcpy(out->address, &v4->sin_addr, sizeof(v4->sin_addr));
	} else if (address.ss_family == AF_INET6) {
		out->port = v6->sin6_port;
		memcpy(out->address, &v6->sin6_addr, sizeof(v6->sin6_addr));
	}
	return true;
}

static bool is_loopback(const struct tcp_end *end)
{
	static const struct in6_addr one = IN6ADDR_LOOPBACK_INIT;
	return end->family == AF_INET ? ntohl(end->address[0]) >> 24 == 127
				      : memcmp(end->address, &one, sizeof(one)) == 0;
}

/*
 * Asks the kernel for the user who made the client's end of a TCP connection on this machine. False: not known. Only an
 * established connection counts: once the client has closed its end, the kernel names root.
 */
static bool find_user(const struct hb_peer_limit *limit, const struct tcp_end *client, const struct tcp_end *server,
		      uint32_t *user)
{
	struct {
		struct nlmsghdr head;
		struct inet_diag_req_v2 body;
	} question = {
		.head = {.nlmsg_len = sizeof(question),
			 .nlmsg_type = SOCK_DIAG_BY_FAMILY,
			 .nlmsg_flags = NLM_F_REQUEST},
		.body = {.sdiag_family = (uint8_t)client->family,
			 .sdiag_protocol = IPPROTO_TCP,
			 .idiag_states = UINT32_MAX,
			 .id = {.idiag_sport = client->port,
				.idiag_dport = server->port,
				.idiag_cookie = {INET_DIAG_NOCOOKIE, INET_DIAG_NOCOOKIE}}},
	};
	struct {
		struct nlmsghdr head;
		struct inet_diag_msg body;
		char more[512];
	} answer;
	memcpy(question.body.id.idiag_src, client->address, sizeof(client->address));
	memcpy(question.body.id.idiag_dst, server->address, sizeof(server->address));
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

static bool identify_peer(const struct hb_peer_limit *limit, int fd, struct peer_name *out)
{
	struct tcp_end client, server;
	struct ucred unix_peer;
	socklen_t size = sizeof(unix_peer);
	uint32_t user;
	*out = (struct peer_name){.kind = PEER_USER};
	if (!read_end(fd, getpeername, &client))
		return false;
	if (client.family == AF_UNIX) {
		if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &unix_peer, &size) < 0)
			return false;
		memcpy(out->bytes, &unix_peer.uid, sizeof(unix_peer.uid));
		return true;
	}
	bool local = read_end(fd, getsockname, &server) &&
		     (is_loopback(&client) || memcmp(client.address, server.address, sizeof(client.address)) == 0);
	if (local && limit->diagnosis >= 0 && find_user(limit, &client, &server, &user)) {
		memcpy(out->bytes, &user, sizeof(user));
		return true;
	}
	out->kind = client.family == AF_INET ? PEER_IPV4 : PEER_IPV6;
	memcpy(out->bytes, client.address, client.family == AF_INET ? 4 : 8);
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
