/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How contexts are lost: a kernel faults, a client of an MPS server dies with unfinished work, or the server ends a
 * client on command. All members of an MPS server's context share a fault, as on a real GPU. The member that caused it
 * learns of it first.
 */
#include "simcuda/broker.h"

#include <errno.h>

#define ILLEGAL_ADDRESS 700
#define MPS_CLIENT_TERMINATED 810
#define OTHERS_LATER_NS 10000000

void broker_lose_context(struct broker *broker, struct broker_client *client, uint32_t context, uint32_t error)
{
	broker_drop_streams(broker, client, context);
	if (!client->share)
		return;
	uint32_t alive = SIM_CONTEXT_ALIVE;
	atomic_compare_exchange_strong(&client->share->context_state[context], &alive, error);
	client->posted = client->posted_effect = true;
}

void broker_lose_others(struct broker *broker, struct broker_context *context, const struct broker_client *except,
			uint32_t error)
{
	for (size_t i = 0; i < broker->n_clients; i++) {
		struct broker_client *client = broker->clients[i];
		for (uint32_t k = 0; k < SIM_CONTEXTS; k++)
			if (client->member[k].context == context && client != context->owner && client != except)
				broker_lose_context(broker, client, k, error);
	}
}

void broker_note_fault(struct broker *broker, struct broker_client *client, uint32_t context, uint32_t error)
{
	struct broker_context *faulty = client->member[context].context;
	if (faulty->fault)
		return;
	faulty->fault = error;
	faulty->culprit = client;
	broker->faulty = true;
}

static void raise_fault(struct broker *broker, struct broker_context *context, int64_t monotonic_ns)
{
	struct broker_client *culprit = context->culprit;
	for (uint32_t k = 0; culprit && k < SIM_CONTEXTS; k++)
		if (culprit->member[k].context == context)
			broker_lose_context(broker, culprit, k, context->fault);
	if (culprit) {
		context->culprit = NULL;
		context->others_at_ns = monotonic_ns + OTHERS_LATER_NS;
	} else if (monotonic_ns >= context->others_at_ns) {
		broker_lose_others(broker, context, NULL, context->fault);
		context->fault = 0;
	}
}

int64_t broker_raise_faults(struct broker *broker, int64_t monotonic_ns, int64_t limit_ns)
{
	bool left = false;
	for (size_t i = 0; broker->faulty && i < broker->n_clients; i++)
		for (uint32_t k = 0; k < SIM_CONTEXTS; k++) {
			struct broker_context *context = broker->clients[i]->member[k].context;
			if (!context || !context->fault)
				continue;
			raise_fault(broker, context, monotonic_ns);
			left |= context->fault != 0;
		}
	broker->faulty = left;
	return left && limit_ns > OTHERS_LATER_NS ? OTHERS_LATER_NS : limit_ns;
}

static bool has_unfinished_work(const struct broker_client *client, uint32_t context)
{
	for (uint32_t i = 0; i < client->n_streams; i++) {
		const struct broker_stream *stream = client->streams[i];
		if (stream && stream->context == context && (stream->queue.head || stream->running.head))
			return true;
	}
	return false;
}

void broker_note_death(struct broker *broker, struct broker_client *client)
{
	for (uint32_t k = 0; k < SIM_CONTEXTS; k++) {
		struct broker_context *context = client->member[k].context;
		if (context && context->fragile && context->owner != client && has_unfinished_work(client, k))
			broker_lose_others(broker, context, client, ILLEGAL_ADDRESS);
	}
}

int broker_terminate(struct broker *broker, struct broker_client *server, uint32_t context, pid_t pid)
{
	const struct broker_context *own = server->member[context].context;
	int result = -ESRCH;
	for (size_t i = 0; i < broker->n_clients; i++) {
		struct broker_client *client = broker->clients[i];
		for (uint32_t k = 0; client->pid == pid && client != server && k < SIM_CONTEXTS; k++)
			if (client->member[k].context == own) {
				broker_lose_context(broker, client, k, MPS_CLIENT_TERMINATED);
				result = 0;
			}
	}
	return result;
}
