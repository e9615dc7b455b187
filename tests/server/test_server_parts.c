/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of the server: model.yaml, reading requests, order of time-outs, shared memory, compression, shutdown. */
#include "base/http_address.h"
#include "server/backends/restart_pause.h"
#include "server/backends/worker_outputs.h"
#include "server/http/kserve_json.h"
#include "server/kserve/content_coding.h"
#include "server/kserve/peer_limit.h"
#include "server/models/dispatch_load.h"
#include "server/models/inference_check.h"
#include "server/models/timeout_heap.h"
#include "unit.h"

#include <errno.h>
#include <fcntl.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[64];

static void write_model(const char *text)
{
	char path[128];
	snprintf(path, sizeof(path), "%s/m/model.yaml", folder);
	FILE *file = fopen(path, "w");
	assert_non_null(file);
	fputs(text, file);
	fclose(file);
}

#define TENSORS "inputs: [{name: x, datatype: FP32, shape: [2]}]\noutputs: [{name: y, datatype: FP32, shape: [2]}]\n"

static int set_up(void **state)
{
	char path[128];
	strcpy(folder, "/tmp/hb-front-XXXXXX");
	if (!mkdtemp(folder))
		return -1;
	snprintf(path, sizeof(path), "%s/m", folder);
	return mkdir(path, 0700);
}

static int tear_down(void **state)
{
	char path[128];
	snprintf(path, sizeof(path), "%s/m/model.yaml", folder);
	unlink(path);
	snprintf(path, sizeof(path), "%s/m", folder);
	rmdir(path);
	return rmdir(folder);
}

static void expect_model_error(const char *text, const char *word)
{
	struct hb_model_config config = {.name = "unchanged"};
	struct hb_error error = {.text = ""};
	write_model(text);
	assert_true(hb_model_config_load(folder, "m", &config, &error) < 0);
	if (!strstr(error.text, word) || !strstr(error.text, "model.yaml"))
		fail_msg("the error \"%s\" does not name %s", error.text, word);
	assert_string_equal(config.name, "unchanged");
}

static void an_error_in_model_yaml_names_the_key(void **state)
{
	struct hb_model_config config;
	expect_model_error("platform: echo\n", "inputs");
	expect_model_error("platform: nothing\n" TENSORS, "platform");
	expect_model_error("platform: worker\n" TENSORS, "command");
	expect_model_error("platform: echo\ncommand: x\n" TENSORS, "command");
	expect_model_error("platform: trace\n" TENSORS, "trace");
	expect_model_error("platform: worker\ncommand: x\ntrace: bert\n" TENSORS, "trace");
	expect_model_error(TENSORS, "platform");
	expect_model_error("platform: echo\ntransfer: [1MB]\n" TENSORS, "transfer");
	expect_model_error("platform: echo\nmax_batch: 33\n" TENSORS, "max_batch");
	expect_model_error("platform: echo\nmax_batch: 2\ninputs: [{name: x, datatype: FP32, shape: [-1]}]\n"
			   "outputs: [{name: y, datatype: FP32, shape: [2]}]\n",
			   "max_batch");
	expect_model_error("platform: echo\ninputs: [{name: x, datatype: FP32, shape: [0]}]\n"
			   "outputs: [{name: y, datatype: FP32, shape: [2]}]\n",
			   "dimension");
	expect_model_error("platform: worker\ncommand: x\ndelay: 5ms\n" TENSORS, "delay");
	expect_model_error("platform: echo\nstop_share: 0.1\n" TENSORS, "stop_share");
	expect_model_error("platform: worker\ncommand: x\nstop_share: 1.5\n" TENSORS, "stop_share");
	expect_model_error("platform: echo\ninputs: [{name: '', datatype: FP32, shape: [2]}]\n"
			   "outputs: [{name: y, datatype: FP32, shape: [2]}]\n",
			   "inputs[0].name");
	expect_model_error("platform: echo\ninputs: [{name: x, datatype: FP32, shape: [2]}]\n"
			   "outputs: [{name: \"a\\nb\", datatype: FP32, shape: [2]}]\n",
			   "outputs[0].name");
	write_model("platform: echo\nmax_batch: 4\n" TENSORS);
	assert_int_equal(hb_model_config_load(folder, "m", &config, NULL), 0);
	assert_int_equal(config.max_batch, 4);
	assert_int_equal(hb_tensor_spec_bytes(&config.inputs[0]), 8);
	assert_true(hb_model_config_load(folder, "../m", &config, NULL) < 0);
}

static void expect_platform(const char *text, bool gpu, enum hb_platform_number expected)
{
	struct hb_model_config config;
	write_model(text);
	assert_int_equal(hb_model_config_load(folder, "m", &config, NULL), 0);
	hb_model_config_settle(&config, gpu);
	assert_int_equal(config.platform, expected);
}

static void the_default_platform_depends_on_the_gpu(void **state)
{
	expect_platform("command: x\ntrace: bert\n" TENSORS, true, HB_PLATFORM_worker);
	expect_platform("command: x\ntrace: bert\n" TENSORS, false, HB_PLATFORM_trace);
	expect_platform("command: x\n" TENSORS, false, HB_PLATFORM_worker);
	expect_platform("trace: bert\n" TENSORS, true, HB_PLATFORM_trace);
	expect_platform("platform: echo\n" TENSORS, true, HB_PLATFORM_echo);
}

static enum hb_answer read_request(const char *json, const void *binary, size_t bytes, char *reason)
{
	static struct hb_model_config config;
	struct hb_inference *infer = hb_inference_new();
	struct hb_http_body *body = hb_http_body_new();
	struct hb_shared_memory *memory = hb_shared_memory_new();
	write_model("platform: echo\nmax_batch: 4\n" TENSORS);
	assert_int_equal(hb_model_config_load(folder, "m", &config, NULL), 0);
	body->json_bytes = strlen(json);
	body->bytes = body->json_bytes + bytes;
	body->data = malloc(body->bytes + 1);
	memcpy(body->data, json, body->json_bytes);
	if (bytes)
		memcpy(body->data + body->json_bytes, binary, bytes);
	infer->source = body;
	infer->free_source = hb_http_body_free;
	if (hb_kserve_json_read(infer, body, memory) == HB_ANSWER_OK)
		hb_inference_check(infer, &config);
	enum hb_answer answer = infer->answer;
	strcpy(reason, infer->reason);
	if (answer == HB_ANSWER_OK)
		assert_int_equal(infer->inputs[0].bytes, infer->items * 8);
	hb_inference_free(infer);
	hb_shared_memory_free(memory);
	return answer;
}

#define INPUT(rest) "{\"inputs\":[{\"name\":\"x\",\"datatype\":\"FP32\"," rest "}]}"

static void a_request_is_read_or_refused_with_a_reason(void **state)
{
	static const struct {
		const char *json, *reason; /* a part of the reason; NULL = the request is accepted */
		size_t binary;
	} cases[] = {
		{INPUT("\"shape\":[1,2],\"data\":[1,2]"), NULL, 0},
		{INPUT("\"shape\":[2,2],\"data\":[[1,2],[3,4.5]]"), NULL, 0},
		{INPUT("\"shape\":[1,2],\"parameters\":{\"binary_data_size\":8}"), NULL, 8},
		{INPUT("\"shape\":[1,2],\"parameters\":{\"binary_data_size\":8}"), "only 7 bytes", 7},
		{INPUT("\"shape\":[1,2],\"parameters\":{\"binary_data_size\":8}"), "belong to no input", 9},
		{INPUT("\"shape\":[1,2],\"parameters\":{\"binary_data_size\":-8}"), "binary_data_size", 8},
		{INPUT("\"shape\":[1,2],\"data\":[1]"), "is not 2", 0},
		{INPUT("\"shape\":[1,2],\"data\":[1,2,3]"), "is not 2", 0},
		{INPUT("\"shape\":[1,2],\"data\":[1,\"2\"]"), "is not 2", 0},
		{INPUT("\"shape\":[1,3],\"data\":[1,2,3]"), "shape [1,3]", 0},
		{INPUT("\"shape\":[5,2],\"data\":[1,2,3,4,5,6,7,8,9,10]"), "batch size is 5", 0},
		{INPUT("\"shape\":[1099511627776,1099511627776],\"data\":[1]"), "more elements", 0},
		{INPUT("\"shape\":[-1,2],\"data\":[1]"), "integers from 0", 0},
		{INPUT("\"shape\":[1,2]"), "exactly one of", 0},
		{"{\"inputs\":[]}", "0 inputs", 0},
		{"{\"inputs\":[{\"name\":\"z\",\"datatype\":\"FP32\",\"shape\":[1,2],\"data\":[1,2]}]}",
		 "no input \"z\"", 0},
		{"{\"inputs\":[{\"name\":\"x\",\"datatype\":\"INT32\",\"shape\":[1,2],\"data\":[1,2]}]}",
		 "data type INT32", 0},
		{"{\"inputs\":[{\"name\":\"x\",\"datatype\":\"FP99\",\"shape\":[1,2],\"data\":[1,2]}]}", "FP99", 0},
		{"[]", "object", 0},
		{"{\"inputs\":", "request:", 0},
		{"", "request:", 0},
		{"{\"parameters\":{\"priority\":\"urgent\"},\"inputs\":[]}", "priority", 0},
		{"{\"parameters\":{\"timeout\":-1},\"inputs\":[]}", "timeout", 0},
	};
	char reason[256];
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		enum hb_answer answer = read_request(cases[i].json, "12345678901234567890", cases[i].binary, reason);
		if (!cases[i].reason && answer != HB_ANSWER_OK)
			fail_msg("%s: refused: %s", cases[i].json, reason);
		if (cases[i].reason && (answer != HB_ANSWER_BAD_REQUEST || !strstr(reason, cases[i].reason)))
			fail_msg("%s: the reason \"%s\" does not contain \"%s\"", cases[i].json, reason,
				 cases[i].reason);
	}
}

/* 2^62 elements of 4 bytes: the product is 0 in 64 bits. */
static void a_shape_whose_size_overflows_is_refused(void **state)
{
	static const int64_t dims[] = {INT64_C(1) << 62};
	struct hb_model_config config;
	write_model("platform: echo\ninputs: [{name: x, datatype: FP32, shape: [-1]}]\n"
		    "outputs: [{name: y, datatype: FP32, shape: [-1]}]\n");
	assert_int_equal(hb_model_config_load(folder, "m", &config, NULL), 0);
	struct hb_inference *infer = hb_inference_new();
	infer->n_inputs = 1;
	infer->inputs[0] = (struct hb_tensor){.name = "x", .dtype = HB_DTYPE_FP32, .n_dims = 1, .data = ""};
	infer->inputs[0].dims[0] = dims[0];
	assert_int_equal(hb_inference_check(infer, &config), HB_ANSWER_BAD_REQUEST);
	assert_non_null(strstr(infer->reason, "0 bytes are not 4611686018427387904 elements"));
	hb_inference_free(infer);

	struct hb_worker_tensor output = {.n_dims = 1, .dims = {dims[0]}};
	assert_false(hb_worker_output_fits(&config, 0, 1, 4096, &output));
	output.dims[0] = 0;
	assert_true(hb_worker_output_fits(&config, 0, 1, 4096, &output));
}

static void time_outs_expire_in_order(void **state)
{
	enum { N = 200 };
	struct hb_timeout_heap heap;
	struct hb_inference *infers[N];
	uint64_t random = 1;
	int64_t last = INT64_MIN;
	assert_int_equal(hb_timeout_heap_init(&heap, N - 1), 0);
	for (int i = 0; i < N; i++) {
		random = random * 6364136223846793005U + 1442695040888963407U;
		infers[i] = hb_inference_new();
		infers[i]->expires_ns = (int64_t)(random >> 40);
		hb_timeout_heap_insert(&heap, infers[i]);
	}
	assert_int_equal(infers[N - 1]->heap_place, UINT32_MAX); /* the heap is full */
	for (int i = 0; i < N - 1; i += 3)
		hb_timeout_heap_remove(&heap, infers[i]);
	uint32_t n = heap.n;
	assert_int_equal(n, N - 1 - (N + 1) / 3);
	for (struct hb_inference *first; (first = hb_timeout_heap_first(&heap)); n--) {
		assert_true(first->expires_ns >= last);
		last = first->expires_ns;
		hb_timeout_heap_remove(&heap, first);
	}
	assert_int_equal(n, 0);
	for (int i = 0; i < N; i++)
		hb_inference_free(infers[i]);
	hb_timeout_heap_fini(&heap);
}

static void a_truncated_region_is_an_error_and_no_crash(void **state)
{
	struct hb_shared_memory *memory = hb_shared_memory_new();
	struct hb_shared_region region = {.name = "r", .offset = 16, .bytes = 64};
	struct hb_error error = {.text = ""};
	char data[64] = "hello", back[64] = "";
	snprintf(region.key, sizeof(region.key), "/hb-front-%d", (int)getpid());
	struct hb_access_config config = {.prefix = "hb-front-"};
	struct hb_caller caller = {.id = 7};
	struct hb_access *access = NULL;
	assert_int_equal(hb_access_new(&config, &access, &error), 0);
	assert_true(hb_shared_memory_register(memory, access, &caller, &region, &error) < 0); /* does not exist yet */
	int fd = shm_open(region.key, O_RDWR | O_CREAT | O_EXCL, 0600);
	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, 79), 0);
	assert_true(hb_shared_memory_register(memory, access, &caller, &region, &error) < 0); /* too short */
	assert_int_equal(ftruncate(fd, 80), 0);
	assert_int_equal(hb_shared_memory_register(memory, access, &caller, &region, &error), 0);
	assert_int_equal(hb_shared_memory_register(memory, access, &caller, &region, &error), -EEXIST);
	assert_int_equal(hb_shared_memory_write(memory, 7, "r", 0, data, 64, &error), 0);
	assert_int_equal(hb_shared_memory_read(memory, 7, "r", 0, back, 64, &error), 0);
	assert_string_equal(back, "hello");
	assert_int_equal(hb_shared_memory_read(memory, 7, "r", 1, back, 64, &error), -ERANGE);
	assert_int_equal(hb_shared_memory_read(memory, 7, "r", UINT64_MAX, back, 2, &error), -ERANGE);
	assert_int_equal(ftruncate(fd, 20), 0);
	assert_int_equal(hb_shared_memory_read(memory, 7, "r", 0, back, 64, &error), -EIO);
	assert_int_equal(hb_shared_memory_write(memory, 7, "r", 0, data, 64, &error), -EIO);
	assert_int_equal(hb_shared_memory_unregister(memory, 7, "r", &error), 0);
	assert_int_equal(hb_shared_memory_unregister(memory, 7, "r", &error), -ENOENT);
	strcpy(region.key, "/../etc/passwd");
	assert_int_equal(hb_shared_memory_register(memory, access, &caller, &region, &error), -EINVAL);
	close(fd);
	snprintf(region.key, sizeof(region.key), "/hb-front-%d", (int)getpid());
	shm_unlink(region.key);
	hb_shared_memory_free(memory);
	hb_access_free(access);
}

static void compressed_bodies_are_restored_within_their_limits(void **state)
{
	enum { BYTES = 1000000 };
	char *plain = calloc(1, BYTES);
	for (int i = 0; i < BYTES; i += 100)
		plain[i] = (char)(i / 100);
	for (int coding = HB_CODING_GZIP; coding <= HB_CODING_DEFLATE; coding++) {
		struct hb_memory_budget budget = {.limit_bytes = 4 * BYTES};
		struct hb_memory_charge charge = {.budget = &budget};
		void *small = NULL, *back = NULL;
		size_t small_bytes = 0, bytes = 0;
		assert_true(hb_coding_shrink(coding, plain, BYTES, &small, &small_bytes));
		assert_int_equal(hb_coding_expand(coding, small, small_bytes, BYTES, &charge, &back, &bytes), 0);
		assert_int_equal(bytes, BYTES);
		assert_memory_equal(back, plain, BYTES);
		assert_true(budget.used_bytes >= BYTES);
		hb_memory_charge_end(&charge);
		assert_int_equal(budget.used_bytes, 0);
		free(back);
		/* Refused: the limit of the size or of the memory is too small, a byte is missing, a byte is too many. */
		assert_int_equal(hb_coding_expand(coding, small, small_bytes, BYTES - 1, &charge, &back, &bytes),
				 -E2BIG);
		hb_memory_charge_end(&charge);
		budget.limit_bytes = BYTES / 2;
		assert_int_equal(hb_coding_expand(coding, small, small_bytes, BYTES, &charge, &back, &bytes), -ENOBUFS);
		hb_memory_charge_end(&charge);
		budget.limit_bytes = 4 * BYTES;
		assert_int_equal(hb_coding_expand(coding, small, small_bytes - 1, BYTES, &charge, &back, &bytes),
				 -EINVAL);
		assert_int_equal(hb_coding_expand(coding, plain, BYTES, BYTES, &charge, &back, &bytes), -EINVAL);
		char *longer = realloc(small, small_bytes + 1);
		longer[small_bytes] = 0;
		assert_int_equal(hb_coding_expand(coding, longer, small_bytes + 1, BYTES, &charge, &back, &bytes),
				 -EINVAL);
		free(longer);
	}
	void *none = NULL;
	size_t none_bytes = 0;
	assert_false(hb_coding_shrink(HB_CODING_GZIP, "abc", 3, &none, &none_bytes)); /* not smaller */
	free(plain);
}

static void the_server_chooses_a_coding_that_the_client_accepts(void **state)
{
	assert_int_equal(hb_coding_choose(NULL), HB_CODING_IDENTITY);
	assert_int_equal(hb_coding_choose("identity"), HB_CODING_IDENTITY);
	assert_int_equal(hb_coding_choose("br, GZIP"), HB_CODING_GZIP);
	assert_int_equal(hb_coding_choose("gzip;q=0, deflate;q=0.5"), HB_CODING_DEFLATE);
	assert_int_equal(hb_coding_choose("gzipped"), HB_CODING_IDENTITY);
	assert_int_equal(hb_coding_parse("br", 2), HB_CODING_UNKNOWN);
	assert_int_equal(hb_coding_parse("", 0), HB_CODING_IDENTITY);
}

static void note_load(struct hb_load *load)
{
	sem_post(load->owner);
}

static void a_server_that_shuts_down_is_not_ready_and_loads_no_model(void **state)
{
	const struct hb_dispatch_config config = {.models = folder, .policy = "ours", .queue_max = 4, .speed = 1};
	struct hb_dispatch *dispatch = NULL;
	struct hb_error error = {.text = ""};
	write_model("platform: echo\n" TENSORS);
	assert_int_equal(hb_dispatch_new(&config, &dispatch, &error), 0);
	assert_true(hb_dispatch_ready(dispatch));
	sem_t ended;
	sem_init(&ended, 0, 0);
	struct hb_load *load = hb_load_new("m", note_load, &ended), *late = hb_load_new("m", note_load, &ended);
	assert_int_equal(hb_dispatch_load(dispatch, load, &error), 0);
	while (sem_wait(&ended) != 0)
		assert_int_equal(errno, EINTR);
	assert_int_equal(load->result, 0);
	hb_dispatch_end(dispatch, 0);
	assert_false(hb_dispatch_ready(dispatch));
	assert_int_equal(hb_dispatch_load(dispatch, late, &error), -ESHUTDOWN);
	assert_non_null(strstr(error.text, "going down"));
	hb_load_free(load);
	hb_load_free(late);
	hb_dispatch_free(dispatch);
	sem_destroy(&ended);
}

static void the_pause_before_a_restart_grows_and_ends_when_a_worker_has_served_well(void **state)
{
	struct hb_restart_pause pause = {.failures = 0};
	const int64_t second = 1000000000;
	int64_t now_ns = 0, before_ns = second / 10;
	for (uint32_t n = 1; n <= 30; n++) {
		hb_restart_pause_note_start(&pause, now_ns);
		int64_t ns = hb_restart_pause_note_end(&pause, now_ns += second);
		assert_int_equal(ns, 2 * before_ns < 30 * second ? 2 * before_ns : 30 * second);
		assert_int_equal(hb_restart_pause_is_long(&pause), n >= 5);
		before_ns = ns;
	}
	assert_int_equal(pause.restarts, 29);
	/* A long life without a batch, and a batch in a short life, leave the pause as it is. */
	hb_restart_pause_note_start(&pause, now_ns);
	assert_int_equal(hb_restart_pause_note_end(&pause, now_ns += 60 * second), 30 * second);
	hb_restart_pause_note_start(&pause, now_ns);
	pause.completed = true;
	assert_int_equal(hb_restart_pause_note_end(&pause, now_ns += second), 30 * second);
	hb_restart_pause_note_start(&pause, now_ns);
	pause.completed = true;
	assert_int_equal(hb_restart_pause_note_end(&pause, now_ns += 11 * second), second / 5);
	assert_false(hb_restart_pause_is_long(&pause));
}

/* The limit on connections counts an IPv4 client as itself, also if the server listens at [::]. */
static void clients_are_counted_by_their_address(void **state)
{
	static const char *const cases[][2] = {{"192.0.2.1:80", "192.0.2.1"},
					       {"[::ffff:192.0.2.1]:80", "192.0.2.1"},
					       {"[2001:db8:1:2:3::9]:80", "2001:db8:1:2::/64"}};
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct sockaddr_storage address;
		char text[80];
		assert_int_equal(hb_http_address_parse(cases[i][0], &address, NULL), 0);
		hb_peer_describe_address(&address, text, sizeof(text));
		assert_string_equal(text, cases[i][1]);
		assert_false(hb_http_address_is_loopback(&address));
	}
	struct sockaddr_storage mapped;
	assert_int_equal(hb_http_address_parse("[::ffff:127.0.0.1]:80", &mapped, NULL), 0);
	assert_true(hb_http_address_is_loopback(&mapped));
}

static void the_answer_of_an_accepted_request_has_room(void **state)
{
	enum { FLOATS = 100000, BYTES = FLOATS * sizeof(float) };
	struct hb_model_config config = {.n_outputs = 1};
	struct hb_memory_budget budget = {.limit_bytes = 2 * BYTES};
	struct hb_memory_charge other = {.budget = &budget}, answer = other, connection = other;
	struct hb_inference *infer = hb_inference_new(), *second = hb_inference_new();
	config.outputs[0] = (struct hb_tensor_spec){.name = "y", .dtype = HB_DTYPE_FP32, .n_dims = 1, .dims = {FLOATS}};
	infer->charge.budget = second->charge.budget = &budget;
	assert_int_equal(hb_inference_check(infer, &config), HB_ANSWER_OK);
	assert_true(budget.used_bytes >= BYTES);
	assert_int_equal(hb_inference_check(second, &config), HB_ANSWER_MEMORY_FULL);
	hb_inference_free(second);
	assert_true(hb_memory_charge_add(&other, budget.limit_bytes - budget.used_bytes)); /* no byte is left */
	assert_true(hb_inference_make_outputs(infer, &config));
	hb_memory_charge_connection(&connection,
				    1000); /* connections are never refused, so more than the limit is in use */
	assert_true(hb_inference_charge_answer(infer, &answer, BYTES + 200));
	hb_memory_charge_connection(&connection, 0);
	assert_int_equal(budget.used_bytes, budget.limit_bytes);
	hb_inference_free(infer);
	assert_int_equal(budget.used_bytes, other.bytes + BYTES + 200);
	hb_memory_charge_end(&answer);
	hb_memory_charge_end(&other);
	assert_int_equal(budget.used_bytes, 0);
	budget.limit_bytes = BYTES / 2; /* no request can ever have room */
	infer = hb_inference_new();
	infer->charge.budget = &budget;
	assert_int_equal(hb_inference_check(infer, &config), HB_ANSWER_TOO_LARGE);
	hb_inference_free(infer);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_answer_of_an_accepted_request_has_room),
		cmocka_unit_test(the_pause_before_a_restart_grows_and_ends_when_a_worker_has_served_well),
		cmocka_unit_test(clients_are_counted_by_their_address),
		cmocka_unit_test(compressed_bodies_are_restored_within_their_limits),
		cmocka_unit_test(the_server_chooses_a_coding_that_the_client_accepts),
		cmocka_unit_test(an_error_in_model_yaml_names_the_key),
		cmocka_unit_test(the_default_platform_depends_on_the_gpu),
		cmocka_unit_test(a_request_is_read_or_refused_with_a_reason),
		cmocka_unit_test(a_shape_whose_size_overflows_is_refused),
		cmocka_unit_test(time_outs_expire_in_order),
		cmocka_unit_test(a_server_that_shuts_down_is_not_ready_and_loads_no_model),
		cmocka_unit_test(a_truncated_region_is_an_error_and_no_crash),
	};
	return cmocka_run_group_tests(tests, set_up, tear_down);
}
