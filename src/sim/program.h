/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One simulated tenant: a program whose host thread launches the recorded work of its
 * workload, iteration by iteration, and synchronizes at the end of each. HP programs
 * serve requests that arrive; LP programs begin the next iteration at once. Used by
 * the simulation only.
 *
 * `state` says what the host thread does. The simulation calls hb_program_step() at
 * wake_ns, hb_program_completed() when the program's work on the GPU has ended, and
 * hb_program_gate_changed() after the core has changed the program's gate.
 */
#ifndef HB_SIM_PROGRAM_H
#define HB_SIM_PROGRAM_H

#include "base/rng.h"
#include "core/core.h"
#include "decide/kernel_class.h"
#include "decide/spatial_high.h"
#include "decide/spatial_least.h"
#include "decide/spatial_low.h"
#include "decide/takeover_steps.h"
#include "decide/token_pace.h"
#include "gate/gate.h"
#include "gpumodel/model.h"
#include "sim/host_plan.h"
#include "sim/service.h"
#include "sim/sharing_modes.h"
#include "sim/sim.h"

struct hb_simulation;

enum program_state {
	PROGRAM_WAITS_ARRIVAL, /* waits for the next request */
	PROGRAM_WAITS_TOKEN,   /* prepares the next token of a request until wake_ns */
	PROGRAM_LAUNCHES,      /* enters the next launch call at wake_ns */
	PROGRAM_GATED,         /* is blocked in the launch call */
	PROGRAM_ENTERS_SYNC,   /* enters the synchronize call at wake_ns */
	PROGRAM_SYNCS,         /* is in the synchronize call, which returns at wake_ns */
	PROGRAM_DONE,          /* has no more requests */
};

/* The part of the spatial engine that is in the program; see simulation_spatial.c. */
struct hb_program_spatial {
	struct hb_spatial_high high;
	struct hb_spatial_low *low; /* NULL for an HP program */
	struct hb_spatial_stream stream;
	struct hb_spatial_answer answer;
	struct hb_spatial_shape *shapes;        /* one for each op */
	uint32_t counter;                       /* last mark that the GPU reached */
	int64_t read_ns;                        /* when the counter was read last */
	uint64_t blocks_done;                   /* blocks launched of a split kernel; 0 = no kernel is being split */
	bool marks;                             /* the launch before this one wrote a mark */
	struct hb_spatial_least least;          /* LP's guaranteed minimum */
	int64_t orion_used_ns;                  /* mode `orion`: LP time started beside HP's request */
	struct hb_process_foresight *foresight; /* of an HP program; NULL = it announces nothing */
};

/* The foresight of an HP program; see simulation_takeover.c. */
struct hb_program_takeover {
	struct hb_process_foresight process;
	struct hb_takeover_linger linger;
	struct hb_process_wait wait;
	int64_t thread_ns;  /* when the takeover thread runs next */
	int64_t planned_ns; /* time for which the thread sleeps; a call for an earlier time wakes it */
	int64_t launch_ns;  /* when the takeover kernels reach the driver; INT64_MAX = none are being launched */
	int64_t end_ns;     /* when the takeover kernels end by themselves; INT64_MAX = none run */
	int64_t acted_ns;   /* since_ns of the plan's last takeover that was carried out */
	uint64_t kernels, graphs;
	uint64_t launches_since_idle;
	int stream;
	bool held; /* takeover kernels were launched and not released */
};

/* Describes what a program serves in one phase. */
struct hb_program_part {
	const struct hb_workload *workload;
	bool graph;
	uint32_t tokens;
	struct hb_host_plan plan;
	struct hb_gpu_model_work *works; /* one for each op */
};

struct hb_program {
	const struct hb_sim_tenant *tenant;
	struct hb_program_part parts[HB_SIM_PHASES_MAX]; /* by phase */
	uint32_t n_parts;
	const struct hb_workload *workload; /* of the present phase, as the next four */
	uint32_t id;                        /* id of the core's tenant, and index in the simulation */
	bool high;
	enum hb_class launched_class; /* of the kernel launched last */
	bool graph;
	uint32_t tokens;
	const struct hb_host_plan *plan;
	struct hb_gpu_model_work *works;
	int client, stream;
	bool closed; /* no arrivals: the next iteration begins when the last one has ended */
	bool signs;  /* `bytes` are reported */
	struct hb_service_arrivals arrivals;
	struct hb_service_arrivals bytes; /* the same arrivals again, for the signs */

	enum program_state state;
	int64_t wake_ns;
	uint32_t iteration;   /* index in the workload; starts again after the last one */
	uint32_t op;          /* the op to launch next, in the iteration */
	int64_t sync_from_ns; /* when the program enters the synchronize call */
	uint64_t in_flight;   /* submissions; takeover kernels do not count */
	uint32_t token;       /* of the arrival that is served */
	uint32_t phase;       /* of the request that is served or was served last */
	uint32_t next_phase;  /* of the next arrival */
	int64_t arrival_ns;   /* of the request that is served */
	int64_t served_ns;    /* when serving it began; -1 = no request is served */
	int64_t next_arrival_ns;
	int64_t hint_ns, hint_start_ns; /* time of the next hint, and the time that it names */
	int64_t false_hint_ns;
	int64_t bytes_ns;    /* when the bytes of a request arrive next */
	int64_t launched_ns; /* last launch; -1 = none */
	struct hb_rng hint_rng;
	struct hb_host_pace pace;

	struct hb_gate gate;
	uint32_t mark;          /* the mark behind its last launch (spatial engine); 0 = none */
	int64_t work_ns;        /* LP: time alone of completed work that was not reported yet */
	int64_t gated_since_ns; /* -1 = the program is not blocked */
	bool posted_waiting;    /* `waiting` was posted since the gate last changed */
	bool draining;          /* the gate was closed, and `drained` has to be posted */

	struct hb_program_spatial *spatial;   /* NULL = not the spatial engine */
	struct hb_program_takeover *takeover; /* NULL = without foresight */

	/* Results. */
	int64_t *latency_ns;
	size_t n_latency, latency_capacity;
	int64_t *end_ns; /* of each request, as latency_ns */
	struct hb_token_pace token_pace;
	uint64_t judged, met; /* requests with a stated objective, and those within it */
	double *busy_ns;      /* LP: for each interval of the result; NULL = none are wanted */
	uint64_t iterations;
	int64_t begun_ns, last_end_ns;
};

/* 0, -EINVAL (arrivals), -ENOMEM. */
int hb_program_init(struct hb_program *program, struct hb_simulation *simulation, const struct hb_sim_tenant *tenant,
		    uint32_t id, bool high, struct hb_error *error);
void hb_program_fini(struct hb_program *program);
void hb_program_step(struct hb_simulation *simulation, struct hb_program *program);
void hb_program_completed(struct hb_simulation *simulation, struct hb_program *program,
			  const struct hb_gpu_model_completion *done);
void hb_program_gate_changed(struct hb_simulation *simulation, struct hb_program *program);

/* Converts a recorded op into work for the GPU model. The caller sets its power. */
void hb_program_fill_work(struct hb_gpu_model_work *work, const struct hb_trace_set *traces, const struct hb_op *op);

#endif
