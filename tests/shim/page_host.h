/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon's side of a tenant's page, as far as a test of the shim needs it:
 * one tenant with one GPU (the fake driver's). The test process plays the
 * daemon; what uses the shim runs in a child of it.
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
};

/* An active page with a beating heart, no limits, an open gate; and the environment by which children find it. */
void hb_page_host_init(struct hb_page_host *host);
void hb_page_host_fini(struct hb_page_host *host);
/* For tests over the simulated driver: a GPU of their own in the host's folder. */
void hb_page_host_simulate(struct hb_page_host *host);
/* The page of a tenant of high priority in the temporal engine, low priority beside it; over the simulated driver. */
void hb_page_host_foresight(struct hb_page_host *host);

/* Registers the next process that asks; blocks until one does. Returns its slot. */
struct hb_page_process *hb_page_host_serve(struct hb_page_host *host);
/* The next process that asks gets the first slot, as if none had been there. */
void hb_page_host_begin_again(struct hb_page_host *host);
/* Whether somebody wants to be served now. */
bool hb_page_host_is_wanted(const struct hb_page_host *host);

/* A counter of the first process. */
static inline uint64_t hb_page_host_count(const struct hb_page_host *host, enum hb_page_counter counter)
{
	return atomic_load(&host->page->processes[0].counters[counter]);
}

struct hb_gate *hb_page_host_gate(struct hb_page_process *process);
/* Sets the gate and wakes who waits there. */
void hb_page_host_set_gate(struct hb_page_process *process, enum hb_gate_state state);

/*
 * Runs `scenario` in a child that exits with 0 when it returns; the child finds the shim through HB_TEST_SHIM. While it
 * registers it waits for the host for ever, so that a machine that pauses does not leave it alone.
 */
pid_t hb_page_host_start(void (*scenario)(void));
/* Waits for the child; true when it ended well. */
bool hb_page_host_ended_well(pid_t child);
/* Start, serve and end of a child with one process. NULL when it did not end well. */
struct hb_page_process *hb_page_host_run(struct hb_page_host *host, void (*scenario)(void));

/* In the child: the shim's function of this name. */
void *hb_test_shim_symbol(const char *name);
#define CU(name) ((__typeof__(&(name)))hb_test_shim_symbol(#name))
/* The fake driver's own functions (fake_driver.h). */
void *hb_test_fake_symbol(const char *name);

/* In the child: ends it, and the test with it, when the condition does not hold. */
#define CHECK(condition) \
	do { \
		if (!(condition)) \
			hb_test_failed(__FILE__, __LINE__, #condition); \
	} while (0)
_Noreturn void hb_test_failed(const char *file, int line, const char *condition);

#endif
