/* SPDX-License-Identifier: Apache-2.0 */
/* Waits for the doorbell of a GPU page; see doorbell_listener.h. */
#include "daemon/doorbell_listener.h"

#include "base/clock.h"

#include <linux/futex.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include <uv.h>

#define REST_NS HB_NS_PER_MS
/* Tenants can overwrite the futex word, so the thread also wakes by itself to see whether it should end. */
#define SLEEP_S 1

struct hb_doorbell_listener {
	hb_page_u32 *doorbell;
	int event_fd;
	uv_thread_t thread;
	atomic_bool ending;
};

static void sleep_until(int64_t at_ns)
{
	int64_t left_ns = at_ns - hb_clock_now_ns();
	if (left_ns > 0)
		nanosleep(&(struct timespec){.tv_nsec = left_ns}, NULL);
}

static void run_listener(void *argument)
{
	struct hb_doorbell_listener *listener = argument;
	uint32_t heard = atomic_load(listener->doorbell);
	int64_t next_ns = 0;
	while (!atomic_load(&listener->ending)) {
		uint32_t now = atomic_load(listener->doorbell);
		if (now == heard) {
			struct timespec limit = {.tv_sec = SLEEP_S};
			syscall(SYS_futex, listener->doorbell, FUTEX_WAIT, heard, &limit, NULL, 0);
			continue;
		}
		sleep_until(next_ns);
		next_ns = hb_clock_now_ns() + REST_NS;
		heard = atomic_load(listener->doorbell);
		eventfd_write(listener->event_fd, 1);
	}
}

struct hb_doorbell_listener *hb_doorbell_listener_new(struct hb_gpu_page *page, int event_fd)
{
	struct hb_doorbell_listener *made = calloc(1, sizeof *made);
	if (!made)
		return NULL;
	made->doorbell = &page->doorbell;
	made->event_fd = event_fd;
	if (uv_thread_create(&made->thread, run_listener, made) != 0) {
		free(made);
		return NULL;
	}
	return made;
}

void hb_doorbell_listener_free(struct hb_doorbell_listener *listener)
{
	if (!listener)
		return;
	atomic_store(&listener->ending, true);
	atomic_fetch_add(listener->doorbell, 1);
	syscall(SYS_futex, listener->doorbell, FUTEX_WAKE, 1, NULL, NULL, 0);
	uv_thread_join(&listener->thread);
	free(listener);
}
