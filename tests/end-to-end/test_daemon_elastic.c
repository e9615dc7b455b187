/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Elastic memory in a real daemon, with a fake libnvidia-ml.so.1 and a thread that plays the processes of LP: it executes the
 * orders on their pages (struct hb_page_elastic). HP's allocation is a MEMORY message.
 */
#include "base/clock.h"
#include "daemon_harness.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define GIB (UINT64_C(1) << 30)
#define CONFIG "mps: false\nelastic_host: 64GiB\nelastic_return: 1s\n"
#define LIMIT_NS (20 * HB_NS_PER_S)

/* The ways in which the player of an LP tenant answers an order. */
enum conduct { MOVES, LIES, REFUSES, IS_SILENT };

struct low {
	struct hb_membership member;
	struct hb_tenant_options wish;
	enum conduct conduct;
	pthread_t thread;
	_Atomic(bool) ends;
};

static struct daemon daemon_;
static _Atomic(bool) slow_home, slow_away; /* the players take so long */
static char used_path[40];
static _Atomic(uint64_t) used_bytes; /* as the fake driver says */

static void set_used(uint64_t bytes)
{
	char next[64];
	snprintf(next, sizeof next, "%s.next", used_path);
	used_bytes = bytes;
	FILE *file = fopen(next, "w");
	assert_non_null(file);
	fprintf(file, "%llu\n", (unsigned long long)bytes);
	fclose(file);
	assert_int_equal(rename(next, used_path), 0); /* the daemon never reads a half-written file */
}

static int set_up(void **state)
{
	slow_home = slow_away = false;
	strcpy(used_path, "/tmp/hb-used-XXXXXX");
	close(mkstemp(used_path));
	setenv("HB_FAKE_NVML_USED", used_path, 1);
	set_used(79 * GIB);
	daemon_start(&daemon_, HBD, CONFIG);
	return 0;
}

static int tear_down(void **state)
{
	daemon_clean(&daemon_);
	unlink(used_path);
	return 0;
}

/* --- the player of an LP tenant --- */

/* What is ordered to make so much room on the host. */
static uint64_t with_tables(uint64_t bytes)
{
	return bytes + bytes / 256;
}

/* The page tables of memory on the host stay on the GPU. */
static void execute(struct low *low, struct hb_page_elastic *record)
{
	bool home = record->order_direction == HB_ORDER_HOME;
	if (home ? slow_home : slow_away)
		usleep(home ? 800000 : 400000);
	uint64_t bytes = low->conduct == REFUSES ? 0 : record->order_host_bytes;
	if (low->conduct == MOVES) {
		uint64_t room = bytes - bytes / 512;
		set_used(home ? used_bytes + room : used_bytes - room);
		record->local_bytes += home ? bytes : -bytes;
		record->movable_bytes += home ? bytes : -bytes;
		record->spare_bytes += home ? bytes : -bytes;
		record->host_bytes += home ? -bytes : bytes;
	}
	record->moved_bytes = bytes;
	record->reason = low->conduct == REFUSES ? HB_MOVE_CAPTURE : HB_MOVE_MOVED;
	atomic_store(&record->result, record->order);
	hb_page_u32 *doorbell = &low->member.page->gpus[0].doorbell;
	if (low->member.gpus[0]->listening & HB_NEWS_MOVED) {
		atomic_fetch_add(doorbell, 1);
		syscall(SYS_futex, doorbell, FUTEX_WAKE, 1, NULL, NULL, 0);
	}
}

static void *play(void *argument)
{
	struct low *low = argument;
	struct hb_page *page = low->member.page;
	struct hb_page_elastic *record = &page->elastic_gpus[0];
	while (!low->ends) {
		uint32_t heard = atomic_load(&page->order_bell);
		if (atomic_load(&record->order) != record->result && low->conduct != IS_SILENT)
			execute(low, record);
		syscall(SYS_futex, &page->order_bell, FUTEX_WAIT, heard, &(struct timespec){.tv_nsec = 10000000}, NULL,
			0);
	}
	return NULL;
}

static void *use_memory(struct low *low, uint64_t bytes)
{
	struct hb_page_elastic *record = &low->member.page->elastic_gpus[0];
	uint64_t none = 0, owner = HB_ELASTIC_OWNER(low->member.slot, low->member.generation);
	assert_true(atomic_compare_exchange_strong(&record->owner, &none, owner));
	record->local_bytes = record->movable_bytes = bytes;
	atomic_store(&record->gpu, 1);
	/* As the shim does: it prepares host memory up to what it may use. */
	int64_t limit_ns = hb_clock_now_ns() + LIMIT_NS;
	while (atomic_load(&record->host_limit_bytes) < bytes && hb_clock_now_ns() < limit_ns)
		usleep(1000);
	assert_true(record->host_limit_bytes >= bytes);
	record->spare_bytes = bytes;
	return record;
}

/* An elastic tenant with so much memory that can move; returns once the daemon knows it. */
static void start_low(struct low *low, unsigned seed, uint64_t bytes, enum conduct conduct)
{
	*low = (struct low){.member = HB_MEMBERSHIP_NONE, .wish = wish_of(seed, HB_PAGE_LOW), .conduct = conduct};
	low->wish.flags |= HB_REGISTER_ELASTIC;
	assert_int_equal(create(&daemon_, low->wish), 0);
	assert_int_equal(join(&daemon_, &low->wish, &low->member), 0);
	assert_int_equal(low->member.page->elastic, HB_ELASTIC_ON);
	use_memory(low, bytes);
	assert_int_equal(pthread_create(&low->thread, NULL, play, low), 0);
}

static void end_low(struct low *low)
{
	low->ends = true;
	pthread_join(low->thread, NULL);
	hb_membership_fini(&low->member);
}

/* --- HP --- */

static struct hb_tenant_options start_high(struct hb_membership *member)
{
	struct hb_tenant_options wish = wish_of(1, HB_PAGE_HIGH);
	*member = (struct hb_membership)HB_MEMBERSHIP_NONE;
	assert_int_equal(create(&daemon_, wish), 0);
	assert_int_equal(join(&daemon_, &wish, member), 0);
	assert_true(member->page->features & HB_FEATURE_ELASTIC);
	return wish;
}

static int need(const struct hb_tenant_options *wish, uint64_t bytes, struct hb_error *error)
{
	int fd = daemon_connect(&daemon_);
	int result = hb_client_ask_memory(fd, wish->token, wish->uuids[0], bytes, error);
	close(fd);
	return result;
}

/* --- the status --- */

static const json_t *elastic_of_gpu(const json_t *status)
{
	return json_object_get(json_array_get(json_object_get(status, "gpus"), 0), "elastic");
}

static const json_t *elastic_of(const json_t *status, uint32_t tenant)
{
	size_t i;
	json_t *entry;
	json_array_foreach(json_object_get(status, "tenants"), i,
			   entry) if (json_integer_value(json_object_get(entry, "id")) ==
				      tenant) return json_object_get(json_array_get(json_object_get(entry, "gpus"), 0),
								     "elastic");
	return NULL;
}

static int64_t integer_of(const json_t *object, const char *key)
{
	assert_true(json_is_integer(json_object_get(object, key)));
	return json_integer_value(json_object_get(object, key));
}

static const char *text_of(const json_t *object, const char *key)
{
	assert_true(json_is_string(json_object_get(object, key)));
	return json_string_value(json_object_get(object, key));
}

/* --- tests --- */

static void low_moves_only_what_is_not_free(void **state)
{
	struct low low;
	struct hb_membership member;
	struct hb_tenant_options high = start_high(&member);
	start_low(&low, 2, 20 * GIB, MOVES);
	assert_int_equal(need(&high, 8 * GIB, &(struct hb_error){""}), 0);
	assert_in_range(used_bytes, 72 * GIB - 7 * GIB / 256, 72 * GIB);
	const uint64_t room = with_tables(7 * GIB) - with_tables(7 * GIB) / 512;
	json_t *status = daemon_status(&daemon_);
	const json_t *elastic = elastic_of(status, low.member.tenant), *last = json_object_get(elastic, "last");
	assert_int_equal(integer_of(elastic, "host"), with_tables(7 * GIB));
	assert_int_equal(integer_of(elastic, "local"), 20 * GIB - with_tables(7 * GIB));
	assert_int_equal(integer_of(last, "bytes"), room);
	assert_int_equal(integer_of(last, "for_tenant"), member.tenant);
	assert_string_equal(text_of(last, "direction"), "away");
	const json_t *moved_for = json_array_get(json_object_get(elastic, "moved_for"), 0);
	assert_int_equal(integer_of(moved_for, "tenant"), member.tenant);
	assert_int_equal(integer_of(moved_for, "moves"), 1);
	assert_int_equal(integer_of(moved_for, "bytes"), room);
	assert_int_equal(integer_of(json_object_get(elastic, "away"), "bytes"), room);
	assert_int_equal(integer_of(elastic_of_gpu(status), "met"), 1);
	assert_int_equal(integer_of(elastic_of_gpu(status), "host_pool"), 64 * GIB);
	json_decref(status);
	/* HP takes the memory; then another need moves more. */
	set_used(80 * GIB);
	assert_int_equal(need(&high, 2 * GIB, &(struct hb_error){""}), 0);
	assert_in_range(used_bytes, 78 * GIB - 2 * GIB / 256, 78 * GIB);
	end_low(&low);
	hb_membership_fini(&member);
}

/* The driver refuses the allocation although it shows enough free memory. */
static void a_second_question_moves_in_spite_of_free_memory(void **state)
{
	struct low low;
	struct hb_membership member;
	struct hb_tenant_options high = start_high(&member);
	set_used(70 * GIB);
	start_low(&low, 2, 20 * GIB, MOVES);
	assert_int_equal(need(&high, 4 * GIB, &(struct hb_error){""}), 0);
	assert_int_equal(used_bytes, 70 * GIB);
	assert_int_equal(need(&high, 4 * GIB, &(struct hb_error){""}), 0);
	assert_in_range(used_bytes, 66 * GIB - 4 * GIB / 256, 66 * GIB);
	end_low(&low);
	hb_membership_fini(&member);
}

static void a_false_report_does_not_count(void **state)
{
	struct low low;
	struct hb_membership member;
	struct hb_tenant_options high = start_high(&member);
	start_low(&low, 2, 20 * GIB, LIES);
	assert_int_equal(need(&high, 8 * GIB, &(struct hb_error){""}), -ENOMEM);
	json_t *status = daemon_status(&daemon_);
	const json_t *failure = json_object_get(elastic_of_gpu(status), "last_failure");
	assert_int_equal(integer_of(failure, "bytes"), 8 * GIB);
	assert_int_equal(integer_of(failure, "tenant"), member.tenant);
	assert_non_null(strstr(text_of(failure, "why"), "did not move"));
	assert_int_equal(integer_of(json_object_get(elastic_of(status, low.member.tenant), "last"), "bytes"), 0);
	json_decref(status);
	end_low(&low);
	hb_membership_fini(&member);
}

static void a_tenant_that_refuses_or_is_silent_is_skipped(void **state)
{
	struct low silent, refuses, moves;
	struct hb_membership member;
	struct hb_tenant_options high = start_high(&member);
	start_low(&refuses, 2, 10 * GIB, REFUSES);
	start_low(&silent, 3, 11 * GIB, IS_SILENT);
	start_low(&moves, 4, 40 * GIB, MOVES);
	int64_t begin_ns = hb_clock_now_ns();
	assert_int_equal(need(&high, 8 * GIB, &(struct hb_error){""}), 0);
	assert_true(hb_clock_now_ns() - begin_ns < LIMIT_NS);
	json_t *status = daemon_status(&daemon_);
	const json_t *last = json_object_get(elastic_of(status, refuses.member.tenant), "last");
	assert_string_equal(text_of(last, "result"), "a stream of the process is being captured");
	assert_int_equal(integer_of(elastic_of(status, moves.member.tenant), "host"), with_tables(7 * GIB));
	json_decref(status);
	end_low(&refuses);
	end_low(&silent);
	end_low(&moves);
	hb_membership_fini(&member);
}

static void without_memory_that_moves_the_answer_comes_at_once(void **state)
{
	struct hb_membership member;
	struct hb_error error = {""};
	struct hb_tenant_options high = start_high(&member);
	assert_int_equal(need(&high, 8 * GIB, &error), -ENOMEM);
	assert_non_null(strstr(error.text, "no program of low priority has memory that can move"));
	hb_membership_fini(&member);
}

static void only_low_priority_is_elastic_and_only_with_a_pool(void **state)
{
	struct daemon other = {.simulated = false};
	struct hb_error error = {""};
	struct hb_membership member = HB_MEMBERSHIP_NONE;
	struct hb_tenant_options high = wish_of(1, HB_PAGE_HIGH), low = wish_of(2, HB_PAGE_LOW);
	high.flags |= HB_REGISTER_ELASTIC;
	low.flags |= HB_REGISTER_ELASTIC;
	assert_int_equal(create(&daemon_, high), -EINVAL);
	daemon_start(&other, HBD, "mps: false\n");
	low.flags |= HB_REGISTER_CREATE;
	int fd = daemon_connect(&other);
	assert_int_equal(hb_client_register(fd, &low, &member, NULL, 0, &error), -EINVAL);
	assert_non_null(strstr(error.text, "elastic_host"));
	close(fd);
	daemon_clean(&other);
}

/* While HP takes what LP has made free, an LP tenant's lease does not grow. */
static void low_does_not_take_what_was_made_free(void **state)
{
	struct low low;
	struct hb_membership member, other;
	struct hb_error error;
	struct hb_tenant_options high = start_high(&member), wish = wish_of(5, HB_PAGE_LOW);
	start_low(&low, 2, 20 * GIB, MOVES);
	other = (struct hb_membership)HB_MEMBERSHIP_NONE;
	assert_int_equal(create(&daemon_, wish), 0);
	assert_int_equal(join(&daemon_, &wish, &other), 0);
	assert_int_equal(need(&high, 8 * GIB, &(struct hb_error){""}), 0);
	assert_int_equal(need(&wish, GIB, &error), -EAGAIN);
	assert_int_equal(other.page->gpus[0].low_lease_bytes, 0);
	end_low(&low);
	hb_membership_fini(&member);
	hb_membership_fini(&other);
}

/* HP gives some of its memory back, and asks for more while LP's memory returns to it. */
static void what_returns_does_not_hide_what_moves_then(void **state)
{
	struct low low;
	struct hb_membership member;
	struct hb_tenant_options high = start_high(&member);
	slow_home = true;
	start_low(&low, 2, 20 * GIB, MOVES);
	assert_int_equal(need(&high, 8 * GIB, &(struct hb_error){""}), 0);
	set_used(80 * GIB);
	usleep(200000);
	set_used(76 * GIB);
	const struct hb_page_elastic *record = &low.member.page->elastic_gpus[0];
	int64_t limit_ns = hb_clock_now_ns() + LIMIT_NS;
	while ((record->order_direction != HB_ORDER_HOME || record->order == record->result) &&
	       hb_clock_now_ns() < limit_ns)
		usleep(1000);
	assert_int_equal(record->order_direction, HB_ORDER_HOME);
	assert_int_equal(need(&high, 6 * GIB, &(struct hb_error){""}), 0);
	assert_in_range(used_bytes, 0, 74 * GIB);
	end_low(&low);
	hb_membership_fini(&member);
}

struct asker {
	struct hb_tenant_options wish;
	uint64_t bytes;
	int result;
};

/* Takes the room at once. */
static void *ask(void *argument)
{
	struct asker *asker = argument;
	asker->result = need(&asker->wish, asker->bytes, &(struct hb_error){""});
	if (asker->result == 0)
		set_used(used_bytes + asker->bytes);
	return NULL;
}

/* The second asks while LP moves memory for the first. */
static void two_tenants_of_high_both_get_room(void **state)
{
	struct low low;
	struct hb_membership member, second = HB_MEMBERSHIP_NONE;
	struct asker askers[2] = {{.wish = start_high(&member), .bytes = 8 * GIB},
				  {.wish = wish_of(7, HB_PAGE_HIGH), .bytes = 5 * GIB}};
	pthread_t threads[2];
	assert_int_equal(create(&daemon_, askers[1].wish), 0);
	assert_int_equal(join(&daemon_, &askers[1].wish, &second), 0);
	slow_away = true;
	start_low(&low, 2, 20 * GIB, MOVES);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(pthread_create(&threads[i], NULL, ask, &askers[i]), 0);
		usleep(100000);
	}
	for (int i = 0; i < 2; i++) {
		pthread_join(threads[i], NULL);
		assert_int_equal(askers[i].result, 0);
	}
	end_low(&low);
	hb_membership_fini(&member);
	hb_membership_fini(&second);
}

/* A tenant of another GPU writes to its page that it has memory on this one. */
static void invented_guests_do_not_count(void **state)
{
	struct low low;
	struct hb_membership member, liar = HB_MEMBERSHIP_NONE;
	struct hb_tenant_options high = start_high(&member), wish = wish_of(9, HB_PAGE_LOW);
	start_low(&low, 2, 20 * GIB, MOVES);
	wish.flags |= HB_REGISTER_ELASTIC;
	memset(wish.uuids[0], 0x22, HB_UUID_BYTES);
	assert_int_equal(create(&daemon_, wish), 0);
	assert_int_equal(join(&daemon_, &wish, &liar), 0);
	struct hb_page_elastic *record = &liar.page->elastic_gpus[0];
	memcpy(record->order_peer, high.uuids[0], sizeof record->order_peer);
	record->peer_bytes = record->spare_bytes = 64 * GIB;
	record->gpu = 1;
	record->owner = HB_ELASTIC_OWNER(liar.slot, liar.generation);
	usleep(400000);
	assert_int_equal(need(&high, 8 * GIB, &(struct hb_error){""}), 0);
	assert_int_equal(member.gpus[0]->lent, 0);
	end_low(&low);
	hb_membership_fini(&member);
	hb_membership_fini(&liar);
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(low_moves_only_what_is_not_free),
		TEST(a_second_question_moves_in_spite_of_free_memory),
		TEST(a_false_report_does_not_count),
		TEST(a_tenant_that_refuses_or_is_silent_is_skipped),
		TEST(without_memory_that_moves_the_answer_comes_at_once),
		TEST(only_low_priority_is_elastic_and_only_with_a_pool),
		TEST(low_does_not_take_what_was_made_free),
		TEST(what_returns_does_not_hide_what_moves_then),
		TEST(two_tenants_of_high_both_get_room),
		TEST(invented_guests_do_not_count),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
