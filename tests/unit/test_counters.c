/* SPDX-License-Identifier: Apache-2.0 */
/* Counters from a table: adding from several threads loses nothing, and what readers get. */
#include "base/counters.h"
#include "unit.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum {
#define HB_COUNTER(name, unit, what) COUNTER_##name,
#include "counters_test_table.def"
	COUNTERS
};

static const struct hb_counter_info info[] = {
#define HB_COUNTER(name, unit, what) {#name, unit, what},
#include "counters_test_table.def"
};

static hb_counter values[COUNTERS];
static const struct hb_counter_set set = {"test", info, values, COUNTERS};

static int zero_counters(void **state)
{
	memset(values, 0, sizeof values);
	return 0;
}

#define ADDS 20000

static void *add_many(void *argument)
{
	for (int i = 0; i < ADDS; i++) {
		hb_counter_add(&values[COUNTER_launches], 1);
		hb_counter_add(&values[COUNTER_gate_wait], 3);
	}
	return NULL;
}

static void adding_from_threads_loses_nothing(void **state)
{
	pthread_t threads[4];
	uint64_t now[COUNTERS];
	for (int i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, add_many, NULL), 0);
	for (int i = 0; i < 4; i++)
		assert_int_equal(pthread_join(threads[i], NULL), 0);
	hb_counters_snapshot(&set, now);
	assert_int_equal(now[COUNTER_launches], 4 * ADDS);
	assert_int_equal(now[COUNTER_gate_wait], 3 * 4 * ADDS);
	assert_int_equal(now[COUNTER_copied], 0);
}

static void append_name(void *argument, const struct hb_counter_info *counter, uint64_t value)
{
	char *text = argument;
	snprintf(text + strlen(text), 200 - strlen(text), "%s=%u%s ", counter->name, (unsigned)value, counter->unit);
}

static void each_counter_is_visited_in_table_order(void **state)
{
	char text[200] = "";
	hb_counter_add(&values[COUNTER_copied], 4096);
	hb_counters_each(&set, append_name, text);
	assert_string_equal(text, "launches=01 gate_wait=0ns copied=4096bytes ");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(adding_from_threads_loses_nothing, zero_counters),
		cmocka_unit_test_setup(each_counter_is_visited_in_table_order, zero_counters),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
