/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One inference request on its way through the server, whatever protocol it
 * came by: the front ends fill it in, hb_inference_check() compares it with the
 * model, the dispatcher queues it and back ends fill in the outputs.
 *
 * It is counted: the front end holds it, and the dispatcher while a batch works
 * on it, since a request may be answered (time-out, client gone) before its
 * batch ends. What its inputs point to belongs to it (`source`).
 */
#ifndef HB_FRONT_INFER_H
#define HB_FRONT_INFER_H

#include "base/error.h"
#include "server/kserve/memory_budget.h"
#include "server/models/model_config.h"
#include "server/scheduler/predictor.h"

#include <stdatomic.h>

enum hb_answer {
#define HB_ANSWER(name, http, grpc, reason) HB_ANSWER_##name,
#include "server/kserve/answers.def"
#undef HB_ANSWER
	HB_ANSWERS
};

/* Part of a shared-memory region that the client registered; region "" = none. */
struct hb_region_part {
	char region[HB_TENSOR_NAME_MAX];
	uint64_t offset, bytes;
};

struct hb_tensor {
	char name[HB_TENSOR_NAME_MAX];
	enum hb_dtype dtype;
	uint32_t n_dims;
	int64_t dims[HB_TENSOR_DIMS_MAX]; /* with the batch dimension, where the model has one */
	const void *data;
	uint64_t bytes;
	struct hb_region_part part;
};

/* An output that the client asked for. */
struct hb_output_request {
	char name[HB_TENSOR_NAME_MAX];
	bool binary;
	struct hb_region_part part;
};

/* When what happened, CLOCK_MONOTONIC; 0 = not yet. */
struct hb_inference_times {
	int64_t arrived_ns, begun_ns, run_ns, out_ns, ended_ns;
};

struct hb_served_model;

struct hb_inference {
	struct hb_served_model *model;
	char id[HB_REQUEST_ID_MAX];
	uint32_t n_inputs, n_wishes, items;
	struct hb_tensor inputs[HB_TENSORS_MAX];
	struct hb_output_request wishes[HB_TENSORS_MAX];
	uint64_t open_bytes; /* of inputs whose size the model leaves open */
	bool binary_outputs; /* those that were not asked for by name */
	enum hb_scheduler_priority priority;
	int64_t deadline_ns; /* from arrival: the goal of scheduling; 0 = the model's, -1 = none */
	int64_t timeout_ns;  /* from arrival: an answer comes by then; 0 = none */

	/* The outcome. */
	enum hb_answer answer;
	char reason[256]; /* where answer is not OK */
	uint32_t n_outputs;
	struct hb_tensor outputs[HB_TENSORS_MAX];
	void *output_data; /* from malloc; outputs[].data lie in it */
	struct hb_inference_times times;

	/* The front end's. done() is called once, on any thread, without the dispatcher's lock. */
	void (*done)(struct hb_inference *infer);
	void *owner;
	void *source; /* freed with it, by free_source */
	void (*free_source)(void *source);
	struct hb_memory_charge charge; /* for what reading it took; ends with it */

	/* The dispatcher's (dispatch.c). */
	atomic_uint holders;
	uint64_t handle; /* of the scheduler; 0 = not queued */
	uint32_t slot;   /* of its batch, once that has begun */
	int64_t cut_ns;  /* when it is answered with a time-out; INT64_MAX = never */
	uint32_t heap;   /* its place among those with a time-out; UINT32_MAX = none */
	bool answered;
	struct hb_inference *next;
};

/* With one holder; NULL = no memory. */
struct hb_inference *hb_inference_new(void);
/* One holder less; the last frees it with outputs and source. NULL is allowed. */
void hb_inference_free(struct hb_inference *infer);

/* Ends it with an answer that is not OK; returns that answer. */
enum hb_answer hb_inference_fail(struct hb_inference *infer, enum hb_answer answer, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* Memory from malloc for reading it, charged to it. HB_ANSWER_OK, or the answer to give. */
enum hb_answer hb_inference_allocate(struct hb_inference *infer, uint64_t bytes, void **out);
/* Ends it: the memory for all requests is used up. */
enum hb_answer hb_inference_crowded(struct hb_inference *infer);

/*
 * Whether names, data types, shapes and sizes fit the model; sets items and open_bytes. Missing
 * and unknown tensors are errors. HB_ANSWER_OK or the answer to give, with reason.
 */
enum hb_answer hb_inference_check(struct hb_inference *infer, const struct hb_model_config *model);

/*
 * Makes room for the outputs, as the model says, for the request's items: shapes
 * set, data zeroed. Dimensions that the model leaves open (-1) become 1. For back
 * ends. False: no memory.
 */
bool hb_inference_make_outputs(struct hb_inference *infer, const struct hb_model_config *model);

/* Elements of a shape; -1 when a dimension is negative or the product overflows. */
int64_t hb_tensor_elements(const int64_t *dims, uint32_t n_dims);
/* Whether so many bytes hold so many elements; never of BYTES, whose elements have any size. */
bool hb_tensor_holds(enum hb_dtype dtype, int64_t elements, uint64_t bytes);
/* Whether a tensor of BYTES is so many texts and nothing else: each has its length before it, 4 bytes, little-endian. */
bool hb_tensor_has_texts(const struct hb_tensor *tensor, int64_t elements);
/* Whether requests may bring any size of it: text, or a dimension that is left open. */
bool hb_tensor_spec_open(const struct hb_tensor_spec *spec);
/* Of an element; 0 for BYTES. */
uint32_t hb_dtype_bytes(enum hb_dtype dtype);
const char *hb_dtype_name(enum hb_dtype dtype);
/* In Triton's ModelConfig. */
const char *hb_dtype_config_name(enum hb_dtype dtype);
int hb_dtype_config_number(enum hb_dtype dtype);
/* HB_DTYPES when there is no such type. */
enum hb_dtype hb_dtype_parse(const char *name);

int hb_answer_http(enum hb_answer answer);
int hb_answer_grpc(enum hb_answer answer);
const char *hb_answer_reason(enum hb_answer answer);

#endif
