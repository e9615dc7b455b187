/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every exported name of the shim reaches the function of the same name in the driver,
 * with all its arguments and its result. HB_TEST_SHIM names the shim, HB_REAL_LIBCUDA
 * the fake driver.
 */
#include "fake/fake_driver.h"
#include "unit/unit.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

typedef unsigned (*any_fn)(void *, void *, void *, void *, void *, void *, void *, void *, void *, void *, void *);

/* Arguments point to zeros, because a few hooks read structures; the fourth is the length if an argument is a list. */
static char zeroes[HB_FAKE_ARGS][4096];
#define FOUR ((void *)4)

static void *shim;
static const struct hb_fake_call *(*last_call)(void);
static unsigned (*count_calls)(const char *name);

static int open_libraries(void **state)
{
	shim = dlopen(getenv("HB_TEST_SHIM"), RTLD_NOW);
	assert_non_null(shim);
	assert_non_null(dlsym(shim, "hb_shim_version"));
	((unsigned (*)(unsigned))dlsym(shim, "cuInit"))(0);
	void *fake = dlopen(getenv("HB_REAL_LIBCUDA"), RTLD_NOW | RTLD_NOLOAD);
	assert_non_null(fake);
	last_call = (const struct hb_fake_call *(*)(void))dlsym(fake, "hb_fake_last_call");
	count_calls = (unsigned (*)(const char *))dlsym(fake, "hb_fake_calls");
	((unsigned (*)(int))dlsym(shim, "cuTexObjectDestroy"))(0); /* so that a last call exists */
	return 0;
}

/* Returns how many arguments the driver must receive. A hand-written hook has a signature of its own; one is checked. */
static int checked_args(const char *name)
{
	static const char *const by_hand[] = {
#define HB_FORWARD(name, counter, duty, stream, size)
#define HB_HOOK(name) #name,
#include "shim/hooks.def"
#undef HB_FORWARD
#undef HB_HOOK
	};
	for (size_t i = 0; i < sizeof(by_hand) / sizeof(by_hand[0]); i++)
		if (strcmp(by_hand[i], name) == 0)
			return 1;
	return HB_FAKE_ARGS;
}

static void call_and_check(const char *name, unsigned number)
{
	any_fn function = (any_fn)dlsym(shim, name);
	assert_non_null(function);
	unsigned before = count_calls(name);
	unsigned answer = function(zeroes[0], zeroes[1], zeroes[2], FOUR, zeroes[4], zeroes[5], zeroes[6], zeroes[7],
				   zeroes[8], zeroes[9], zeroes[10]);
	assert_true(count_calls(name) > before);
	if (strcmp(last_call()->name, name) != 0)
		return; /* a function with a body in the fake records only the count */
	int n = checked_args(name);
	assert_int_equal(answer, HB_FAKE_ANSWER_BASE + number);
	for (int i = 0; i < n; i++)
		assert_int_equal((uint32_t)last_call()->args[i], (uint32_t)(uintptr_t)(i == 3 ? FOUR : zeroes[i]));
}

static void every_name_reaches_the_driver(void **state)
{
	static const char *const names[] = {
#define X(name) #name,
#include "nvidia/exports.def"
#undef X
	};
	for (unsigned round = 0; round < 2; round++) /* the first round binds the slots, the second uses them */
		for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++)
			call_and_check(names[i], i);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test_setup(every_name_reaches_the_driver, open_libraries)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
