/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One gRPC call in the server; between kserve_grpc.c (sockets, HTTP/2),
 * grpc_methods.c (which function) and grpc_infer.c. All on the loop's thread,
 * but for hb_grpc_resume().
 */
#ifndef HB_SERVER_GRPC_CALL_H
#define HB_SERVER_GRPC_CALL_H

#include "server/grpc/kserve_grpc.h"
#include "server/kserve/content_coding.h"
#include "server/kserve/parameters.h"

#include <protobuf-c/protobuf-c.h>
#include <pthread.h>
#include <uv.h>

#define HB_GRPC_PREFIX 5 /* before each message: compressed?, length */
#define HB_GRPC_PATH_MAX 128

struct hb_grpc_connection;
struct hb_grpc_call;
struct hb_grpc_method; /* a row of the table in grpc_methods.c */

struct hb_kserve_grpc {
	struct hb_kserve_grpc_config config;
	uv_loop_t loop;
	uv_tcp_t listener;
	uv_async_t bell;
	uv_timer_t tick;
	pthread_t thread;
	bool runs;
	uint32_t n_connections, n_waiting; /* waiting: calls that hb_grpc_resume() will bring back */
	uint16_t port;
	struct hb_grpc_connection *connections;
	pthread_mutex_t lock; /* guards what follows */
	struct hb_grpc_call *woken;
	bool stopping;
};

struct hb_grpc_call {
	struct hb_kserve_grpc *grpc;
	struct hb_grpc_connection *connection; /* NULL: the client is gone */
	struct hb_grpc_call *sibling, **link;  /* of the connection's calls */
	int32_t stream;
	char path[HB_GRPC_PATH_MAX];
	const struct hb_grpc_method *method; /* NULL: its head has not come, or there is none of this name */
	int64_t begun_ns, timeout_ns;        /* of the client; 0 = none */
	enum hb_coding coding;               /* of a message that says it is compressed */
	uint8_t *data;                       /* what has come, prefix included */
	size_t bytes, capacity;
	bool too_large, memory_full, complete, waits;
	bool prefix_removed; /* data are without their prefix */
	bool arrival_signaled;
	bool refused;                   /* before it came whole, and answered */
	struct hb_memory_charge charge; /* for data, then for the answer */
	struct hb_inference *infer;
	char name[HB_MODEL_NAME_MAX]; /* of a model to load */

	int status; /* gRPC's; 0 = OK */
	char message[512];
	uint8_t *out; /* the answer, prefix included */
	size_t out_bytes, sent;
	bool unsent; /* its answer has not gone whole */

	void (*finish)(struct hb_grpc_call *call); /* after a wait */
	struct hb_grpc_call *next;
};

/* Statuses that are not those of a request's answer (status_codes.def). */
enum { GRPC_INVALID_ARGUMENT = 3, GRPC_UNIMPLEMENTED = 12, GRPC_UNAVAILABLE = 14 };

/* Sets status and message. */
void hb_grpc_fail(struct hb_grpc_call *call, int status, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* Room for an answer of so many bytes after the prefix; NULL = no memory, and the call has failed. */
uint8_t *hb_grpc_make_out(struct hb_grpc_call *call, size_t bytes);
/* The answer is this message. */
void hb_grpc_answer_with(struct hb_grpc_call *call, const void *message);
/* The request's message, or NULL: the call has failed. Freed with protobuf_c_message_free_unpacked(). */
void *hb_grpc_receive(struct hb_grpc_call *call, const ProtobufCMessageDescriptor *type);
/* The head has come: finds its method. False: there is none, and the call has failed. */
bool hb_grpc_call_begin(struct hb_grpc_call *call);
/* The message has come whole: sets status and out, or `waits`. */
void hb_grpc_call_run(struct hb_grpc_call *call);
/* Its method is ModelInfer. */
bool hb_grpc_call_infers(const struct hb_grpc_call *call);
/* Bytes that its message may have. */
uint64_t hb_grpc_call_most(const struct hb_grpc_call *call);
/* While it is read: whether its model has low priority, as far as that can be seen. */
bool hb_grpc_call_is_low(const struct hb_grpc_call *call);
bool hb_grpc_infer_is_low(const struct hb_grpc_call *call);
/* A part of the message has come. */
void hb_grpc_signal_arrival(struct hb_grpc_call *call);
void hb_grpc_infer(struct hb_grpc_call *call);
void hb_grpc_model_config(struct hb_grpc_call *call);
void hb_grpc_repository_index(struct hb_grpc_call *call);
void hb_grpc_model_load(struct hb_grpc_call *call);
void hb_grpc_model_unload(struct hb_grpc_call *call);
void hb_grpc_infer_signal_arrival(struct hb_grpc_call *call);
/* The call's own memory; not its connection. */
void hb_grpc_call_free(struct hb_grpc_call *call);
/* Any thread: the call no longer waits; `finish` is called on the loop, then it is answered. */
void hb_grpc_resume(struct hb_grpc_call *call);

static inline const uint8_t *hb_grpc_message(const struct hb_grpc_call *call, size_t *bytes)
{
	size_t skip = call->prefix_removed ? 0 : HB_GRPC_PREFIX;
	*bytes = call->bytes - skip;
	return call->data + skip;
}

#endif
