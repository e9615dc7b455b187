/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The functions that the shim exports besides the driver's: the implementation of
 * hummingbird/client.h, which finds them by name at run time. None of them ever
 * fails or blocks.
 */
#include "shim/shim_foresight.h"

#define PUBLIC __attribute__((visibility("default")))

PUBLIC void hb_shim_request_begin(int64_t deadline_ns);
PUBLIC void hb_shim_hint(int64_t expected_start_ns);
PUBLIC void hb_shim_request_end(void);

void hb_shim_request_begin(int64_t deadline_ns)
{
	hb_shim_foresight_request_begin(deadline_ns);
	hb_shim_foresight_sign(HB_SIGN_API, HB_SOURCE_BEGIN, 0, 0);
	hb_shim_foresight_refresh();
}

void hb_shim_hint(int64_t expected_start_ns)
{
	hb_shim_foresight_sign(HB_SIGN_API, HB_SOURCE_HINT, 0, expected_start_ns);
	hb_shim_foresight_refresh();
}

void hb_shim_request_end(void)
{
	hb_shim_foresight_request_end();
}
