/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the shim exports beside the driver's names: the far side of
 * hummingbird/client.h, and the door for libhb-signs. Each is found by name at
 * run time; none of them ever fails or blocks.
 */
#include "shim/foresee.h"

#define PUBLIC __attribute__((visibility("default")))

/* Identities of the application's own signs; descriptors and call sites are hashes, far above. */
enum { SOURCE_BEGIN = 1, SOURCE_HINT = 2 };

PUBLIC void hb_shim_request_begin(int64_t deadline_ns);
PUBLIC void hb_shim_hint(int64_t expected_start_ns);
PUBLIC void hb_shim_request_end(void);
PUBLIC int hb_shim_sign(uint64_t source);

void hb_shim_request_begin(int64_t deadline_ns)
{
	hb_foresee_request_begin(deadline_ns);
	hb_foresee_sign(HB_SIGN_API, SOURCE_BEGIN, 0);
	hb_foresee_tend();
}

void hb_shim_hint(int64_t expected_start_ns)
{
	hb_foresee_sign(HB_SIGN_API, SOURCE_HINT, expected_start_ns);
	hb_foresee_tend();
}

void hb_shim_request_end(void)
{
	hb_foresee_request_end();
}

/* Bytes have come in. Returns whether this process wants to know of more. */
int hb_shim_sign(uint64_t source)
{
	hb_foresee_sign(HB_SIGN_SOCKET, source, 0);
	return atomic_load_explicit(&hb_foresee_wanted, memory_order_relaxed);
}
