/* SPDX-License-Identifier: Apache-2.0 */
/* Requests of a tenant's processes about one GPU; see tenant_requests.h. */
#include "daemon/tenant_requests.h"

#include "base/clock.h"
#include "daemon/daemon.h"
#include "daemon/gpu_boards.h"
#include "daemon/gpu_elastic.h"
#include "daemon/gpu_memory.h"
#include "daemon/gpu_peers.h"
#include "daemon/tenancy.h"

#include <errno.h>
#include <string.h>

/* The tenant, if it belongs to the user who asks and uses the GPU; else NULL with *error. */
static struct hb_tenancy *find_requester(struct hb_daemon *daemon, const struct hb_peer *peer,
					 const unsigned char *token, const unsigned char *uuid, struct hb_gpu **gpu,
					 struct hb_error *error)
{
	struct hb_tenancy *tenancy = hb_tenancy_find_for(daemon, token, peer);
	*gpu = hb_gpu_find(daemon, uuid);
	bool is_own = tenancy && (peer->uid == tenancy->peer.uid || peer->uid == 0);
	if (is_own && *gpu && hb_tenancy_uses(tenancy, *gpu))
		return tenancy;
	hb_error_set(error, -ESRCH, "no tenant of this user with that token uses the GPU");
	return NULL;
}

/* HP: the driver refused an allocation. */
static int ask_for_move(struct hb_gpu *gpu, struct hb_tenancy *tenancy, uint64_t bytes, struct hb_error *error)
{
	const char *why;
	int result = hb_gpu_elastic_need(gpu, tenancy, bytes, hb_clock_now_ns(), &why);
	hb_daemon_wake(gpu->daemon);
	return result == -EINPROGRESS ? result : hb_error_set(error, result, "%s", why);
}

int hb_tenant_asks_memory(struct hb_daemon *daemon, const struct hb_peer *peer, const struct hb_msg_memory *request,
			  struct hb_memory_waiter *waiter, struct hb_error *error)
{
	struct hb_gpu *gpu;
	struct hb_tenancy *tenancy = find_requester(daemon, peer, request->token, request->uuid, &gpu, error);
	if (!tenancy)
		return -ESRCH;
	*waiter = (struct hb_memory_waiter){gpu, tenancy->number};
	if (hb_tenancy_is_high(tenancy))
		return ask_for_move(gpu, tenancy, request->bytes, error);
	int result = hb_peers_take_back(gpu, request->bytes, hb_clock_now_ns());
	if (result == -EALREADY)
		return 0;
	if (result == 0)
		result = hb_gpu_memory_ask(gpu, tenancy, request->bytes, hb_clock_now_ns());
	hb_daemon_wake(daemon);
	if (result == -EAGAIN)
		hb_error_set(error, result, "the driver is being asked who uses the GPU's memory");
	else if (result < 0)
		hb_error_set(error, result, "the low-priority tenants use the GPU's memory");
	return result;
}

int hb_tenant_gives_board(struct hb_daemon *daemon, const struct hb_peer *peer, const struct hb_msg_board *request,
			  int fd, struct hb_error *error)
{
	struct hb_gpu *gpu;
	struct hb_tenancy *tenancy = find_requester(daemon, peer, request->token, request->uuid, &gpu, error);
	if (!tenancy)
		return -ESRCH;
	int result = hb_gpu_add_board(gpu, tenancy, peer->pid, fd);
	return result < 0 ? hb_error_set(error, result, "the board is not listed: %s", strerror(-result)) : 0;
}

int hb_tenant_fetches_board(struct hb_daemon *daemon, const struct hb_peer *peer, const struct hb_msg_board *request,
			    struct hb_error *error)
{
	struct hb_gpu *gpu;
	if (!find_requester(daemon, peer, request->token, request->uuid, &gpu, error))
		return -ESRCH;
	int fd = hb_gpu_find_board(gpu, request->number);
	return fd < 0 ? hb_error_set(error, fd, "no board has the number %u now", request->number) : fd;
}
