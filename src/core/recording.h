/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A recording of scheduling cores: their events and actions as lines of text, and a
 * replay that runs the same cores again. Written by the daemon (recorder.c), read by
 * `hb sim --replay` and `hb trace record`. A line is one of
 *
 *	GPU TIME_NS = KEY=VALUE...     a core starts, with this configuration
 *	GPU TIME_NS > EVENT...         an event was posted (event_text.h)
 *	GPU TIME_NS .                  step() was called because a timer was due
 *	GPU TIME_NS - ACTION...        an action caused by the line above
 *	GPU TIME_NS ~ launch TENANT N  an LP launch of the kernel with name number N; after all other lines
 *	0 0 ~ name N NAME              kernel name number N; before the first launch with N
 *
 * Tenants are #ID. Same lines, same actions: the core is a pure state machine.
 */
#ifndef HB_CORE_RECORDING_H
#define HB_CORE_RECORDING_H

#include "base/error.h"
#include "core/core.h"

#define HB_RECORDING_GPUS 32

void hb_recording_write_core(FILE *out, uint32_t gpu, int64_t now_ns, const struct hb_core_config *config);
void hb_recording_write_event(FILE *out, uint32_t gpu, int64_t now_ns, const struct hb_event *event);
void hb_recording_write_step(FILE *out, uint32_t gpu, int64_t now_ns);
void hb_recording_write_action(FILE *out, uint32_t gpu, int64_t now_ns, const struct hb_action *action);
void hb_recording_write_launch(FILE *out, uint32_t gpu, int64_t at_ns, uint32_t tenant, uint32_t name);
/* `text` is one word of printable ASCII. */
void hb_recording_write_name(FILE *out, uint32_t name, const char *text);

#define HB_RECORDING_WORDS 24

struct hb_recording_line {
	uint32_t gpu;
	int64_t at_ns;
	char kind; /* '=', '>', '.', '-' or '~' */
	char *words[HB_RECORDING_WORDS];
	size_t n_words;
};

/* Splits the line in place. 0, or -EINVAL with *error, which does not name the place. */
int hb_recording_read_line(char *text, struct hb_recording_line *line, struct hb_error *error);
/* The id in "#7"; HB_TENANT_NONE. */
uint32_t hb_recording_tenant(const char *word);

struct hb_replay {
	uint64_t events, actions;
	uint64_t different; /* actions that were recorded and not asked again, or asked and not recorded */
};

/*
 * Runs the recording's cores again; with `policy` (NULL = the recorded one) to
 * see what another one would have asked. `out` (NULL = nothing) gets what the
 * cores ask, and what was asked then where it differs. 0, or -EINVAL with "ORIGIN:LINE: what".
 */
int hb_recording_replay(const char *text, const char *origin, const char *policy, FILE *out, struct hb_replay *replay,
			struct hb_error *error);

#endif
