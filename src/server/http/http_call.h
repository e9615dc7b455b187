/* SPDX-License-Identifier: Apache-2.0 */
/* One HTTP request in the server; between kserve_http.c (connections), http_routes.c (which function) and http_infer.c. */
#ifndef HB_SERVER_HTTP_CALL_H
#define HB_SERVER_HTTP_CALL_H

#include "server/http/disconnect_watch.h"
#include "server/http/http_loops.h"
#include "server/http/http_timeouts.h"
#include "server/http/kserve_http.h"
#include "server/http/kserve_json.h"

#include <microhttpd.h>
#include <pthread.h>

#define HB_HTTP_JSON_LENGTH "Inference-Header-Content-Length"
#define HB_HTTP_SHUTTING_DOWN "the server is ending"

struct hb_kserve_http {
	struct hb_kserve_http_config config;
	struct hb_http_loops *loops;
	struct hb_disconnect_watch *gone;
	struct hb_http_timeouts *peers;
	pthread_mutex_t lock;
	pthread_cond_t ended;
	uint32_t slow;      /* threads that load models; guarded by lock */
	bool over;          /* waiting has reached 0; guarded by lock */
	atomic_int waiting; /* requests with the dispatcher, and who wakes one; 1 more until the server ends */
};

enum hb_http_wait_state { HB_CALL_RUNS, HB_CALL_SUSPENDED, HB_CALL_RESUMED };

struct hb_http_call {
	struct hb_kserve_http *http;
	struct MHD_Connection *connection;
	struct hb_http_loop *loop; /* whose connection it is */
	struct hb_http_timeout *peer;
	struct hb_http_body *body;
	size_t capacity;
	uint64_t most;     /* bytes that its body may have */
	const char *model; /* to infer with, not ended by a NUL; NULL = it is another request */
	size_t model_length;
	bool watched, waits;
	bool unframed; /* where it ends is not clear: its connection goes no further */
	int refused;   /* HTTP status, before the body has come whole; 0 = not */
	atomic_int wait_state;
	struct hb_inference *infer;
	enum MHD_Result (*finish)(struct hb_http_call *call); /* after a wait */
	char name[HB_MODEL_NAME_MAX];                         /* of a model to load */
	char *answer;                                         /* of a load: its error */
	struct hb_memory_charge charge;                       /* for the answer, until the client has it */
};

/*
 * Answer and end; body and json are freed. The first compresses what is long, where the client takes that; documents go as
 * they are, since Triton's own asynchronous client asks for compression and reads only inference answers so.
 */
enum MHD_Result hb_http_send(struct hb_http_call *call, int status, const char *type, char *body, size_t bytes,
			     size_t json_bytes);
enum MHD_Result hb_http_send_json(struct hb_http_call *call, int status, char *json);
enum MHD_Result hb_http_send_nothing(struct hb_http_call *call, int status);
enum MHD_Result hb_http_refuse(struct hb_http_call *call, int status, const char *reason);
/* Waits until hb_http_resume(), which any thread may call once, before or after. Then call->finish answers. */
enum MHD_Result hb_http_suspend(struct hb_http_call *call);
void hb_http_resume(struct hb_http_call *call);
/* One request more; false: the server has ended. */
bool hb_http_begin_wait(struct hb_kserve_http *http);
/* ... and one less. */
void hb_http_end_wait(struct hb_kserve_http *http);

/* The body is complete. */
enum MHD_Result hb_http_route(struct hb_http_call *call, const char *url, const char *method);
enum MHD_Result hb_http_infer(struct hb_http_call *call, const char *model, const char *version);
void hb_http_release_inference(struct hb_http_call *call);

#endif
