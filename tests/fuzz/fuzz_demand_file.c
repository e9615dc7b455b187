/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzz target: the file of measured demands. A file is accepted with all values in range, or refused with a message that
 * names it. A record that is stored afterwards is found.
 */
#include "fuzz_file.h"
#include "server/models/demand_file.h"

#include <errno.h>

static void check_demand(const struct hb_demand *demand)
{
	for (int i = 0; i < 2; i++) {
		FUZZ_REQUIRE(demand->sm[i] >= 0 && demand->sm[i] <= 1);
		FUZZ_REQUIRE(demand->memory[i] >= 0 && demand->memory[i] <= 1);
	}
	FUZZ_REQUIRE(demand->in_bytes >= 0 && demand->in_bytes < 1e15);
	FUZZ_REQUIRE(demand->out_bytes >= 0 && demand->out_bytes < 1e15);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct hb_demand_record record = {2, "m", {{0.5, 1}, {0, 0.25}, 7, 0}};
	const char *path = fuzz_write(data, size);
	struct hb_demand demand = {.in_bytes = -1};
	struct hb_error error = {""};
	int result = hb_demand_file_find(path, 1, &demand, &error);
	if (result == 0)
		check_demand(&demand);
	else
		FUZZ_REQUIRE(demand.in_bytes == -1);
	if (result < 0 && result != -ENOENT)
		fuzz_check_error(result, &error, path);
	FUZZ_REQUIRE(hb_demand_file_store(path, &record, &error) == 0);
	FUZZ_REQUIRE(hb_demand_file_find(path, 2, &demand, &error) == 0);
	check_demand(&demand);
	return 0;
}
