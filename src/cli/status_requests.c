/* SPDX-License-Identifier: Apache-2.0 */
/* Formats requests, SLO, misses and takeovers of one tenant; see status_requests.h. */
#include "cli/status_requests.h"

#include "base/units.h"
#include "cli/status_fields.h"

#include <stdbool.h>
#include <stdio.h>

static const struct {
	const char *key, *text;
} causes[] = {
#define HB_MISS_CAUSE(key, text) {key, text},
#include "core/miss_causes.def"
#undef HB_MISS_CAUSE
};

static void print_label(const char *label)
{
	printf("        %-14s ", label);
}

static void print_latency(const json_t *use)
{
	char p50[HB_UNITS_TEXT_MAX], p99[HB_UNITS_TEXT_MAX];
	const json_t *latency = json_object_get(use, "latency");
	int64_t lost = hb_status_number(json_object_get(use, "scheduling"), "requests_lost");
	print_label("requests");
	printf("%lld", (long long)hb_status_number(use, "requests"));
	if (json_is_object(latency)) {
		hb_duration_format(hb_status_number(latency, "p50_ns"), p50);
		hb_duration_format(hb_status_number(latency, "p99_ns"), p99);
		printf(", p50 %s, p99 %s", p50, p99);
	}
	if (lost)
		printf(", %lld more arrived too fast to be read", (long long)lost);
	putchar('\n');
}

static void print_objective(const json_t *tenant, const json_t *use)
{
	char slo[HB_UNITS_TEXT_MAX];
	bool automatic = hb_status_number(tenant, "slo_asked_ns") < 0;
	int64_t slo_ns = hb_status_number(use, "slo_ns");
	const json_t *met = json_object_get(use, "attainment_ppm");
	print_label("objective");
	if (!slo_ns) {
		puts("auto, not learned yet: not enough requests alone on the GPU");
		return;
	}
	hb_duration_format(slo_ns, slo);
	printf("%s%s for %g %% of requests", automatic ? "auto, " : "", slo,
	       (double)hb_status_number(tenant, "attainment_asked_ppm") / 1e4);
	if (json_is_integer(met))
		printf(": met by %.2f %%\n", (double)json_integer_value(met) / 1e4);
	else
		puts(": no request yet");
}

const char *hb_status_format_misses(const json_t *use, char text[HB_STATUS_TEXT_MAX])
{
	const json_t *counts = json_object_get(use, "scheduling");
	int64_t misses = hb_status_number(counts, "requests_judged") - hb_status_number(counts, "requests_met");
	const char *separator = ":";
	size_t used = 0;
	text[0] = '\0';
	if (misses > 0)
		used = (size_t)snprintf(text, HB_STATUS_TEXT_MAX, "%lld", (long long)misses);
	for (size_t i = 0; misses > 0 && i < sizeof causes / sizeof causes[0] && used < HB_STATUS_TEXT_MAX; i++) {
		if (!hb_status_number(counts, causes[i].key))
			continue;
		used += (size_t)snprintf(text + used, HB_STATUS_TEXT_MAX - used, "%s %lld %s", separator,
					 (long long)hb_status_number(counts, causes[i].key), causes[i].text);
		separator = ",";
	}
	return text;
}

static void print_labelled(const char *label, const char *text)
{
	if (!*text)
		return;
	print_label(label);
	puts(text);
}

static void print_running(const json_t *use)
{
	char since[HB_UNITS_TEXT_MAX], slack[HB_UNITS_TEXT_MAX];
	const json_t *running = json_object_get(use, "running_ns"), *left = json_object_get(use, "slack_ns");
	if (!json_is_integer(running))
		return;
	print_label("running");
	printf("one request for %s", hb_duration_format(json_integer_value(running), since));
	int64_t slack_ns = json_integer_value(left);
	if (json_is_integer(left))
		printf(", %s %s", hb_duration_format(slack_ns < 0 ? -slack_ns : slack_ns, slack),
		       slack_ns < 0 ? "too late" : "to spare");
	putchar('\n');
}

void hb_status_print_requests(const json_t *tenant, const json_t *use)
{
	char text[HB_STATUS_TEXT_MAX];
	bool objective = hb_status_number(tenant, "slo_asked_ns") != 0;
	if (!json_object_get(use, "slo_ns") || (!objective && !hb_status_number(use, "requests")))
		return;
	print_latency(use);
	if (objective || json_is_integer(json_object_get(use, "attainment_ppm")))
		print_objective(tenant, use);
	print_labelled("missed", hb_status_format_misses(use, text));
	print_running(use);
}

static void print_faults(const json_t *processes)
{
	const json_t *process;
	size_t i;
	json_array_foreach(processes, i, process)
	{
		const char *fault = json_string_value(json_object_get(process, "takeover_fault"));
		if (!fault)
			continue;
		print_label("takeovers");
		printf("off in process %lld: %s\n", (long long)hb_status_number(process, "pid"), fault);
	}
}

const char *hb_status_format_takeovers(const json_t *tenant, char text[HB_STATUS_TEXT_MAX])
{
	const json_t *counters = json_object_get(tenant, "counters");
	int64_t requests = hb_status_number(counters, "requests"), signs = hb_status_number(counters, "signs");
	text[0] = '\0';
	if (requests && signs)
		snprintf(text, HB_STATUS_TEXT_MAX,
			 "%.1f %% of requests found the GPU taken over; %lld signs, %lld takeovers, %lld not possible",
			 100.0 * (double)hb_status_number(counters, "requests_with_takeover") / (double)requests,
			 (long long)signs, (long long)hb_status_number(counters, "takeovers"),
			 (long long)hb_status_number(counters, "takeovers_not_possible"));
	return text;
}

void hb_status_print_takeovers(const json_t *tenant)
{
	char text[HB_STATUS_TEXT_MAX];
	print_labelled("takeovers", hb_status_format_takeovers(tenant, text));
	print_faults(json_object_get(tenant, "processes"));
}
