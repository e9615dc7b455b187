/* SPDX-License-Identifier: Apache-2.0 */
/* Tenant options as environment variables; see tenant_options_env.h. */
#include "protocol/tenant_options_env.h"

#include "protocol/container_token.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const engines[] = {
	[HB_ENGINE_TEMPORAL] = "temporal", [HB_ENGINE_TURNS] = "turns", [HB_ENGINE_SPATIAL] = "spatial"};

const char *const hb_tenant_option_variables[] = {
	"HB_TENANT",       "HB_PRIORITY", "HB_SLO_NS",      "HB_ATTAINMENT_PPM",
	"HB_MEMORY_BYTES", "HB_WEIGHT",   "HB_PCIE_WEIGHT", "HB_ENGINE",
	"HB_ROLE",         "HB_MPS",      "HB_GPU",         NULL,
};

void hb_tenant_options_init(struct hb_tenant_options *options)
{
	*options = (struct hb_tenant_options){.priority = HB_PAGE_LOW, .weight = 1};
}

/* Changes *value only if the variable is an integer within the bounds. */
static void read_number(const char *name, int64_t min, int64_t max, int64_t *value)
{
	const char *text = getenv(name);
	char *end;
	if (!text || !*text)
		return;
	errno = 0;
	long long number = strtoll(text, &end, 10);
	if (errno == 0 && *end == '\0' && number >= min && number <= max)
		*value = number;
}

static bool is_value(const char *name, const char *expected)
{
	const char *text = getenv(name);
	return text && strcmp(text, expected) == 0;
}

int hb_tenant_options_from_environment(struct hb_tenant_options *options)
{
	int64_t slo_ns = options->slo_ns, ppm = options->attainment_ppm;
	int64_t weight = options->weight, pcie_weight = options->pcie_weight;
	int64_t bytes = (int64_t)options->memory_bytes;
	read_number("HB_SLO_NS", -1, INT64_MAX, &slo_ns);
	read_number("HB_ATTAINMENT_PPM", 0, 1000000, &ppm);
	read_number("HB_MEMORY_BYTES", 0, INT64_MAX, &bytes);
	read_number("HB_WEIGHT", 1, HB_WEIGHT_MAX, &weight);
	read_number("HB_PCIE_WEIGHT", 1, HB_WEIGHT_MAX, &pcie_weight);
	options->slo_ns = slo_ns;
	options->attainment_ppm = (uint32_t)ppm;
	options->memory_bytes = (uint64_t)bytes;
	options->weight = (uint16_t)weight;
	options->pcie_weight = (uint16_t)pcie_weight;
	if (is_value("HB_PRIORITY", "high"))
		options->priority = HB_PAGE_HIGH;
	for (int i = HB_ENGINE_TEMPORAL; i <= HB_ENGINE_SPATIAL; i++)
		if (is_value("HB_ENGINE", engines[i]))
			options->engine = (enum hb_engine)i;
	if (is_value("HB_ROLE", "server"))
		options->flags |= HB_REGISTER_SERVER;
	if (is_value("HB_MPS", "1"))
		options->flags |= HB_REGISTER_MPS;
	if (is_value("HB_GPU", "sim"))
		options->flags |= HB_REGISTER_SIMULATED;
	int result = is_value("HB_TENANT", HB_CONTAINER_TENANT) ? hb_container_token(options->token)
								: hb_token_parse(getenv("HB_TENANT"), options->token);
	return result < 0 ? -ENOENT : 0;
}

struct variable_writer {
	int (*write)(void *argument, const char *name, const char *value);
	void *argument;
};

static int write_number(const struct variable_writer *writer, const char *name, int64_t value)
{
	char text[32];
	snprintf(text, sizeof text, "%lld", (long long)value);
	return writer->write(writer->argument, name, value ? text : NULL);
}

int hb_tenant_options_each(const struct hb_tenant_options *options,
			   int (*write)(void *argument, const char *name, const char *value), void *argument)
{
	char token[2 * HB_TOKEN_BYTES + 1];
	const struct variable_writer writer = {write, argument};
	hb_token_format(options->token, token);
	int results[] = {
		write(argument, "HB_TENANT", token),
		write(argument, "HB_PRIORITY", options->priority == HB_PAGE_HIGH ? "high" : "low"),
		write_number(&writer, "HB_SLO_NS", options->slo_ns),
		write_number(&writer, "HB_ATTAINMENT_PPM", options->attainment_ppm),
		write_number(&writer, "HB_MEMORY_BYTES", (int64_t)options->memory_bytes),
		write_number(&writer, "HB_WEIGHT", options->weight),
		write_number(&writer, "HB_PCIE_WEIGHT", options->pcie_weight),
		write(argument, "HB_ENGINE", options->engine ? engines[options->engine] : NULL),
		write(argument, "HB_ROLE", options->flags & HB_REGISTER_SERVER ? "server" : NULL),
		write(argument, "HB_MPS", options->flags & HB_REGISTER_MPS ? "1" : NULL),
		write(argument, "HB_GPU", options->flags & HB_REGISTER_SIMULATED ? "sim" : NULL),
	};
	for (size_t i = 0; i < sizeof results / sizeof results[0]; i++)
		if (results[i] < 0)
			return results[i];
	return 0;
}

static int set_variable(void *unused, const char *name, const char *value)
{
	int result = value ? setenv(name, value, 1) : unsetenv(name);
	return result < 0 ? -errno : 0;
}

int hb_tenant_options_to_environment(const struct hb_tenant_options *options)
{
	return hb_tenant_options_each(options, set_variable, NULL);
}
