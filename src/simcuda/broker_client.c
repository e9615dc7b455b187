/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One client process of the broker: its requests, contexts and memory, and the
 * cleanup when it ends in any way.
 */
#include "base/log.h"
#include "simcuda/broker.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

/* Memory of a context before its first allocation; about what CUDA 13 uses on an H200. */
#define CONTEXT_BYTES (INT64_C(512) << 20)
#define MPS_RPC_FAILURE 806 /* CUDA's number */

struct broker_client *broker_client_add(struct broker *broker, int fd)
{
	if (broker->n_clients == broker->room) {
		size_t room = broker->room ? broker->room * 2 : 16;
		struct broker_client **bigger = realloc(broker->clients, room * sizeof(*bigger));
		if (!bigger)
			return NULL;
		broker->clients = bigger;
		broker->room = room;
	}
	struct broker_client *client = calloc(1, sizeof *client);
	if (!client)
		return NULL;
	struct ucred peer = {0};
	socklen_t size = sizeof peer;
	getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size);
	client->fd = fd;
	client->pid = peer.pid;
	client->uid = peer.uid;
	broker->clients[broker->n_clients++] = client;
	return client;
}

static bool take_memory(struct broker *broker, struct broker_client *client, int gpu, int64_t bytes)
{
	bool host = gpu == (int)SIM_HOST;
	int64_t total = host ? broker->host_total : broker->gpu[gpu].memory_total;
	int64_t *used = host ? &broker->host_used : &broker->gpu[gpu].memory_used;
	if (bytes > 0 && bytes > total - *used)
		return false;
	if (bytes < 0 && -bytes > client->memory[gpu])
		return false;
	*used += bytes;
	client->memory[gpu] += bytes;
	return true;
}

static void leave_context(struct broker *broker, struct broker_client *client, uint32_t index)
{
	struct broker_member *member = &client->member[index];
	struct broker_context *context = member->context;
	if (!context)
		return;
	struct hb_gpu_model *model = broker->gpu[context->gpu].model;
	broker_drop_streams(broker, client, index);
	if (!context->dead)
		hb_gpu_model_remove_client(model, broker->now_ns, member->model_client);
	if (context->owner == client) {
		broker_lose_others(broker, context, client, MPS_RPC_FAILURE);
		broker_rm_unbind(client, context);
		hb_gpu_model_remove_context(model, broker->now_ns, context->model_context);
		context->dead = true;
		context->owner = NULL;
	}
	take_memory(broker, client, context->gpu, -CONTEXT_BYTES);
	member->context = NULL;
	if (client->share)
		atomic_store(&client->share->context_state[index], SIM_CONTEXT_NONE);
	if (--context->members == 0)
		free(context);
}

void broker_client_remove(struct broker *broker, struct broker_client *client)
{
	broker_note_death(broker, client);
	for (uint32_t i = 0; i < SIM_CONTEXTS; i++)
		leave_context(broker, client, i);
	broker_drop_streams(broker, client, UINT32_MAX);
	broker_drop_graphs(client);
	for (uint32_t i = 0; i < broker->n_gpus; i++)
		broker->gpu[i].memory_used -= client->memory[i];
	broker->host_used -= client->memory[SIM_HOST];
	for (size_t i = 0; i < broker->n_clients; i++) {
		if (broker->clients[i] != client)
			continue;
		broker->clients[i] = broker->clients[--broker->n_clients];
		break;
	}
	if (client->share)
		munmap(client->share, sizeof *client->share);
	close(client->fd);
	free(client->streams);
	free(client->graphs);
	free(client->rm);
	free(client);
}

static struct broker_context *find_token(struct broker *broker, uint64_t token)
{
	for (size_t i = 0; i < broker->n_clients; i++)
		for (uint32_t k = 0; k < SIM_CONTEXTS; k++) {
			struct broker_context *context = broker->clients[i]->member[k].context;
			if (context && context->token == token && !context->dead)
				return context;
		}
	return NULL;
}

static struct broker_context *new_context(struct broker *broker, struct broker_client *client,
					  const struct sim_request *request)
{
	struct broker_context *context = calloc(1, sizeof *context);
	if (!context)
		return NULL;
	context->owner = client;
	context->gpu = (int)request->gpu;
	context->token = ++broker->next_token;
	memcpy(context->groups, request->groups, sizeof context->groups);
	struct hb_gpu_model_context model = {.preempt = (enum hb_gpu_model_preempt)request->preempt,
					     .mps = request->mps != SIM_MPS_NONE};
	context->fragile = request->mps == SIM_MPS_FRAGILE;
	broker_rm_slices(broker, client, context, &model.slice_ns, &model.copy_slice_ns);
	context->model_context = hb_gpu_model_add_context(broker->gpu[request->gpu].model, &model);
	if (context->model_context < 0) {
		free(context);
		return NULL;
	}
	broker_rm_bind(broker, client, context);
	return context;
}

static int create_context(struct broker *broker, struct broker_client *client, const struct sim_request *request,
			  struct sim_reply *reply)
{
	uint32_t index = 0;
	while (index < SIM_CONTEXTS && client->member[index].context)
		index++;
	if (index == SIM_CONTEXTS)
		return -ENOSPC;
	if (request->gpu >= broker->n_gpus)
		return -ENODEV;
	struct broker_context *context = request->token ? find_token(broker, request->token) : NULL;
	if (request->token && (!context || context->gpu != (int)request->gpu))
		return -ESTALE;
	if (!take_memory(broker, client, (int)request->gpu, CONTEXT_BYTES))
		return -ENOMEM;
	if (!context)
		context = new_context(broker, client, request);
	int member = context ? hb_gpu_model_add_client(broker->gpu[request->gpu].model, context->model_context,
						       request->sm_limit)
			     : -ENOMEM;
	if (member < 0) {
		take_memory(broker, client, (int)request->gpu, -CONTEXT_BYTES);
		return member;
	}
	context->members++;
	client->member[index] = (struct broker_member){context, member};
	atomic_store(&client->share->context_state[index], SIM_CONTEXT_ALIVE);
	reply->context = index;
	return 0;
}

static int open_share(struct broker_client *client)
{
	int fd = memfd_create("hb-simgpu-share", MFD_CLOEXEC);
	if (fd < 0)
		return -errno;
	void *share = MAP_FAILED;
	if (ftruncate(fd, sizeof *client->share) == 0)
		share = mmap(NULL, sizeof *client->share, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (share == MAP_FAILED) {
		close(fd);
		return -ENOMEM;
	}
	client->share = share;
	return fd;
}

static void send_reply(int socket, const struct sim_reply *reply, size_t size, const int *fds, size_t n_fds)
{
	struct iovec part = {(void *)(uintptr_t)reply, size};
	union {
		char bytes[CMSG_SPACE(2 * sizeof(int))];
		struct cmsghdr header;
	} control = {{0}};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
	if (n_fds) {
		message.msg_control = control.bytes;
		message.msg_controllen = CMSG_SPACE(n_fds * sizeof(int));
		control.header.cmsg_level = SOL_SOCKET;
		control.header.cmsg_type = SCM_RIGHTS;
		control.header.cmsg_len = CMSG_LEN(n_fds * sizeof(int));
		memcpy(CMSG_DATA(&control.header), fds, n_fds * sizeof(int));
	}
	/* A client that does not read its answer is about to end; poll reports its end. */
	if (sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
		hb_log_debug("simgpu: reply to fd %d: %s", socket, strerror(errno));
}

static void answer_hello(struct broker *broker, struct broker_client *client, const struct sim_request *request)
{
	struct sim_reply reply = {.result = -EPROTO};
	int share = -1;
	if (request->version == SIM_WIRE_VERSION && !client->share) {
		share = open_share(client);
		reply.result = share < 0 ? share : 0;
	}
	if (reply.result < 0) {
		send_reply(client->fd, &reply, SIM_REPLY_SHORT, NULL, 0);
		return;
	}
	reply.gpus = broker->n_gpus;
	reply.scale = broker->scale;
	reply.origin_ns = broker->origin_ns;
	reply.memory_total = (uint64_t)broker->gpu[0].memory_total;
	reply.spec = broker->gpu[0].spec;
	int fds[2] = {share, broker->doorbell};
	send_reply(client->fd, &reply, SIM_REPLY_SHORT, fds, 2);
	close(share);
}

static int answer_request(struct broker *broker, struct broker_client *client, const struct sim_request *request,
			  struct sim_reply *reply)
{
	if (!client->share)
		return -EPROTO;
	if (request->kind == SIM_REQ_CONTEXT_CREATE)
		return create_context(broker, client, request, reply);
	if (request->kind == SIM_REQ_CONTEXT_DESTROY || request->kind == SIM_REQ_CONTEXT_TOKEN ||
	    request->kind == SIM_REQ_TERMINATE) {
		if (request->context >= SIM_CONTEXTS || !client->member[request->context].context)
			return -EINVAL;
		reply->token = client->member[request->context].context->token;
		if (request->kind == SIM_REQ_CONTEXT_DESTROY)
			leave_context(broker, client, request->context);
		if (request->kind == SIM_REQ_TERMINATE)
			return broker_terminate(broker, client, request->context, (pid_t)request->bytes);
		return 0;
	}
	if (request->kind == SIM_REQ_MEMORY && request->gpu == SIM_HOST)
		return take_memory(broker, client, (int)SIM_HOST, request->bytes) ? 0 : -ENOMEM;
	if (request->gpu >= broker->n_gpus)
		return -ENODEV;
	struct broker_gpu *gpu = &broker->gpu[request->gpu];
	int result = 0;
	if (request->kind == SIM_REQ_MEMORY)
		result = take_memory(broker, client, (int)request->gpu, request->bytes) ? 0 : -ENOMEM;
	else if (request->kind != SIM_REQ_STATS)
		return -EPROTO;
	reply->memory_total = (uint64_t)gpu->memory_total;
	reply->memory_free = (uint64_t)(gpu->memory_total - gpu->memory_used);
	reply->memory_own = (uint64_t)client->memory[request->gpu];
	reply->switches = gpu->switches;
	reply->busy_ns = hb_gpu_model_busy_ns(gpu->model);
	reply->submitted = gpu->submitted;
	reply->finished = gpu->finished;
	return result;
}

static int64_t count_busy_ns(const struct broker *broker, const struct broker_client *client, uint32_t gpu)
{
	int64_t busy_ns = 0;
	for (size_t i = 0; i < SIM_CONTEXTS; i++) {
		const struct broker_context *context = client->member[i].context;
		if (context && context->gpu == (int)gpu)
			busy_ns += hb_gpu_model_context_busy_ns(broker->gpu[gpu].model, context->model_context);
	}
	return (int64_t)((double)busy_ns * broker->scale);
}

/* The answer has room for a limited number of processes. */
static void list_users(const struct broker *broker, uint32_t gpu, struct sim_reply *reply)
{
	uint32_t n = 0;
	for (size_t i = 0; i < broker->n_clients; i++) {
		const struct broker_client *client = broker->clients[i];
		struct sim_user user = {.pid = client->pid,
					.bytes = (uint64_t)client->memory[gpu],
					.busy_ns = count_busy_ns(broker, client, gpu)};
		if (client->memory[gpu] <= 0 || (n + 1) * sizeof user > sizeof reply->rm.params)
			continue;
		memcpy(reply->rm.params + n++ * sizeof user, &user, sizeof user);
	}
	reply->rm.params_size = (uint32_t)(n * sizeof(struct sim_user));
	reply->memory_total = (uint64_t)broker->gpu[gpu].memory_total;
	reply->memory_free = (uint64_t)(broker->gpu[gpu].memory_total - broker->gpu[gpu].memory_used);
}

bool broker_client_serve(struct broker *broker, struct broker_client *client)
{
	struct sim_request request;
	ssize_t n = recv(client->fd, &request, sizeof request, MSG_DONTWAIT);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return true;
	if (n < (ssize_t)SIM_REQUEST_SHORT)
		return false;
	if (request.kind == SIM_REQ_HELLO) {
		answer_hello(broker, client, &request);
		return true;
	}
	struct sim_reply reply;
	memset(&reply, 0, SIM_REPLY_SHORT);
	if (request.kind == SIM_REQ_RM && n == (ssize_t)sizeof request && client->share) {
		reply.rm = request.rm;
		broker_rm_serve(broker, client, &reply.rm);
		send_reply(client->fd, &reply, sizeof reply, NULL, 0);
		return true;
	}
	if (request.kind == SIM_REQ_USERS && request.gpu < broker->n_gpus) {
		reply.rm = (struct sim_rm_call){0};
		list_users(broker, request.gpu, &reply);
		send_reply(client->fd, &reply, sizeof reply, NULL, 0);
		return true;
	}
	reply.result = answer_request(broker, client, &request, &reply);
	send_reply(client->fd, &reply, SIM_REPLY_SHORT, NULL, 0);
	return true;
}
