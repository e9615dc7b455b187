/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the parts of the engine share: simulation.c (set-up, loop, results),
 * simulation_core.c (events to the core, its actions carried out), simulation_hints.c
 * (hints of a chosen quality) and program.c.
 */
#ifndef HB_SIM_ENGINE_H
#define HB_SIM_ENGINE_H

#include "decide/baseline_reef.h"
#include "sim/program.h"

struct hb_simulation {
	const struct hb_sim_options *options;
	struct hb_mode mode;
	struct hb_gpu_spec spec;
	struct hb_gpu_model *model;
	struct hb_core *core;
	bool passive; /* the built-in policy: nothing needs to be posted */
	struct hb_program *programs;
	uint32_t n_programs, n_high;
	struct hb_spatial_board board; /* what HP programs report to LP programs */
	struct hb_reef reef;           /* mode `reef` */
	int64_t now_ns;
	int64_t end_ns; /* requests that arrive later are not served */
	int failure;    /* negative errno: the run stops */
	struct hb_error *error;
	int context_of[HB_SIM_TENANTS_MAX * 2];
	int64_t span_from_ns, span_to_ns;
	struct hb_span *spans;
	size_t n_spans, spans_capacity;
	bool spans_truncated;
};

/* The cookie of a submission: program, op, and the mark behind the launch. */
#define HB_COOKIE_TAKEOVER (UINT64_C(1) << 55)
static inline uint64_t hb_cookie(uint32_t program, uint32_t op, uint32_t mark)
{
	return (uint64_t)program << 56 | (uint64_t)(mark & 0x7fffffff) << 24 | (op & 0xffffff);
}
static inline uint32_t hb_cookie_program(uint64_t cookie)
{
	return (uint32_t)(cookie >> 56);
}
static inline uint32_t hb_cookie_op(uint64_t cookie)
{
	return (uint32_t)(cookie & 0xffffff);
}
static inline uint32_t hb_cookie_mark(uint64_t cookie)
{
	return (uint32_t)(cookie >> 24 & 0x7fffffff);
}

/* simulation_core.c: posts an event of program->id now and carries out what the core asks. */
void hb_simulation_post(struct hb_simulation *engine, const struct hb_program *program, struct hb_event *event);
void hb_simulation_post_kind(struct hb_simulation *engine, const struct hb_program *program, enum hb_event_kind kind);
void hb_simulation_step_core(struct hb_simulation *engine);
int hb_simulation_open_core(struct hb_simulation *engine);
/* simulation_hints.c */
void hb_simulation_plan_hint(struct hb_simulation *engine, struct hb_program *program);
void hb_simulation_give_hints(struct hb_simulation *engine, struct hb_program *program);
/* The program begins to serve a request: its first call into the driver. */
void hb_simulation_begin_calls(struct hb_simulation *engine, struct hb_program *program);
int64_t hb_simulation_next_hint_ns(const struct hb_program *program);
/* The bytes of a request arrive now: a sign. */
void hb_simulation_report_bytes(struct hb_simulation *engine, struct hb_program *program);
/* simulation_takeover.c: foresight of HP programs. Only sign() may be called for a program without foresight. */
int hb_simulation_open_takeover(struct hb_simulation *engine, struct hb_program *program);
void hb_simulation_close_takeover(struct hb_program *program);
/* When step() is due; INT64_MAX = never. */
int64_t hb_simulation_next_takeover_ns(const struct hb_program *program);
void hb_simulation_step_takeover(struct hb_simulation *engine, struct hb_program *program);
void hb_simulation_takeover_sign(struct hb_simulation *engine, struct hb_program *program, enum hb_sign kind,
				 uint64_t source, uint32_t who, int64_t expected_ns);
/* The program is about to launch. */
void hb_simulation_takeover_launch(struct hb_simulation *engine, struct hb_program *program);
/* The program enters its synchronize call. */
void hb_simulation_takeover_wait(struct hb_simulation *engine, struct hb_program *program);
/* The program's last work in flight has ended while it waits. */
void hb_simulation_takeover_drained(struct hb_simulation *engine, struct hb_program *program);
/* The synchronize call has returned. */
void hb_simulation_takeover_idle(struct hb_simulation *engine, struct hb_program *program);
/* simulation_spatial.c: the client side of the spatial engine */
int hb_simulation_open_slack(struct hb_simulation *engine, struct hb_program *program);
void hb_simulation_close_slack(struct hb_program *program);
/* The next launch is made now; LP: its ticket is the mark behind it. */
void hb_simulation_slack_launch(struct hb_simulation *engine, struct hb_program *program);
/* HP: its iteration has ended. */
void hb_simulation_slack_end(struct hb_simulation *engine, struct hb_program *program);
/* LP: may the next launch go? False: program->wake_ns says when to ask again. */
bool hb_simulation_slack_go(struct hb_simulation *engine, struct hb_program *program);
/* LP: mask and part of the grid of the launch that may go, as decided. */
void hb_simulation_slack_shape(const struct hb_simulation *engine, struct hb_program *program,
			       struct hb_gpu_model_work *work);
/* LP: a mark was reached. */
void hb_simulation_slack_marked(struct hb_simulation *engine, struct hb_program *program, uint32_t mark);
/* LP: it waited for all its work. */
void hb_simulation_slack_idle(struct hb_simulation *engine, struct hb_program *program);
/* simulation_reef.c: the launch path in mode `reef` */
/* May the program launch now? False: it is blocked until the GPU's state changes. */
bool hb_simulation_reef_go(struct hb_simulation *engine, struct hb_program *program);
/* A request began or ended, or LP work ended. */
void hb_simulation_reef_changed(struct hb_simulation *engine);
/* simulation.c */
void hb_simulation_span(struct hb_simulation *engine, enum hb_span_kind kind, uint32_t tenant, const char *name,
			int64_t start_ns, int64_t end_ns);

#endif
