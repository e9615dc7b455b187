/* SPDX-License-Identifier: Apache-2.0 */
/* The pure parts of hb-k8s dra: quantities, names of devices, the terms of a claim, and answers of HTTP servers. */
#include "k8s/claim_terms.h"
#include "k8s/http_answer.h"
#include "unit.h"

#include <errno.h>
#include <string.h>

#define UUID_LOW "gpu-00112233-4455-6677-8899-aabbccddeeff-low"

static void quantities_are_read(void **state)
{
	static const struct {
		const char *text;
		uint64_t bytes;
	} cases[] = {
		{"0", 0},
		{"42949672960", 42949672960},
		{"40Gi", UINT64_C(40) << 30},
		{"1.5Gi", UINT64_C(3) << 29},
		{"0.5Ki", 512},
		{"1500M", 1500000000},
		{"2k", 2000},
		{"0.1k", 100},
		{".5Gi", 1 << 29},
		{"12e6", 12000000},
		{"12E6", 12000000},
		{"1E", 1000000000000000000},
		{"7Ei", UINT64_C(7) << 60},
	};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		uint64_t bytes = 7;
		assert_int_equal(hb_quantity_parse(cases[i].text, &bytes), 0);
		assert_int_equal(bytes, cases[i].bytes);
	}
}

static void other_quantities_are_refused(void **state)
{
	static const char *const cases[] = {"",
					    "Gi",
					    "-1",
					    "+1",
					    " 1",
					    "1 ",
					    "1.Gi",
					    "1.5",
					    "0.0001k",
					    "1gi",
					    "1GiB",
					    "1Zi",
					    "100m",
					    "1e",
					    "1e99",
					    "8Ei",
					    "1e1x",
					    "1.2.3",
					    "99999999999999999999"};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		uint64_t bytes = 7;
		assert_int_equal(hb_quantity_parse(cases[i], &bytes), -EINVAL);
		assert_int_equal(bytes, 7);
	}
}

static void names_of_devices_are_read_as_they_are_written(void **state)
{
	static const char *const wrong[] = {"",
					    "gpu-",
					    "gpu-00112233-4455-6677-8899-aabbccddeeff",
					    "gpu-00112233-4455-6677-8899-aabbccddeeff-lo",
					    "gpu-00112233-4455-6677-8899-AABBCCDDEEFF-low",
					    "GPU-00112233-4455-6677-8899-aabbccddeeff-low",
					    UUID_LOW "-low",
					    "gpu-00112233-4455-6677-8899-aabbccddee-low-high"};
	unsigned char uuid[16], again[16];
	bool is_high = true;
	char name[HB_DRA_DEVICE_SIZE];
	assert_int_equal(hb_dra_device_parse(UUID_LOW, uuid, &is_high), 0);
	assert_false(is_high);
	assert_int_equal(uuid[15], 0xff);
	assert_int_equal(hb_dra_device_parse(hb_dra_device_format(uuid, true, name), again, &is_high), 0);
	assert_true(is_high);
	assert_memory_equal(uuid, again, 16);
	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
		assert_int_equal(hb_dra_device_parse(wrong[i], uuid, &is_high), -EINVAL);
}

/* A claim with one device of low priority, and one of another driver; the configuration is the argument. */
static json_t *read_claim(const char *config, struct hb_error *error)
{
	json_t *claim = json_pack("{s:{s:s, s:s}, s:{s:{s:{s:[{s:s, s:s, s:s, s:s}, {s:s, s:s, s:s, s:s}], s:o}}}}",
				  "metadata", "namespace", "batch", "name", "train", "status", "allocation", "devices",
				  "results", "driver", "gpu.nvidia.com", "pool", "node-1", "request", "a", "device",
				  "gpu-0", "driver", HB_DRA_DRIVER, "pool", "node-1", "request", "b", "device",
				  UUID_LOW, "config", json_loads(config, 0, NULL));
	json_t *devices = hb_claim_terms_read(claim, "node-1", error);
	json_decref(claim);
	return devices;
}

#define CONFIG(parameters) \
	"[{\"source\": \"FromClaim\", \"opaque\": {\"driver\": \"hummingbird.dev\", \"parameters\": {\"apiVersion\": " \
	"\"hummingbird.dev/v1\", \"kind\": \"TenantParameters\"" parameters "}}}]"

static void terms_come_from_device_and_parameters(void **state)
{
	struct hb_error error;
	json_t *devices = read_claim(CONFIG(", \"memory\": \"2Gi\", \"slo\": \"auto\""), &error);
	assert_int_equal(json_array_size(devices), 1);
	json_t *device = json_array_get(devices, 0);
	assert_string_equal(json_string_value(json_object_get(device, "request")), "b");
	assert_string_equal(json_string_value(json_object_get(device, "priority")), "low");
	assert_string_equal(json_string_value(json_object_get(device, "share")), "");
	assert_int_equal(json_integer_value(json_object_get(device, "memory_bytes")), INT64_C(2) << 30);
	assert_int_equal(json_integer_value(json_object_get(device, "slo_ns")), -1);
	json_decref(devices);
}

static void wrong_terms_name_claim_request_and_parameter(void **state)
{
	struct hb_error error;
	assert_null(read_claim(CONFIG(", \"priority\": \"high\""), &error));
	assert_string_equal(error.text,
			    "claim batch/train, request b, parameters of the claim: priority: high is not granted: "
			    "the device, or the device class, has priority low");
	assert_null(read_claim("[{\"source\": \"FromClaim\", \"opaque\": {\"driver\": \"hummingbird.dev\"}}]", &error));
	assert_non_null(strstr(error.text, "apiVersion is not hummingbird.dev/v1"));
}

static void check_answer(const char *text, int result, int status, const char *body)
{
	char buffer[512];
	struct hb_api_reply answer = {.status = 7};
	strcpy(buffer, text);
	assert_int_equal(hb_http_answer_parse(buffer, strlen(text), &answer), result);
	assert_int_equal(answer.status, result ? 7 : status);
	if (result == 0) {
		assert_int_equal(answer.body_bytes, strlen(body));
		assert_memory_equal(answer.body, body, answer.body_bytes);
	}
}

static void answers_of_http_are_read(void **state)
{
	check_answer("HTTP/1.1 200 OK\r\n\r\n{}", 0, 200, "{}");
	check_answer("HTTP/1.0 404\n\nx", 0, 404, "x");
	check_answer("HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n", 0, 204, "");
	check_answer("HTTP/1.1 200 OK\r\ncontent-length: 2 \r\n\r\nabcd", 0, 200, "ab");
	check_answer("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\n", 0,
		     200, "abcde");
	check_answer("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 0, 200, "");
}

static void other_answers_are_refused(void **state)
{
	static const char *const cases[] = {
		"",
		"HTTP/1.1 200 OK",
		"HTTP/1.1 200 OK\r\n",
		"HTTP/2 200 OK\r\n\r\n",
		"HTTP/1.1 OK\r\n\r\n",
		"HTTP/1.1 20\r\n\r\n",
		"SSH-2.0-OpenSSH_9.2\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab",
		"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\nab",
		"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999999\r\n\r\nab",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nab",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nab",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcd\r\n0\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\nab\r\n",
	};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
		check_answer(cases[i], -EBADMSG, 0, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(quantities_are_read),
		cmocka_unit_test(other_quantities_are_refused),
		cmocka_unit_test(names_of_devices_are_read_as_they_are_written),
		cmocka_unit_test(terms_come_from_device_and_parameters),
		cmocka_unit_test(wrong_terms_name_claim_request_and_parameter),
		cmocka_unit_test(answers_of_http_are_read),
		cmocka_unit_test(other_answers_are_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
