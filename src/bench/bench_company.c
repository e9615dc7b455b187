/* SPDX-License-Identifier: Apache-2.0 */
/* Starting, keeping and ending the programs of a measurement; see bench_company.h. */
#include "bench/bench_company.h"

#include "base/clock.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* From the start of all to the last one's being ready. A simulated GPU may be on a busy machine. */
#define READY_NS (30 * HB_NS_PER_S)
#define READY_TORCH_NS (120 * HB_NS_PER_S) /* imported many times at once */
#define READY_SIMULATED_NS (180 * HB_NS_PER_S)
#define QUIT_NS (10 * HB_NS_PER_S)
#define QUIT_HUNG_NS HB_NS_PER_S

void hb_bench_company_begin(struct hb_bench_company *company)
{
	for (unsigned i = 0; i < company->n; i++)
		company->members[i].needed = false;
}

struct hb_bench_member *hb_bench_company_call(struct hb_bench_company *company, const struct hb_bench_program *program,
					      unsigned index, bool high, const struct hb_bench_sharing *sharing)
{
	char key[160];
	hb_bench_stage_key(program, index, high, sharing, key);
	for (unsigned i = 0; i < company->n; i++)
		if (strcmp(company->members[i].key, key) == 0) {
			company->members[i].needed = true;
			return &company->members[i];
		}
	/* Two cases, the one that ends and the one that begins, never fill it. */
	struct hb_bench_member *made = &company->members[company->n++];
	*made = (struct hb_bench_member){
		.program = program, .high = high, .sharing = sharing, .needed = true, .process = {.in = -1, .out = -1}};
	memcpy(made->key, key, sizeof made->key);
	return made;
}

static int start(struct hb_bench_company *company, struct hb_bench_member *member, struct hb_error *error)
{
	return hb_bench_stage_start(company->stage, member->program, member->high, member->sharing, &member->process,
				    error);
}

static int64_t ready_ns(const struct hb_bench_company *company, const struct hb_bench_member *member)
{
	if (company->simulated)
		return READY_SIMULATED_NS;
	return strncmp(member->program->real, "torch ", 6) == 0 ? READY_TORCH_NS : READY_NS;
}

/* `begun_ns`: when it was started, or the last one of those that were started together. */
static int wait_ready(const struct hb_bench_company *company, struct hb_bench_member *member, int64_t begun_ns,
		      char gpu[96], struct hb_error *error)
{
	json_t *answer = NULL;
	int64_t left_ns = begun_ns + ready_ns(company, member) - hb_clock_now_ns();
	int result = hb_bench_process_hear(&member->process, "ready", left_ns > 0 ? left_ns : 0, &answer, error);
	const char *name = json_string_value(json_object_get(answer, "gpu"));
	if (result == 0 && name && gpu)
		snprintf(gpu, 96, "%s", name);
	json_decref(answer);
	return result;
}

/* At once, so that they end side by side, and within one limit together. `all`, or those who are not needed. */
static void end(struct hb_bench_company *company, bool all, bool well)
{
	struct hb_error ignored;
	unsigned kept = 0;
	int64_t deadline_ns = hb_clock_now_ns() + (well ? QUIT_NS : QUIT_HUNG_NS);
	for (unsigned i = 0; i < company->n; i++) {
		struct hb_bench_member *member = &company->members[i];
		if ((all || !member->needed) && member->process.pid > 0)
			hb_bench_process_tell(&member->process, &ignored, "quit");
	}
	for (unsigned i = 0; i < company->n; i++) {
		struct hb_bench_member *member = &company->members[i];
		int64_t left_ns = deadline_ns - hb_clock_now_ns();
		if (all || !member->needed)
			hb_bench_process_stop(&member->process, 0, left_ns > 0 ? left_ns : 0);
		else
			company->members[kept++] = *member;
	}
	company->n = kept;
}

/* One that fails does not end the others. */
static int note(struct hb_bench_member *member, int result, const struct hb_error *error)
{
	if (result == 0 || result == -EINTR || result == -ETIME)
		return result;
	snprintf(member->failed, sizeof member->failed, "%s", error->text);
	hb_bench_process_kill(&member->process);
	return 0;
}

int hb_bench_company_gather(struct hb_bench_company *company, char gpu[96], struct hb_error *error)
{
	bool fresh[HB_BENCH_MEMBERS_MAX] = {false};
	int result = 0;
	end(company, false, true);
	for (unsigned i = 0; i < company->n && !result; i++) {
		struct hb_bench_member *member = &company->members[i];
		fresh[i] = member->process.pid <= 0;
		if (!fresh[i])
			continue;
		*member->failed = '\0';
		member->slo_ns = 0;
		result = note(member, start(company, member, error), error);
	}
	int64_t begun_ns = hb_clock_now_ns();
	for (unsigned i = 0; i < company->n && !result; i++) {
		struct hb_bench_member *member = &company->members[i];
		if (fresh[i] && !*member->failed)
			result = note(member, wait_ready(company, member, begun_ns, gpu, error), error);
	}
	return result;
}

int hb_bench_company_replace(struct hb_bench_company *company, struct hb_bench_member *member, struct hb_error *error)
{
	int result = start(company, member, error);
	return result ? result : wait_ready(company, member, hb_clock_now_ns(), NULL, error);
}

void hb_bench_company_dismiss(struct hb_bench_company *company, bool well)
{
	end(company, true, well);
}
