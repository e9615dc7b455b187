/* SPDX-License-Identifier: Apache-2.0 */
/* Starting, keeping and ending the programs of a measurement; see bench_company.h. */
#include "bench/bench_company.h"

#include "base/clock.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define READY_NS (180 * HB_NS_PER_S) /* importing PyTorch many times at once */
#define QUIT_NS (10 * HB_NS_PER_S)

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

static int wait_ready(struct hb_bench_member *member, char gpu[96], struct hb_error *error)
{
	json_t *answer = NULL;
	int result = hb_bench_process_hear(&member->process, "ready", READY_NS, &answer, error);
	const char *name = json_string_value(json_object_get(answer, "gpu"));
	if (result == 0 && name && gpu)
		snprintf(gpu, 96, "%s", name);
	json_decref(answer);
	return result;
}

/* At once, so that they end side by side. `all`, or those who are not needed. */
static void end(struct hb_bench_company *company, bool all, bool well)
{
	struct hb_error ignored;
	unsigned kept = 0;
	for (unsigned i = 0; well && i < company->n; i++) {
		struct hb_bench_member *member = &company->members[i];
		if ((all || !member->needed) && member->process.pid > 0)
			hb_bench_process_tell(&member->process, &ignored, "quit");
	}
	for (unsigned i = 0; i < company->n; i++) {
		struct hb_bench_member *member = &company->members[i];
		if (all || !member->needed)
			hb_bench_process_stop(&member->process, 0, well ? QUIT_NS : HB_NS_PER_S);
		else
			company->members[kept++] = *member;
	}
	company->n = kept;
}

/* One that fails does not end the others. */
static int note(struct hb_bench_member *member, int result, const struct hb_error *error)
{
	if (result == 0 || result == -EINTR)
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
	for (unsigned i = 0; i < company->n && !result; i++) {
		struct hb_bench_member *member = &company->members[i];
		if (fresh[i] && !*member->failed)
			result = note(member, wait_ready(member, gpu, error), error);
	}
	return result;
}

int hb_bench_company_replace(struct hb_bench_company *company, struct hb_bench_member *member, struct hb_error *error)
{
	int result = start(company, member, error);
	return result ? result : wait_ready(member, NULL, error);
}

void hb_bench_company_dismiss(struct hb_bench_company *company, bool well)
{
	end(company, true, well);
}
