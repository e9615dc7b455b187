/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What happens to a call of an HB_FORWARD row on its way to the driver. Called
 * by the forwarding thunks of stubs.S on every launch, copy and memset. On the
 * common path: no lock, no allocation, no system call, no call into the driver.
 */
#include "shim/shim.h"

void *hb_shim_forward(unsigned fn, const uint64_t *args)
{
	const struct hb_hook *hook = &hb_hooks[fn];
	hb_shim_count(hook->counter, 1);
	return atomic_load_explicit(&hb_shim_real[fn], memory_order_acquire);
}
