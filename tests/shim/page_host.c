/* SPDX-License-Identifier: Apache-2.0 */
/* The daemon's side of a page for tests; see page_host.h. Fails by abort(), because a broken host is no result of a test. */
#include "page_host.h"

#include "hummingbird/page_trace.h"

#include "base/clock.h"
#include "fake/fake_driver.h"
#include "protocol/wire.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define TOKEN "00112233445566778899aabbccddeeff"

static struct hb_page_host *present; /* the host that answers while a child runs */

static void need(bool holds, const char *what)
{
	if (!holds) {
		perror(what);
		abort();
	}
}

/*
 * Replaces libc's function, also for the shim. The shim gives up after some time if the daemon does not answer
 * (daemon_client.c). This host always answers, but on a busy machine perhaps late.
 */
__attribute__((visibility("default"))) int setsockopt(int socket, int level, int option, const void *value,
						      socklen_t size)
{
	if (level == SOL_SOCKET && (option == SO_RCVTIMEO || option == SO_SNDTIMEO))
		return 0;
	return (int)syscall(SYS_setsockopt, socket, level, option, value, size);
}

static void *shared_memory(const char *name, size_t size, int *fd_out)
{
	*fd_out = memfd_create(name, MFD_CLOEXEC);
	need(*fd_out >= 0 && ftruncate(*fd_out, (off_t)size) == 0, "memfd");
	void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, *fd_out, 0);
	need(memory != MAP_FAILED, "mmap");
	return memory;
}

static void fill_pages(struct hb_page_host *host)
{
	host->page->magic = HB_PAGE_MAGIC;
	host->page->version = HB_PAGE_VERSION;
	host->page->size_bytes = sizeof(*host->page);
	host->page->tenant = 1;
	host->page->n_gpus = 1;
	host->page->state = HB_PAGE_ACTIVE;
	host->page->priority = HB_PAGE_LOW;
	host->page->heartbeat_ns = INT64_MAX; /* never too old, unless a test changes it */
	host->page->gpus[0].state = HB_PAGE_ACTIVE;
	host->page->gpus[0].limit_bytes = UINT64_MAX;
	host->page->gpus[0].low_lease_bytes = UINT64_MAX;
	host->page->features = HB_FEATURE_LEASES | HB_FEATURE_DOORBELL | HB_FEATURE_BOARDS;
	host->gpu->magic = HB_GPU_PAGE_MAGIC;
	host->gpu->version = HB_PAGE_VERSION;
	host->gpu->size_bytes = sizeof(*host->gpu);
}

void hb_page_host_init(struct hb_page_host *host)
{
	*host = (struct hb_page_host){.folder = "/tmp/hb-shim-test-XXXXXX", .last_board = UINT32_MAX};
	present = host;
	need(mkdtemp(host->folder) != NULL, "mkdtemp");
	snprintf(host->socket_path, sizeof(host->socket_path), "%s/hbd.sock", host->folder);
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	strcpy(address.sun_path, host->socket_path);
	host->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	need(host->listener >= 0 && bind(host->listener, (struct sockaddr *)&address, sizeof(address)) == 0 &&
		     listen(host->listener, 16) == 0,
	     "socket");
	host->page = shared_memory("page", sizeof(*host->page), &host->page_fd);
	need(ftruncate(host->page_fd, HB_TRACE_OFFSET + HB_TRACE_BYTES) == 0, "memfd");
	host->gpu = shared_memory("gpu", sizeof(*host->gpu), &host->gpu_fd);
	host->board = shared_memory("host-board", HB_PAGE_BOARD_BYTES, &host->board_fd);
	fill_pages(host);
	setenv("HB_SOCKET", host->socket_path, 1);
	setenv("HB_TENANT", TOKEN, 1);
}

void hb_page_host_fini(struct hb_page_host *host)
{
	munmap(host->page, sizeof(*host->page));
	munmap(host->gpu, sizeof(*host->gpu));
	munmap(host->board, HB_PAGE_BOARD_BYTES);
	close(host->board_fd);
	close(host->page_fd);
	close(host->gpu_fd);
	close(host->listener);
	DIR *folder = opendir(host->folder);
	struct dirent *entry;
	while (folder && (entry = readdir(folder)))
		unlinkat(dirfd(folder), entry->d_name, 0);
	if (folder)
		closedir(folder);
	rmdir(host->folder);
}

void hb_page_host_simulate(struct hb_page_host *host)
{
	setenv("HB_SIM_GPU", host->folder, 1);
	setenv("CUDA_MPS_PIPE_DIRECTORY", host->folder, 1);
}

void hb_page_host_foresight(struct hb_page_host *host)
{
	hb_page_host_init(host);
	hb_page_host_simulate(host);
	host->page->priority = HB_PAGE_HIGH;
	host->page->gpus[0].engine = HB_ENGINE_TEMPORAL;
	host->gpu->tenants_high = 1;
	host->gpu->tenants_low = 1;
}

bool hb_page_host_is_wanted(const struct hb_page_host *host)
{
	struct pollfd ready = {.fd = host->listener, .events = POLLIN};
	return poll(&ready, 1, 0) == 1;
}

/* A process may end while a thread of its shim talks to the host. Returns false in that case. */
static bool still_there(int error, const char *what)
{
	bool left = error == -ENOTCONN || error == -ECONNRESET || error == -EPIPE;
	need(!error || left, what);
	return !error;
}

static bool receive(int socket, union hb_msg *message)
{
	struct hb_wire_fds fds;
	const char *why = "receive";
	bool received = still_there(hb_wire_receive(socket, HB_SENDER_CLIENT, message, &fds, &why), why);
	hb_wire_close_fds(&fds);
	return received;
}

static bool reply(int socket, const union hb_msg *message, const int *fds, size_t n_fds)
{
	return still_there(hb_wire_send(socket, message, fds, n_fds), "send");
}

static void answer(int socket, union hb_msg *message, const struct hb_page_host *host, uint32_t slot)
{
	hb_msg_init(message, HB_MSG_REGISTERED);
	message->as_REGISTERED.tenant = 1;
	message->as_REGISTERED.slot = slot;
	message->as_REGISTERED.generation = 1;
	message->as_REGISTERED.n_fds = 2;
	reply(socket, message, (int[]){host->page_fd, host->gpu_fd}, 2);
}

/* Fails instead of waiting for a child that ended before it registered. */
static void wait_for_child(const struct hb_page_host *host)
{
	while (!hb_page_host_is_wanted(host)) {
		siginfo_t child = {0};
		bool ended = waitid(P_ALL, 0, &child, WEXITED | WNOHANG | WNOWAIT) == 0 && child.si_pid;
		need(!ended || (child.si_code == CLD_EXITED && child.si_status == 0) || hb_page_host_is_wanted(host),
		     "the child ended before it came");
		usleep(200);
	}
}

static bool greet(int socket, union hb_msg *message)
{
	if (!receive(socket, message))
		return false;
	need(message->header.kind == HB_MSG_HELLO, "kind of message");
	hb_msg_init(message, HB_MSG_WELCOME);
	message->as_WELCOME.version = HB_PROTOCOL_VERSION;
	message->as_WELCOME.page_version = HB_PAGE_VERSION;
	return reply(socket, message, NULL, 0);
}

/* Answers a process that asks for memory, from low_free_bytes. */
static void answer_memory(struct hb_page_host *host, int socket, union hb_msg *message)
{
	struct hb_page_gpu *gpu = &host->page->gpus[0];
	uint64_t wanted = gpu->used_bytes + message->as_MEMORY.bytes, lease = gpu->low_lease_bytes;
	host->memory_asked++;
	hb_msg_init(message, HB_MSG_DONE);
	if (wanted > lease && wanted - lease > host->low_free_bytes) {
		hb_msg_init(message, HB_MSG_ERROR);
		message->as_ERROR.code = -ENOMEM;
	} else if (wanted > lease) {
		host->low_free_bytes -= wanted - lease;
		gpu->low_lease_bytes = wanted;
	}
	reply(socket, message, NULL, 0);
}

/* Lists the board of an HP process that gives one. */
static void answer_board(struct hb_page_host *host, int socket, union hb_msg *message)
{
	struct hb_page_board *entry = &host->gpu->boards[host->boards_given++];
	entry->tenant = host->page->tenant;
	entry->slot = host->next_slot - 1;
	entry->generation = host->page->processes[entry->slot].generation;
	entry->number = 1000 + host->boards_given;
	hb_msg_init(message, HB_MSG_DONE);
	reply(socket, message, NULL, 0);
}

static void answer_fetch(struct hb_page_host *host, int socket, union hb_msg *message)
{
	uint32_t number = message->as_FETCH_BOARD.number;
	bool listed = number == host->gpu->boards[0].number && number <= host->last_board;
	hb_msg_init(message, listed ? HB_MSG_FETCHED_BOARD : HB_MSG_ERROR);
	if (!listed)
		message->as_ERROR.code = number <= host->last_board ? -ENOENT : -EBUSY;
	host->boards_fetched += listed;
	reply(socket, message, &host->board_fd, listed);
}

/* Answers about boards until the process closes the connection. */
static void answer_boards(struct hb_page_host *host, int socket, union hb_msg *message)
{
	while (receive(socket, message)) {
		if (message->header.kind == HB_MSG_BOARD)
			answer_board(host, socket, message);
		else
			answer_fetch(host, socket, message);
	}
}

void hb_page_host_list_board(struct hb_page_host *host)
{
	host->gpu->boards[0].number++;
	host->gpu->boards_epoch++;
}

static struct hb_page_process *answer_register(struct hb_page_host *host, int socket, union hb_msg *message)
{
	if (!host->page)
		abort();
	host->asked = message->as_REGISTER;
	/* The page is that of the driver's GPU, whichever it is. */
	memcpy(host->page->gpus[0].uuid, host->asked.uuids[0], HB_UUID_BYTES);
	uint32_t slot = host->asked.flags & HB_REGISTER_PAGE ? host->asked.slot : host->next_slot++;
	host->page->processes[slot].state = HB_PAGE_ACTIVE;
	answer(socket, message, host, slot);
	answer_boards(host, socket, message);
	return &host->page->processes[slot];
}

static struct hb_page_process *answer_any(struct hb_page_host *host, int socket, union hb_msg *message)
{
	switch (message->header.kind) {
	case HB_MSG_MEMORY:
		answer_memory(host, socket, message);
		return NULL;
	case HB_MSG_BOARD:
		answer_board(host, socket, message);
		return NULL;
	case HB_MSG_FETCH_BOARD:
		answer_fetch(host, socket, message);
		return NULL;
	default:
		return answer_register(host, socket, message);
	}
}

/* Serves one connection. Returns the process if it has registered, else NULL. */
static struct hb_page_process *serve_any(struct hb_page_host *host)
{
	struct hb_page_process *process = NULL;
	union hb_msg *message = malloc(sizeof(*message));
	int socket = accept(host->listener, NULL, NULL);
	need(message && socket >= 0, "accept");
	if (greet(socket, message) && receive(socket, message)) {
		process = answer_any(host, socket, message);
		answer_boards(host, socket, message);
	}
	close(socket);
	free(message);
	return process;
}

struct hb_page_process *hb_page_host_serve(struct hb_page_host *host)
{
	struct hb_page_process *process = NULL;
	while (!process) {
		wait_for_child(host);
		process = serve_any(host); /* one that registered before may ask for memory first */
	}
	return process;
}

void hb_page_host_begin_again(struct hb_page_host *host)
{
	struct hb_page_process *first = &host->page->processes[0];
	uint32_t pid = first->pid; /* set by the host */
	memset(first, 0, sizeof(*first));
	first->pid = pid;
	host->next_slot = 0;
}

struct hb_gate *hb_page_host_gate(struct hb_page_process *process)
{
	return (struct hb_gate *)process->gates[0];
}

void hb_page_host_set_gate(struct hb_page_process *process, enum hb_gate_state state)
{
	struct hb_gate *gate = hb_page_host_gate(process);
	if (hb_gate_set(gate, state, 0))
		syscall(SYS_futex, &gate->wake_word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

static bool leaves_early;

/* Asked by the leak sanitizer at exit(): a scenario may end in the middle, with what it has allocated. */
__attribute__((visibility("default"))) int __lsan_is_turned_off(void);
int __lsan_is_turned_off(void)
{
	return leaves_early;
}

pid_t hb_page_host_start(void (*scenario)(void))
{
	fflush(NULL);
	pid_t child = fork();
	need(child >= 0, "fork");
	if (child == 0) {
		scenario();
		if (getenv("HB_COVERAGE")) { /* the shim writes its counts of executed lines at exit() */
			leaves_early = true;
			exit(0);
		}
		_exit(0);
	}
	return child;
}

bool hb_page_host_ended_well(pid_t child)
{
	int status = 0, pidfd = (int)syscall(SYS_pidfd_open, child, 0);
	struct pollfd fds[2] = {{.fd = pidfd, .events = POLLIN},
				{.fd = present ? present->listener : -1, .events = POLLIN}};
	while (poll(fds, 2, -1) >= 0 && !fds[0].revents)
		if (fds[1].revents)
			serve_any(present);
	close(pidfd);
	need(waitpid(child, &status, 0) == child, "waitpid");
	return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

struct hb_page_process *hb_page_host_run(struct hb_page_host *host, void (*scenario)(void))
{
	pid_t child = hb_page_host_start(scenario);
	struct hb_page_process *process = hb_page_host_serve(host);
	return hb_page_host_ended_well(child) ? process : NULL;
}

void *hb_test_shim_symbol(const char *name)
{
	void *shim = dlopen(getenv("HB_TEST_SHIM"), RTLD_NOW);
	void *symbol = shim ? dlsym(shim, name) : NULL;
	if (!symbol)
		hb_test_failed(__FILE__, __LINE__, name);
	return symbol;
}

void *hb_test_fake_symbol(const char *name)
{
	void *fake = dlopen(getenv("HB_REAL_LIBCUDA"), RTLD_NOW);
	void *symbol = fake ? dlsym(fake, name) : NULL;
	if (!symbol)
		hb_test_failed(__FILE__, __LINE__, name);
	return symbol;
}

void hb_test_failed(const char *file, int line, const char *condition)
{
	fprintf(stderr, "%s:%d: does not hold in the child: %s\n", file, line, condition);
	_exit(1);
}
