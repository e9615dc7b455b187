/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hb_core_dump(): the state of the core as text for people and for scenario tests.
 * One subject per line, so that two dumps can be compared line by line.
 */
#include "base/units.h"
#include "core/core_priv.h"
#include "core/event_text.h"

#include <string.h>

static void print_time(FILE *out, const char *what, int64_t time_ns)
{
	char text[HB_UNITS_TEXT_MAX];
	if (time_ns == HB_TIME_NEVER)
		fprintf(out, " %s=never", what);
	else
		fprintf(out, " %s=%s%s", what, time_ns < 0 ? "-" : "",
			hb_duration_format(time_ns < 0 ? -time_ns : time_ns, text));
}

static void print_head(const struct hb_core *core, FILE *out)
{
	fputs("core", out);
	print_time(out, "now", core->now_ns);
	print_time(out, "wake", hb_core_next_wake(core));
	fprintf(out, " policy=%s tenants=%u\n", core->ops->name, core->n_tenants);
}

static void print_turns(const struct hb_core *core, FILE *out)
{
	if (!core->turns.order)
		return;
	uint32_t holder = core->turns.holder;
	fprintf(out, "turn holder=%s", holder == HB_TENANT_NONE ? "-" : core->slots[holder].tenant.name.text);
	if (holder != HB_TENANT_NONE)
		print_time(out, "used", hb_turns_used_ns(core));
	fputs(core->turns.leaving ? " leaving\n" : "\n", out);
}

static void print_state(const struct hb_tenant *tenant, FILE *out)
{
	fprintf(out, "tenant %u %s %s gate=%s", tenant->id, tenant->name.text,
		tenant->priority == HB_PRIORITY_HIGH ? "high" : "low", hb_gate_state_name(tenant->gate));
	if (tenant->gate_depth)
		fprintf(out, " depth=%u", tenant->gate_depth);
	fputs(tenant->busy ? " busy" : " idle", out);
	if (tenant->waiting)
		fputs(" waiting", out);
	if (tenant->undrained)
		fputs(" undrained", out);
	if (tenant->slice_compute_ns)
		print_time(out, "slice", tenant->slice_compute_ns);
	if (tenant->allowance_ppm)
		fprintf(out, " allowance=%uppm", tenant->allowance_ppm);
	fputc('\n', out);
}

static void print_slo(const struct hb_tenant *tenant, FILE *out)
{
	if (tenant->priority != HB_PRIORITY_HIGH)
		return;
	fputs("  slo", out);
	if (tenant->slo_ns)
		print_time(out, "bound", tenant->slo_ns);
	else
		fputs(" bound=none", out);
	fprintf(out, "%s share=%u.%04u%% attainment=%u.%04u%%", tenant->slo_auto ? " auto" : "",
		tenant->slo_share_ppm / 10000, tenant->slo_share_ppm % 10000, hb_tenant_attainment_ppm(tenant) / 10000,
		hb_tenant_attainment_ppm(tenant) % 10000);
	print_time(out, "alone", tenant->alone_ns);
	fputc('\n', out);
}

/* Prints the counters that are not 0. */
static void print_counters(const struct hb_tenant *tenant, FILE *out)
{
	bool any = false;
#define HB_COUNTER(name, unit, what) \
	if (tenant->counters.name) { \
		fprintf(out, "%s " #name "=%llu", any ? "" : "  counted", (unsigned long long)tenant->counters.name); \
		any = true; \
	}
#include "core/tenant_counters.def"
	if (any)
		fputc('\n', out);
}

static void print_ejection(const struct hb_core *core, FILE *out)
{
	const struct hb_ejection *ejection = &core->ejection;
	if (ejection->reason == HB_EJECT_NONE)
		return;
	fprintf(out, "ejected %s", ejection->policy.text);
	print_time(out, "at", ejection->at_ns);
	fprintf(out, ": %s\n", ejection->message);
	if (*ejection->dump)
		fprintf(out, "  it said: %s%s", ejection->dump,
			ejection->dump[0] && !strrchr(ejection->dump, '\n') ? "\n" : "");
}

void hb_core_dump(const struct hb_core *core, FILE *out)
{
	print_head(core, out);
	print_turns(core, out);
	for (uint32_t id = 0; id < core->config.max_tenants; id++) {
		const struct hb_tenant *tenant = hb_core_tenant(core, id);
		if (!tenant)
			continue;
		print_state(tenant, out);
		print_slo(tenant, out);
		print_counters(tenant, out);
	}
	if (core->ops->dump)
		core->ops->dump(&core->policy, out);
	print_ejection(core, out);
}
