/* SPDX-License-Identifier: Apache-2.0 */
/* libhb-signs finds the liburing of a library that was opened with dlopen(), which is not in the program's global scope. */
#include "unit/unit.h"

#include <dlfcn.h>
#include <stdlib.h>

static void a_plugin_reaches_its_own_liburing(void **state)
{
	void *plugin = dlopen(getenv("HB_PLUGIN"), RTLD_NOW | RTLD_LOCAL);
	assert_non_null(plugin);
	int (*wait_in_plugin)(int) = (int (*)(int))dlsym(plugin, "wait_in_plugin");
	assert_non_null(wait_in_plugin);
	assert_int_equal(wait_in_plugin(3), 3);
	assert_int_equal(wait_in_plugin(-11), -11);
	assert_int_equal(dlclose(plugin), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(a_plugin_reaches_its_own_liburing)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
