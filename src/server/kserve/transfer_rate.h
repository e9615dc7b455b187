/* SPDX-License-Identifier: Apache-2.0 */
/* How slowly a client may send a request or take its answer: a limit of time, and more of it the more has moved. */
#ifndef HB_SERVER_PACE_H
#define HB_SERVER_PACE_H

#include <stdint.h>

#define HB_TRANSFER_NS_PER_BYTE INT64_C(15259) /* 64 KiB/s */

/* It began then, and so much has moved now: as if it had begun later, but not after now. */
static inline int64_t hb_transfer_rate_credit(int64_t since_ns, uint64_t bytes, int64_t now_ns)
{
	int64_t later_ns = since_ns + (int64_t)bytes * HB_TRANSFER_NS_PER_BYTE;
	return later_ns < now_ns ? later_ns : now_ns;
}

#endif
