/* SPDX-License-Identifier: Apache-2.0 */
/* Tests how LP tenants share the memory of a GPU, with small clients instead of CUDA programs. */
#include "base/clock.h"
#include "one_daemon.h"

#include <errno.h>
#include <unistd.h>

#define MIB (UINT64_C(1) << 20)
#define TOTAL (100 * MIB)

/* Makes an LP tenant that reports this total. */
static struct hb_tenant_options join_low(unsigned seed, uint64_t total, struct hb_membership *member)
{
	struct hb_tenant_options wish = wish_of(seed, HB_PAGE_LOW);
	wish.totals[0] = total;
	*member = (struct hb_membership)HB_MEMBERSHIP_NONE;
	assert_int_equal(create(&daemon_, wish), 0);
	assert_int_equal(join(&daemon_, &wish, member), 0);
	return wish;
}

/* Asks as the shim does: again while the daemon asks the driver. */
static int ask(const struct hb_tenant_options *wish, uint64_t bytes)
{
	struct hb_error error;
	int fd = daemon_connect(&daemon_), result;
	int64_t limit_ns = hb_clock_now_ns() + 20 * HB_NS_PER_S;
	while ((result = hb_client_ask_memory(fd, wish->token, wish->uuids[0], bytes, &error)) == -EAGAIN &&
	       hb_clock_now_ns() < limit_ns)
		usleep(10000);
	close(fd);
	return result;
}

static uint64_t lease_of(const struct hb_membership *member)
{
	return atomic_load(&member->page->gpus[0].low_lease_bytes);
}

static void expect_lease(const struct hb_membership *member, uint64_t bytes)
{
	int64_t limit_ns = hb_clock_now_ns() + 20 * HB_NS_PER_S;
	while (lease_of(member) != bytes && hb_clock_now_ns() < limit_ns)
		daemon_tenants(&daemon_);
	assert_int_equal(lease_of(member), bytes);
}

static void use(struct hb_membership *member, uint64_t bytes)
{
	member->page->processes[member->slot].memory[0].used_bytes = bytes;
	member->page->gpus[0].used_bytes = bytes;
}

static void unused_memory_is_shared_equally(void **state)
{
	struct hb_membership a, b;
	join_low(1, TOTAL, &a);
	expect_lease(&a, TOTAL);
	use(&a, 40 * MIB);
	join_low(2, TOTAL, &b);
	expect_lease(&a, 70 * MIB);
	expect_lease(&b, 30 * MIB);
	assert_int_equal(a.gpus[0]->low_used_bytes, 40 * MIB);
	assert_int_equal(b.page->gpus[0].low_others_bytes, 40 * MIB);
	assert_int_equal(a.page->gpus[0].low_others_bytes, 0);
	hb_membership_fini(&a);
	hb_membership_fini(&b);
}

/* A tenant gets all that others do not use, however silent they are, and not a byte more. */
static void a_tenant_gets_what_others_do_not_use(void **state)
{
	struct hb_membership a, b;
	join_low(1, TOTAL, &a);
	use(&a, 40 * MIB);
	struct hb_tenant_options wish = join_low(2, TOTAL, &b);
	expect_lease(&a, 70 * MIB);
	expect_lease(&b, 30 * MIB);
	assert_int_equal(ask(&wish, 60 * MIB + 1), -ENOMEM);
	assert_int_equal(ask(&wish, 60 * MIB), 0);
	assert_int_equal(lease_of(&b), 60 * MIB);
	assert_true(lease_of(&a) <= 40 * MIB);
	use(&b, 60 * MIB);
	assert_int_equal(ask(&wish, 1), -ENOMEM);
	hb_membership_fini(&a);
	hb_membership_fini(&b);
}

/* Programs report the memory of a GPU. The daemon uses such a report only for the tenant itself. */
static void a_false_total_harms_only_the_tenant_itself(void **state)
{
	struct hb_membership liar, honest;
	join_low(1, 1, &liar);
	join_low(2, TOTAL, &honest);
	assert_int_equal(honest.page->gpus[0].total_bytes, TOTAL);
	expect_lease(&honest, TOTAL / 2);
	assert_int_equal(liar.page->gpus[0].total_bytes, 1);
	hb_membership_fini(&liar);
	hb_membership_fini(&honest);
}

static void a_stranger_cannot_ask(void **state)
{
	struct hb_membership member;
	struct hb_tenant_options wish = join_low(1, TOTAL, &member), other = wish_of(7, HB_PAGE_LOW);
	other.n_gpus = 1;
	assert_int_equal(ask(&other, 1), -ESRCH);
	wish.uuids[0][0]++;
	assert_int_equal(ask(&wish, 1), -ESRCH);
	hb_membership_fini(&member);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(unused_memory_is_shared_equally),
		TEST(a_tenant_gets_what_others_do_not_use),
		TEST(a_false_total_harms_only_the_tenant_itself),
		TEST(a_stranger_cannot_ask),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
