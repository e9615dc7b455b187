/* SPDX-License-Identifier: Apache-2.0 */
/* The event loop of hbd; see daemon_loop.h. */
#include "daemon/daemon_loop.h"

#include "base/clock.h"
#include "base/fault_point.h"
#include "base/log.h"
#include "daemon/elastic_records.h"
#include "daemon/engine_file.h"
#include "daemon/fd_closer.h"
#include "daemon/gpu.h"
#include "daemon/gpu_events.h"
#include "daemon/gpu_poll.h"
#include "daemon/gpu_processes.h"
#include "daemon/gpu_spatial.h"
#include "daemon/heartbeat.h"
#include "daemon/helper.h"
#include "daemon/log_writer.h"
#include "daemon/metrics.h"
#include "daemon/mps_faults.h"
#include "daemon/mps_server.h"
#include "daemon/mps_takeover.h"
#include "daemon/placements.h"
#include "daemon/privileged.h"
#include "daemon/privileges.h"
#include "daemon/recorder.h"
#include "daemon/request_rings.h"
#include "daemon/service_notify.h"
#include "daemon/socket_lock.h"
#include "daemon/socket_server.h"
#include "daemon/supervision.h"
#include "daemon/tenancy.h"
#include "daemon/user_names.h"
#include "daemon/user_places.h"
#include "gpu/provider.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* The MPS server is kept for this long after the last tenant has ended, because starting it takes a second. */
#define MPS_LINGER_NS (60 * HB_NS_PER_S)

/* `hb run` starts a daemon for its user. Such a daemon ends after this long without tenants. */
#define USER_IDLE_EXIT_NS (600 * HB_NS_PER_S)

#define END_LIMIT_MS 1000 /* the longest that the end of the daemon waits for the GPU driver */

/* If the daemon is awake anyway, it runs a tick this early: waking up is most of the cost. */
#define TICK_EARLIEST_NS (HB_TICK_MS * HB_NS_PER_MS / 2)

/* --- serving the GPUs -------------------------------------------------------------------- */

static int64_t earlier_of(int64_t one_ns, int64_t other_ns)
{
	return one_ns < other_ns ? one_ns : other_ns;
}

/* Reads the requests that the tenants' processes reported. Returns when to read again. */
static int64_t read_requests(struct hb_daemon *daemon, int64_t now_ns, struct hb_request_list *list)
{
	int64_t next_ns = HB_TIME_NEVER;
	for (uint32_t i = 0; i < HB_TENANCIES_MAX; i++)
		if (daemon->tenancies[i])
			next_ns = earlier_of(next_ns, hb_request_rings_read(daemon->tenancies[i], now_ns, list));
	return next_ns;
}

/*
 * One direction: reads the requests, polls the gates, posts both to the cores, and writes what the cores decided to the
 * pages. Returns when to serve again.
 */
static int64_t serve_gpus(struct hb_daemon *daemon, int64_t now_ns)
{
	int64_t next_ns = hb_recorder_launches(daemon, now_ns);
	next_ns = earlier_of(next_ns, read_requests(daemon, now_ns, &daemon->requests));
	now_ns = hb_clock_now_ns(); /* not before the end of any request that was read */
	for (uint32_t i = 0; i < daemon->n_gpus; i++)
		hb_gpu_poll(daemon->gpus[i], now_ns);
	hb_request_list_post(&daemon->requests, now_ns);
	for (uint32_t i = 0; i < daemon->n_gpus; i++) {
		hb_gpu_decide(daemon->gpus[i], now_ns);
		next_ns = earlier_of(next_ns, hb_gpu_next_poll_ns(daemon->gpus[i], now_ns));
	}
	return next_ns;
}

static void run_tick(struct hb_daemon *daemon, int64_t now_ns);

static void handle_wake(uv_timer_t *timer)
{
	struct hb_daemon *daemon = timer->data;
	int64_t now_ns = hb_clock_now_ns();
	if (now_ns - daemon->tick_ns >= TICK_EARLIEST_NS) {
		run_tick(daemon, now_ns);
		now_ns =
			hb_clock_now_ns(); /* tenants that ended in the tick were posted to the cores at a later time */
	}
	if (daemon->stopping)
		return;
	int64_t next_ns = serve_gpus(daemon, now_ns);
	if (next_ns == HB_TIME_NEVER)
		return;
	/* Rounded up: waking before a timer is due would only mean to wake again. */
	int64_t wait_ms = next_ns > now_ns ? (next_ns - now_ns + HB_NS_PER_MS - 1) / HB_NS_PER_MS : 0;
	uv_timer_start(&daemon->wake, handle_wake, (uint64_t)wait_ms, 0);
}

static void handle_doorbell(uv_poll_t *poll, int status, int events)
{
	struct hb_daemon *daemon = poll->data;
	eventfd_t calls;
	int64_t now_ns = hb_clock_now_ns();
	eventfd_read(daemon->called_fd, &calls);
	if (now_ns - daemon->called_ns >= HB_NS_PER_MS) {
		daemon->called_ns = now_ns;
		hb_daemon_wake(daemon);
	} else if (!daemon->stopping &&
		   (!uv_is_active((uv_handle_t *)&daemon->wake) || uv_timer_get_due_in(&daemon->wake) > 1)) {
		uv_timer_start(&daemon->wake, handle_wake, 1, 0); /* many tenants may ring at the same time */
	}
}

static void handle_mps_change(struct hb_daemon *daemon)
{
	for (uint32_t i = 0; i < daemon->n_gpus; i++)
		hb_gpu_choose_engine(daemon->gpus[i], hb_clock_now_ns());
	if (daemon->server)
		hb_server_answer_registrations(daemon->server);
	hb_daemon_wake(daemon);
}

static void handle_gpu_processes(struct hb_daemon *daemon)
{
	if (!daemon->server)
		return;
	hb_server_answer_places(daemon->server);
	hb_server_answer_status(daemon->server);
}

/* --- the tick ----------------------------------------------------------------------------- */

static uint32_t count_mps_tenants(const struct hb_daemon *daemon)
{
	uint32_t n = 0;
	for (uint32_t i = 0; i < HB_TENANCIES_MAX; i++) {
		const struct hb_tenancy *tenancy = daemon->tenancies[i];
		n += tenancy && !hb_tenancy_is_server(tenancy) && tenancy->flags & HB_REGISTER_MPS;
	}
	return n;
}

static uint32_t count_tenants(const struct hb_daemon *daemon)
{
	uint32_t n = 0;
	for (uint32_t i = 0; i < HB_TENANCIES_MAX; i++)
		n += daemon->tenancies[i] && !hb_tenancy_is_server(daemon->tenancies[i]);
	return n;
}

static void begin_stop(struct hb_daemon *daemon);

/* A daemon without tenants stops its MPS server after a while, and then itself. */
static void stop_if_idle(struct hb_daemon *daemon, int64_t now_ns)
{
	if (count_tenants(daemon)) {
		daemon->idle_since_ns = now_ns;
		return;
	}
	int64_t idle_ns = now_ns - daemon->idle_since_ns;
	if (idle_ns > MPS_LINGER_NS)
		hb_mps_stop(daemon->mps);
	if (daemon->config.idle_exit_ns && idle_ns > daemon->config.idle_exit_ns) {
		hb_log_info("there has been no tenant for %lld s: the daemon ends", (long long)(idle_ns / HB_NS_PER_S));
		begin_stop(daemon);
	}
}

/* The periodic work; runs at the latest HB_TICK_MS after the last time. */
static void run_tick(struct hb_daemon *daemon, int64_t now_ns)
{
	daemon->tick_ns = now_ns;
	uv_timer_again(&daemon->tick);
	for (uint32_t i = 0; i < HB_TENANCIES_MAX; i++) {
		if (daemon->tenancies[i])
			hb_tenancy_check_exec(daemon->tenancies[i], now_ns);
		if (daemon->tenancies[i])
			hb_tenancy_tick(daemon->tenancies[i]);
	}
	hb_elastic_grant_host(daemon);
	for (uint32_t i = 0; i < daemon->n_gpus; i++)
		hb_gpu_tick(daemon->gpus[i], now_ns);
	hb_server_tick(daemon->server, now_ns);
	hb_supervision_tick(daemon->supervision, now_ns);
	hb_mps_faults_tick(daemon->faults, now_ns);
	hb_metrics_tick(daemon, now_ns);
	hb_recorder_tick(daemon, now_ns);
	hb_gpu_processes_tick(daemon->processes, now_ns);
	hb_gpu_events_tick(daemon->gpu_events);
	hb_placements_tick(daemon->placements, now_ns);
	hb_user_table_tick(&daemon->users, now_ns);
	stop_if_idle(daemon, now_ns);
}

static void handle_turn_end(uv_check_t *check)
{
	struct hb_daemon *daemon = check->data;
	hb_socket_lock_check(daemon->lock);
	hb_heartbeat_turn(daemon->heartbeat);
}

static void handle_tick(uv_timer_t *timer)
{
	struct hb_daemon *daemon = timer->data;
	daemon->tick_ns = 0;
	hb_daemon_wake(daemon);
}

/* --- start and end ----------------------------------------------------------------------------- */

/* A driver that hangs does not keep the daemon: nothing but threads that wait for it is left. */
static void handle_end_limit(uv_timer_t *timer)
{
	const struct hb_daemon *daemon = timer->data;
	if (!daemon->driver_threads)
		return;
	hb_log_warning("the GPU driver does not answer: the daemon ends without waiting for it any longer");
	hb_log_writer_stop();
	_exit(EXIT_SUCCESS);
}

static void stop_now(struct hb_daemon *daemon)
{
	daemon->stopping = true;
	hb_metrics_free(daemon);
	hb_recorder_free(daemon);
	hb_heartbeat_free(daemon->heartbeat); /* first, because others take a lock with a heartbeat for held */
	daemon->heartbeat = NULL;
	hb_server_free(daemon->server);
	daemon->server = NULL;
	hb_supervision_free(daemon->supervision);
	hb_socket_lock_release(daemon->lock);
	daemon->lock = NULL;
	for (uint32_t i = 0; i < HB_TENANCIES_MAX; i++)
		if (daemon->tenancies[i])
			hb_tenancy_free(daemon->tenancies[i]);
	hb_placements_free(daemon->placements);
	daemon->placements = NULL;
	hb_mps_faults_free(daemon->faults);
	for (uint32_t i = 0; i < daemon->n_gpus; i++)
		hb_gpu_free(daemon->gpus[i]);
	daemon->n_gpus = 0;
	hb_gpu_processes_free(daemon->processes);
	hb_gpu_events_free(daemon->gpu_events);
	hb_request_list_free(&daemon->requests);
	hb_mps_free(daemon->mps);
	hb_privileged_free(daemon->privileged);
	hb_fd_closer_free(daemon->closer);
	hb_user_names_free(daemon->names);
	uv_handle_t *handles[] = {(uv_handle_t *)&daemon->tick,      (uv_handle_t *)&daemon->wake,
				  (uv_handle_t *)&daemon->terminate, (uv_handle_t *)&daemon->interrupt,
				  (uv_handle_t *)&daemon->reload,    (uv_handle_t *)&daemon->called,
				  (uv_handle_t *)&daemon->turn_end};
	for (size_t i = 0; i < sizeof handles / sizeof handles[0]; i++)
		uv_close(handles[i], NULL);
	uv_timer_start(&daemon->end_limit, handle_end_limit, END_LIMIT_MS, 0);
	uv_unref((uv_handle_t *)&daemon->end_limit); /* it runs only while other handles keep the loop */
}

/* The MPS server continues to run if tenants run in it; otherwise it is stopped, too. */
static void begin_stop(struct hb_daemon *daemon)
{
	if (daemon->stopping)
		return;
	hb_service_report("STOPPING=1");
	if (count_mps_tenants(daemon) == 0)
		hb_mps_stop(daemon->mps);
	stop_now(daemon);
}

static void handle_stop_signal(uv_signal_t *signal, int number)
{
	hb_log_info("stopped by signal %d", number);
	begin_stop(signal->data);
}

static int load_config(const struct hb_daemon_options *options, struct hb_daemon_config *config, struct hb_error *error)
{
	hb_daemon_config_init(config);
	if (!options->system_mode)
		config->idle_exit_ns = USER_IDLE_EXIT_NS;
	if (!options->config_path[0])
		return 0;
	int result = hb_daemon_config_load(options->config_path, config, error);
	return result == -ENOENT && !options->config_required ? 0 : result;
}

/* Applies what can change at once (rules, reserve, ...); other keys wait for the next start. */
static void handle_reload_signal(uv_signal_t *signal, int number)
{
	struct hb_daemon *daemon = signal->data;
	struct hb_daemon_config config;
	struct hb_error error = {""};
	char later[160], status[256];
	hb_service_report_reloading(hb_clock_now_ns());
	if (load_config(&daemon->options, &config, &error) < 0) {
		hb_log_error("the configuration has an error, so the old one stays in force: %s", error.text);
		hb_service_report("READY=1\nSTATUS=the configuration has an error; the old one stays in force");
		return;
	}
	hb_daemon_config_reload(&daemon->config, &config, later, sizeof later);
	hb_user_places_reload(daemon);
	for (uint32_t i = 0; i < daemon->n_gpus; i++)
		hb_gpu_configure_spatial(daemon->gpus[i]);
	snprintf(status, sizeof status, "READY=1\nSTATUS=configuration read again%s%s",
		 later[0] ? "; these keys apply after a restart: " : "", later);
	hb_service_report(status);
	if (later[0])
		hb_log_warning("configuration read again; these keys apply after a restart: %s", later);
	else
		hb_log_info("configuration read again");
}

static void handle_user_name(void *argument, uid_t uid)
{
	const struct hb_daemon *daemon = argument;
	for (uint32_t i = 0; i < HB_TENANCIES_MAX; i++)
		if (daemon->tenancies[i] && daemon->tenancies[i]->peer.uid == uid)
			hb_user_names_find(daemon->names, uid, daemon->tenancies[i]->peer.user);
	if (daemon->server)
		hb_server_name_found(daemon->server, uid);
}

static void start_signal(struct hb_daemon *daemon, uv_signal_t *signal, uv_signal_cb callback, int number)
{
	uv_signal_init(&daemon->loop, signal);
	signal->data = daemon;
	uv_signal_start(signal, callback, number);
}

static void report_ready(struct hb_daemon_options *options)
{
	if (options->ready_fd < 0)
		return;
	if (write(options->ready_fd, "", 1) != 1)
		hb_log_debug("the program that started the daemon no longer waits for it");
	close(options->ready_fd);
	options->ready_fd = -1;
}

/* From here on the helper process has the rights of root. */
static int give_up_rights(const struct hb_daemon *daemon, struct hb_error *error)
{
	uid_t uid;
	gid_t gid;
	if (!daemon->options.helper)
		return 0;
	if (daemon->config.engine == HB_CONFIG_ENGINE_AUTO && hb_privileges_user(&uid, &gid) == 0)
		hb_engine_file_give(daemon->options.system_mode, uid, gid);
	int result = hb_privileges_drop();
	if (result < 0)
		return hb_error_set(error, result, "cannot continue as user " HB_DAEMON_USER ": %s", strerror(-result));
	hb_log_info("continuing as user " HB_DAEMON_USER "; the helper process %d keeps the rights of root",
		    (int)daemon->options.helper->pid);
	return 0;
}

static int start_daemon(struct hb_daemon *daemon, struct hb_error *error)
{
	static const struct hb_mps_events mps_events = {handle_mps_change, hb_mps_take_over};
	int64_t now_ns = hb_clock_now_ns();
	daemon->on_wake = handle_wake;
	daemon->started_ns = daemon->idle_since_ns = now_ns;
	daemon->owner = geteuid();
	uv_timer_init(&daemon->loop, &daemon->tick);
	uv_timer_init(&daemon->loop, &daemon->wake);
	uv_timer_init(&daemon->loop, &daemon->end_limit);
	uv_check_init(&daemon->loop, &daemon->turn_end);
	uv_poll_init(&daemon->loop, &daemon->called, daemon->called_fd);
	daemon->tick.data = daemon->wake.data = daemon->end_limit.data = daemon->called.data = daemon;
	daemon->turn_end.data = daemon;
	uv_check_start(&daemon->turn_end, handle_turn_end);
	uv_poll_start(&daemon->called, UV_READABLE, handle_doorbell);
	start_signal(daemon, &daemon->terminate, handle_stop_signal, SIGTERM);
	start_signal(daemon, &daemon->interrupt, handle_stop_signal, SIGINT);
	start_signal(daemon, &daemon->reload, handle_reload_signal, SIGHUP);
	int result = hb_privileged_new(&daemon->loop, &daemon->options, &daemon->privileged);
	if (result < 0)
		return hb_error_set(error, result, "cannot listen to the helper process: %s", strerror(-result));
	result = hb_gpu_processes_new(daemon, handle_gpu_processes, &daemon->processes);
	daemon->placements = hb_placements_new(daemon);
	if (result == 0 && !daemon->placements)
		result = -ENOMEM;
	if (result < 0)
		return hb_error_set(error, result, "out of memory");
	result = hb_supervision_new(daemon, &daemon->supervision);
	if (result == 0)
		result = hb_mps_faults_new(daemon, &daemon->faults);
	if (result < 0)
		return hb_error_set(error, result, "out of memory");
	result = hb_gpu_events_new(daemon, &daemon->gpu_events);
	if (result < 0)
		return hb_error_set(error, result, "cannot listen to faults of GPUs: %s", strerror(-result));
	result = hb_fd_closer_new(&daemon->closer);
	if (result < 0)
		return hb_error_set(error, result, "cannot start a thread: %s", strerror(-result));
	result = hb_user_names_new(&daemon->loop, handle_user_name, daemon, &daemon->names);
	if (result < 0)
		return hb_error_set(error, result, "cannot look up names of users: %s", strerror(-result));
	result = hb_server_new(daemon, &daemon->server, error);
	if (result == 0) {
		result = hb_heartbeat_new(daemon->lock, &daemon->heartbeat);
		if (result < 0)
			hb_error_set(error, result, "cannot start the thread of the heartbeat: %s", strerror(-result));
	}
	if (result == 0) {
		result = hb_mps_new(daemon, &mps_events, &daemon->mps);
		if (result < 0)
			hb_error_set(error, result, "%s: cannot prepare the MPS server's folder: %s",
				     daemon->options.dir, strerror(-result));
	}
	if (result < 0)
		return result;
	hb_metrics_new(daemon);
	hb_provider_of(daemon->options.simulated)->open_logs();
	result = give_up_rights(daemon, error);
	if (result < 0)
		return result;
	if (daemon->config.engine == HB_CONFIG_ENGINE_AUTO)
		hb_engine_file_begin(daemon->options.system_mode, daemon->engine_file, sizeof daemon->engine_file,
				     &daemon->history);
	hb_mps_find_old_server(daemon->mps);
	uv_timer_start(&daemon->tick, handle_tick, HB_TICK_MS, HB_TICK_MS);
	report_ready(&daemon->options);
	hb_service_report("READY=1");
	return 0;
}

static int open_loop(struct hb_daemon *daemon, struct hb_error *error)
{
	int result = uv_loop_init(&daemon->loop);
	return result < 0 ? hb_error_set(error, result, "cannot create an event loop: %s", uv_strerror(result)) : 0;
}

int hb_daemon_run(const struct hb_daemon_options *options, struct hb_error *error)
{
	struct hb_daemon *daemon = calloc(1, sizeof *daemon);
	if (!daemon)
		return hb_error_set(error, -ENOMEM, "out of memory");
	daemon->options = *options;
	daemon->called_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	int result = daemon->called_fd < 0
			     ? hb_error_set(error, -errno, "cannot create an eventfd: %s", strerror(errno))
			     : load_config(options, &daemon->config, error);
	if (result == 0) {
		hb_user_places_init(daemon);
		result = open_loop(daemon, error);
	}
	if (result == 0) {
		result = start_daemon(daemon, error);
		if (result == 0)
			hb_log_info("serving %s", options->socket);
		else
			stop_now(daemon);
		uv_run(&daemon->loop, UV_RUN_DEFAULT);
		uv_close((uv_handle_t *)&daemon->end_limit, NULL);
		uv_run(&daemon->loop, UV_RUN_DEFAULT);
		uv_loop_close(&daemon->loop);
	}
	hb_engine_file_finish();
	if (daemon->called_fd >= 0)
		close(daemon->called_fd);
	free(daemon);
	return result;
}
