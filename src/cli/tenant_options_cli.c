/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a tenant's wishes from option values; see tenant_options_cli.h. */
#include "cli/tenant_options_cli.h"

#include "base/slo.h"
#include "base/units.h"
#include "cli/cli.h"

#include <stdlib.h>
#include <string.h>

int hb_tenant_options_take_priority(const char *command, struct hb_tenant_options *wish, const char *value)
{
	if (strcmp(value, "high") != 0 && strcmp(value, "low") != 0)
		return hb_cli_usage_error(command, "--priority: '%s' is neither high nor low", value);
	wish->priority = value[0] == 'h' ? HB_PAGE_HIGH : HB_PAGE_LOW;
	return -1;
}

int hb_tenant_options_take_slo(const char *command, struct hb_tenant_options *wish, const char *value)
{
	struct hb_slo slo;
	struct hb_error error;
	if (hb_slo_parse(value, &slo, &error) < 0)
		return hb_cli_usage_error(command, "--slo: %s", error.text);
	wish->slo_ns = slo.latency_ns;
	wish->attainment_ppm = slo.share_ppm;
	return -1;
}

int hb_tenant_options_take_memory(const char *command, struct hb_tenant_options *wish, const char *value)
{
	struct hb_error error;
	if (hb_bytes_parse(value, &wish->memory_bytes, &error) < 0 || !wish->memory_bytes)
		return hb_cli_usage_error(command, "--memory: '%s' is no size; write 40GiB", value);
	return -1;
}

int hb_tenant_options_take_weight(const char *command, struct hb_tenant_options *wish, const char *value)
{
	char *end;
	long weight = strtol(value, &end, 10);
	if (*end || end == value || weight < 1 || weight > 1000)
		return hb_cli_usage_error(command, "--pcie-weight: '%s' is no number from 1 to 1000", value);
	wish->pcie_weight = (uint32_t)weight;
	return -1;
}
