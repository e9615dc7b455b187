/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The slowest rate at which a client may send a request or take its answer. A
 * time limit alone would refuse large requests, so each byte that is transferred
 * moves the start of the time limit forward.
 */
#ifndef HB_SERVER_TRANSFER_RATE_H
#define HB_SERVER_TRANSFER_RATE_H

#include <stdint.h>

#define HB_TRANSFER_NS_PER_BYTE INT64_C(15259) /* 64 KiB/s */

/* Returns the new start of a wait that began at since_ns, after `bytes` more were transferred; now_ns at the latest. */
static inline int64_t hb_transfer_rate_credit(int64_t since_ns, uint64_t bytes, int64_t now_ns)
{
	int64_t later_ns = since_ns + (int64_t)bytes * HB_TRANSFER_NS_PER_BYTE;
	return later_ns < now_ns ? later_ns : now_ns;
}

#endif
