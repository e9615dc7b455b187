/* SPDX-License-Identifier: Apache-2.0 */
/* Starting daemons, and asking them what they do; see bench_daemon.h. */
#include "bench/bench_daemon.h"

#include "base/clock.h"
#include "base/install_path.h"
#include "base/json.h"
#include "decide/defaults.h"
#include "protocol/daemon_client.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define ANSWER_NS (15 * HB_NS_PER_S)
#define SLO_SHARE_PPM HB_DEFAULT_ATTAINMENT_PPM

static int answer_ms(void)
{
	return (int)(hb_bench_time_left(ANSWER_NS) / HB_NS_PER_MS) + 1;
}

static int config_write(const struct hb_bench_daemon *daemon, struct hb_error *error)
{
	FILE *file = fopen(daemon->config, "we");
	if (!file)
		return hb_error_set(error, -errno, "%s: %s", daemon->config, strerror(errno));
	fprintf(file, "engine: %s\n%s", daemon->engine, daemon->settings);
	return fclose(file) == 0 ? 0 : hb_error_set(error, -EIO, "%s: cannot be written", daemon->config);
}

static int words_add(const struct hb_bench_daemon *daemon, bool simulated, struct hb_bench_command *command,
		     struct hb_error *error)
{
	char path[PATH_MAX];
	if (hb_install_program("hbd", path, sizeof path) < 0)
		return hb_error_set(error, -ENOENT, "hbd is not found beside hb");
	bool whole = hb_bench_command_add(command, path) && hb_bench_command_add(command, "--foreground") &&
		     hb_bench_command_add(command, "--socket") && hb_bench_command_add(command, daemon->socket) &&
		     hb_bench_command_add(command, "--config") && hb_bench_command_add(command, daemon->config) &&
		     (!simulated || hb_bench_command_split(command, "--gpu sim"));
	return whole ? 0 : hb_error_set(error, -ENOMEM, "out of memory");
}

/* The file alone is not enough: it is there a moment before it can be connected to. */
static int wait_for_socket(struct hb_bench_daemon *daemon, struct hb_error *error)
{
	int64_t deadline_ns = hb_clock_now_ns() + ANSWER_NS;
	int fd;
	while ((fd = hb_client_open(daemon->socket, answer_ms(), NULL)) < 0) {
		int result = hb_bench_process_check(&daemon->process, error);
		if (result)
			return result;
		if (hb_clock_now_ns() > deadline_ns)
			return hb_error_set(error, -ETIMEDOUT, "%s: no socket in time", daemon->process.name);
		if (!hb_bench_sleep_until(hb_clock_now_ns() + 10 * HB_NS_PER_MS))
			return hb_bench_stopped(error);
	}
	close(fd);
	return 0;
}

int hb_bench_daemon_start(struct hb_bench_daemon *daemon, const char *engine, bool simulated, const char *folder,
			  struct hb_bench_command *command, struct hb_error *error)
{
	char name[64], own[96];
	*daemon = (struct hb_bench_daemon){.engine = engine, .settings = "", .process = {.in = -1, .out = -1}};
	snprintf(own, sizeof own, "%.70s/%.16s", folder, engine);
	snprintf(daemon->config, sizeof daemon->config, "%s/hbd.yaml", own);
	snprintf(daemon->socket, sizeof daemon->socket, "%s/hbd.sock", own);
	snprintf(name, sizeof name, "hbd (engine %.16s)", engine);
	if (mkdir(own, 0700) < 0)
		return hb_error_set(error, -errno, "%s: %s", own, strerror(errno));
	int result = config_write(daemon, error);
	result = result ? result : words_add(daemon, simulated, command, error);
	result = result ? result : hb_bench_process_start(&daemon->process, name, command, folder, error);
	return result ? result : wait_for_socket(daemon, error);
}

/* Its state, as often as asked for on one connection. */
static int status_read(const struct hb_bench_daemon *daemon, unsigned times, json_t **status, struct hb_error *error)
{
	int socket = hb_client_open(daemon->socket, answer_ms(), error);
	int result = socket < 0 ? socket : 0;
	char *text = NULL;
	for (unsigned i = 0; i < times && !result; i++) {
		free(text);
		text = NULL;
		result = hb_client_status(socket, &text, error);
	}
	if (socket >= 0)
		close(socket);
	if (!result && status)
		result = hb_json_parse(text, strlen(text), daemon->process.name, status, error);
	free(text);
	return result;
}

int hb_bench_daemon_set(struct hb_bench_daemon *daemon, const char *settings, struct hb_error *error)
{
	if (strcmp(daemon->settings, settings) == 0)
		return 0;
	daemon->settings = settings;
	int result = config_write(daemon, error);
	if (result)
		return result;
	if (kill(daemon->process.pid, SIGHUP) < 0)
		return hb_error_set(error, -errno, "%s: %s", daemon->process.name, strerror(errno));
	/* One loop serves signals and clients: at the second answer a turn of it has begun after the signal. */
	return status_read(daemon, 2, NULL, error);
}

static int64_t tenant_find(const json_t *status, pid_t pid)
{
	const json_t *tenant;
	size_t i;
	json_array_foreach(json_object_get(status, "tenants"), i, tenant)
	{
		if (json_integer_value(json_object_get(tenant, "pid")) == pid)
			return json_integer_value(json_object_get(tenant, "id"));
	}
	return -1;
}

int hb_bench_daemon_slo(const struct hb_bench_daemon *daemon, pid_t pid, int64_t slo_ns, struct hb_error *error)
{
	json_t *status = NULL;
	int result = status_read(daemon, 1, &status, error);
	int64_t tenant = tenant_find(status, pid);
	json_decref(status);
	if (result)
		return result;
	if (tenant < 0)
		return hb_error_set(error, -ESRCH, "%s: there is no tenant of process %d", daemon->process.name,
				    (int)pid);
	const struct hb_msg_set message = {
		.tenant = (uint32_t)tenant, .fields = HB_SET_SLO, .slo_ns = slo_ns, .attainment_ppm = SLO_SHARE_PPM};
	int socket = hb_client_open(daemon->socket, answer_ms(), error);
	if (socket < 0)
		return socket;
	result = hb_client_set(socket, &message, error);
	close(socket);
	return result;
}

int hb_bench_daemon_verify(const struct hb_bench_daemon *daemon, struct hb_error *error)
{
	json_t *status = NULL, *gpu;
	size_t i;
	int result = status_read(daemon, 1, &status, error);
	if (result)
		return result;
	const char *why = json_string_value(
		json_object_get(json_object_get(json_object_get(status, "daemon"), "mps"), "why"));
	json_array_foreach(json_object_get(status, "gpus"), i, gpu)
	{
		const char *engine = json_string_value(json_object_get(gpu, "engine"));
		json_int_t tenants = json_integer_value(json_object_get(gpu, "high")) +
				     json_integer_value(json_object_get(gpu, "low"));
		if (!result && tenants && engine && strcmp(engine, daemon->engine) != 0)
			result = hb_error_set(error, -ENOTSUP, "%s: the GPU is shared by the engine %s instead%s%s",
					      daemon->process.name, engine, why && *why ? ", since " : "",
					      why ? why : "");
	}
	json_decref(status);
	return result;
}
