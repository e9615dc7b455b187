/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One inference request in the server, independent of its protocol. HTTP or gRPC
 * fills it in, hb_inference_check() (models/inference_check.h) compares it with
 * the model, the dispatcher queues it, and a back end fills in the outputs.
 *
 * The request is counted: its protocol holds it, and so does the dispatcher while
 * a batch works on it, because a request can be answered before its batch ends
 * (time-out, client disconnected). The request owns the memory of its inputs
 * (`source`).
 */
#ifndef HB_SERVER_INFERENCE_H
#define HB_SERVER_INFERENCE_H

#include "server/kserve/memory_budget.h"
#include "server/kserve/tensor.h"
#include "server/scheduler/predictor.h"

#include <stdatomic.h>

#define HB_REQUEST_ID_MAX 128

/* The ways in which a request can end; status_codes.def has the status that clients read. */
enum hb_answer {
#define HB_ANSWER(name, http, grpc, reason) HB_ANSWER_##name,
#include "server/kserve/status_codes.def"
#undef HB_ANSWER
	HB_ANSWERS
};

/* An output that the client asked for. */
struct hb_output_request {
	char name[HB_TENSOR_NAME_MAX];
	bool binary; /* HTTP: the output is sent as binary data behind the JSON */
	struct hb_region_part part;
};

/* Times of a request's steps, CLOCK_MONOTONIC; 0 = not reached. */
struct hb_inference_times {
	int64_t arrived_ns, begun_ns, run_ns, out_ns, ended_ns;
};

struct hb_served_model;

struct hb_inference {
	struct hb_served_model *model;
	char id[HB_REQUEST_ID_MAX];
	uint32_t n_inputs, n_requested;
	uint32_t items; /* size of the batch dimension; 1 without one */
	struct hb_tensor inputs[HB_TENSORS_MAX];
	struct hb_output_request requested[HB_TENSORS_MAX]; /* if empty, the client wants all outputs */
	uint64_t open_bytes;                                /* bytes of inputs whose size the model leaves open */
	bool binary_outputs;                 /* HTTP: outputs that are not in requested[] are sent as binary data */
	enum hb_scheduler_priority priority; /* HB_SCHEDULER_PRIORITIES = the model's priority */
	int64_t deadline_ns; /* time after arrival by which the scheduler tries to answer; 0 = the model's, -1 = none */
	int64_t timeout_ns;  /* time after arrival at which the request is answered with a time-out; 0 = never */

	uint64_t caller; /* id of the caller (security/access.h): its shared memory may be used */
	bool low_only;   /* the caller may not ask for high priority */

	/* The outcome. */
	enum hb_answer answer;
	char reason[256]; /* text for the client if answer is not OK */
	uint32_t n_outputs;
	struct hb_tensor outputs[HB_TENSORS_MAX];
	void *output_data; /* data of all outputs, from malloc; outputs[].data point into it */
	struct hb_inference_times times;

	/* Set by the protocol. done() is called once, on any thread, without the dispatcher's lock. */
	void (*done)(struct hb_inference *infer);
	void *owner;
	void *source; /* memory of the inputs; freed with the request by free_source */
	void (*free_source)(void *source);
	struct hb_memory_charge charge; /* reading the request, and reserved_bytes; ends with the request */
	uint64_t reserved_bytes;        /* for the outputs, and then for the answer that is written from them */

	/* Set by the dispatcher (dispatch.c). */
	atomic_uint holders;
	uint64_t handle;     /* the scheduler's number of the request; 0 = not queued */
	uint32_t gpu;        /* index of the GPU whose scheduler has the request */
	uint32_t lost_runs;  /* batches of it that had begun when their worker ended */
	uint32_t slot;       /* slot of the request's batch, once the batch has begun */
	int64_t expires_ns;  /* when the request is answered with a time-out; INT64_MAX = never */
	uint32_t heap_place; /* index in the heap of time-outs; UINT32_MAX = not in it */
	bool answered;
	struct hb_inference *next;
};

/* Creates a request with one holder. Returns NULL without memory. */
struct hb_inference *hb_inference_new(void);
/* Removes one holder; the last one frees the request with its outputs and source. NULL is allowed. */
void hb_inference_free(struct hb_inference *infer);

/* Sets an answer other than OK and its reason; returns the answer. */
enum hb_answer hb_inference_fail(struct hb_inference *infer, enum hb_answer answer, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
/* Sets and returns the answer for a request that the memory budget has no room for. */
enum hb_answer hb_inference_fail_memory_full(struct hb_inference *infer);

/* Returns whether writing the answer takes so long that the thread of a protocol must not do it (job_thread.h). */
bool hb_inference_has_large_outputs(const struct hb_inference *infer);

/* Allocates memory for reading the request and charges it. Returns HB_ANSWER_OK, or the answer that was set. */
enum hb_answer hb_inference_allocate(struct hb_inference *infer, uint64_t bytes, void **out);

/* Returns the most bytes that an answer has whose n outputs have `bytes` bytes together, as binary data. */
uint64_t hb_inference_answer_bytes(uint64_t bytes, uint32_t n);
/*
 * Reserves memory, before a batch runs, for n outputs of `bytes` bytes together and for an answer that has them as binary data,
 * so that the batch's results can be sent. If as much is reserved already, nothing changes. The outputs and their answer are both in
 * memory only while a thread writes the answer, so the memory is charged once. False: the budget has no room.
 */
bool hb_inference_reserve_outputs(struct hb_inference *infer, uint64_t bytes, uint32_t n);
/*
 * Charges an answer that was written: first what was reserved, then more (text can be larger than its data). False: the budget
 * has no room for more, and nothing was charged.
 */
bool hb_inference_charge_answer(struct hb_inference *infer, struct hb_memory_charge *answer, uint64_t bytes);
/* Frees the outputs, because the answer was written. */
void hb_inference_drop_outputs(struct hb_inference *infer);

/*
 * Return what clients read about an answer: HTTP status, gRPC status, and label of the failure metric; see
 * status_codes.def.
 */
int hb_answer_http(enum hb_answer answer);
int hb_answer_grpc(enum hb_answer answer);
const char *hb_answer_reason(enum hb_answer answer);

#endif
