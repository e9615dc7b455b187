/* SPDX-License-Identifier: Apache-2.0 */
/* An inference request over HTTP: reads it, submits it to the dispatcher, waits and responds. See http_call.h. */
#include "base/clock.h"
#include "server/http/http_call.h"
#include "server/models/inference_check.h"

#include <stdlib.h>
#include <string.h>

void hb_http_release_inference(struct hb_http_call *call)
{
	hb_http_uncount_wait(call); /* a broken connection is given up without an answer */
	hb_http_unwatch_client(call);
	hb_dispatch_give_model(call->http->config.dispatch, call->infer->model);
	hb_inference_free(call->infer);
	call->infer = NULL;
}

/* Writes the response if the request has results; otherwise the inference has the reason of the refusal. */
static void write_response(struct hb_http_call *call)
{
	struct hb_inference *infer = call->infer;
	call->written = true;
	if (infer->answer != HB_ANSWER_OK ||
	    hb_shared_memory_write_outputs(infer, call->http->config.shared_memory) != HB_ANSWER_OK)
		return;
	char *out = NULL;
	size_t bytes = hb_kserve_json_write(infer, &infer->model->config, &out, &call->json_bytes);
	if (!bytes)
		return;
	hb_inference_drop_outputs(infer);
	if (!hb_inference_charge_answer(infer, &call->charge, bytes)) {
		free(out);
		hb_inference_fail_memory_full(infer);
		return;
	}
	if (call->json_bytes == bytes)
		call->json_bytes = 0;
	call->coding = hb_http_compress(call, &out, &bytes);
	call->out = out;
	call->out_bytes = bytes;
}

static enum MHD_Result send_answer(struct hb_http_call *call)
{
	const struct hb_inference *infer = call->infer;
	char *out;
	hb_http_unwatch_client(call);
	if (!call->written)
		write_response(call);
	if (!call->out)
		return hb_http_refuse(call, hb_answer_http(infer->answer), infer->reason);
	hb_http_release_inference(call); /* while a slow client takes the response, only the response needs memory */
	out = call->out;
	call->out = NULL;
	return hb_http_send(call, 200, call->json_bytes ? "application/octet-stream" : "application/json", out,
			    call->out_bytes, call->coding, call->json_bytes);
}

static enum MHD_Result finish_wait(struct hb_http_call *call)
{
	hb_http_uncount_wait(call);
	return send_answer(call);
}

static void write_on_thread(void *call)
{
	write_response(call);
	hb_http_resume(call);
}

static void resume_call(struct hb_inference *infer)
{
	struct hb_http_call *call = infer->owner;
	call->writing = (struct hb_job){.run = write_on_thread, .owner = call};
	if (hb_inference_has_large_outputs(infer))
		hb_job_thread_submit(call->http->jobs, &call->writing);
	else
		hb_http_resume(call);
}

/* Sets the size of the body's JSON part. False: the header with this size is wrong. */
static bool find_json_end(struct hb_http_call *call)
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

static enum hb_answer read_request(struct hb_http_call *call, struct hb_inference *infer, const char *model,
				   const char *version)
{
	struct hb_dispatch *dispatch = call->http->config.dispatch;
	infer->model = hb_dispatch_take_model(dispatch, model, version, &infer->answer, infer->reason,
					      sizeof(infer->reason));
	if (!infer->model)
		return infer->answer;
	if (!find_json_end(call))
		return hb_inference_fail(infer, HB_ANSWER_BAD_REQUEST,
					 HB_HTTP_JSON_LENGTH " must be a number that is not larger than the body");
	infer->source = call->body;
	infer->free_source = hb_http_body_free;
	call->body = NULL;
	if (hb_kserve_json_read(infer, infer->source, call->http->config.shared_memory) != HB_ANSWER_OK)
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
	infer->caller = call->caller.id;
	infer->low_only = call->caller.low_only;
	infer->charge.budget = call->http->config.memory;
	infer->done = resume_call;
	if (read_request(call, infer, model, version) != HB_ANSWER_OK)
		return hb_http_refuse(call, hb_answer_http(infer->answer), infer->reason);
	call->finish = finish_wait;
	if (!hb_http_count_wait(call))
		return hb_http_refuse(call, 503, HB_HTTP_SHUTTING_DOWN);
	if (hb_dispatch_submit(call->http->config.dispatch, infer)) {
		hb_http_uncount_wait(call);
		return send_answer(call);
	}
	hb_http_watch_client(call, infer, &hb_disconnect_inference);
	return hb_http_suspend(call);
}
