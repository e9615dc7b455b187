/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon's side of a tenant's page, as far as tests of the shim need it: one
 * tenant with one GPU (the fake driver's). The test process plays the daemon; the
 * code that uses the shim runs in a child process.
 */
#ifndef HB_TEST_PAGE_HOST_H
#define HB_TEST_PAGE_HOST_H

#include "gate/gate.h"
#include "protocol/protocol.h"

#include <stdbool.h>
#include <sys/types.h>

struct hb_page_host {
	char folder[64];
	char socket_path[96];
	int listener;
	int page_fd, gpu_fd;
	struct hb_page *page;
	struct hb_gpu_page *gpu;
	uint32_t next_slot;
	struct hb_msg_register asked; /* the last registration */
	uint64_t low_free_bytes;      /* what processes that ask for memory beyond their lease get */
	unsigned memory_asked;        /* how often they asked */
	void *board;                  /* of an HP process that the test plays; the first of the list if there is one */
	int board_fd;
	unsigned boards_given, boards_fetched;
	uint32_t last_board; /* the test gives no board with a higher number */
};

/* Creates an active page with a fresh heartbeat, no limits and an open gate, and sets the environment for children. */
void hb_page_host_init(struct hb_page_host *host);
void hb_page_host_fini(struct hb_page_host *host);
/* Lists the test's board on the GPU page as a new one. */
void hb_page_host_list_board(struct hb_page_host *host);
/* For tests over the simulated driver: gives the test its own GPU in the host's folder. */
void hb_page_host_simulate(struct hb_page_host *host);
/* Makes the tenant HP in the temporal engine, with LP present, over the simulated driver. */
void hb_page_host_foresight(struct hb_page_host *host);

/* Waits for a process that registers, and registers it. Returns its slot. */
struct hb_page_process *hb_page_host_serve(struct hb_page_host *host);
/* The next process that registers gets the first slot again. */
void hb_page_host_begin_again(struct hb_page_host *host);
/* Whether a process waits to be registered now. */
bool hb_page_host_is_wanted(const struct hb_page_host *host);

/* Returns a counter of the first process. */
static inline uint64_t hb_page_host_count(const struct hb_page_host *host, enum hb_page_counter counter)
{
	return atomic_load(&host->page->processes[0].counters[counter]);
}

struct hb_gate *hb_page_host_gate(struct hb_page_process *process);
/* Sets the gate and wakes the threads that wait there. */
void hb_page_host_set_gate(struct hb_page_process *process, enum hb_gate_state state);

/*
 * Runs `scenario` in a child process that exits with 0 when it returns. The child finds the shim by HB_TEST_SHIM. It waits
 * for the host without limit when it registers, so a machine that pauses does not make the test fail.
 */
pid_t hb_page_host_start(void (*scenario)(void));
/* Waits for the child and answers what it asks of the daemon. Returns whether it exited with 0. */
bool hb_page_host_ended_well(pid_t child);
/* Runs a scenario in a child, registers it and waits for its end. Returns its slot; NULL if it did not exit with 0. */
struct hb_page_process *hb_page_host_run(struct hb_page_host *host, void (*scenario)(void));

/* In the child: returns the shim's function of this name. */
void *hb_test_shim_symbol(const char *name);
#define CU(name) ((__typeof__(&(name)))hb_test_shim_symbol(#name))
/* Returns one of the fake driver's own functions (fake_driver.h). */
void *hb_test_fake_symbol(const char *name);

/* In the child: exits with an error, which fails the test, if the condition is false. */
#define CHECK(condition) \
	do { \
		if (!(condition)) \
			hb_test_failed(__FILE__, __LINE__, #condition); \
	} while (0)
_Noreturn void hb_test_failed(const char *file, int line, const char *condition);

#endif
