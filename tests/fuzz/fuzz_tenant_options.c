/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzz target: the environment variables that `hb run` gives to its processes. Each
 * line of the input is a letter that chooses the variable, and the value. Whatever
 * they are, the options are within their bounds, and writing and reading them again
 * gives the same.
 */
#include "fuzz.h"
#include "protocol/tenant_options_env.h"

static const struct {
	char letter;
	const char *name;
} variables[] = {
	{'t', "HB_TENANT"},       {'p', "HB_PRIORITY"},    {'s', "HB_SLO_NS"}, {'a', "HB_ATTAINMENT_PPM"},
	{'m', "HB_MEMORY_BYTES"}, {'w', "HB_PCIE_WEIGHT"}, {'e', "HB_ENGINE"}, {'r', "HB_ROLE"},
	{'n', "HB_MPS"},          {'g', "HB_GPU"},         {'x', "HB_WEIGHT"},
};
#define N_VARIABLES (sizeof variables / sizeof *variables)

static void set_variable(const char *line)
{
	for (size_t i = 0; i < N_VARIABLES; i++)
		if (variables[i].letter == line[0])
			setenv(variables[i].name, line + 1, 1);
}

static void check_bounds(const struct hb_tenant_options *options)
{
	FUZZ_REQUIRE(options->priority <= HB_PAGE_HIGH && options->slo_ns >= -1);
	FUZZ_REQUIRE(options->attainment_ppm <= 1000000 && options->memory_bytes <= INT64_MAX);
	FUZZ_REQUIRE(options->weight >= 1 && options->weight <= HB_WEIGHT_MAX);
	FUZZ_REQUIRE(options->pcie_weight <= HB_WEIGHT_MAX);
	FUZZ_REQUIRE((int)options->engine >= HB_ENGINE_NONE && (int)options->engine <= HB_ENGINE_SPATIAL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct hb_tenant_options options, again;
	char *text = fuzz_text(data, size), *state = NULL;
	for (size_t i = 0; i < N_VARIABLES; i++)
		unsetenv(variables[i].name);
	for (char *line = strtok_r(text, "\n", &state); line; line = strtok_r(NULL, "\n", &state))
		set_variable(line);
	free(text);
	memset(&options, 0, sizeof options);
	memset(&again, 0, sizeof again);
	hb_tenant_options_init(&options);
	int result = hb_tenant_options_from_environment(&options);
	check_bounds(&options);
	if (result < 0)
		return 0;
	FUZZ_REQUIRE(hb_tenant_options_to_environment(&options) == 0);
	hb_tenant_options_init(&again);
	FUZZ_REQUIRE(hb_tenant_options_from_environment(&again) == 0);
	FUZZ_REQUIRE(again.priority == options.priority && again.slo_ns == options.slo_ns &&
		     again.attainment_ppm == options.attainment_ppm && again.memory_bytes == options.memory_bytes &&
		     again.weight == options.weight && again.pcie_weight == options.pcie_weight &&
		     again.engine == options.engine && again.flags == options.flags &&
		     memcmp(again.token, options.token, HB_TOKEN_BYTES) == 0);
	return 0;
}
