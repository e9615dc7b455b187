/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One gRPC call in the server. Shared by grpc_connection.c (HTTP/2 and messages),
 * grpc_methods.c (which function answers a method), grpc_expand.c, grpc_infer.c
 * and grpc_repository.c. All of it runs on the loop's thread except
 * hb_grpc_resume().
 */
#ifndef HB_SERVER_GRPC_CALL_H
#define HB_SERVER_GRPC_CALL_H

#include "server/grpc/kserve_grpc.h"
#include "server/kserve/content_coding.h"
#include "server/kserve/parameters.h"
#include "server/models/dispatch_load.h"

#include <protobuf-c/protobuf-c.h>
#include <pthread.h>
#include <uv.h>

#define HB_GRPC_PREFIX 5 /* bytes in front of each message: a flag for compression, and the length */
#define HB_GRPC_PATH_MAX 128

struct hb_grpc_connection;
struct hb_grpc_call;
struct hb_grpc_method; /* a row of the table in grpc_methods.c */

struct hb_kserve_grpc {
	struct hb_kserve_grpc_config config;
	uv_loop_t loop;
	uv_tcp_t listener;
	uv_pipe_t unix_listener;
	uv_async_t doorbell; /* hb_grpc_resume() wakes the loop with it */
	uv_timer_t timer;
	pthread_t thread;
	bool runs;
	uint32_t n_connections;
	uint32_t n_waiting; /* calls that wait for hb_grpc_resume() */
	uint16_t port;
	struct hb_grpc_connection *connections;
	struct hb_peer_limit *peers;
	struct hb_job_thread *jobs; /* decompresses large messages and writes large answers */
	char received[64 * 1024];   /* bytes that a connection has just sent; used by one at a time */
	pthread_mutex_t lock;       /* guards the rest */
	struct hb_grpc_call *resumed;
	bool stopping;
};

/* Headers that identify the caller. A value that is too long gets a blank at its end, so that it is never valid. */
struct hb_grpc_headers {
	char authority[HB_HTTP_HOST_MAX + 8], origin[HB_HTTP_HOST_MAX + 16], authorization[160];
};

struct hb_grpc_call {
	struct hb_kserve_grpc *grpc;
	struct hb_grpc_connection *connection; /* NULL: the client has disconnected */
	struct hb_grpc_call *sibling,
		**link; /* `sibling` is the next call of the connection; `link` points to the pointer to this call */
	int32_t stream;
	char path[HB_GRPC_PATH_MAX];
	struct hb_grpc_headers *headers; /* headers that identify the caller; NULL after hb_grpc_call_begin() */
	struct hb_caller caller;
	size_t header_bytes;                 /* size of the headers that have arrived */
	const struct hb_grpc_method *method; /* NULL: the headers have not arrived, or there is no such method */
	int64_t reads_since_ns; /* start of the wait for its message; moves forward with the bytes that arrive (transfer_rate.h) */
	int64_t timeout_ns;    /* time-out that the client sent; 0 = none */
	enum hb_coding coding; /* coding of the message, if its prefix says that the message is compressed */
	uint8_t *data;         /* the message as far as it has arrived, with its prefix unless prefix_removed */
	size_t bytes, capacity;
	bool too_large, memory_full; /* why the message is not stored */
	bool complete;               /* the message has arrived, or the rest of it will not be read */
	bool waits;                  /* the call waits for hb_grpc_resume() */
	bool prefix_removed;
	bool announced; /* the request was announced to the model's back end, or need not be announced any more */
	bool refused;   /* the call was answered before its message was complete */
	struct hb_memory_charge charge; /* memory charged for `data`, later for the answer */
	struct hb_expand_job expand;    /* decompresses `data`, with `charge` */
	struct hb_inference *infer;
	struct hb_job writing; /* writes a large answer */
	bool written;          /* the answer, or status and message, was set */
	struct hb_load *load;  /* request to load a model; NULL = another call */

	int status; /* gRPC's status code; 0 = OK */
	char message[512];
	uint8_t *out; /* the answer with its prefix */
	size_t out_bytes, sent;
	bool unsent; /* a part of the answer was not sent yet */

	void (*finish)(struct hb_grpc_call *call); /* sets the answer after a wait, or waits again */
	struct hb_grpc_call *next;                 /* list of resumed calls */
};

/*
 * gRPC status codes that answer requests other than inference; status_codes.def has the codes for inference requests.
 */
enum {
	GRPC_INVALID_ARGUMENT = 3,
	GRPC_PERMISSION_DENIED = 7,
	GRPC_UNIMPLEMENTED = 12,
	GRPC_UNAVAILABLE = 14,
	GRPC_UNAUTHENTICATED = 16
};

/* ---- grpc_methods.c: for the functions that answer ---- */

/* Sets status and message. */
void hb_grpc_fail(struct hb_grpc_call *call, int status, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* Allocates an answer of `bytes` bytes behind its prefix. Returns NULL without memory; the call has then failed. */
uint8_t *hb_grpc_make_out(struct hb_grpc_call *call, size_t bytes);
/* Answers the call with a message of protobuf-c. */
void hb_grpc_answer_with(struct hb_grpc_call *call, const void *message);
/*
 * Parses the request's message. Returns NULL when the call has failed. Free it with protobuf_c_message_free_unpacked().
 */
void *hb_grpc_receive(struct hb_grpc_call *call, const ProtobufCMessageDescriptor *type);
/* Calls hb_dispatch_take_model() for a request. Returns NULL when the call has failed. */
struct hb_served_model *hb_grpc_take_model(struct hb_grpc_call *call, const char *name, const char *version);

/* ---- grpc_methods.c: for connections ---- */

/*
 * Finds the method when the headers have arrived, and checks whether the caller may call it. False: the call has failed.
 */
bool hb_grpc_call_begin(struct hb_grpc_call *call);
/* Answers a call whose message is complete: sets status and out, or `waits`. */
void hb_grpc_call_run(struct hb_grpc_call *call);
/* Calls the method's function with the message, which is not compressed any more. */
void hb_grpc_call_answer(struct hb_grpc_call *call);
/* Returns whether the method is ModelInfer. */
bool hb_grpc_call_infers(const struct hb_grpc_call *call);
/* Returns the largest size that the call's message may have. */
uint64_t hb_grpc_call_size_limit(const struct hb_grpc_call *call);
/* Makes room for `bytes` of the message. False: no memory; call->memory_full says whether the budget is the reason. */
bool hb_grpc_call_grow(struct hb_grpc_call *call, size_t bytes);
/* Returns whether the model has low priority, if the part of the message that has arrived names it. */
bool hb_grpc_call_is_low(const struct hb_grpc_call *call);
/* Announces an inference request to its back end as soon as its model is known. Call when a part has arrived. */
void hb_grpc_announce_request(struct hb_grpc_call *call);

/* ---- grpc_access.c ---- */

/* Stores a header of a call if it identifies the caller. */
void hb_grpc_headers_read(struct hb_grpc_headers *headers, const uint8_t *name, size_t name_length,
			  const uint8_t *value, size_t length);
/* Frees headers, which may hold a token. NULL is allowed. */
void hb_grpc_headers_free(struct hb_grpc_headers *headers);
/* Identifies the caller, when the headers have arrived, and frees them. False: it lacks the right; the call has failed. */
bool hb_grpc_check_access(struct hb_grpc_call *call, enum hb_right right);

/* ---- grpc_expand.c ---- */

/* Decompresses the message, a large one on a thread for that, and then answers the call. */
void hb_grpc_expand_message(struct hb_grpc_call *call);

/* ---- grpc_infer.c ---- */

void hb_grpc_infer(struct hb_grpc_call *call);
/*
 * Checks the model of a compressed message, if the message begins with its name. False: it cannot answer; the call has failed.
 */
bool hb_grpc_infer_check_compressed(struct hb_grpc_call *call);
bool hb_grpc_infer_is_low(const struct hb_grpc_call *call);
void hb_grpc_infer_announce(struct hb_grpc_call *call);

/* ---- grpc_repository.c ---- */

void hb_grpc_model_config(struct hb_grpc_call *call);
void hb_grpc_repository_index(struct hb_grpc_call *call);
void hb_grpc_model_load(struct hb_grpc_call *call);
void hb_grpc_model_unload(struct hb_grpc_call *call);

/* ---- kserve_grpc.c ---- */

/* Frees the call, which is no longer in its connection's list. */
void hb_grpc_call_free(struct hb_grpc_call *call);
/* Ends a call's wait, on any thread: the loop calls `finish` and sends the answer, unless the call waits again. */
void hb_grpc_resume(struct hb_grpc_call *call);

static inline const uint8_t *hb_grpc_message(const struct hb_grpc_call *call, size_t *bytes)
{
	size_t skip = call->prefix_removed ? 0 : HB_GRPC_PREFIX;
	*bytes = call->bytes - skip;
	return call->data + skip;
}

#endif
