/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: the input of `hb place`, nodes and jobs in JSON. What is accepted is placed, and each job that waits says why. */
#include "base/json.h"
#include "cluster/pairing.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct hb_pair_model pairs = {
		.n = 1, .rows = {{.measured = true, .sharing = HB_PAIR_TEMPORAL, .loss = 0.01, .speed = 0.5}}};
	struct hb_error error = {""};
	struct hb_pairing pairing = {.model = &pairs, .most_loss = 0.05, .prefers_sharing = true, .n_options = 2};
	json_t *input = NULL, *answer = NULL;
	if (hb_json_parse((const char *)data, size, "input", &input, &error) < 0)
		return 0;
	int rc = hb_pairing_read(&pairing, input, "input", &error);
	FUZZ_REQUIRE((rc == 0) == (error.text[0] == '\0'));
	if (rc == 0 && pairing.n_gpus < 200) { /* the time grows with jobs times GPUs */
		FUZZ_REQUIRE(hb_pairing_choose(&pairing) == 0);
		for (uint32_t i = 0; i < pairing.n_jobs; i++)
			FUZZ_REQUIRE((pairing.jobs[i].gpu == HB_PAIRING_NONE) == (pairing.jobs[i].why[0] != '\0'));
		FUZZ_REQUIRE(hb_pairing_pack(&pairing, &answer, &error) == 0);
		FUZZ_REQUIRE(json_array_size(json_object_get(answer, "jobs")) == pairing.n_jobs);
	}
	json_decref(answer);
	json_decref(input);
	hb_pairing_fini(&pairing);
	return 0;
}
