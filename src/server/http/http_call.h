/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One HTTP request in the server. Shared by kserve_http.c (connections and
 * bodies), http_routes.c (which function answers a path) and http_infer.c.
 */
#ifndef HB_SERVER_HTTP_CALL_H
#define HB_SERVER_HTTP_CALL_H

#include "server/http/disconnect_watch.h"
#include "server/http/http_loops.h"
#include "server/http/http_timeouts.h"
#include "server/http/kserve_http.h"
#include "server/http/kserve_json.h"
#include "server/kserve/content_coding.h"
#include "server/kserve/peer_limit.h"

#include <microhttpd.h>
#include <pthread.h>

#define HB_HTTP_JSON_LENGTH "Inference-Header-Content-Length"
#define HB_HTTP_SHUTTING_DOWN "the server is shutting down"

struct hb_kserve_http {
	struct hb_kserve_http_config config;
	struct hb_http_loops *loops, *unix_loops; /* those of the address and of the Unix socket; NULL = none */
	struct hb_disconnect_watch *disconnects;
	struct hb_http_timeouts *timeouts;
	struct hb_peer_limit *peers;
	struct hb_job_thread *jobs; /* decompresses large bodies and writes large responses */
	pthread_mutex_t lock;
	pthread_cond_t ended;
	bool over; /* n_waiting has reached 0; guarded by lock */
	/* Requests that wait for the dispatcher, threads that resume a request, and 1 until the server shuts down. */
	atomic_int n_waiting;
};

/* A request that waits is suspended and later resumed, on different threads and in any order. */
enum hb_http_wait_state { HB_CALL_RUNS, HB_CALL_SUSPENDED, HB_CALL_RESUMED };

struct hb_http_call {
	struct hb_kserve_http *http;
	struct MHD_Connection *connection;
	struct hb_http_loop *loop; /* the loop that serves the connection */
	struct hb_http_timeout *timeout;
	struct hb_http_body *body;
	size_t capacity;     /* size of the memory allocated for the body */
	uint64_t body_limit; /* largest size of the body */
	const char *model;   /* name in the path of an infer request, not NUL-terminated; NULL = another request */
	size_t model_length;
	bool disconnect_watched;
	bool counted;                                        /* the call is counted in n_waiting */
	struct hb_http_call *arriving_next, **arriving_link; /* list of calls whose heads are incomplete */
	bool begun;                                          /* the head has arrived */
	bool bad_target,
		ended; /* the target has a wrong character; the connection was ended before the head was complete */
	const char *head_error; /* what is wrong with the head: the connection is closed afterwards; NULL = nothing */
	int refused; /* HTTP status of a request that is refused before its body is complete; 0 = not refused */
	struct hb_caller caller;
	enum hb_right right;     /* the right that the call needs */
	enum hb_refusal refusal; /* why the caller may not make this call */
	atomic_int wait_state;
	bool expanding; /* the body is being decompressed on another thread */
	struct hb_expand_job expand;
	struct hb_inference *infer;
	/* The response of an inference request: written on the loop, or by `writing` if it is large. */
	struct hb_job writing;
	bool written;
	char *out; /* NULL: the request is refused */
	size_t out_bytes, json_bytes;
	const char *coding;                                   /* NULL = not compressed */
	enum MHD_Result (*finish)(struct hb_http_call *call); /* sends the response after a wait */
	struct hb_load *load;                                 /* request to load a model; NULL = another request */
	struct hb_memory_charge charge; /* memory charged for the response, until the client has taken the response */
};

/*
 * Compresses a long body in a way that the client accepts. Returns the coding's name; NULL = the body is unchanged. Any
 * thread, while the call runs or is suspended. Documents are not compressed, because Triton's asynchronous client asks for
 * compression but decompresses inference responses only.
 */
const char *hb_http_compress(const struct hb_http_call *call, char **body, size_t *bytes);
/*
 * Functions that send a response and end the call; body and json are freed. json_bytes: size of the body's JSON part, if
 * binary data follow it; 0 = the body has one part.
 */
enum MHD_Result hb_http_send(struct hb_http_call *call, int status, const char *type, char *body, size_t bytes,
			     const char *coding, size_t json_bytes);
enum MHD_Result hb_http_send_json(struct hb_http_call *call, int status, char *json);
enum MHD_Result hb_http_send_nothing(struct hb_http_call *call, int status);
enum MHD_Result hb_http_refuse(struct hb_http_call *call, int status, const char *reason);
/*
 * Suspends the request until hb_http_resume(), which any thread calls once; it may call before the request is suspended.
 * Then call->finish sends the response.
 */
enum MHD_Result hb_http_suspend(struct hb_http_call *call);
void hb_http_resume(struct hb_http_call *call);
/*
 * Counts a waiting request; false: the server has shut down. The server shuts down when each counted request was answered or
 * its connection was given up. Uncounting has no effect if the request is not counted.
 */
bool hb_http_count_wait(struct hb_http_call *call);
void hb_http_uncount_wait(struct hb_http_call *call);
/* Ends a wait that is not a call's: at first, one counts until the server shuts down. */
void hb_http_end_wait(struct hb_kserve_http *http);
/* Cancels `request` if the client disconnects, until hb_http_unwatch_client(), which may be called without a watch. */
void hb_http_watch_client(struct hb_http_call *call, void *request, const struct hb_disconnect_kind *kind);
void hb_http_unwatch_client(struct hb_http_call *call);

/* Identifies the caller, and sets `right`, and `refused` and `refusal` if it may not make this call. Call when the head has arrived. */
void hb_http_check_access(struct hb_http_call *call, const char *url, const char *method);
/* Returns the right that a call needs. Unknown paths need HB_RIGHT_USE. */
enum hb_right hb_http_find_right(const char *url, const char *method);
/*
 * Decompresses a complete body, a large one on the thread for that. Returns 200 or the HTTP status of the refusal; 0: *result
 * is what the library's handler returns, and if the request was suspended, the function must be called again afterwards.
 */
int hb_http_expand_body(struct hb_http_call *call, enum MHD_Result *result);
/* Answers a request whose body is complete. */
enum MHD_Result hb_http_route(struct hb_http_call *call, const char *url, const char *method);
enum MHD_Result hb_http_infer(struct hb_http_call *call, const char *model, const char *version);
/* Releases the inference request, whether or not it was answered. */
void hb_http_release_inference(struct hb_http_call *call);
/* Releases the request to load a model, if there is one. */
void hb_http_release_load(struct hb_http_call *call);

#endif
