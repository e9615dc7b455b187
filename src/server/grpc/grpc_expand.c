/* SPDX-License-Identifier: Apache-2.0 */
/* Compressed messages: which are refused, and who decompresses them. See grpc_call.h. */
#include "server/grpc/grpc_call.h"

#include <errno.h>
#include <stdlib.h>

/* Takes the decompressed message and answers the call. */
static void run_expanded(struct hb_grpc_call *call)
{
	struct hb_expand_job *job = &call->expand;
	if (job->result < 0) {
		hb_grpc_fail(call, job->result == -EINVAL ? GRPC_INVALID_ARGUMENT : hb_answer_grpc(HB_ANSWER_TOO_LARGE),
			     "%s",
			     job->result == -EINVAL  ? "the message is not compressed as grpc-encoding says"
			     : job->result == -E2BIG ? "the message is larger than the server allows"
						     : HB_MEMORY_FULL);
		return;
	}
	free(call->data); /* the charge for this memory remains until the message is read */
	call->data = job->out;
	call->bytes = job->out_bytes;
	call->prefix_removed = true;
	job->out = NULL;
	hb_grpc_call_answer(call);
}

static void expand_on_thread(void *call_)
{
	struct hb_grpc_call *call = call_;
	hb_coding_expand_job(&call->expand);
	hb_grpc_resume(call);
}

/* Continues a call whose message was decompressed on the thread for that. */
static void finish_expanding(struct hb_grpc_call *call)
{
	if (call->connection)
		run_expanded(call);
	free(call->expand.out); /* the client has left */
	call->expand.out = NULL;
}

static bool check_coding(struct hb_grpc_call *call)
{
	if (call->coding == HB_CODING_IDENTITY)
		hb_grpc_fail(call, GRPC_INVALID_ARGUMENT,
			     "the message is compressed, but the header grpc-encoding is missing");
	else if (call->coding == HB_CODING_UNKNOWN)
		hb_grpc_fail(call, GRPC_UNIMPLEMENTED, "grpc-encoding must be gzip, deflate or identity");
	return call->coding != HB_CODING_IDENTITY && call->coding != HB_CODING_UNKNOWN;
}

void hb_grpc_expand_message(struct hb_grpc_call *call)
{
	struct hb_expand_job *job = &call->expand;
	if (!check_coding(call) || (hb_grpc_call_infers(call) && !hb_grpc_infer_check_compressed(call)))
		return;
	*job = (struct hb_expand_job){.job = {.run = expand_on_thread, .owner = call},
				      .coding = call->coding,
				      .data = call->data + HB_GRPC_PREFIX,
				      .bytes = call->bytes - HB_GRPC_PREFIX,
				      .most = hb_grpc_call_size_limit(call),
				      .charge = &call->charge};
	if (job->bytes <= HB_EXPAND_SMALL_BYTES) {
		hb_coding_expand_job(job);
		run_expanded(call);
		return;
	}
	call->finish = finish_expanding;
	call->waits = true;
	call->grpc->n_waiting++;
	hb_job_thread_submit(call->grpc->jobs, &job->job);
}
