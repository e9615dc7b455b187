/* SPDX-License-Identifier: Apache-2.0 */
/* See mps_takeover.h. */
#include "daemon/mps_takeover.h"

#include "daemon/mps_server.h"
#include "daemon/privileged.h"
#include "daemon/process.h"
#include "daemon/tenancy.h"
#include "daemon/user_names.h"
#include "protocol/daemon_client.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

/* Registers the server with the request that its shim would send. The GPUs are on its page. */
static int make_tenant(struct hb_daemon *daemon, const struct hb_peer *peer, const char *command, int page_fd)
{
	struct hb_msg_register request = {.priority = HB_PAGE_LOW, .flags = HB_REGISTER_SERVER};
	struct hb_tenancy *tenancy;
	if (daemon->options.simulated)
		request.flags |= HB_REGISTER_SIMULATED;
	memcpy(request.token, hb_mps_token(daemon->mps), sizeof request.token);
	int result = hb_tenancy_new(daemon, peer, &request, command, strlen(command), page_fd, &tenancy);
	if (result < 0 || tenancy->n_members)
		return result;
	hb_tenancy_free(tenancy); /* the page belongs to another process */
	return -ESRCH;
}

int hb_mps_take_over(struct hb_daemon *daemon, pid_t server)
{
	struct hb_peer peer;
	if (hb_tenancy_find(daemon, hb_mps_token(daemon->mps)))
		return 0;
	int result = hb_peer_of(server, &peer);
	if (result < 0)
		return result;
	hb_user_names_find(daemon->names, peer.uid, peer.user);
	char command[256];
	int page_fd = hb_privileged_server_page(daemon->privileged, server, peer.start_ticks, command);
	result = page_fd;
	if (page_fd >= 0)
		result = hb_process_lives(peer.pidfd) ? make_tenant(daemon, &peer, command, page_fd) : -ESRCH;
	if (page_fd >= 0)
		close(page_fd);
	hb_peer_close(&peer);
	return result;
}
