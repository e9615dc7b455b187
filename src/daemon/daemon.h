/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inside of hbd: what its parts know of each other. One thread, one event
 * loop. tenancy.c keeps tenants and their processes, device.c GPUs and their
 * cores, server.c the socket, mps_server.c the MPS server, daemon.c ties them
 * together and keeps time. Included by src/daemon only.
 */
#ifndef HB_DAEMON_DAEMON_H
#define HB_DAEMON_DAEMON_H

#include "core/core.h"
#include "daemon/admission.h"
#include "daemon/daemon_config.h"
#include "daemon/engine_memory.h"
#include "daemon/pid_watch.h"
#include "protocol/protocol.h"
#include "protocol/socket_path.h"

#include <stdbool.h>
#include <uv.h>

#define HB_TENANCIES_MAX 256 /* also the core's table: a tenant's index is its id there */
#define HB_DEVICES_MAX 32
#define HB_CONNECTIONS_MAX 256
#define HB_TICK_MS 100

struct hb_doorbell_listener;
struct hb_command;
struct hb_daemon;
struct hb_device;
struct hb_gpu_use;
struct hb_meters;
struct hb_metrics;
struct hb_mps;
struct hb_recorder;
struct hb_server;
struct hb_tenancy;
struct hb_users;

/* --- tenancy.c ------------------------------------------------------------------- */

/* A process that keeps its tenant alive. */
struct hb_member {
	struct hb_tenancy *tenancy;
	struct hb_pid_watch *watch; /* NULL = no such member */
	pid_t pid;
	uint64_t start_ticks;
	uint64_t image;         /* hb_process_image() of the program that registered; 0 = not known */
	uint32_t slot;          /* HB_PAGE_PROCESSES for the leader: `hb run`, then the command it became */
	uint64_t requests_read; /* of its ring on the page */
	uint32_t requests_lost; /* of those since the last that could be told */
};

/* The daemon's record of a tenant: all that it decides lives here; the page only carries it to the tenant. */
struct hb_tenancy {
	struct hb_daemon *daemon;
	uint32_t index;  /* in hb_daemon.tenancies, and its id in every core */
	uint32_t number; /* shown to people, not reused soon */
	unsigned char token[HB_TOKEN_BYTES];
	struct hb_peer peer; /* who registered it first */
	uint32_t flags;      /* enum hb_register_flags */
	struct hb_terms asked, terms;
	char reduced[160]; /* why terms are less than asked, "" = they are not */
	uint32_t attainment_ppm, weight;
	enum hb_engine engine; /* asked for */
	bool engine_is_chosen; /* by `auto`: nobody asked for it */
	char engine_why[320];  /* by what; "" = nothing was known */
	struct hb_life life;   /* HP: so far */
	char command[256];     /* printable ASCII */
	int64_t since_ns;
	struct hb_page *page;
	int page_fd;
	uint64_t page_inode;
	struct hb_member leader;
	struct hb_member members[HB_PAGE_PROCESSES]; /* by slot */
	uint32_t n_members;
	uint32_t slots_end;                      /* no member is at this slot or above */
	struct hb_device *devices[HB_PAGE_GPUS]; /* by index of hb_page.gpus */
	uint32_t n_devices;
	uint64_t past[HB_N_COUNTS]; /* counters of processes that are gone */
	int64_t learned_slo_ns;     /* by a core that was replaced; 0 = none */
	int64_t rings_read_ns;      /* when its processes' requests were last read; 0 = never */
	int64_t rings_next_ns;      /* and when they are to be read again */
	int64_t images_ns;          /* when it was last seen that its processes still are the same programs */
	uint32_t repairs;           /* tries left to repair memory sums; 0 = nothing to repair */
};

/* NULL = none has this token. */
struct hb_tenancy *hb_tenancy_find(struct hb_daemon *daemon, const unsigned char token[HB_TOKEN_BYTES]);
struct hb_tenancy *hb_tenancy_numbered(struct hb_daemon *daemon, uint32_t number);
/* `peer` is open (hb_peer_open()) here and below. A new tenant for this request, with a new page or the one handed over (page_fd >= 0; not kept). 0 or negative errno. */
int hb_tenancy_new(struct hb_daemon *daemon, const struct hb_peer *peer, const struct hb_msg_register *request,
		   const char *command, size_t command_length, int page_fd, struct hb_tenancy **tenancy);
void hb_tenancy_free(struct hb_tenancy *tenancy);
/* Adds GPUs the tenant has not used yet. 0, -ENOSPC. */
int hb_tenancy_add_devices(struct hb_tenancy *tenancy, const struct hb_msg_register *request);
/* The process that keeps the tenant while nothing of it uses CUDA. */
int hb_tenancy_lead(struct hb_tenancy *tenancy, const struct hb_peer *peer);
/*
 * A process with CUDA: gives it a slot, or the one that it has (old_slot; HB_PAGE_PROCESSES = none: where the process is known,
 * it executes another program now, and what the one before had on the page is given back). The slot or negative errno.
 */
int hb_tenancy_join(struct hb_tenancy *tenancy, const struct hb_peer *peer, uint32_t old_slot);
/* The process with this pid leaves; the last one out ends the tenant. -ESRCH: it is no member. */
int hb_tenancy_leave(struct hb_tenancy *tenancy, pid_t pid);
/* Brings the page up to date after terms changed. */
void hb_tenancy_publish(struct hb_tenancy *tenancy);
/* Changes what a SET asks for (already admitted). 0, or negative errno with *error. */
int hb_tenancy_set(struct hb_tenancy *tenancy, const struct hb_msg_set *change, const struct hb_terms *terms,
		   struct hb_error *error);
/* Whether some process of it has told that it uses this GPU. */
bool hb_tenancy_uses(const struct hb_tenancy *tenancy, const struct hb_device *device);
/*
 * Every HB_TICK_MS: a process that has executed another program (exec) is the same to its pidfd, but its contexts and memory
 * have gone, and nobody will tell that its work is done. It leaves; when it uses CUDA again it joins again. May end the tenant.
 */
void hb_tenancy_look_for_exec(struct hb_tenancy *tenancy, int64_t now_ns);
/* Every HB_TICK_MS: heartbeat, memory repairs. */
void hb_tenancy_tick(struct hb_tenancy *tenancy, int64_t now_ns);
/* The MPS server itself is neither high nor low: it only has slices. */
static inline bool hb_tenancy_is_server(const struct hb_tenancy *tenancy)
{
	return tenancy->flags & HB_REGISTER_SERVER;
}
static inline bool hb_tenancy_is_low(const struct hb_tenancy *tenancy)
{
	return tenancy->terms.priority == HB_PAGE_LOW && !hb_tenancy_is_server(tenancy);
}

/* --- request_rings.c --------------------------------------------------------------- */

/* Brings what the tenant's processes told into the cores, if it is time to. When to come back; HB_TIME_NEVER. */
int64_t hb_request_rings_read(struct hb_tenancy *tenancy, int64_t now_ns);

/* The tenant's running request with the least time to spare. */
struct hb_request_running {
	int64_t since_ns; /* 0 = none runs */
	int64_t slack_ns; /* deadline - now - what is left of it, as long as it takes alone; HB_TIME_NEVER = no deadline */
};
struct hb_request_running hb_request_running(const struct hb_tenancy *tenancy, const struct hb_tenant *tenant,
					     int64_t now_ns);

/* --- device.c -------------------------------------------------------------------- */

/* What was last seen or told of a tenant on a GPU. */
struct hb_seat {
	bool taken, busy, waiting, draining;
	bool straggles; /* has work on the GPU although it had drained behind its closed gate */
	uint32_t gpu;   /* index on the tenant's page */
	enum hb_gate_state gate;
	uint32_t depth;
	uint32_t terms_ppm;             /* HP: what LP may cost its requests */
	int64_t draining_since_ns;      /* or since when it was last asked why it takes so long */
	int64_t compute_ns, copy_ns;    /* slices that the core asked for */
	uint64_t launches;              /* of all its processes, at the last beat */
	int64_t launched_ns;            /* the last beat at which it had launched something new */
	uint64_t seen_launches;         /* of all its processes, at the last look */
	uint64_t life_judged, life_met; /* requests at the last beat */
	int64_t seen_launching_ns;      /* the last look at which it had launched something new; 0 = none */
	bool empty; /* draining, and nothing was in flight when it began: nobody will ring for that */
};

/* One GPU: a core, a page, and a seat for every tenant. */
struct hb_device {
	struct hb_daemon *daemon;
	uint32_t number; /* its place in hb_daemon.devices */
	unsigned char uuid[HB_UUID_BYTES];
	enum hb_engine engine;
	struct hb_core *core;
	struct hb_gpu_page *page;
	int page_fd;
	struct hb_seat seats[HB_TENANCIES_MAX];
	uint32_t seats_end; /* no seat at this index or above is taken */
	uint32_t n_high, n_low;
	uint64_t not_carried_out; /* actions of the core that this daemon has no mechanism for */
	bool repair_low;
	struct hb_command *gpcs_trial;     /* command.h; NULL = it does not run */
	bool gpcs_looked;                  /* the trial of GPCs was started, or could not be */
	struct hb_doorbell_listener *bell; /* doorbell_listener.h; NULL = never needed so far, or it cannot be made */
	uint32_t listening;                /* what its page says: enum hb_gpu_news */
	bool look_again;                   /* something may have come just before it was listened for */
	int64_t life_beat_ns;              /* the last beat; 0 = none yet */
	struct hb_gpu_use *use;            /* what the driver last said of it; NULL = not looked yet */
	struct hb_meters *meters;          /* meters.h */
};

int hb_device_new(struct hb_daemon *daemon, const unsigned char uuid[HB_UUID_BYTES], uint32_t number,
		  struct hb_device **device);
void hb_device_free(struct hb_device *device);
/* What its core is made with now. */
void hb_device_core_config(const struct hb_device *device, struct hb_core_config *core);
int hb_device_add(struct hb_device *device, struct hb_tenancy *tenancy, uint32_t gpu, int64_t now_ns);
void hb_device_remove(struct hb_device *device, struct hb_tenancy *tenancy, int64_t now_ns);
/* Its SLO or weight changed; `priority_too`: it is taken out and put in again. */
void hb_device_change(struct hb_device *device, struct hb_tenancy *tenancy, bool priority_too, int64_t now_ns);
/* A process got a slot: it starts with the tenant's gate and slices. */
void hb_device_join(struct hb_device *device, struct hb_tenancy *tenancy, uint32_t slot);
/* LP tenants share one MPS context, or take turns: a new core when that has changed. */
void hb_device_choose_engine(struct hb_device *device, int64_t now_ns);
/* Looks at the gates, lets timers run and carries out what the core asks. */
void hb_device_run(struct hb_device *device, int64_t now_ns);
void hb_device_beat(struct hb_device *device, int64_t now_ns);
/* The tenant was seen to launch something on this GPU at or after since_ns. */
bool hb_device_worked_since(const struct hb_device *device, const struct hb_tenancy *tenancy, int64_t since_ns);
/* Tells the GPU's core, and carries out what it asks. 0 or hb_core_post()'s errors. */
int hb_device_post(struct hb_device *device, int64_t now_ns, const struct hb_event *event);

/* The tenant with this index if it uses the GPU, else NULL. */
static inline struct hb_tenancy *hb_device_tenancy(const struct hb_device *device, uint32_t index);

/* --- device_looks.c ---------------------------------------------------------------- */

/* How often to look where nobody tells: against a quantum of 50 ms it is little. */
#define HB_POLL_NS (2 * HB_NS_PER_MS)
/* When to call run() next; HB_TIME_NEVER = not before something happens. */
int64_t hb_device_next_ns(const struct hb_device *device, int64_t now_ns);
/* Says on its page what is to be told by the bell. At the end of run(), and when tenants or the engine changed. */
void hb_device_listen(struct hb_device *device);
void hb_device_listen_end(struct hb_device *device);

/* --- device_slices.c --------------------------------------------------------------- */

/* Brings the tenant's page in line with what its seat says and what is safe. */
void hb_device_give_slices(struct hb_device *device, struct hb_tenancy *tenancy);
/* The MPS server gets what the core gives to LP. */
void hb_device_give_server_slices(struct hb_device *device, int64_t compute_ns, int64_t copy_ns);
/* --- board.c ------------------------------------------------------------------------ */

/* Puts what the configuration says of the GPU in force; also after it was read again, and when the engine has changed. */
void hb_board_configure(struct hb_device *device);
/* Every HB_TICK_MS: what LP may cost the requests of each tenant. */
void hb_board_beat(struct hb_device *device);
/* A process has ended: whatever it told the others of its requests is over. */
void hb_board_forget(struct hb_device *device, pid_t pid);

/* --- gpc_layout.c ------------------------------------------------------------------- */

/* Starts the trial that finds the GPCs of this GPU, once; what it finds goes to the GPU's page. */
void hb_gpcs_look(struct hb_device *device);
/* Ends it if it still runs: the device goes. */
void hb_gpcs_stop(struct hb_device *device);

/* --- engine_choice.c --------------------------------------------------------------- */

/* Settles the engine of a tenant that is being made. 0, or negative errno with *error: it may not run beside another. */
int hb_engine_admit(struct hb_daemon *daemon, struct hb_tenancy *tenancy, struct hb_error *error);
/* The spatial engine was chosen by `auto` and cannot be: goes back to the temporal one. False: somebody asked for it. */
bool hb_engine_step_back(struct hb_tenancy *tenancy, const char *why);
/* Whether its processes are to be clients of the MPS server. */
bool hb_engine_is_inside(const struct hb_tenancy *tenancy);
/* The engine of a GPU with the tenants that use it now. */
enum hb_engine hb_engine_of(const struct hb_device *device);

/* --- engine_life.c ----------------------------------------------------------------- */

/* Every HB_TICK_MS, after it was seen who is at work. */
void hb_life_beat(struct hb_device *device, int64_t now_ns);
/* Before an HP tenant ends: what its engine showed is noted. */
void hb_life_end(struct hb_tenancy *tenancy);
/* Whether a HP tenant that is being made is to live in the spatial engine, by what is known of its program. */
bool hb_life_prefers_space(struct hb_tenancy *tenancy, bool is_possible);

/* --- mps_server.c ------------------------------------------------------------------ */

#define HB_MPS_STATE_LIST(X) \
	X(OFF, "off") \
	X(IDLE, "not started") \
	X(STARTING, "starting") \
	X(READY, "ready") \
	X(FAILED, "failed") \
	X(STOPPING, "stopping")
enum hb_mps_state {
#define X(name, text) HB_MPS_##name,
	HB_MPS_STATE_LIST(X)
#undef X
};

int hb_mps_new(struct hb_daemon *daemon, struct hb_mps **mps);
void hb_mps_free(struct hb_mps *mps);
enum hb_mps_state hb_mps_state(const struct hb_mps *mps);
const char *hb_mps_state_text(const struct hb_mps *mps);
/* Why it is off or failed, "" otherwise. */
const char *hb_mps_why(const struct hb_mps *mps);
const char *hb_mps_pipe_dir(const struct hb_mps *mps);
/* Starts it unless it runs. hb_daemon_mps_changed() is called when the state is no longer STARTING. */
void hb_mps_start(struct hb_mps *mps, uid_t uid);
/* Stops what we started. */
void hb_mps_stop(struct hb_mps *mps);
/* Takes over a server that an earlier daemon left behind, if there is one. At the daemon's start. */
void hb_mps_look(struct hb_mps *mps);
/* The server's own process registered (its shim), or was seen to end. */
void hb_mps_server_seen(struct hb_mps *mps);
void hb_mps_server_gone(struct hb_mps *mps);
/* The token by which the server's shim registers. */
const unsigned char *hb_mps_token(const struct hb_mps *mps);
/* The server's process as the control program named it; 0 = not known. */
pid_t hb_mps_server_pid(const struct hb_mps *mps);

/* --- gpu_users.c ------------------------------------------------------------------- */

int hb_users_new(struct hb_daemon *daemon, struct hb_users **users);
void hb_users_free(struct hb_users *users);
void hb_users_tick(struct hb_users *users, int64_t now_ns);
/* Begins a look at all GPUs, after the one that is under way. True: hb_server_looked() will be called. */
bool hb_users_look(struct hb_users *users);
/* The GPU's memory that this process takes, as last seen; HB_GPU_BYTES_UNKNOWN. */
uint64_t hb_users_bytes(const struct hb_device *device, pid_t pid);
/* Whether this process is a tenant's or our MPS server. */
bool hb_users_cover(const struct hb_daemon *daemon, pid_t pid);
/* Its name for people, printable. False: it has ended since it was seen. */
bool hb_users_name(pid_t pid, char name[32]);

/* --- server.c ---------------------------------------------------------------------- */

int hb_server_new(struct hb_daemon *daemon, struct hb_server **server, struct hb_error *error);
/* Closes connections and removes the socket. */
void hb_server_free(struct hb_server *server);
/* Answers registrations that waited for the MPS server. */
void hb_server_resume(struct hb_server *server);
void hb_server_tick(struct hb_server *server, int64_t now_ns);
/* A look at the GPUs has ended: answers those who wait for it. */
void hb_server_looked(struct hb_server *server);

/* --- status_json.c ------------------------------------------------------------------- */

/* The same as a tree; NULL when out of memory. */
struct json_t *hb_status_json(struct hb_daemon *daemon, int64_t now_ns);
/* What is enforced for a tenant on one of its GPUs: [{mechanism, enforced, why}]. NULL when out of memory. */
struct json_t *hb_status_mechanisms(struct hb_tenancy *tenancy, uint32_t gpu);
/* "temporal" and so on; "role": high, low or mps server */
const char *hb_status_engine(enum hb_engine engine);
const char *hb_status_role(const struct hb_tenancy *tenancy);
/* Everything `hb status --json` shows, to be freed by the caller; NULL when out of memory. */
char *hb_status_text(struct hb_daemon *daemon, int64_t now_ns);

/* --- daemon.c ------------------------------------------------------------------------ */

struct hb_daemon_options {
	char socket[HB_PATH_MAX];
	char dir[HB_PATH_MAX]; /* the socket's folder; files of the MPS server go below it */
	char config_path[512]; /* "" = none */
	char metrics[80];      /* --metrics, before the configuration's; "" = not given */
	bool config_required;  /* --config was given: the file must be there */
	bool system_mode;
	bool simulated; /* --gpu sim: its tenants' GPUs are simulated ones */
	bool has_log;   /* standard error is its log file, to be emptied once the socket is ours */
	int ready_fd;   /* gets one NUL byte once the socket is served, then is closed; -1 = none */
};

struct hb_daemon {
	uv_loop_t loop;
	uv_timer_t tick, wake;
	uv_poll_t called; /* by a doorbell_listener.h, through this eventfd: run the GPUs now */
	int called_fd;
	uv_signal_t terminate, interrupt, reload;
	struct hb_daemon_options options;
	struct hb_daemon_config config;
	int64_t started_ns, idle_since_ns, beat_ns;
	uint32_t next_number;
	struct hb_tenancy *tenancies[HB_TENANCIES_MAX];
	uint32_t n_tenancies;
	struct hb_device *devices[HB_DEVICES_MAX];
	uint32_t n_devices;
	struct hb_server *server;
	struct hb_mps *mps;
	struct hb_users *users;
	struct hb_engine_memory engines;
	struct hb_metrics *metrics;   /* metrics_http.h; NULL = off */
	struct hb_recorder *recorder; /* recorder.h; NULL = nothing is recorded */
	bool stopping;
};

static inline struct hb_tenancy *hb_device_tenancy(const struct hb_device *device, uint32_t index)
{
	return device->seats[index].taken ? device->daemon->tenancies[index] : NULL;
}

/* Runs until told to stop. 0 or negative errno with *error. */
int hb_daemon_run(const struct hb_daemon_options *options, struct hb_error *error);
/* Something was posted to a core: run the GPUs before the loop sleeps again. */
void hb_daemon_kick(struct hb_daemon *daemon);
/* The device with this UUID, made when it is new. 0; -ENOSPC = HB_DEVICES_MAX others are in use; other negative errno. */
int hb_daemon_device(struct hb_daemon *daemon, const unsigned char uuid[HB_UUID_BYTES], struct hb_device **device);
/* The same, NULL when there is none. */
struct hb_device *hb_daemon_known_device(const struct hb_daemon *daemon, const unsigned char uuid[HB_UUID_BYTES]);
void hb_daemon_mps_changed(struct hb_daemon *daemon);
/* How a GPU is to be shared that has no tenants. */
enum hb_engine hb_daemon_engine(const struct hb_daemon *daemon);

#endif
