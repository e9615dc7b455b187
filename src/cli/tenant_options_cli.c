/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the options that describe a tenant; see tenant_options_cli.h. */
#include "cli/tenant_options_cli.h"

#include "base/slo.h"
#include "base/units.h"
#include "cli/cli.h"

#include <stdlib.h>
#include <string.h>

static int take_priority(const char *command, struct hb_tenant_options *options, const char *value)
{
	if (strcmp(value, "high") != 0 && strcmp(value, "low") != 0)
		return hb_cli_usage_error(command, "--priority: '%s' is neither high nor low", value);
	options->priority = value[0] == 'h' ? HB_PAGE_HIGH : HB_PAGE_LOW;
	return -1;
}

static int take_slo(const char *command, struct hb_tenant_options *options, const char *value)
{
	struct hb_slo slo;
	struct hb_error error;
	if (hb_slo_parse(value, &slo, &error) < 0)
		return hb_cli_usage_error(command, "--slo: %s", error.text);
	options->slo_ns = slo.latency_ns;
	options->attainment_ppm = slo.share_ppm;
	return -1;
}

static int take_memory(const char *command, struct hb_tenant_options *options, const char *value)
{
	struct hb_error error;
	if (hb_memory_parse(value, &options->memory_bytes, &error) < 0)
		return hb_cli_usage_error(command, "--memory: %s", error.text);
	if (!options->memory_bytes)
		return hb_cli_usage_error(command, "--memory: '%s' is not a size such as 40GiB", value);
	return -1;
}

static int take_weight(const char *command, const char *option, uint16_t *weight, const char *value)
{
	char *end;
	long number = strtol(value, &end, 10);
	if (*end || end == value || number < 1 || number > HB_WEIGHT_MAX)
		return hb_cli_usage_error(command, "--%s: '%s' is not a number from 1 to %d", option, value,
					  HB_WEIGHT_MAX);
	*weight = (uint16_t)number;
	return -1;
}

int hb_tenant_options_take(const char *command, struct hb_tenant_options *options, int code, const char *value)
{
	switch (code) {
	case HB_TENANT_OPTION_PRIORITY:
		return take_priority(command, options, value);
	case HB_TENANT_OPTION_SLO:
		return take_slo(command, options, value);
	case HB_TENANT_OPTION_MEMORY:
		return take_memory(command, options, value);
	case HB_TENANT_OPTION_WEIGHT:
		return take_weight(command, "weight", &options->weight, value);
	case HB_TENANT_OPTION_PCIE_WEIGHT:
		return take_weight(command, "pcie-weight", &options->pcie_weight, value);
	default:
		return -1;
	}
}
