/* SPDX-License-Identifier: Apache-2.0 */
/* See supervision.h. */
#include "daemon/supervision.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/signal_action.h"
#include "daemon/gpu_gates.h"
#include "daemon/mps_server.h"
#include "daemon/privileged.h"
#include "daemon/process.h"
#include "daemon/socket_server.h"
#include "daemon/tenancy.h"
#include "protocol/container_token.h"
#include "protocol/daemon_client.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LIMIT_NS (HB_TERMINATE_LIMIT_MS * HB_NS_PER_MS)
/* For finding out which processes of a tenant a signal would kill; the rest count as killed. */
#define ASK_NS (100 * HB_NS_PER_MS)
/* A supervisor says BYE and ends. The daemon may notice the end first; then the message is in the socket already. */
#define BYE_NS (200 * HB_NS_PER_MS)

/* A process of a tenant. */
struct tenant_process {
	pid_t pid;
	uint64_t start_ticks;
};

struct supervised_end;

/* Several clients of the MPS server whose work is being ended. */
struct hb_termination {
	struct hb_termination *next;
	struct hb_supervision *supervision;
	uint64_t number;
	uint32_t tenant; /* its number */
	int64_t since_ns;
	struct supervised_end *end; /* the tenant is ended; NULL = a connection waits */
	bool reported;
	bool running; /* a command */
	unsigned n, begun;
	struct tenant_process clients[HB_PAGE_PROCESSES];
};

/* A tenant whose supervisor was killed. It keeps its user's place until it has ended, or a user could have any number. */
struct supervised_end {
	struct supervised_end *next;
	struct hb_supervision *supervision;
	unsigned char token[HB_TOKEN_BYTES];
	uid_t uid;
	struct hb_user *user; /* NULL = no user is charged */
	uint32_t tenant;
	pid_t leader;
	int64_t due_ns;
	bool begun;
	bool searches, waits_to_search; /* for its other processes, with a command */
	uint64_t page;                  /* inode number of its page; 0 = it has ended */
	unsigned n, n_clients, killed;
	struct tenant_process members[HB_PAGE_PROCESSES];
};

struct hb_supervision {
	struct hb_daemon *daemon;
	struct hb_termination *terminations;
	struct supervised_end *ends;
	uint64_t last_number;
	bool closing;
	unsigned running; /* commands whose callback comes */
};

static void free_when_idle(struct hb_supervision *supervision)
{
	if (!supervision->closing || supervision->running)
		return;
	while (supervision->terminations) {
		struct hb_termination *first = supervision->terminations;
		supervision->terminations = first->next;
		free(first);
	}
	while (supervision->ends) {
		struct supervised_end *first = supervision->ends;
		supervision->ends = first->next;
		free(first);
	}
	free(supervision);
}

/* --- ending the work of MPS clients ---------------------------------------------------------- */

static void kill_members(struct supervised_end *end);

static void report_termination(struct hb_termination *termination)
{
	struct hb_daemon *daemon = termination->supervision->daemon;
	if (termination->reported)
		return;
	termination->reported = true;
	if (termination->end)
		kill_members(termination->end);
	else if (daemon->server)
		hb_server_answer_terminated(daemon->server, termination->number);
}

static void forget_termination(struct hb_termination *termination)
{
	struct hb_termination **place = &termination->supervision->terminations;
	while (*place != termination)
		place = &(*place)->next;
	*place = termination->next;
	free(termination);
}

/*
 * A process whose work has ended may react to the error: it ends, and with it other processes of the program, whose kernels
 * still run. That would harm other clients of the MPS server. So until the work of all has ended, the threads of these
 * processes wait at closed gates: those that launch, and those whose call returned the error (shim/forward.c).
 */
static void hold(const struct hb_termination *termination, bool is_held)
{
	struct hb_tenancy *tenancy = hb_tenancy_numbered(termination->supervision->daemon, termination->tenant);
	for (uint32_t slot = 0; tenancy && slot < tenancy->slots_end; slot++) {
		struct hb_member *member = &tenancy->members[slot];
		if (!member->watch || !member->terminated)
			continue;
		member->is_held = is_held;
		for (uint32_t i = 0; i < tenancy->n_gpus; i++)
			hb_gpu_set_gate_of_process(tenancy->gpus[i], tenancy, slot);
	}
}

static void client_terminated(void *argument);

/* Returns false if no client is left. After the time limit the rest keeps its work, because it may be dead by now. */
static bool begin_command(struct hb_termination *termination)
{
	struct hb_mps *mps = termination->supervision->daemon->mps;
	while (!termination->running && !termination->reported && termination->begun < termination->n)
		termination->running = hb_mps_terminate(mps, termination->clients[termination->begun++].pid,
							client_terminated, termination) == 0;
	termination->supervision->running += termination->running;
	return termination->running;
}

static void client_terminated(void *argument)
{
	struct hb_termination *termination = argument;
	struct hb_supervision *supervision = termination->supervision;
	supervision->running--;
	termination->running = false;
	if (supervision->closing) {
		free_when_idle(supervision);
		return;
	}
	if (begin_command(termination))
		return;
	report_termination(termination);
	hold(termination, false); /* if no signal follows, they get the error now */
	forget_termination(termination);
}

/* Returns 0 if no process is to be terminated, or none can be. */
static uint64_t begin_termination(struct hb_supervision *supervision, uint32_t tenant,
				  const struct tenant_process *clients, unsigned n, struct supervised_end *end)
{
	struct hb_termination *made = n && hb_mps_server_pid(supervision->daemon->mps) ? calloc(1, sizeof *made) : NULL;
	if (!made)
		return 0;
	*made = (struct hb_termination){.next = supervision->terminations,
					.supervision = supervision,
					.number = ++supervision->last_number,
					.tenant = tenant,
					.since_ns = hb_clock_now_ns(),
					.end = end,
					.n = n};
	memcpy(made->clients, clients, n * sizeof *clients);
	supervision->terminations = made;
	hold(made, true);
	if (begin_command(made))
		return made->number;
	hold(made, false);
	forget_termination(made);
	return 0;
}

/* Only processes of a tenant inside the server are its clients. `signal` 0: all of them. */
static unsigned take_members(struct hb_tenancy *tenancy, int signal, struct tenant_process *list)
{
	struct hb_privileged *privileged = tenancy->daemon->privileged;
	int64_t until_ns = hb_clock_now_ns() + ASK_NS;
	unsigned n = 0;
	for (uint32_t slot = 0; slot < tenancy->slots_end; slot++) {
		struct hb_member *member = &tenancy->members[slot];
		bool asks = signal && hb_clock_now_ns() < until_ns;
		if (!member->watch || (asks && !hb_privileged_signal_kills(privileged, member->pid, signal)))
			continue;
		member->terminated = true;
		list[n++] = (struct tenant_process){member->pid, member->start_ticks};
	}
	return n;
}

static const struct hb_termination *find_termination(const struct hb_supervision *supervision, uint32_t tenant)
{
	const struct hb_termination *found = supervision->terminations;
	while (found && (found->end || found->tenant != tenant))
		found = found->next;
	return found;
}

/* One at a time for each tenant, because each command is a process, and clients may ask as often as they like. */
uint64_t hb_supervision_terminate(struct hb_tenancy *tenancy, int signal)
{
	struct hb_supervision *supervision = tenancy->daemon->supervision;
	struct tenant_process clients[HB_PAGE_PROCESSES];
	if (!hb_mps_has_tenant(tenancy) || !hb_mps_server_pid(tenancy->daemon->mps))
		return 0;
	const struct hb_termination *known = find_termination(supervision, tenancy->number);
	if (known)
		return known->reported ? 0 : known->number;
	unsigned n = take_members(tenancy, signal, clients);
	return begin_termination(supervision, tenancy->number, clients, n, NULL);
}

/* --- a supervisor that was killed -------------------------------------------------------------- */

static void forget_end(struct supervised_end *end)
{
	struct supervised_end **place = &end->supervision->ends;
	while (*place != end)
		place = &(*place)->next;
	*place = end->next;
	if (end->user)
		hb_user_give(&end->supervision->daemon->users, end->user, HB_PLACE_TENANT, 1);
	free(end);
}

static void begin_searches(struct hb_supervision *supervision);

static void search_ended(void *argument, const struct hb_command_result *result)
{
	struct supervised_end *end = argument;
	struct hb_supervision *supervision = end->supervision;
	supervision->running--;
	if (supervision->closing) {
		free_when_idle(supervision);
		return;
	}
	hb_user_log(end->user, hb_clock_now_ns(), HB_LOG_WARNING,
		    "tenant %u: its supervisor (process %d) was killed; ended the GPU work of %u processes and killed "
		    "%lu processes",
		    end->tenant, (int)end->leader, end->n_clients, end->killed + strtoul(result->output, NULL, 10));
	forget_end(end);
	begin_searches(supervision);
}

static bool searches_for(const struct hb_supervision *supervision, uid_t uid)
{
	for (const struct supervised_end *end = supervision->ends; end; end = end->next)
		if (end->searches && end->uid == uid)
			return true;
	return false;
}

/*
 * The processes with CUDA are known. The others, for example a shell that started them, are found by their token. Without
 * the rights of root the daemon may not signal the first ones; then they are found in the same way.
 */
static bool begin_search(struct supervised_end *end)
{
	struct hb_privileged_request request = {
		.kind = HB_PRIVILEGED_END_PROCESSES, .uid = end->uid, .page = end->page};
	memcpy(request.token, end->token, sizeof request.token);
	int result = hb_privileged_run(end->supervision->daemon->privileged, &request, search_ended, end);
	end->waits_to_search = result == -EAGAIN; /* too many programs wait */
	end->searches = result == 0;
	end->supervision->running += end->searches;
	return end->searches || end->waits_to_search;
}

/* A search is a process that reads all of /proc: each user has one at a time, so that no user delays another. */
static void begin_searches(struct hb_supervision *supervision)
{
	struct supervised_end *next;
	for (struct supervised_end *end = supervision->ends; end; end = next) {
		next = end->next;
		if (end->waits_to_search && !searches_for(supervision, end->uid) && !begin_search(end))
			forget_end(end);
	}
}

static void kill_members(struct supervised_end *end)
{
	for (unsigned i = 0; i < end->n; i++)
		end->killed += hb_process_kill(end->members[i].pid, end->members[i].start_ticks) == 0;
	end->waits_to_search = true;
}

/* Identifies the page on the whole machine, on which other daemons have tenants of the same number. */
static uint64_t page_inode(const struct hb_tenancy *tenancy)
{
	struct stat page;
	return fstat(tenancy->page_fd, &page) == 0 ? page.st_ino : 0;
}

static void begin_end(struct supervised_end *end)
{
	struct hb_supervision *supervision = end->supervision;
	struct hb_tenancy *tenancy = hb_tenancy_find(supervision->daemon, end->token);
	end->begun = true;
	if (tenancy) {
		end->n = take_members(tenancy, 0, end->members);
		end->page = page_inode(tenancy);
	}
	if (tenancy && hb_mps_has_tenant(tenancy) &&
	    begin_termination(supervision, end->tenant, end->members, end->n, end))
		end->n_clients = end->n;
	else
		kill_members(end);
}

void hb_supervision_leader_ended(struct hb_tenancy *tenancy)
{
	struct hb_supervision *supervision = tenancy->daemon->supervision;
	const uint32_t flags = HB_REGISTER_SUPERVISED | HB_REGISTER_MPS;
	/* Processes are killed by their token, and others can guess the token of a container. `hb run` never uses one. */
	if ((tenancy->flags & flags) != flags || hb_token_is_of_container(tenancy->token))
		return;
	struct supervised_end *end = calloc(1, sizeof *end);
	if (!end)
		return;
	*end = (struct supervised_end){.next = supervision->ends,
				       .supervision = supervision,
				       .uid = tenancy->peer.uid,
				       .user = tenancy->user,
				       .tenant = tenancy->number,
				       .leader = tenancy->leader.pid,
				       .due_ns = hb_clock_now_ns() + BYE_NS};
	memcpy(end->token, tenancy->token, sizeof end->token);
	supervision->ends = end;
	if (end->user)
		hb_user_take_anyway(&tenancy->daemon->users, end->user, HB_PLACE_TENANT);
}

bool hb_supervision_leave(struct hb_supervision *supervision, const unsigned char token[HB_TOKEN_BYTES], pid_t leader)
{
	for (struct supervised_end *end = supervision->ends; end; end = end->next)
		if (!end->begun && end->leader == leader && memcmp(end->token, token, sizeof end->token) == 0) {
			forget_end(end);
			return true;
		}
	return false;
}

/* --- for the daemon ---------------------------------------------------------------------------- */

void hb_supervision_tick(struct hb_supervision *supervision, int64_t now_ns)
{
	for (struct hb_termination *each = supervision->terminations; each; each = each->next)
		if (now_ns - each->since_ns >= LIMIT_NS && !each->reported) {
			report_termination(each);
			hold(each, false); /* the command may never end */
		}
	for (struct supervised_end *end = supervision->ends; end; end = end->next)
		if (!end->begun && now_ns >= end->due_ns)
			begin_end(end);
	begin_searches(supervision);
}

int hb_supervision_new(struct hb_daemon *daemon, struct hb_supervision **supervision)
{
	struct hb_supervision *made = calloc(1, sizeof *made);
	if (!made)
		return -ENOMEM;
	made->daemon = daemon;
	*supervision = made;
	return 0;
}

void hb_supervision_free(struct hb_supervision *supervision)
{
	if (!supervision)
		return;
	supervision->closing = true;
	free_when_idle(supervision);
}
