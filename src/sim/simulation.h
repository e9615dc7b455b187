/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The simulation's state and the functions by which its parts call each other:
 * simulation.c (set-up, loop, results), program.c (host threads),
 * simulation_core.c (events and actions of the core), simulation_hints.c (signs and
 * hints), simulation_takeover.c (foresight), simulation_spatial.c and
 * simulation_reef.c (launch paths of modes).
 */
#ifndef HB_SIM_SIMULATION_H
#define HB_SIM_SIMULATION_H

#include "decide/baseline_reef.h"
#include "sim/program.h"

struct hb_simulation {
	const struct hb_sim_options *options;
	struct hb_mode mode;
	struct hb_gpu_spec spec;
	struct hb_gpu_model *model;
	struct hb_core *core;
	bool passive; /* the policy is the built-in one, so no event has to be posted */
	struct hb_program *programs;
	uint32_t n_programs, n_high;
	struct hb_spatial_board board; /* what HP programs report to LP programs */
	struct hb_reef reef;           /* mode `reef` */
	int64_t now_ns;
	int64_t end_ns; /* requests that arrive later are not served */
	int failure;    /* a negative errno stops the run */
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

/* simulation_core.c: posts an event of the program now and carries out the core's actions. */
void hb_simulation_post(struct hb_simulation *simulation, const struct hb_program *program, struct hb_event *event);
void hb_simulation_post_kind(struct hb_simulation *simulation, const struct hb_program *program,
			     enum hb_event_kind kind);
/* The LP program has completed a launch; reports its progress now and then. */
void hb_simulation_note_progress(struct hb_simulation *simulation, struct hb_program *program, uint32_t op);
void hb_simulation_step_core(struct hb_simulation *simulation);
int hb_simulation_open_core(struct hb_simulation *simulation);
/* simulation_hints.c */
void hb_simulation_plan_hint(struct hb_simulation *simulation, struct hb_program *program);
void hb_simulation_give_hints(struct hb_simulation *simulation, struct hb_program *program);
/* The program begins to serve a request and calls the driver for the first time. */
void hb_simulation_begin_calls(struct hb_simulation *simulation, struct hb_program *program);
int64_t hb_simulation_next_hint_ns(const struct hb_program *program);
/* Computes when the bytes of a request arrive next. */
void hb_simulation_plan_bytes(const struct hb_simulation *simulation, struct hb_program *program);
/* The bytes of a request arrive now: a sign. */
void hb_simulation_report_bytes(struct hb_simulation *simulation, struct hb_program *program);
/* simulation_takeover.c: foresight of HP programs. Only sign() may be called for a program without foresight. */
int hb_simulation_open_takeover(struct hb_simulation *simulation, struct hb_program *program);
void hb_simulation_close_takeover(struct hb_program *program);
/* When step() is due; INT64_MAX = never. */
int64_t hb_simulation_next_takeover_ns(const struct hb_program *program);
void hb_simulation_step_takeover(struct hb_simulation *simulation, struct hb_program *program);
void hb_simulation_takeover_sign(struct hb_simulation *simulation, struct hb_program *program, enum hb_sign kind,
				 uint64_t source, uint32_t who, int64_t expected_ns);
/* The program is about to launch. */
void hb_simulation_takeover_launch(struct hb_simulation *simulation, struct hb_program *program);
/* The program enters its synchronize call. */
void hb_simulation_takeover_wait(struct hb_simulation *simulation, struct hb_program *program);
/* The program's last work in flight has ended while it waits. */
void hb_simulation_takeover_drained(struct hb_simulation *simulation, struct hb_program *program);
/* The synchronize call has returned. */
void hb_simulation_takeover_idle(struct hb_simulation *simulation, struct hb_program *program);
/* simulation_spatial.c: the spatial engine in HP and LP programs */
int hb_simulation_open_spatial(struct hb_simulation *simulation, struct hb_program *program);
void hb_simulation_close_spatial(struct hb_program *program);
/* The program launches now. Sets the mark behind an LP launch. */
void hb_simulation_spatial_launch(struct hb_simulation *simulation, struct hb_program *program);
/* An HP program has seen a sign of its next request. Does nothing without foresight. */
void hb_simulation_spatial_sign(struct hb_simulation *simulation, struct hb_program *program, enum hb_sign kind,
				uint64_t source, uint32_t who, int64_t expected_ns);
/* An HP program has served its request. */
void hb_simulation_spatial_end(struct hb_simulation *simulation, struct hb_program *program);
/* May the LP program launch now? False: it is blocked, and asks again at program->wake_ns. */
bool hb_simulation_spatial_go(struct hb_simulation *simulation, struct hb_program *program);
/* Applies the decided mask and part of the grid to an LP launch. */
void hb_simulation_spatial_shape(const struct hb_simulation *simulation, struct hb_program *program,
				 struct hb_gpu_model_work *work);
/* The GPU has reached a mark of the LP program. */
void hb_simulation_spatial_marked(struct hb_simulation *simulation, struct hb_program *program, uint32_t mark);
/* The LP program has waited for all its work. */
void hb_simulation_spatial_idle(struct hb_simulation *simulation, struct hb_program *program);
/* simulation_reef.c: the launch path in mode `reef` */
/* May the program launch now? False: it is blocked until the GPU's state changes. */
bool hb_simulation_reef_go(struct hb_simulation *simulation, struct hb_program *program);
/* A request began or ended, or LP work ended. */
void hb_simulation_reef_changed(struct hb_simulation *simulation);
/* simulation.c */
void hb_simulation_span(struct hb_simulation *simulation, enum hb_span_kind kind, uint32_t tenant, const char *name,
			int64_t start_ns, int64_t end_ns);

#endif
