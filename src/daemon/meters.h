/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the daemon measures itself on one GPU, for status, metrics and `hb top`:
 * how long closing a gate takes until nothing is left in flight, how long a
 * tenant stood at a closed gate, how much of the time it launched anything.
 * Seen by the looks of device.c: to 2 ms while a gate is closed. Nothing is
 * decided by it. Called by device.c, read by status_json.c and metrics.c.
 */
#ifndef HB_DAEMON_METERS_H
#define HB_DAEMON_METERS_H

#include "base/hist.h"
#include "daemon/daemon.h"

/* Of one tenant; all zero when it comes. */
struct hb_seat_meter {
	int64_t closed_ns;      /* its gate was closed over work in flight, which is not done yet; 0 = no such thing */
	int64_t waiting_ns;     /* a thread stands at its closed gate since; 0 = none */
	uint64_t preemptions;   /* times its gate was closed over work in flight */
	uint64_t launches;      /* at the last beat */
	uint64_t beat_launches; /* between the last two; 0 where a process left with its count */
	uint64_t active_ns;     /* sum of the beats since the last of which it had launched something */
	int64_t beat_ns;        /* the last beat; 0 = none yet */
	struct hb_hist *wait;   /* stretches of waiting at the gate; NULL = none so far */
};

struct hb_meters {
	char name[96];             /* of the GPU, for people */
	char index[16];            /* as the driver's tools number it; "" = not known */
	struct hb_hist preemption; /* a gate closed for high priority: until its work in flight was done */
	struct hb_hist turn;       /* the same where turns of low priority change */
	struct hb_seat_meter seats[HB_TENANCIES_MAX];
};

/* NULL when out of memory. */
struct hb_meters *hb_meters_new(const struct hb_device *device);
void hb_meters_free(struct hb_meters *meters);
/* A tenant came or went: its meter starts anew. */
void hb_meters_reset(struct hb_device *device, uint32_t tenancy);

/* Its gate was set; `in_flight`: something of it was on its way then. */
void hb_meters_gate_set(struct hb_device *device, uint32_t tenancy, bool in_flight, int64_t now_ns);
/* A look at its gates: whether a thread waits, whether all is drained. */
void hb_meters_seen(struct hb_device *device, uint32_t tenancy, bool waiting, bool drained, int64_t now_ns);
/* At every beat: the launches of all its processes so far. */
void hb_meters_beat(struct hb_device *device, uint32_t tenancy, uint64_t launches, int64_t now_ns);

/* For the status (status_meters.c). {count, sum_ns, p50_ns, p99_ns, max_ns, buckets}, or null where there is no sample. */
struct json_t *hb_status_hist(const struct hb_hist *hist);
/* Adds latency, wait, preempted and active_ns. */
void hb_status_add_meters(struct json_t *object, const struct hb_device *device, uint32_t tenancy);

#endif
