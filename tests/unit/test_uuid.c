/* SPDX-License-Identifier: Apache-2.0 */
/* A GPU's UUID is written as nvidia-smi writes it, every byte as two digits, and fills its room exactly. */
#include "base/uuid.h"
#include "unit.h"

#include <errno.h>
#include <string.h>

static void uuids_are_written_as_the_driver_does(void **state)
{
	static const unsigned char uuid[16] = {0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef,
					       0x00, 0xff, 0x80, 0x7f, 0x0a, 0xa0, 0x10, 0xfe};
	char text[HB_UUID_TEXT_SIZE];
	(void)state;
	assert_string_equal(hb_uuid_format(uuid, text), "GPU-01234567-89ab-cdef-00ff-807f0aa010fe");
	assert_int_equal(strlen(text) + 1, sizeof text);
}

static void only_that_form_is_read(void **state)
{
	static const char *const wrong[] = {"",
					    "GPU-",
					    "GPU-01234567-89ab-cdef-00ff-807f0aa010f",
					    "GPU-01234567-89ab-cdef-00ff-807f0aa010fe0",
					    "MIG-01234567-89ab-cdef-00ff-807f0aa010fe",
					    "GPU-0123456789-ab-cdef-00ff-807f0aa010fe",
					    "GPU-01234567-89AB-cdef-00ff-807f0aa010fe",
					    "GPU-01234567-89ab-cdef-00ff--807f0aa010f",
					    "GPU-g1234567-89ab-cdef-00ff-807f0aa010fe",
					    "----------------------------------------"};
	unsigned char uuid[16] = {7};
	char text[HB_UUID_TEXT_SIZE];
	(void)state;
	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
		assert_int_equal(hb_uuid_parse(wrong[i], uuid), -EINVAL);
	assert_int_equal(uuid[0], 7);
	assert_int_equal(hb_uuid_parse("GPU-01234567-89ab-cdef-00ff-807f0aa010fe", uuid), 0);
	assert_string_equal(hb_uuid_format(uuid, text), "GPU-01234567-89ab-cdef-00ff-807f0aa010fe");
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(uuids_are_written_as_the_driver_does),
					   cmocka_unit_test(only_that_form_is_read)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
