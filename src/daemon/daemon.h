/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct hb_daemon: what all parts of hbd share. hbd has one
 * event loop (daemon_loop.c), whose thread alone uses it. Tenants are in tenant_record.h, GPUs in
 * gpu_record.h; each other part has a header of its own.
 */
#ifndef HB_DAEMON_DAEMON_H
#define HB_DAEMON_DAEMON_H

#include "daemon/daemon_config.h"
#include "daemon/gpu_record.h"
#include "daemon/request_rings.h"
#include "daemon/tenant_record.h"
#include "daemon/user_budget.h"
#include "nvidia/mask_states.h"
#include "protocol/socket_path.h"

#include <stdbool.h>
#include <string.h>
#include <uv.h>

#define HB_CONNECTIONS_MAX 256
#define HB_TICK_MS 100 /* the daemon's periodic work */

struct hb_fd_closer;
struct hb_gpu_events;
struct hb_gpu_processes;
struct hb_heartbeat;
struct hb_helper;
struct hb_metrics;
struct hb_mps;
struct hb_mps_faults;
struct hb_placements;
struct hb_privileged;
struct hb_recorder;
struct hb_server;
struct hb_socket_lock;
struct hb_supervision;
struct hb_user_names;

struct hb_daemon_options {
	char socket[HB_PATH_MAX];
	char dir[HB_PATH_MAX]; /* the socket's folder; the MPS server's files are below it */
	char config_path[512]; /* "" = none */
	char metrics[80];      /* --metrics, which overrides the configuration; "" = not given */
	bool config_required;  /* --config was given: the file must exist */
	bool system_mode;
	bool simulated; /* --gpu sim: tenants use simulated GPUs */
	bool has_log;   /* standard error is hbd.log, which is emptied once this daemon owns the socket */
	const struct hb_helper *helper; /* has the rights that this process gives up (helper.h); NULL = it keeps them */
	int ready_fd;                   /* receives one NUL byte once the socket is served, then is closed; -1 = none */
};

struct hb_daemon {
	uv_loop_t loop;
	uv_timer_t tick, wake, end_limit;
	uv_check_t turn_end; /* called at the end of each turn of the loop */
	uv_timer_cb on_wake; /* what hb_daemon_wake() lets the loop call */
	uv_poll_t called;    /* readiness of called_fd */
	int called_fd;       /* eventfd that a doorbell listener writes to */
	uv_signal_t terminate, interrupt, reload;
	struct hb_daemon_options options;
	struct hb_daemon_config config;
	int64_t started_ns, idle_since_ns, tick_ns;
	int64_t called_ns;    /* when a doorbell last woke the loop at once */
	uint32_t next_number; /* number of the tenant that registered last */
	struct hb_tenancy *tenancies[HB_TENANCIES_MAX];
	uint32_t n_tenancies;
	struct hb_user_table users;
	struct hb_gpu *gpus[HB_GPUS_MAX];
	uint32_t n_gpus;
	struct hb_request_list requests; /* read from the rings, not posted yet; empty between two turns of the loop */
	struct hb_server *server;
	struct hb_socket_lock *lock; /* of the socket */
	struct hb_heartbeat *heartbeat;
	struct hb_user_names *names;
	struct hb_fd_closer *closer; /* of everything that came from clients */
	enum hb_mask_state
		mask_trial; /* the result of the trial with an unknown driver (mask_guard.c); UNTRIED = none yet */
	struct hb_privileged *privileged;
	uid_t owner; /* who started the daemon; its process may have another user by now */
	struct hb_mps *mps;
	struct hb_supervision *supervision;
	struct hb_mps_faults *faults;
	struct hb_gpu_processes *processes;
	struct hb_placements *placements;
	struct hb_gpu_events *gpu_events;
	char gpu_events_why[HB_GPU_WHY_MAX]; /* why the driver reports no faults of GPUs; "" = it does */
	uint32_t driver_threads;             /* threads that may be waiting for the driver */
	struct hb_engine_history history;
	char engine_file[512];        /* where the history is kept; "" = nowhere */
	struct hb_metrics *metrics;   /* NULL = metrics are off */
	char metrics_address[80];     /* the address that is served; "" = none */
	char metrics_why[200];        /* why metrics are not served; "" = they are */
	struct hb_recorder *recorder; /* NULL = nothing is being recorded */
	bool stopping;
};

/* Lets the loop serve the GPUs before it sleeps again. Call it after anything that the cores should act on. */
static inline void hb_daemon_wake(struct hb_daemon *daemon)
{
	if (!daemon->stopping)
		uv_timer_start(&daemon->wake, daemon->on_wake, 0, 0);
}

/* The GPU with this UUID; NULL = the daemon does not know it. */
static inline struct hb_gpu *hb_gpu_find(const struct hb_daemon *daemon, const unsigned char uuid[HB_UUID_BYTES])
{
	for (uint32_t i = 0; i < daemon->n_gpus; i++)
		if (memcmp(daemon->gpus[i]->uuid, uuid, HB_UUID_BYTES) == 0)
			return daemon->gpus[i];
	return NULL;
}

/* The tenant with this index if it uses the GPU, else NULL. */
static inline struct hb_tenancy *hb_gpu_tenancy(const struct hb_gpu *gpu, uint32_t index)
{
	return gpu->tenants[index].is_present ? gpu->daemon->tenancies[index] : NULL;
}

#endif
