/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzz target: what `hb-k8s dra` reads of the API server. The first byte h: the rest is the answer of an HTTP server (its body
 * stays in the buffer); else the rest is a ResourceClaim in JSON, whose devices must be complete.
 */
#include "fuzz.h"
#include "k8s/claim_terms.h"
#include "k8s/http_answer.h"

static void read_answer(const uint8_t *data, size_t size)
{
	char *buffer = (char *)fuzz_copy(data, size);
	struct hb_api_reply answer;
	if (hb_http_answer_parse(buffer, size, &answer) == 0) {
		FUZZ_REQUIRE(answer.status >= 100 && answer.status <= 999);
		FUZZ_REQUIRE(answer.body >= buffer && answer.body + answer.body_bytes <= buffer + size);
	}
	free(buffer);
}

static void read_claim(const uint8_t *data, size_t size)
{
	struct hb_error error = {""};
	json_t *claim = json_loadb((const char *)data, size, 0, NULL);
	json_t *devices = hb_claim_terms_read(claim, "node-1", &error);
	FUZZ_REQUIRE((devices == NULL) == (error.text[0] != '\0'));
	for (size_t i = 0; i < json_array_size(devices); i++) {
		unsigned char uuid[16];
		bool is_high;
		const json_t *device = json_array_get(devices, i);
		const char *priority = json_string_value(json_object_get(device, "priority"));
		FUZZ_REQUIRE(
			hb_dra_device_parse(json_string_value(json_object_get(device, "device")), uuid, &is_high) == 0);
		FUZZ_REQUIRE(strcmp(priority, "low") == 0 || (is_high && strcmp(priority, "high") == 0));
		FUZZ_REQUIRE(json_integer_value(json_object_get(device, "memory_bytes")) >= 0);
	}
	json_decref(devices);
	json_decref(claim);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size == 0)
		return 0;
	if (data[0] == 'h')
		read_answer(data + 1, size - 1);
	else
		read_claim(data + 1, size - 1);
	return 0;
}
