/* SPDX-License-Identifier: Apache-2.0 */
/* See mps_faults.h. */
#include "daemon/mps_faults.h"

#include "base/clock.h"
#include "base/log.h"
#include "daemon/fault_notes.h"
#include "daemon/mps_server.h"
#include "daemon/socket_server.h"
#include "daemon/status_measures.h"
#include "gate/gate.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <time.h>

#define RPC_FAILURE 806       /* CUDA's numbers: the server has ended, */
#define CLIENT_TERMINATED 810 /* or the daemon ended the client's work */
/* Processes look at their context every 20 ms, and more seldom on a busy machine. */
#define DECIDE_NS (250 * HB_NS_PER_MS)
/* Errors that are seen later than this belong to another fault. */
#define SAME_FAULT_NS (2 * HB_NS_PER_S)
/* A process that ended with unfinished work can be the cause if it ended this long before the first error, or after. */
#define END_BEFORE_NS (300 * HB_NS_PER_MS)
#define END_AFTER_NS (50 * HB_NS_PER_MS)
#define CONCERNS_NS (60 * HB_NS_PER_S) /* a tenant that ends later than this did not end because of the fault */

enum fault_proof { PROOF_NONE, PROOF_FIRST, PROOF_ENDED, PROOF_ALONE };

struct hb_mps_faults {
	struct hb_daemon *daemon;
	struct hb_fault_notes notes; /* of this fault, and ends before it */
	int64_t first_ns, due_ns;    /* first error of the fault, 0 = no fault so far; when it is decided */
	int64_t wall_s;
	bool decided;
	enum fault_proof proof;
	struct hb_fault_note culprit;
	uint64_t count;
	struct hb_log_limit limit; /* programs can cause faults, and must not fill the log */
};

static const char *error_text(uint32_t error)
{
	switch (error) {
#define HB_CUDA_ERROR(name, value, text) \
	case value: \
		return text;
#include "nvidia/cuda_errors.def"
#undef HB_CUDA_ERROR
	default:
		return "a CUDA error";
	}
}

/* --- what is seen ------------------------------------------------------------------------------- */

static void add_note(struct hb_mps_faults *faults, const struct hb_member *member, uint32_t error, int64_t at_ns)
{
	const struct hb_tenancy *tenancy = member->tenancy;
	struct hb_fault_note *note = hb_fault_notes_add(&faults->notes, tenancy->peer.uid);
	note->at_ns = at_ns;
	note->error = error;
	note->tenant = tenancy->number;
	note->pid = member->pid;
	snprintf(note->user, sizeof note->user, "%s", tenancy->peer.user);
	snprintf(note->command, sizeof note->command, "%.95s", tenancy->command);
}

/* A process cannot have seen an error before it registered or after now. */
static int64_t time_of_error(const struct hb_member *member, int64_t now_ns)
{
	int64_t at_ns = member->tenancy->page->processes[member->slot].fault_ns;
	return at_ns > now_ns || at_ns < now_ns - SAME_FAULT_NS ? now_ns : at_ns;
}

static void note_error(struct hb_mps_faults *faults, struct hb_member *member, uint32_t error)
{
	int64_t now_ns = hb_clock_now_ns(), at_ns = time_of_error(member, now_ns);
	member->fault_noted = true;
	if (error == CLIENT_TERMINATED)
		return;
	if (!faults->first_ns || now_ns - faults->first_ns > SAME_FAULT_NS) {
		faults->first_ns = at_ns;
		faults->due_ns = now_ns + DECIDE_NS;
		faults->wall_s = (int64_t)time(NULL);
		faults->decided = false;
	}
	if (!faults->decided && at_ns < faults->first_ns)
		faults->first_ns = at_ns;
	add_note(faults, member, error, at_ns);
}

static bool is_client(const struct hb_member *member)
{
	const struct hb_tenancy *tenancy = member->tenancy;
	const struct hb_mps *mps = tenancy->daemon->mps;
	/* A tenant says that it is inside the server; the user of a server that has ended is not known. */
	if (hb_mps_state(mps) == HB_MPS_READY && !hb_mps_may_serve(mps, tenancy->peer.uid))
		return false;
	return member->watch && member->slot < HB_PAGE_PROCESSES && tenancy->flags & HB_REGISTER_MPS &&
	       !hb_tenancy_is_server(tenancy);
}

static void look_at(struct hb_mps_faults *faults, struct hb_member *member)
{
	if (!is_client(member) || member->fault_noted)
		return;
	uint32_t error = atomic_load_explicit(&member->tenancy->page->processes[member->slot].fault,
					      memory_order_acquire);
	if (error)
		note_error(faults, member, error);
}

static bool has_unfinished_work(const struct hb_member *member)
{
	struct hb_page_process *process = &member->tenancy->page->processes[member->slot];
	for (uint32_t i = 0; i < member->tenancy->n_gpus; i++)
		if (hb_gate_in_flight((struct hb_gate *)process->gates[i]) > 0)
			return true;
	return false;
}

void hb_mps_faults_note_end(struct hb_member *member)
{
	struct hb_mps_faults *faults = member->tenancy->daemon->faults;
	look_at(faults, member);
	if (is_client(member) && !member->fault_noted && !member->terminated && has_unfinished_work(member))
		add_note(faults, member, 0, hb_clock_now_ns());
}

static void look_at_tenant(struct hb_mps_faults *faults, struct hb_tenancy *tenancy)
{
	for (uint32_t slot = 0; slot < tenancy->slots_end; slot++)
		look_at(faults, &tenancy->members[slot]);
}

/* --- who caused it ---------------------------------------------------------------------------------- */

static bool is_of_this_fault(const struct hb_mps_faults *faults, const struct hb_fault_note *note)
{
	return note->pid && note->at_ns >= faults->first_ns - END_BEFORE_NS;
}

/* The last process that ended with unfinished work about when the first error was seen. */
static const struct hb_fault_note *find_ended(const struct hb_mps_faults *faults)
{
	const struct hb_fault_note *found = NULL;
	for (unsigned i = 0; i < HB_FAULT_NOTES; i++) {
		const struct hb_fault_note *note = &faults->notes.note[i];
		if (is_of_this_fault(faults, note) && !note->error && note->at_ns <= faults->first_ns + END_AFTER_NS &&
		    (!found || note->at_ns > found->at_ns))
			found = note;
	}
	return found;
}

static const struct hb_fault_note *find_first(const struct hb_mps_faults *faults, unsigned *n)
{
	const struct hb_fault_note *found = NULL;
	for (unsigned i = 0; i < HB_FAULT_NOTES; i++) {
		const struct hb_fault_note *note = &faults->notes.note[i];
		if (!is_of_this_fault(faults, note) || !note->error || note->error == RPC_FAILURE)
			continue;
		++*n;
		if (!found || note->at_ns < found->at_ns)
			found = note;
	}
	return found;
}

static void choose_culprit(struct hb_mps_faults *faults)
{
	unsigned n = 0;
	const struct hb_fault_note *first = find_first(faults, &n), *found;
	faults->proof = n > 1 ? PROOF_FIRST : PROOF_ALONE;
	if (first && (found = find_ended(faults)))
		faults->proof = PROOF_ENDED;
	else
		found = first;
	if (!found)
		faults->proof = PROOF_NONE;
	faults->culprit = found ? *found : (struct hb_fault_note){.tenant = 0};
}

/* How many processes other than the culprit lost their work. */
static unsigned count_harmed(const struct hb_mps_faults *faults)
{
	unsigned n = 0;
	for (unsigned i = 0; i < HB_FAULT_NOTES; i++)
		n += is_of_this_fault(faults, &faults->notes.note[i]) && faults->notes.note[i].error &&
		     faults->notes.note[i].pid != faults->culprit.pid;
	return n;
}

static void describe_cause(const struct hb_mps_faults *faults, char *text, size_t size)
{
	const struct hb_fault_note *culprit = &faults->culprit;
	const char *error = error_text(culprit->error);
	char at[16];
	struct tm parts;
	time_t seconds = (time_t)faults->wall_s;
	strftime(at, sizeof at, "%H:%M:%S", localtime_r(&seconds, &parts));
	switch (faults->proof) {
	case PROOF_ENDED:
		snprintf(text, size,
			 "ended at %s while its kernels ran in the shared MPS server, which is the likely cause", at);
		return;
	case PROOF_ALONE:
		snprintf(text, size, "had a fault in the shared MPS server at %s (%s)", at, error);
		return;
	case PROOF_FIRST:
		snprintf(text, size,
			 "was the first to report a fault in the shared MPS server at %s (%s); it or another program "
			 "there is the cause",
			 at, error);
		return;
	default:
		snprintf(text, size, "the MPS server ended at %s", at);
	}
}

static void describe_process(const struct hb_fault_note *note, char *text, size_t size)
{
	snprintf(text, size, "process %d (user %s, tenant %u: %s)", (int)note->pid, note->user, note->tenant,
		 note->command);
}

static void log_fault(struct hb_mps_faults *faults)
{
	char who[256], cause[256];
	uint64_t unsaid;
	if (!hb_log_limit_pass(&faults->limit, hb_clock_now_ns(), &unsaid))
		return;
	describe_process(&faults->culprit, who, sizeof who);
	describe_cause(faults, cause, sizeof cause);
	hb_log_warning("%s%s%s; other processes that lost their GPU work: %u", faults->proof == PROOF_NONE ? "" : who,
		       faults->proof == PROOF_NONE ? "" : " ", cause, count_harmed(faults));
}

void hb_mps_faults_tick(struct hb_mps_faults *faults, int64_t now_ns)
{
	for (uint32_t i = 0; i < HB_TENANCIES_MAX; i++)
		if (faults->daemon->tenancies[i] && faults->daemon->tenancies[i]->flags & HB_REGISTER_MPS)
			look_at_tenant(faults, faults->daemon->tenancies[i]);
	if (!faults->first_ns || faults->decided || now_ns < faults->due_ns)
		return;
	faults->decided = true;
	faults->count++;
	choose_culprit(faults);
	log_fault(faults);
	if (faults->daemon->server)
		hb_server_answer_faults(faults->daemon->server);
}

/* --- for users ------------------------------------------------------------------------------------ */

static const struct hb_fault_note *find_note(const struct hb_mps_faults *faults, uint32_t tenant)
{
	for (unsigned i = 0; i < HB_FAULT_NOTES; i++)
		if (is_of_this_fault(faults, &faults->notes.note[i]) && faults->notes.note[i].error &&
		    faults->notes.note[i].tenant == tenant)
			return &faults->notes.note[i];
	return NULL;
}

bool hb_mps_faults_wait(struct hb_tenancy *tenancy)
{
	struct hb_mps_faults *faults = tenancy->daemon->faults;
	look_at_tenant(faults, tenancy);
	return faults->first_ns && !faults->decided && find_note(faults, tenancy->number);
}

void hb_mps_faults_text(const struct hb_mps_faults *faults, uint32_t tenant, char *text, size_t size)
{
	char who[256] = "this program", cause[256];
	text[0] = '\0';
	if (!faults->decided || hb_clock_now_ns() - faults->first_ns > CONCERNS_NS)
		return;
	if (faults->culprit.tenant != tenant && !find_note(faults, tenant))
		return;
	if (faults->culprit.tenant != tenant)
		describe_process(&faults->culprit, who, sizeof who);
	describe_cause(faults, cause, sizeof cause);
	unsigned n = count_harmed(faults);
	int used = snprintf(text, size, "%s%s%s", faults->proof == PROOF_NONE ? "" : who,
			    faults->proof == PROOF_NONE ? "" : " ", cause);
	if (faults->culprit.tenant == tenant && n && used > 0 && (size_t)used < size)
		snprintf(text + used, size - (size_t)used, "; %u other processes lost their GPU work", n);
}

json_t *hb_mps_faults_json(const struct hb_mps_faults *faults)
{
	char cause[256];
	if (!faults->decided)
		return json_null();
	json_t *harmed = json_array();
	describe_cause(faults, cause, sizeof cause);
	for (unsigned i = 0; i < HB_FAULT_NOTES; i++) {
		const struct hb_fault_note *note = &faults->notes.note[i];
		if (is_of_this_fault(faults, note) && note->error && note->pid != faults->culprit.pid)
			json_array_append_new(harmed, json_pack("{s:i, s:i, s:s, s:s}", "pid", (int)note->pid, "tenant",
								(int)note->tenant, "user", note->user, "command",
								note->command));
	}
	return json_pack("{s:I, s:I, s:i, s:i, s:i, s:s, s:s, s:s, s:b, s:o}", "at", (json_int_t)faults->wall_s,
			 "count", (json_int_t)faults->count, "error", (int)faults->culprit.error, "pid",
			 (int)faults->culprit.pid, "tenant", (int)faults->culprit.tenant, "user", faults->culprit.user,
			 "command", faults->culprit.command, "cause", cause, "certain",
			 (int)(faults->proof == PROOF_ALONE), "harmed", harmed);
}

int hb_mps_faults_new(struct hb_daemon *daemon, struct hb_mps_faults **faults)
{
	struct hb_mps_faults *made = calloc(1, sizeof *made);
	if (!made)
		return -ENOMEM;
	made->daemon = daemon;
	*faults = made;
	return 0;
}

void hb_mps_faults_free(struct hb_mps_faults *faults)
{
	free(faults);
}
