/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who is on each GPU, as the driver says: looked at every few seconds while
 * there are tenants, and when somebody asks for the status. From it come the
 * memory that contexts take beside what tenants hold, and the processes that
 * are on a GPU without being tenants. Nothing is decided by it.
 *
 * The driver may take its time, so a look runs on a thread of its own, one at a
 * time, and touches nothing of the daemon but its own record. (Not of libuv's
 * pool: libuv ends the program where it cannot make that.) Where there can be no
 * thread there is no look. A status waits for the look for LOOK_LIMIT_NS at most
 * (server.c); then it shows the last one.
 */
#include "base/clock.h"
#include "daemon/daemon.h"
#include "gpu/provider.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LOOK_EVERY_NS (5 * HB_NS_PER_S)

struct hb_users {
	struct hb_daemon *daemon;
	const struct hb_provider *provider;
	uv_thread_t thread;
	uv_async_t ended; /* by the thread, at the end of a look */
	bool looking, closing;
	bool again;        /* somebody asked while a look was under way, which may have missed what they ask for */
	int64_t looked_ns; /* the end of the last look; 0 = none yet */
	/* The look's own: what to look at and what was seen. */
	uint32_t n;
	unsigned char uuids[HB_DEVICES_MAX][HB_UUID_BYTES];
	struct hb_gpu_use seen[HB_DEVICES_MAX];
};

static void closed(uv_handle_t *handle)
{
	free(handle->data);
}

void hb_users_free(struct hb_users *users)
{
	if (users && users->looking)
		users->closing = true; /* closed when the look has ended */
	else if (users)
		uv_close((uv_handle_t *)&users->ended, closed);
}

/* On the thread. */
static void look(void *argument)
{
	struct hb_users *users = argument;
	for (uint32_t i = 0; i < users->n; i++)
		users->provider->gpu_use(users->uuids[i], &users->seen[i]);
	uv_async_send(&users->ended);
}

static bool begin(struct hb_users *users);

static void looked(uv_async_t *ended)
{
	struct hb_users *users = ended->data;
	uv_thread_join(&users->thread);
	users->looking = false;
	if (users->closing) {
		hb_users_free(users);
		return;
	}
	users->looked_ns = hb_clock_now_ns();
	for (uint32_t i = 0; i < users->n; i++) {
		struct hb_device *device = hb_daemon_known_device(users->daemon, users->uuids[i]);
		if (device && !device->use)
			device->use = malloc(sizeof *device->use);
		if (device && device->use)
			*device->use = users->seen[i];
	}
	if (!users->again || !begin(users))
		hb_server_looked(users->daemon->server);
}

static bool begin(struct hb_users *users)
{
	struct hb_daemon *daemon = users->daemon;
	users->again = false;
	users->n = daemon->n_devices;
	for (uint32_t i = 0; i < users->n; i++)
		memcpy(users->uuids[i], daemon->devices[i]->uuid, HB_UUID_BYTES);
	users->looking = uv_thread_create(&users->thread, look, users) == 0;
	return users->looking;
}

int hb_users_new(struct hb_daemon *daemon, struct hb_users **users)
{
	struct hb_users *made = calloc(1, sizeof *made);
	if (!made)
		return -ENOMEM;
	int result = uv_async_init(&daemon->loop, &made->ended, looked);
	if (result < 0) {
		free(made);
		return result;
	}
	made->daemon = daemon;
	made->provider = hb_provider_of(daemon->options.simulated);
	made->ended.data = made;
	*users = made;
	return 0;
}

bool hb_users_look(struct hb_users *users)
{
	users->again |= users->looking;
	return users->looking || (users->daemon->n_devices && begin(users));
}

void hb_users_tick(struct hb_users *users, int64_t now_ns)
{
	if (users->daemon->n_tenancies && now_ns - users->looked_ns > LOOK_EVERY_NS)
		hb_users_look(users);
}

/* --- what it says ------------------------------------------------------------------------ */

uint64_t hb_users_bytes(const struct hb_device *device, pid_t pid)
{
	for (uint32_t i = 0; device->use && i < device->use->n_users; i++)
		if (device->use->users[i].pid == pid)
			return device->use->users[i].bytes;
	return HB_GPU_BYTES_UNKNOWN;
}

static bool is_member(const struct hb_tenancy *tenancy, pid_t pid)
{
	for (uint32_t slot = 0; slot < HB_PAGE_PROCESSES; slot++)
		if (tenancy->members[slot].watch && tenancy->members[slot].pid == pid)
			return true;
	return false;
}

bool hb_users_cover(const struct hb_daemon *daemon, pid_t pid)
{
	if (pid == hb_mps_server_pid(daemon->mps))
		return true;
	for (uint32_t i = 0; i < HB_TENANCIES_MAX; i++)
		if (daemon->tenancies[i] && is_member(daemon->tenancies[i], pid))
			return true;
	return false;
}

bool hb_users_name(pid_t pid, char name[32])
{
	char path[32], line[32] = "";
	name[0] = '\0';
	snprintf(path, sizeof path, "/proc/%d/comm", (int)pid);
	FILE *file = fopen(path, "re");
	if (!file)
		return kill(pid, 0) == 0 || errno == EPERM; /* without a name where /proc hides it */
	if (!fgets(line, sizeof line, file))
		line[0] = '\0';
	fclose(file);
	size_t n = 0;
	for (; line[n] && line[n] != '\n'; n++)
		name[n] = line[n] >= 0x20 && line[n] < 0x7f ? line[n] : '?';
	name[n] = '\0';
	return true;
}
