/* SPDX-License-Identifier: Apache-2.0 */
/* Compressed bodies: which are refused, and who decompresses them. See http_call.h. */
#include "server/http/http_call.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Takes the decompressed body. Returns 200, or the HTTP status of the refusal. */
static int take_expanded(struct hb_http_call *call)
{
	struct hb_expand_job *job = &call->expand;
	if (job->result < 0)
		return job->result == -EINVAL ? 400 : job->result == -E2BIG ? 413 : 503;
	free(call->body->data); /* the charge for this memory remains until the request ends */
	call->body->data = job->out;
	call->body->bytes = job->out_bytes;
	job->out = NULL;
	return 200;
}

static void expand_on_thread(void *call_)
{
	struct hb_http_call *call = call_;
	hb_coding_expand_job(&call->expand);
	hb_http_resume(call);
}

/* Refuses a request for a model that cannot answer now, before its body is decompressed. False: the model is ready. */
static bool refuse_model(struct hb_http_call *call, enum MHD_Result *result)
{
	char name[HB_MODEL_NAME_MAX], reason[256];
	enum hb_answer answer;
	if (!call->model)
		return false;
	snprintf(name, sizeof(name), "%.*s", (int)call->model_length, call->model);
	struct hb_served_model *model = hb_dispatch_take_model(call->http->config.dispatch, name, NULL, &answer, reason,
							       sizeof(reason));
	hb_dispatch_give_model(call->http->config.dispatch, model);
	if (!model)
		*result = hb_http_refuse(call, hb_answer_http(answer), reason);
	return !model;
}

static int begin_expanding(struct hb_http_call *call, enum MHD_Result *result)
{
	struct hb_expand_job *job = &call->expand;
	const char *given = MHD_lookup_connection_value(call->connection, MHD_HEADER_KIND,
							MHD_HTTP_HEADER_CONTENT_ENCODING);
	job->coding = given ? hb_coding_parse(given, strlen(given)) : HB_CODING_IDENTITY;
	if (job->coding == HB_CODING_IDENTITY)
		return 200;
	if (job->coding == HB_CODING_UNKNOWN)
		return 415;
	if (refuse_model(call, result))
		return 0;
	job->data = call->body->data;
	job->bytes = call->body->bytes;
	job->most = call->body_limit;
	job->charge = &call->body->charge;
	job->job = (struct hb_job){.run = expand_on_thread, .owner = call};
	if (job->bytes <= HB_EXPAND_SMALL_BYTES || !hb_http_count_wait(call)) {
		hb_coding_expand_job(job);
		return take_expanded(call);
	}
	call->expanding = true;
	hb_job_thread_submit(call->http->jobs, &job->job);
	*result = hb_http_suspend(call);
	return 0;
}

/* Continues a request whose body was decompressed on the thread for that. */
static int finish_expanding(struct hb_http_call *call)
{
	call->expanding = false;
	atomic_store(&call->wait_state, HB_CALL_RUNS); /* it may wait again */
	hb_http_uncount_wait(call);
	return take_expanded(call);
}

int hb_http_expand_body(struct hb_http_call *call, enum MHD_Result *result)
{
	return call->expanding ? finish_expanding(call) : begin_expanding(call, result);
}
