/* SPDX-License-Identifier: Apache-2.0 */
/* The infer call over HTTP: reads, submits, waits, answers. See kserve_http.c. */
#include "base/clock.h"
#include "server/http/http_call.h"
#include "server/models/inference_check.h"

#include <stdlib.h>
#include <string.h>

static int socket_of(const struct hb_http_call *call)
{
	const union MHD_ConnectionInfo *info = MHD_get_connection_info(call->connection,
								       MHD_CONNECTION_INFO_CONNECTION_FD);
	return info ? info->connect_fd : -1;
}

/* The server ends when the last of these is answered, or its connection is given up. */
static bool begin_waiting(struct hb_http_call *call)
{
	return call->waits = hb_http_begin_wait(call->http);
}

static void end_waiting(struct hb_http_call *call)
{
	if (!call->waits)
		return;
	call->waits = false;
	hb_http_end_wait(call->http);
}

void hb_http_release_inference(struct hb_http_call *call)
{
	end_waiting(call); /* a connection that broke is given up without being answered */
	if (call->watched)
		hb_disconnect_watch_forget(call->http->gone, socket_of(call));
	hb_dispatch_give_model(call->http->config.dispatch, call->infer->model);
	hb_inference_free(call->infer);
	call->infer = NULL;
}

static enum MHD_Result answer(struct hb_http_call *call)
{
	struct hb_inference *infer = call->infer;
	char *out = NULL;
	size_t json_bytes = 0, bytes = 0;
	if (call->watched)
		hb_disconnect_watch_forget(call->http->gone, socket_of(call));
	call->watched = false;
	if (infer->answer == HB_ANSWER_OK &&
	    hb_shared_memory_write_outputs(infer, call->http->config.regions) == HB_ANSWER_OK)
		bytes = hb_kserve_json_write(infer, &infer->model->config, &out, &json_bytes);
	if (bytes && !hb_memory_charge_add(&call->charge, bytes)) {
		free(out);
		bytes = 0;
		hb_inference_fail_memory_full(infer);
	}
	if (!bytes)
		return hb_http_refuse(call, hb_answer_http(infer->answer), infer->reason);
	hb_http_release_inference(call); /* a client that takes its answer slowly holds that and no more */
	return hb_http_send(call, 200, json_bytes < bytes ? "application/octet-stream" : "application/json", out, bytes,
			    json_bytes);
}

static enum MHD_Result answer_after_wait(struct hb_http_call *call)
{
	end_waiting(call);
	return answer(call);
}

static void done(struct hb_inference *infer)
{
	hb_http_resume(infer->owner);
}

/* How much of the body is JSON. False: the header says what cannot be. */
static bool split(struct hb_http_call *call)
{
	struct hb_http_body *body = call->body;
	const char *given = MHD_lookup_connection_value(call->connection, MHD_HEADER_KIND, HB_HTTP_JSON_LENGTH);
	char *end = NULL;
	body->json_bytes = body->bytes;
	if (!given)
		return true;
	unsigned long long length = strtoull(given, &end, 10);
	body->json_bytes = (size_t)length;
	return end != given && *end == '\0' && given[0] != '-' && length <= body->bytes;
}

static enum hb_answer prepare(struct hb_http_call *call, struct hb_inference *infer, const char *model,
			      const char *version)
{
	struct hb_dispatch *dispatch = call->http->config.dispatch;
	infer->model = hb_dispatch_take_model(dispatch, model, version, &infer->answer, infer->reason,
					      sizeof(infer->reason));
	if (!infer->model)
		return infer->answer;
	if (!split(call))
		return hb_inference_fail(infer, HB_ANSWER_BAD_REQUEST,
					 HB_HTTP_JSON_LENGTH ": must be at most the body's length");
	infer->source = call->body;
	infer->free_source = hb_http_body_free;
	call->body = NULL;
	if (hb_kserve_json_read(infer, infer->source, call->http->config.regions) != HB_ANSWER_OK)
		return infer->answer;
	return hb_inference_check(infer, &infer->model->config);
}

enum MHD_Result hb_http_infer(struct hb_http_call *call, const char *model, const char *version)
{
	int64_t now_ns = hb_clock_now_ns();
	struct hb_inference *infer = call->infer = hb_inference_new();
	if (!infer)
		return MHD_NO;
	infer->times.arrived_ns = now_ns;
	infer->owner = call;
	infer->charge.budget = call->http->config.memory;
	infer->done = done;
	if (prepare(call, infer, model, version) != HB_ANSWER_OK)
		return hb_http_refuse(call, hb_answer_http(infer->answer), infer->reason);
	call->finish = answer_after_wait;
	if (!begin_waiting(call))
		return hb_http_refuse(call, 503, HB_HTTP_SHUTTING_DOWN);
	if (hb_dispatch_submit(call->http->config.dispatch, infer)) {
		end_waiting(call);
		return answer(call);
	}
	hb_disconnect_watch_add(call->http->gone, socket_of(call), infer);
	call->watched = true;
	return hb_http_suspend(call);
}
