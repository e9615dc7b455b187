/* SPDX-License-Identifier: Apache-2.0 */
/* See server_thread.h. */
#include "shim/server_thread.h"

#include "base/thread.h"
#include "shim/shim_tenant.h"

#include <linux/futex.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* The daemon wakes the thread when slices change. This often the thread looks whether there is a new daemon. */
#define LOOK_S 1

static atomic_bool started;

static void *run_thread(void *unused)
{
	for (;;) {
		hb_page_u32 *sequence = &hb_place()->page->slice_sequence; /* once published there always is a page */
		uint32_t seen = atomic_load_explicit(sequence, memory_order_acquire);
		hb_tenant_join_server();
		struct timespec longest = {.tv_sec = LOOK_S};
		syscall(SYS_futex, sequence, FUTEX_WAIT, seen, &longest, NULL, 0);
	}
	return NULL;
}

void hb_server_thread_start(void)
{
	if (!hb_place()->page || atomic_exchange(&started, true))
		return;
	if (hb_thread_start(NULL, 0, run_thread, NULL) != 0)
		atomic_store(&started, false);
}
