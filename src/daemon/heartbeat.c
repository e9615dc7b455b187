/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the daemon's heartbeat; see heartbeat.h. */
#include "daemon/heartbeat.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/thread.h"
#include "daemon/service_notify.h"
#include "daemon/socket_lock.h"
#include "daemon/tenant_record.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

struct hb_heartbeat {
	pthread_t thread;
	pthread_mutex_t lock; /* held for some microseconds: while the words are written, or one of them is changed */
	pthread_cond_t ended;
	bool ending;
	hb_page_i64 *words[HB_TENANCIES_MAX];
	struct hb_socket_lock *socket_lock;
	_Atomic int64_t turn_ns; /* when the loop last finished a turn */
	bool reported;           /* that the loop hangs */
};

static bool check_loop(struct hb_heartbeat *heartbeat, int64_t now_ns)
{
	bool hangs = now_ns - atomic_load(&heartbeat->turn_ns) > HB_HEARTBEAT_HANG_NS;
	if (hangs != heartbeat->reported)
		hb_log_error(hangs ? "the event loop has not finished a turn for %d s: the heartbeat stops"
				   : "the event loop hung for more than %d s and continues",
			     (int)(HB_HEARTBEAT_HANG_NS / HB_NS_PER_S));
	heartbeat->reported = hangs;
	return !hangs;
}

/* Called with the lock held, so that no word is unmapped meanwhile. */
static void write_words(struct hb_heartbeat *heartbeat, int64_t now_ns)
{
	for (uint32_t i = 0; i < HB_TENANCIES_MAX; i++)
		if (heartbeat->words[i])
			atomic_store_explicit(heartbeat->words[i], now_ns, memory_order_relaxed);
}

static void *run_heartbeat(void *argument)
{
	struct hb_heartbeat *heartbeat = argument;
	pthread_mutex_lock(&heartbeat->lock);
	while (!heartbeat->ending) {
		int64_t now_ns = hb_clock_now_ns();
		hb_socket_lock_check(heartbeat->socket_lock);
		if (check_loop(heartbeat, now_ns)) {
			write_words(heartbeat, now_ns);
			hb_socket_lock_beat(heartbeat->socket_lock, now_ns);
			hb_service_alive(now_ns);
		}
		hb_condition_wait_until(&heartbeat->ended, &heartbeat->lock, now_ns + HB_PAGE_TICK_NS);
	}
	pthread_mutex_unlock(&heartbeat->lock);
	return NULL;
}

int hb_heartbeat_new(struct hb_socket_lock *lock, struct hb_heartbeat **heartbeat)
{
	struct hb_heartbeat *made = calloc(1, sizeof *made);
	if (!made)
		return -ENOMEM;
	hb_condition_init(&made->ended);
	pthread_mutex_init(&made->lock, NULL);
	made->socket_lock = lock;
	made->turn_ns = hb_clock_now_ns();
	int result = hb_thread_start(&made->thread, 0, run_heartbeat, made);
	if (result < 0) {
		free(made);
		return result;
	}
	*heartbeat = made;
	return 0;
}

void hb_heartbeat_free(struct hb_heartbeat *heartbeat)
{
	if (!heartbeat)
		return;
	pthread_mutex_lock(&heartbeat->lock);
	heartbeat->ending = true;
	pthread_cond_signal(&heartbeat->ended);
	pthread_mutex_unlock(&heartbeat->lock);
	pthread_join(heartbeat->thread, NULL);
	pthread_mutex_destroy(&heartbeat->lock);
	pthread_cond_destroy(&heartbeat->ended);
	free(heartbeat);
}

void hb_heartbeat_turn(struct hb_heartbeat *heartbeat)
{
	if (heartbeat)
		atomic_store(&heartbeat->turn_ns, hb_clock_now_ns());
}

void hb_heartbeat_set(struct hb_heartbeat *heartbeat, uint32_t index, hb_page_i64 *word)
{
	if (!heartbeat)
		return;
	pthread_mutex_lock(&heartbeat->lock);
	heartbeat->words[index] = word;
	pthread_mutex_unlock(&heartbeat->lock);
}
