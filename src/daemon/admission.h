/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides what a tenant may have: applies the rules of hummingbird.yaml to the
 * process that requests it. A pure function, called for every new tenant and for
 * every change of one.
 */
#ifndef HB_DAEMON_ADMISSION_H
#define HB_DAEMON_ADMISSION_H

#include "daemon/daemon_config.h"
#include "daemon/peer.h"
#include "hummingbird/page.h"

/* The rights of a tenant. */
struct hb_rights {
	enum hb_page_priority priority;
	int64_t slo_ns;        /* 0 = none, -1 = learned by the core */
	uint64_t memory_bytes; /* 0 = no limit */
	bool elastic;          /* LP: its memory may move (decision 0025) */
	bool over;             /* elastic: what does not fit is created in memory of the host (decision 0036) */
};

/*
 * Returns `wanted`, lowered to what `peer` may have. A per-user daemon grants
 * everything that no rule forbids. A system-wide daemon grants the priority
 * `others` if no rule fits. *reason = why something was lowered, "" = nothing
 * was. The rules also bind root and the daemon's own user, because other users
 * rely on them.
 */
struct hb_rights hb_admit(const struct hb_daemon_config *config, bool system_mode, const struct hb_peer *peer,
			  const struct hb_rights *wanted, char reason[160]);

/*
 * Whether a process may join a tenant whose first process was `first`, and which has these rights. It may if the
 * rules grant it the same rights, or if the same rule decides for both. *reason = why not.
 */
bool hb_admit_join(const struct hb_daemon_config *config, bool system_mode, const struct hb_peer *first,
		   const struct hb_rights *rights, const struct hb_peer *peer, char reason[160]);

#endif
