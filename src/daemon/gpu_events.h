/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Listens to faults of the GPUs (Xid, memory errors, lost GPUs) on a thread of its own,
 * because the driver answers when it likes, or never. The loop marks the GPU,
 * logs the fault, and opens the gates of a lost GPU, so that no launch waits for it.
 */
#ifndef HB_DAEMON_GPU_EVENTS_H
#define HB_DAEMON_GPU_EVENTS_H

#include "base/error.h"
#include "daemon/gpu_record.h"

struct hb_gpu_events;
struct json_t;

/* 0 or negative errno. */
int hb_gpu_events_new(struct hb_daemon *daemon, struct hb_gpu_events **events);
/* Ends the thread; frees it when it has ended. */
void hb_gpu_events_free(struct hb_gpu_events *events);
/* Every HB_TICK_MS: starts the thread with the first GPU, and tells it of new ones. */
void hb_gpu_events_tick(struct hb_gpu_events *events);

/* The last fault of the GPU; NULL = none since the daemon began. */
const struct hb_gpu_fault *hb_gpu_last_event(const struct hb_gpu *gpu);
/* Writes what the event means, as in "Xid 31 (a program accessed memory that it may not access)". Returns `text`. */
const char *hb_gpu_event_text(const struct hb_gpu_event *event, char *text, size_t size);
/* The driver answered a question about the GPU that was asked at this time: whether the GPU is lost. */
void hb_gpu_note_answer(struct hb_gpu *gpu, bool is_lost, int64_t asked_ns);
/* 0, or -ENODEV with *error if the GPU is lost. */
int hb_gpu_check_lost(const struct hb_gpu *gpu, struct hb_error *error);
/* {"lost", "faults", "last", "why"} for the status; NULL when out of memory. */
struct json_t *hb_gpu_health_json(const struct hb_gpu *gpu, int64_t now_ns);

#endif
