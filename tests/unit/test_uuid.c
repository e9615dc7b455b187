/* SPDX-License-Identifier: Apache-2.0 */
/* A GPU's UUID is written as nvidia-smi writes it, every byte as two digits, and fills its room exactly. */
#include "base/uuid.h"
#include "unit.h"

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

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(uuids_are_written_as_the_driver_does)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
