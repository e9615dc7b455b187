/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ties the daemon's parts together: start, the tick, the cores' wake-ups,
 * reload, end. The daemon is on nobody's path: when it dies, heartbeats stop,
 * gates are taken for open, and everything runs on.
 */
#include "daemon/daemon.h"
#include "daemon/metrics.h"
#include "daemon/recorder.h"
#include "daemon/service_notify.h"

#include "base/clock.h"
#include "base/fault_point.h"
#include "base/log.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* The MPS server is kept this long after the last LP tenant: starting it costs a second. */
#define MPS_LINGER_NS (60 * HB_NS_PER_S)

/* Per-user daemons are started by `hb run` and by nobody else, so they end by themselves. */
#define USER_IDLE_EXIT_NS (600 * HB_NS_PER_S)

/* A beat that is due soon is done while the daemon is awake anyway: being woken is most of what it costs. */
#define BEAT_EARLIEST_NS (HB_TICK_MS * HB_NS_PER_MS / 2)

/* --- GPUs ---------------------------------------------------------------------------- */

enum hb_engine hb_daemon_engine(const struct hb_daemon *daemon)
{
	switch (hb_mps_state(daemon->mps)) {
	case HB_MPS_OFF:
	case HB_MPS_FAILED:
		return HB_ENGINE_TURNS;
	default:
		return daemon->config.engine == HB_CONFIG_ENGINE_SPATIAL ? HB_ENGINE_SPATIAL : HB_ENGINE_TEMPORAL;
	}
}

struct hb_device *hb_daemon_known_device(const struct hb_daemon *daemon, const unsigned char uuid[HB_UUID_BYTES])
{
	for (uint32_t i = 0; i < daemon->n_devices; i++)
		if (memcmp(daemon->devices[i]->uuid, uuid, HB_UUID_BYTES) == 0)
			return daemon->devices[i];
	return NULL;
}

static bool is_used(const struct hb_daemon *daemon, const struct hb_device *device)
{
	for (uint32_t i = 0; i < HB_TENANCIES_MAX; i++)
		if (daemon->tenancies[i] && hb_tenancy_uses(daemon->tenancies[i], device))
			return true;
	return false;
}

/* A new place, or one that nobody uses any more: UUIDs are what programs say, so the table may be full of made-up ones. */
static uint32_t place_for_device(const struct hb_daemon *daemon)
{
	uint32_t place = daemon->n_devices;
	for (uint32_t i = 0; place == HB_DEVICES_MAX && i < HB_DEVICES_MAX; i++)
		if (!is_used(daemon, daemon->devices[i]))
			return i;
	return place;
}

int hb_daemon_device(struct hb_daemon *daemon, const unsigned char uuid[HB_UUID_BYTES], struct hb_device **device)
{
	struct hb_device *known = hb_daemon_known_device(daemon, uuid), *made;
	if (known) {
		*device = known;
		return 0;
	}
	uint32_t place = place_for_device(daemon);
	if (place == HB_DEVICES_MAX)
		return -ENOSPC;
	int result = hb_device_new(daemon, uuid, place, &made);
	if (result < 0) {
		hb_log_error("cannot take on a GPU: %s", strerror(-result));
		return result;
	}
	if (place < daemon->n_devices)
		hb_device_free(daemon->devices[place]);
	else
		daemon->n_devices++;
	daemon->devices[place] = made;
	HB_FAULT(daemon_gpu_made);
	*device = made;
	return 0;
}

static void beat(struct hb_daemon *daemon, int64_t now_ns);

static void run_devices(uv_timer_t *timer)
{
	struct hb_daemon *daemon = timer->data;
	int64_t now_ns = hb_clock_now_ns();
	if (now_ns - daemon->beat_ns >= BEAT_EARLIEST_NS) {
		beat(daemon, now_ns);
		now_ns = hb_clock_now_ns(); /* a tenant that ended in it has told the cores a later time */
	}
	if (daemon->stopping)
		return;
	int64_t next_ns = hb_recorder_launches(daemon, now_ns);
	for (uint32_t i = 0; i < daemon->n_devices; i++)
		hb_device_run(daemon->devices[i], now_ns);
	for (uint32_t i = 0; i < HB_TENANCIES_MAX; i++) {
		if (!daemon->tenancies[i])
			continue;
		int64_t wake_ns = hb_request_rings_read(daemon->tenancies[i], now_ns);
		next_ns = wake_ns < next_ns ? wake_ns : next_ns;
	}
	for (uint32_t i = 0; i < daemon->n_devices; i++) {
		int64_t wake_ns = hb_device_next_ns(daemon->devices[i], now_ns);
		next_ns = wake_ns < next_ns ? wake_ns : next_ns;
	}
	if (next_ns == HB_TIME_NEVER)
		return;
	/* Rounded up: waking before a timer is due would only mean to wake again. */
	int64_t wait_ms = next_ns > now_ns ? (next_ns - now_ns + HB_NS_PER_MS - 1) / HB_NS_PER_MS : 0;
	uv_timer_start(&daemon->wake, run_devices, (uint64_t)wait_ms, 0);
}

void hb_daemon_kick(struct hb_daemon *daemon)
{
	if (!daemon->stopping)
		uv_timer_start(&daemon->wake, run_devices, 0, 0);
}

static void on_call(uv_poll_t *poll, int status, int events)
{
	struct hb_daemon *daemon = poll->data;
	eventfd_t calls;
	eventfd_read(daemon->called_fd, &calls);
	hb_daemon_kick(daemon);
}

void hb_daemon_mps_changed(struct hb_daemon *daemon)
{
	for (uint32_t i = 0; i < daemon->n_devices; i++)
		hb_device_choose_engine(daemon->devices[i], hb_clock_now_ns());
	if (daemon->server)
		hb_server_resume(daemon->server);
	hb_daemon_kick(daemon);
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

/* A daemon that nobody uses ends by itself; its MPS server goes first. */
static void watch_idleness(struct hb_daemon *daemon, int64_t now_ns)
{
	if (count_tenants(daemon)) {
		daemon->idle_since_ns = now_ns;
		return;
	}
	int64_t idle_ns = now_ns - daemon->idle_since_ns;
	if (idle_ns > MPS_LINGER_NS)
		hb_mps_stop(daemon->mps);
	if (daemon->config.idle_exit_ns && idle_ns > daemon->config.idle_exit_ns) {
		hb_log_info("nobody has used the daemon for %lld s", (long long)(idle_ns / HB_NS_PER_S));
		begin_stop(daemon);
	}
}

/* At the latest HB_TICK_MS after the one before. */
static void beat(struct hb_daemon *daemon, int64_t now_ns)
{
	daemon->beat_ns = now_ns;
	uv_timer_again(&daemon->tick);
	for (uint32_t i = 0; i < HB_TENANCIES_MAX; i++) {
		if (daemon->tenancies[i])
			hb_tenancy_look_for_exec(daemon->tenancies[i], now_ns);
		if (daemon->tenancies[i])
			hb_tenancy_tick(daemon->tenancies[i], now_ns);
	}
	for (uint32_t i = 0; i < daemon->n_devices; i++)
		hb_device_beat(daemon->devices[i], now_ns);
	hb_server_tick(daemon->server, now_ns);
	hb_metrics_tick(daemon, now_ns);
	hb_recorder_tick(daemon, now_ns);
	hb_users_tick(daemon->users, now_ns);
	hb_service_alive(now_ns);
	watch_idleness(daemon, now_ns);
}

static void tick(uv_timer_t *timer)
{
	struct hb_daemon *daemon = timer->data;
	daemon->beat_ns = 0;
	hb_daemon_kick(daemon);
}

/* --- start and end ----------------------------------------------------------------------------- */

static void stop_now(struct hb_daemon *daemon)
{
	daemon->stopping = true;
	hb_metrics_free(daemon);
	hb_recorder_free(daemon);
	hb_server_free(daemon->server);
	daemon->server = NULL;
	for (uint32_t i = 0; i < HB_TENANCIES_MAX; i++)
		if (daemon->tenancies[i])
			hb_tenancy_free(daemon->tenancies[i]);
	for (uint32_t i = 0; i < daemon->n_devices; i++)
		hb_device_free(daemon->devices[i]);
	daemon->n_devices = 0;
	hb_users_free(daemon->users);
	hb_mps_free(daemon->mps);
	uv_handle_t *handles[] = {(uv_handle_t *)&daemon->tick,      (uv_handle_t *)&daemon->wake,
				  (uv_handle_t *)&daemon->terminate, (uv_handle_t *)&daemon->interrupt,
				  (uv_handle_t *)&daemon->reload,    (uv_handle_t *)&daemon->called};
	for (size_t i = 0; i < sizeof handles / sizeof handles[0]; i++)
		uv_close(handles[i], NULL);
}

/* Leaves the MPS server to those who live in it, else takes it along. */
static void begin_stop(struct hb_daemon *daemon)
{
	if (daemon->stopping)
		return;
	hb_service_tell("STOPPING=1");
	if (count_mps_tenants(daemon) == 0)
		hb_mps_stop(daemon->mps);
	stop_now(daemon);
}

static void on_stop_signal(uv_signal_t *signal, int number)
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

/* Rules and reserve at once; what a core is built with, at the next start. */
static void on_reload_signal(uv_signal_t *signal, int number)
{
	struct hb_daemon *daemon = signal->data;
	struct hb_daemon_config config;
	struct hb_error error = {""};
	char later[160], said[256];
	hb_service_tell_reloading(hb_clock_now_ns());
	if (load_config(&daemon->options, &config, &error) < 0) {
		hb_log_error("configuration not read again: %s", error.text);
		hb_service_tell("READY=1\nSTATUS=the configuration has an error and was not read again");
		return;
	}
	hb_daemon_config_reload(&daemon->config, &config, later, sizeof later);
	for (uint32_t i = 0; i < daemon->n_devices; i++)
		hb_board_configure(daemon->devices[i]);
	snprintf(said, sizeof said, "READY=1\nSTATUS=configuration read again%s%s",
		 later[0] ? "; not before the next start: " : "", later);
	hb_service_tell(said);
	if (later[0])
		hb_log_warning("configuration read again; these keys wait for the next start: %s", later);
	else
		hb_log_info("configuration read again");
}

static void start_signal(struct hb_daemon *daemon, uv_signal_t *signal, uv_signal_cb callback, int number)
{
	uv_signal_init(&daemon->loop, signal);
	signal->data = daemon;
	uv_signal_start(signal, callback, number);
}

static void tell_ready(struct hb_daemon_options *options)
{
	if (options->ready_fd < 0)
		return;
	if (write(options->ready_fd, "", 1) != 1)
		hb_log_debug("whoever started us does not wait");
	close(options->ready_fd);
	options->ready_fd = -1;
}

static int start(struct hb_daemon *daemon, struct hb_error *error)
{
	int64_t now_ns = hb_clock_now_ns();
	daemon->started_ns = daemon->idle_since_ns = now_ns;
	uv_timer_init(&daemon->loop, &daemon->tick);
	uv_timer_init(&daemon->loop, &daemon->wake);
	uv_poll_init(&daemon->loop, &daemon->called, daemon->called_fd);
	daemon->tick.data = daemon->wake.data = daemon->called.data = daemon;
	uv_poll_start(&daemon->called, UV_READABLE, on_call);
	start_signal(daemon, &daemon->terminate, on_stop_signal, SIGTERM);
	start_signal(daemon, &daemon->interrupt, on_stop_signal, SIGINT);
	start_signal(daemon, &daemon->reload, on_reload_signal, SIGHUP);
	int result = hb_users_new(daemon, &daemon->users);
	if (result < 0)
		return hb_error_set(error, result, "out of memory");
	result = hb_server_new(daemon, &daemon->server, error);
	if (result == 0) {
		result = hb_mps_new(daemon, &daemon->mps);
		if (result < 0)
			hb_error_set(error, result, "%s: cannot prepare the MPS server's folder: %s",
				     daemon->options.dir, strerror(-result));
	}
	if (result < 0)
		return result;
	hb_metrics_new(daemon);
	hb_mps_look(daemon->mps);
	uv_timer_start(&daemon->tick, tick, HB_TICK_MS, HB_TICK_MS);
	tell_ready(&daemon->options);
	hb_service_tell("READY=1");
	return 0;
}

static int open_loop(struct hb_daemon *daemon, struct hb_error *error)
{
	int result = uv_loop_init(&daemon->loop);
	return result < 0 ? hb_error_set(error, result, "no event loop can be made: %s", uv_strerror(result)) : 0;
}

int hb_daemon_run(const struct hb_daemon_options *options, struct hb_error *error)
{
	struct hb_daemon *daemon = calloc(1, sizeof *daemon);
	if (!daemon)
		return hb_error_set(error, -ENOMEM, "out of memory");
	daemon->options = *options;
	daemon->called_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	int result = daemon->called_fd < 0 ? hb_error_set(error, -errno, "no eventfd can be made: %s", strerror(errno))
					   : load_config(options, &daemon->config, error);
	if (result == 0)
		result = open_loop(daemon, error);
	if (result == 0) {
		result = start(daemon, error);
		if (result == 0)
			hb_log_info("serving %s", options->socket);
		else
			stop_now(daemon);
		uv_run(&daemon->loop, UV_RUN_DEFAULT);
		uv_loop_close(&daemon->loop);
	}
	if (daemon->called_fd >= 0)
		close(daemon->called_fd);
	free(daemon);
	return result;
}
