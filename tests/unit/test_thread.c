/* SPDX-License-Identifier: Apache-2.0 */
/* Threads that get no signals, and waits on conditions that end at a time of hb_clock_now_ns(). */
#include "base/clock.h"
#include "base/thread.h"
#include "unit.h"

#include <signal.h>

static struct {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	sigset_t blocked;
	size_t stack_bytes;
	bool has_ended;
} seen = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void *look_around(void *argument)
{
	pthread_attr_t attributes;
	pthread_mutex_lock(&seen.lock);
	pthread_sigmask(SIG_SETMASK, NULL, &seen.blocked);
	pthread_getattr_np(pthread_self(), &attributes);
	pthread_attr_getstacksize(&attributes, &seen.stack_bytes);
	pthread_attr_destroy(&attributes);
	seen.has_ended = true;
	pthread_cond_signal(&seen.changed);
	pthread_mutex_unlock(&seen.lock);
	return argument;
}

static void await_end(void)
{
	pthread_mutex_lock(&seen.lock);
	while (!seen.has_ended)
		assert_true(hb_condition_wait_until(&seen.changed, &seen.lock, INT64_MAX));
	seen.has_ended = false;
	pthread_mutex_unlock(&seen.lock);
}

static void test_signals_stay_with_the_caller(void **state)
{
	sigset_t mine;
	hb_condition_init(&seen.changed);
	assert_int_equal(hb_thread_start(NULL, 0, look_around, NULL), 0);
	await_end();
	pthread_sigmask(SIG_SETMASK, NULL, &mine);
	assert_true(sigismember(&seen.blocked, SIGTERM) && sigismember(&seen.blocked, SIGUSR1));
	assert_false(sigismember(&mine, SIGTERM));
}

static void test_joins_a_thread_with_a_small_stack(void **state)
{
	pthread_t thread;
	void *result;
	hb_condition_init(&seen.changed);
	assert_int_equal(hb_thread_start(&thread, 1 << 18, look_around, &seen), 0);
	assert_int_equal(pthread_join(thread, &result), 0);
	assert_ptr_equal(result, &seen);
	assert_true(seen.stack_bytes < 1 << 20);
	await_end();
}

static void test_a_wait_ends_at_its_time(void **state)
{
	int64_t until_ns = hb_clock_now_ns() + 5 * HB_NS_PER_MS;
	hb_condition_init(&seen.changed);
	pthread_mutex_lock(&seen.lock);
	while (hb_condition_wait_until(&seen.changed, &seen.lock, until_ns))
		;
	pthread_mutex_unlock(&seen.lock);
	assert_true(hb_clock_now_ns() >= until_ns);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_signals_stay_with_the_caller),
		cmocka_unit_test(test_joins_a_thread_with_a_small_stack),
		cmocka_unit_test(test_a_wait_ends_at_its_time),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
