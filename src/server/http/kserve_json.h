/* SPDX-License-Identifier: Apache-2.0 */
/*
 * JSON bodies of KServe v2 with the binary tensor extension: reads inference
 * requests, writes their answers and the other documents. No sockets. Called by
 * the HTTP server and by its fuzz target.
 */
#ifndef HB_SERVER_KSERVE_JSON_H
#define HB_SERVER_KSERVE_JSON_H

#include "server/kserve/parameters.h"
#include "server/kserve/shared_memory.h"
#include "server/models/dispatch.h"

/* The body of a request. An inference request keeps it (infer->source), because its inputs point into it. */
struct hb_http_body {
	char *data; /* the bytes, from malloc */
	size_t bytes;
	size_t json_bytes;              /* size of the JSON at the beginning; binary data follow */
	void *more[HB_TENSORS_MAX];     /* memory of inputs that were decoded from JSON or read from shared memory */
	struct hb_memory_charge charge; /* memory charged for `data` */
};

struct hb_http_body *hb_http_body_new(void);
/* Frees a struct hb_http_body; its type fits infer->free_source. NULL is allowed. */
void hb_http_body_free(void *body);
/* Frees the body's data. */
void hb_http_body_clear(struct hb_http_body *body);

/*
 * Reads everything of *infer except its model. Returns HB_ANSWER_OK, or the answer that was set. The body must exist as
 * long as the request's inputs are used.
 */
enum hb_answer hb_kserve_json_read(struct hb_inference *infer, struct hb_http_body *body,
				   struct hb_shared_memory *memory);

/*
 * Writes the response to a request that was answered with OK into *out, from malloc. Returns its size, of which *json_bytes
 * are JSON and the rest binary data. 0: no memory, or an output that JSON cannot express; infer->answer and reason are set.
 */
size_t hb_kserve_json_write(struct hb_inference *infer, const struct hb_model_config *model, char **out,
			    size_t *json_bytes);

/* Functions that write a document. They return memory from malloc, or NULL without memory. */
char *hb_kserve_json_error(const char *reason);
char *hb_kserve_json_server(void);
char *hb_kserve_json_model(const struct hb_model_config *model);
char *hb_kserve_json_model_config(const struct hb_model_config *model); /* Triton's ModelConfig */
/* Statistics of the model of this name; NULL = of all models. */
char *hb_kserve_json_statistics(struct hb_dispatch *dispatch, const char *name);
char *hb_kserve_json_index(struct hb_dispatch *dispatch, bool ready_only);
char *hb_kserve_json_regions(const struct hb_shared_region *regions, uint32_t n);

#endif
