/* SPDX-License-Identifier: Apache-2.0 */
/*
 * KServe v2's JSON bodies with the binary tensor extension: reading inference
 * requests, writing their answers and the other documents. No sockets; called by
 * kserve_http.c and by the fuzz target.
 */
#ifndef HB_SERVER_KSERVE_JSON_H
#define HB_SERVER_KSERVE_JSON_H

#include "server/kserve/parameters.h"
#include "server/models/dispatch.h"

/* A body that was received: the request keeps it (infer->source) while it is used. */
struct hb_http_body {
	char *data; /* from malloc */
	size_t bytes;
	size_t json_bytes;              /* the first part; the rest is binary */
	void *more[HB_TENSORS_MAX];     /* decoded from JSON or read from regions */
	struct hb_memory_charge charge; /* for data */
};

struct hb_http_body *hb_http_body_new(void);
void hb_http_body_free(void *body);
/* Its data only. */
void hb_http_body_clear(struct hb_http_body *body);

/* Fills *infer but for its model. HB_ANSWER_OK, or the answer to give. The body must outlive the request's inputs. */
enum hb_answer hb_kserve_json_read(struct hb_inference *infer, struct hb_http_body *body,
				   struct hb_shared_memory *regions);

/*
 * The answer to a request that was OK: *out from malloc, *json_bytes of it are
 * JSON; equal to the result where nothing is binary. 0 = no memory, or a number
 * that JSON does not know (infer->answer and reason then say so).
 */
size_t hb_kserve_json_write(struct hb_inference *infer, const struct hb_model_config *model, char **out,
			    size_t *json_bytes);

/* Documents, from malloc; NULL = no memory. */
char *hb_kserve_json_error(const char *reason);
char *hb_kserve_json_server(void);
char *hb_kserve_json_model(const struct hb_model_config *model);
char *hb_kserve_json_model_config(const struct hb_model_config *model); /* as Triton's ModelConfig */
char *hb_kserve_json_statistics(struct hb_dispatch *dispatch, const char *name);
char *hb_kserve_json_index(struct hb_dispatch *dispatch, bool ready_only);
char *hb_kserve_json_regions(const struct hb_shared_region *regions, uint32_t n);

extern const char *const hb_model_info_extensions[]; /* NULL-terminated */
const char *hb_model_info_platform(const struct hb_model_config *model);
const char *hb_model_info_state(const struct hb_served_model *model);

#endif
