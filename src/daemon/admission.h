/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a process that asks may have: the rules of hummingbird.yaml applied to
 * who it is. A pure function, called for every new tenant and every change.
 */
#ifndef HB_DAEMON_ADMISSION_H
#define HB_DAEMON_ADMISSION_H

#include "daemon/daemon_config.h"
#include "daemon/peer.h"
#include "hummingbird/page.h"

struct hb_terms {
	enum hb_page_priority priority;
	int64_t slo_ns;        /* 0 = none, -1 = learn it */
	uint64_t memory_bytes; /* 0 = no limit */
};

/*
 * Lowers `asked` to what `peer` may have. Per-user daemons grant what no rule
 * forbids; a system-wide one grants `others` where no rule fits. *reason = why
 * something was lowered, "" where nothing was. Root and the daemon's own user
 * are bound by rules like everybody else: rules are a promise.
 */
struct hb_terms hb_admit(const struct hb_daemon_config *config, bool system_mode, const struct hb_peer *peer,
			 const struct hb_terms *asked, char reason[160]);

#endif
