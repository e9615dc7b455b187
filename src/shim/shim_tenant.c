/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Joins a tenant, keeps the membership up to date, and leaves it in a forked child;
 * see shim_tenant.h. All of this runs on the application's threads, in calls that
 * are slow by nature; the shim's own threads are started by drain.c,
 * takeover_thread.c, elastic_thread.c and server_thread.c. A daemon that is missing,
 * slow or gone is no error: the process then continues as if it were alone.
 */
#include "shim/shim_tenant.h"

#include "base/clock.h"
#include "base/fault_point.h"
#include "base/log.h"
#include "nvidia/nvidia_rm.h"
#include "protocol/container_token.h"
#include "protocol/daemon_client.h"
#include "protocol/socket_path.h"
#include "protocol/tenant_options_env.h"
#include "shim/drain.h"
#include "shim/elastic.h"
#include "shim/launch_trace.h"
#include "shim/memory_account.h"
#include "shim/server_thread.h"
#include "shim/shim.h"
#include "shim/shim_foresight.h"
#include "shim/shim_spatial.h"
#include "shim/shim_version.h"
#include "shim/split.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FIRST_TIMEOUT_MS 1000 /* in cuInit, which itself takes longer */
#define RETRY_TIMEOUT_MS 100  /* in a synchronize; a running daemon answers in well under 1 ms */
#define RETRY_AFTER_NS HB_NS_PER_S
#define RETRY_MOST_NS (32 * HB_NS_PER_S)

static struct hb_page_process alone_process;
static const struct hb_place alone = {
	.process = &alone_process,
	.gpu_of_device = {[0 ... HB_PAGE_GPUS - 1] = HB_PAGE_GPUS},
};

_Atomic(const struct hb_place *) hb_shim_place = &alone;

/* Held while registering; guards the next four. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct hb_membership member = HB_MEMBERSHIP_NONE;
static struct hb_tenant_options options;
static int n_devices;
static int64_t retry_ns = RETRY_AFTER_NS;

/* Time of the next attempt to register; INT64_MAX: this process does not belong to a tenant. */
static _Atomic(int64_t) next_try_ns = INT64_MAX;

/* The page's index of the current GPU. Initial-exec, so that a thread's first use allocates nothing. */
struct current_gpu {
	const struct hb_place *place; /* to which the index belongs; NULL: the index is unknown */
	unsigned gpu;
};
static __thread struct current_gpu current __attribute__((tls_model("initial-exec")));

static bool get_uuid(int ordinal, unsigned char uuid[HB_UUID_BYTES])
{
	CUdevice device;
	CUuuid found;
	if (HB_REAL(cuDeviceGet)(&device, ordinal) != CUDA_SUCCESS)
		return false;
	if (HB_REAL(cuDeviceGetUuid_v2)(&found, device) != CUDA_SUCCESS &&
	    HB_REAL(cuDeviceGetUuid)(&found, device) != CUDA_SUCCESS)
		return false;
	memcpy(uuid, found.bytes, HB_UUID_BYTES);
	return true;
}

/* Lists the GPUs in CUDA's order, so that options.uuids[] also serves to find a CUDA device on the page. */
static void list_devices(void)
{
	n_devices = 0;
	options.n_gpus = 0;
	if (HB_REAL(cuDeviceGetCount)(&n_devices) != CUDA_SUCCESS)
		n_devices = 0;
	while ((int)options.n_gpus < n_devices && options.n_gpus < HB_PAGE_GPUS &&
	       get_uuid((int)options.n_gpus, options.uuids[options.n_gpus])) {
		size_t total = 0;
		if (HB_REAL(cuDeviceTotalMem_v2)(&total, (CUdevice)options.n_gpus) == CUDA_SUCCESS)
			options.totals[options.n_gpus] = total;
		options.n_gpus++;
	}
}

static uint8_t find_gpu(const struct hb_page *page, const unsigned char *uuid)
{
	for (uint32_t i = 0; i < page->n_gpus && i < HB_PAGE_GPUS; i++)
		if (memcmp(page->gpus[i].uuid, uuid, HB_UUID_BYTES) == 0)
			return (uint8_t)i;
	return HB_PAGE_GPUS;
}

/* NULL: out of memory. */
static struct hb_place *make_place(void)
{
	struct hb_place *place = malloc(sizeof(*place));
	if (!place)
		return NULL;
	*place = alone;
	place->page = member.page;
	place->process = &member.page->processes[member.slot];
	memcpy(place->gpus, member.gpus, sizeof(place->gpus));
	for (uint32_t i = 0; i < options.n_gpus; i++)
		place->gpu_of_device[i] = find_gpu(member.page, options.uuids[i]);
	place->several = n_devices > 1;
	place->replaced = hb_place();
	return place;
}

/* Moves counts from before there was a page (look-ups of entry points) to the page. */
static void move_counters(struct hb_page_process *to)
{
	for (int i = 0; i < HB_N_COUNTS; i++)
		atomic_fetch_add_explicit(&to->counters[i], atomic_exchange(&alone_process.counters[i], 0),
					  memory_order_relaxed);
}

static void write_versions(struct hb_page_process *process)
{
	int driver = 0;
	if (!(options.flags & HB_REGISTER_SERVER)) /* the server's thread is inside the driver now */
		HB_REAL(cuDriverGetVersion)(&driver);
	atomic_store_explicit(&process->shim_version, HB_SHIM_VERSION, memory_order_relaxed);
	atomic_store_explicit(&process->driver_version, (uint32_t)driver, memory_order_relaxed);
	if (atomic_load_explicit(&member.page->features, memory_order_relaxed) & HB_FEATURE_DOORBELL)
		atomic_store_explicit(&process->rings, HB_PAGE_RINGS, memory_order_relaxed);
}

static void publish_place(void)
{
	const struct hb_place *old = hb_place();
	/* New pages of the same GPUs are mapped over the old ones, so the old place is still right. */
	if (old->page && old->process == &member.page->processes[member.slot] &&
	    memcmp(old->gpus, member.gpus, sizeof old->gpus) == 0)
		return;
	struct hb_place *place = make_place();
	if (!place)
		return;
	write_versions(place->process);
	if (!old->page)
		move_counters(place->process);
	atomic_store_explicit(&hb_shim_place, place, memory_order_release);
	hb_rm_watch_attach(place->page, member.slot);
	HB_FAULT(shim_published);
}

/* Returns a connected socket or a negative errno. `options` are constant once a place is published. */
static int connect_to_daemon(int timeout_ms, struct hb_error *error)
{
	char path[HB_PATH_MAX];
	int result = hb_socket_path(options.flags & HB_REGISTER_SIMULATED, path);
	return result == 0 ? hb_client_open(path, timeout_ms, error) : result;
}

int hb_tenant_connect(void)
{
	struct hb_error error;
	return connect_to_daemon(RETRY_TIMEOUT_MS, &error);
}

const unsigned char *hb_tenant_token(void)
{
	return options.token;
}

static int ask_memory(unsigned gpu, uint64_t bytes, int limit_ms)
{
	const struct hb_place *place = hb_place();
	struct hb_error error = {.text = ""};
	int socket = hb_tenant_connect();
	if (socket < 0)
		return socket;
	hb_client_limit(socket, limit_ms);
	int result = hb_client_ask_memory(socket, options.token, place->page->gpus[gpu].uuid, bytes, &error);
	close(socket);
	return result;
}

int hb_tenant_ask_memory(unsigned gpu, uint64_t bytes)
{
	return ask_memory(gpu, bytes, RETRY_TIMEOUT_MS);
}

int hb_tenant_ask_room(unsigned gpu, uint64_t bytes, int limit_ms)
{
	return ask_memory(gpu, bytes, limit_ms);
}

/*
 * `hb run` reports to its user what the daemon grants. A container has no `hb run`, so its first process with CUDA writes
 * one line, for the log of the container.
 */
static void report_in_container(int result, const struct hb_error *error)
{
	static bool reported;
	if (reported || !hb_token_is_of_container(options.token))
		return;
	reported = true;
	if (result < 0)
		hb_log_warning("not managed by Hummingbird, running without priority and limits: %s", error->text);
	else if (member.page->priority != options.priority)
		hb_log_warning("priority high was not granted; `hb status` says why");
}

/* With the lock held. Returns 0 or a negative errno. */
static int register_with_daemon(int timeout_ms)
{
	struct hb_error error = {.text = ""};
	int result = connect_to_daemon(timeout_ms, &error);
	if (result >= 0) {
		int socket = result;
		result = hb_client_register(socket, &options, &member, NULL, 0, &error);
		if (result == 0 && member.slot < HB_PAGE_PROCESSES) {
			publish_place();
			hb_shim_spatial_exchange_boards(socket);
		}
		close(socket);
	}
	if (result < 0)
		hb_log_info("not registered, running unscheduled: %s", error.text);
	if (result != -EAGAIN)
		report_in_container(result, &error);
	return result;
}

static void plan_next_try(int result)
{
	retry_ns = result == 0 || result == -EAGAIN ? RETRY_AFTER_NS : retry_ns * 2;
	if (retry_ns > RETRY_MOST_NS)
		retry_ns = RETRY_MOST_NS;
	atomic_store(&next_try_ns, hb_clock_now_ns() + retry_ns);
}

/* Whether the descriptor is still the page; the application may have closed it and reused its number. */
static bool is_page(int fd, struct stat *found)
{
	return fd >= 0 && fstat(fd, found) == 0 && found->st_ino == member.page_inode;
}

int hb_tenant_page_fd(size_t bytes)
{
	struct stat found;
	if (pthread_mutex_trylock(&lock) != 0)
		return -EAGAIN;
	int fd = is_page(member.page_fd, &found) && (size_t)found.st_size == bytes ? member.page_fd : -ENOENT;
	pthread_mutex_unlock(&lock);
	return fd;
}

/*
 * A forked child forgets the parent's place. If it initialises CUDA, it registers as
 * a process of its own. The child has no other threads.
 */
static void leave_in_child(void)
{
	struct stat found;
	if (!is_page(member.page_fd, &found))
		member.page_fd = -1;
	pthread_mutex_init(&lock, NULL);
	memset(&alone_process, 0, sizeof(alone_process));
	atomic_store(&hb_shim_place, &alone);
	atomic_store(&next_try_ns, INT64_MAX);
	hb_capture_leave_in_child();
	hb_tenant_gpu_forget();
	hb_memory_leave_in_child();
	hb_drain_leave_in_child();
	hb_shim_foresight_leave_in_child();
	hb_launch_trace_leave_in_child();
	hb_split_leave_in_child();
	hb_shim_spatial_leave_in_child();
	hb_elastic_leave_in_child();
	hb_membership_fini(&member);
	HB_FAULT(shim_left_in_child);
}

/* The command line for `hb status`, cut to 255 characters; of other tenants `hb run` knows it. */
static const char *read_command(void)
{
	static char shown[256];
	int fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, shown, sizeof shown - 1);
	if (fd >= 0)
		close(fd);
	for (ssize_t i = 0; i + 1 < n; i++)
		if (!shown[i])
			shown[i] = ' ';
	if (n > 0)
		shown[n] = '\0';
	return n > 0 ? shown : program_invocation_short_name;
}

void hb_tenant_join(void)
{
	static bool watching_forks;
	pthread_mutex_lock(&lock);
	if (!watching_forks)
		watching_forks = pthread_atfork(NULL, NULL, leave_in_child) == 0;
	if (!hb_place()->page && atomic_load(&next_try_ns) == INT64_MAX) {
		hb_tenant_options_init(&options);
		if (watching_forks && hb_tenant_options_from_environment(&options) == 0) {
			options.command = hb_token_is_of_container(options.token) ? read_command()
										  : program_invocation_short_name;
			list_devices();
			HB_FAULT(shim_joining);
			plan_next_try(register_with_daemon(FIRST_TIMEOUT_MS));
			hb_drain_start_if_needed(hb_place());
			hb_shim_foresight_refresh();
			hb_shim_spatial_update_alert(hb_place());
		}
	}
	pthread_mutex_unlock(&lock);
}

/* Another process of the tenant registered the page with a new daemon, and our GPU pages are still those of the old one. */
static bool has_old_gpu_pages(const struct hb_place *place)
{
	const struct hb_gpu_page *gpu = place->gpus[0];
	return gpu && atomic_load_explicit(&gpu->daemon_since_ns, memory_order_relaxed) !=
			      atomic_load_explicit(&place->page->daemon_since_ns, memory_order_relaxed);
}

static bool needs_daemon(const struct hb_place *place)
{
	return !place->page || atomic_load_explicit(&place->page->state, memory_order_acquire) != HB_PAGE_ACTIVE ||
	       atomic_load_explicit(&place->process->state, memory_order_acquire) != HB_PAGE_ACTIVE ||
	       hb_daemon_silent(place) || has_old_gpu_pages(place);
}

/* Registers again, one thread at a time, not before the planned time. */
static void register_again(void)
{
	if (hb_clock_now_ns() < atomic_load_explicit(&next_try_ns, memory_order_relaxed) ||
	    pthread_mutex_trylock(&lock) != 0)
		return;
	if (hb_clock_now_ns() >= atomic_load(&next_try_ns))
		plan_next_try(register_with_daemon(RETRY_TIMEOUT_MS));
	pthread_mutex_unlock(&lock);
}

/*
 * The server makes its context on a GPU when the first client wants one there, long after it registered. It may make no
 * other call for a long time, so this does not wait for the next planned try, unless the daemon has refused these GPUs.
 */
static void register_new_gpus(void)
{
	unsigned char seen[HB_PAGE_GPUS][HB_UUID_BYTES];
	uint32_t n = (uint32_t)hb_rm_watch_uuids(seen, HB_PAGE_GPUS);
	if (n <= atomic_load_explicit(&hb_place()->page->n_gpus, memory_order_acquire) ||
	    pthread_mutex_trylock(&lock) != 0)
		return;
	bool is_new = n != options.n_gpus;
	if (is_new || hb_clock_now_ns() >= atomic_load(&next_try_ns)) {
		options.n_gpus = n;
		memcpy(options.uuids, seen, sizeof seen);
		plan_next_try(register_with_daemon(RETRY_TIMEOUT_MS));
	}
	pthread_mutex_unlock(&lock);
}

void hb_tenant_join_server(void)
{
	if (hb_place()->page) {
		hb_server_thread_start();
		register_new_gpus();
		hb_rm_watch_apply();
		if (needs_daemon(hb_place()))
			register_again();
		return;
	}
	/* Another thread of the server is registering for both. */
	if (pthread_mutex_trylock(&lock) != 0)
		return;
	int64_t next_ns = atomic_load(&next_try_ns);
	bool first = next_ns == INT64_MAX;
	if (!hb_place()->page && (first || hb_clock_now_ns() >= next_ns)) {
		if (first)
			hb_tenant_options_init(&options);
		if (!first || hb_tenant_options_from_environment(&options) == 0) {
			options.command = program_invocation_short_name;
			options.n_gpus = (uint32_t)hb_rm_watch_uuids(options.uuids, HB_PAGE_GPUS);
			if (options.n_gpus)
				plan_next_try(register_with_daemon(FIRST_TIMEOUT_MS));
		}
	}
	pthread_mutex_unlock(&lock);
	hb_server_thread_start();
}

void hb_tenant_refresh(void)
{
	if (atomic_load_explicit(&next_try_ns, memory_order_relaxed) == INT64_MAX)
		return;
	if (hb_place()->page) {
		hb_drain_start_if_needed(hb_place());
		hb_rm_watch_apply();
		hb_memory_update_kept();
		hb_shim_foresight_refresh();
		hb_shim_spatial_refresh();
	}
	if (needs_daemon(hb_place()))
		register_again();
}

bool hb_tenant_inside_mps(void)
{
	return hb_place()->page && (options.flags & HB_REGISTER_MPS);
}

bool hb_tenant_is_high(void)
{
	const struct hb_page *page = hb_place()->page;
	return page && atomic_load_explicit(&page->priority, memory_order_relaxed) == HB_PAGE_HIGH;
}

unsigned hb_tenant_gpu(void)
{
	const struct hb_place *place = hb_place();
	if (current.place != place) {
		CUdevice device;
		if (HB_REAL(cuCtxGetDevice)(&device) != CUDA_SUCCESS || device < 0 || device >= HB_PAGE_GPUS)
			return HB_PAGE_GPUS;
		current = (struct current_gpu){.place = place, .gpu = place->gpu_of_device[device]};
	}
	return current.gpu;
}

int hb_tenant_find_device(const unsigned char uuid[16])
{
	for (uint32_t i = 0; i < options.n_gpus; i++)
		if (memcmp(options.uuids[i], uuid, HB_UUID_BYTES) == 0)
			return (int)i;
	return -1;
}

void hb_tenant_gpu_forget(void)
{
	current.place = NULL;
}

struct hb_gate *hb_tenant_gate(const struct hb_place *place)
{
	unsigned gpu = place->several ? hb_tenant_gpu() : place->gpu_of_device[0];
	if (gpu >= HB_PAGE_GPUS)
		return (struct hb_gate *)alone_process.gates[0]; /* open for ever */
	return (struct hb_gate *)place->process->gates[gpu];
}
