/* SPDX-License-Identifier: Apache-2.0 */
/* Waits for a tenant's doorbell; see doorbell_listener.h. */
#include "daemon/doorbell_listener.h"

#include "base/clock.h"

#include <limits.h>
#include <linux/futex.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include <uv.h>

/* The shortest rest after a ring. It doubles with every REST_STREAK rings that follow each other without a pause. */
#define REST_NS HB_NS_PER_MS
#define REST_STREAK 16
#define REST_DOUBLINGS 4
#define STACK_BYTES (128 * 1024)
/* The tenant can overwrite the word at any time, so the thread also wakes by itself. */
#define SLEEP_NS HB_NS_PER_S
#define END_NAP_NS (100 * HB_NS_PER_US)

struct hb_doorbell_listener {
	hb_page_u32 *doorbell;
	int event_fd;
	uv_thread_t thread;
	hb_page_u32 ending; /* futex word: 1 = the thread is to end, 2 = it has ended */
};

static void sleep_on(hb_page_u32 *word, uint32_t seen, int64_t most_ns)
{
	struct timespec limit = {.tv_sec = most_ns / HB_NS_PER_S, .tv_nsec = most_ns % HB_NS_PER_S};
	syscall(SYS_futex, word, FUTEX_WAIT, seen, &limit, NULL, 0);
}

/* Any number of the tenant's own threads may sleep on the word, and the kernel wakes the oldest sleeper first. */
static void wake_sleepers(hb_page_u32 *word)
{
	syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

static void run_listener(void *argument)
{
	struct hb_doorbell_listener *listener = argument;
	uint32_t heard = atomic_load(listener->doorbell), streak = 0;
	while (!atomic_load(&listener->ending)) {
		uint32_t now = atomic_load(listener->doorbell);
		if (now == heard) {
			streak = 0;
			sleep_on(listener->doorbell, heard, SLEEP_NS);
			continue;
		}
		heard = now;
		eventfd_write(listener->event_fd, 1);
		streak += streak < REST_STREAK * REST_DOUBLINGS;
		sleep_on(&listener->ending, 0, REST_NS << streak / REST_STREAK);
	}
	atomic_store(&listener->ending, 2);
}

struct hb_doorbell_listener *hb_doorbell_listener_new(hb_page_u32 *doorbell, int event_fd)
{
	const uv_thread_options_t options = {.flags = UV_THREAD_HAS_STACK_SIZE, .stack_size = STACK_BYTES};
	struct hb_doorbell_listener *made = calloc(1, sizeof *made);
	if (!made)
		return NULL;
	made->doorbell = doorbell;
	made->event_fd = event_fd;
	if (uv_thread_create_ex(&made->thread, &options, run_listener, made) != 0) {
		free(made);
		return NULL;
	}
	return made;
}

/* The tenant may set the word back to what the thread saw last, just before the thread sleeps: so it is woken again. */
void hb_doorbell_listener_free(struct hb_doorbell_listener *listener)
{
	if (!listener)
		return;
	atomic_store(&listener->ending, 1);
	wake_sleepers(&listener->ending);
	while (atomic_load(&listener->ending) != 2) {
		atomic_fetch_add(listener->doorbell, 1);
		wake_sleepers(listener->doorbell);
		nanosleep(&(struct timespec){.tv_nsec = END_NAP_NS}, NULL);
	}
	uv_thread_join(&listener->thread);
	free(listener);
}
