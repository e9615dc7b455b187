/* SPDX-License-Identifier: Apache-2.0 */
/* The driver's version number is found in the texts of both kernel modules. */
#include "nvidia/mask_states.h"
#include "unit.h"

static const char *number_in(const char *description)
{
	static char version[16];
	hb_mask_driver_number(description, version, sizeof version);
	return version;
}

static void both_kernel_modules_have_a_version(void **state)
{
	assert_string_equal(
		number_in("NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build  (nixbld@)  "),
		"580.159.04");
	assert_string_equal(number_in("NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May 12 19:39:15 UTC 2024"),
			    "535.183.01");
	assert_true(
		hb_mask_driver_is_known(number_in("NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release")));
}

static void a_text_without_a_version_gives_none(void **state)
{
	assert_string_equal(number_in(""), "");
	assert_string_equal(number_in("NVIDIA UNIX Kernel Module for x86_64"), "");
	assert_false(hb_mask_driver_is_known(""));
}

static void a_long_version_is_cut(void **state)
{
	assert_string_equal(number_in("Module 1234567890.1234567890"), "1234567890.1234");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(both_kernel_modules_have_a_version),
		cmocka_unit_test(a_text_without_a_version_gives_none),
		cmocka_unit_test(a_long_version_is_cut),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
