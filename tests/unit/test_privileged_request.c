/* SPDX-License-Identifier: Apache-2.0 */
/* Requests to the daemon's helper process: each kind with the fields that it uses is accepted, and nothing else. */
#include "daemon/privileged_request.h"
#include "unit.h"

#include <errno.h>
#include <string.h>

static const struct {
	enum hb_privileged_channel channel;
	unsigned fields;
} kinds[HB_PRIVILEGED_N_KINDS] = {
#define X(kind, channel, fields) [HB_PRIVILEGED_##kind] = {HB_PRIVILEGED_##channel, fields},
	HB_PRIVILEGED_KINDS(X)
#undef X
};

static const unsigned all_fields[] = {HB_PRIVILEGED_PID,  HB_PRIVILEGED_CLIENT, HB_PRIVILEGED_SIGNAL, HB_PRIVILEGED_UID,
				      HB_PRIVILEGED_PAGE, HB_PRIVILEGED_START,  HB_PRIVILEGED_TOKEN};

static void set_fields(struct hb_privileged_request *request, unsigned fields)
{
	if (fields & HB_PRIVILEGED_PID)
		request->pid = 4711;
	if (fields & HB_PRIVILEGED_CLIENT)
		request->client = 4712;
	if (fields & HB_PRIVILEGED_SIGNAL)
		request->signal = 15;
	if (fields & HB_PRIVILEGED_UID)
		request->uid = 1000;
	if (fields & HB_PRIVILEGED_PAGE)
		request->page = 3;
	if (fields & HB_PRIVILEGED_START)
		request->start_ticks = 99;
	if (fields & HB_PRIVILEGED_TOKEN)
		request->token[HB_TOKEN_BYTES - 1] = 1;
}

static struct hb_privileged_request make_request(uint32_t kind)
{
	struct hb_privileged_request request = {.magic = HB_PRIVILEGED_MAGIC, .kind = kind, .number = 1};
	set_fields(&request, kinds[kind].fields);
	return request;
}

/* Returns NULL if the request is accepted, else what was wrong. */
static const char *refusal_of(const struct hb_privileged_request *request, enum hb_privileged_channel channel)
{
	const char *why = NULL;
	struct hb_privileged_request parsed = {.kind = HB_PRIVILEGED_NONE};
	int result = hb_privileged_request_parse(request, sizeof *request, channel, &parsed, &why);
	if (result == 0) {
		assert_memory_equal(&parsed, request, sizeof parsed);
		return NULL;
	}
	assert_int_equal(result, -EPROTO);
	assert_int_equal(parsed.kind, HB_PRIVILEGED_NONE);
	assert_non_null(why);
	return why;
}

static void each_kind_is_accepted_on_its_channel_only(void **state)
{
	for (uint32_t kind = 1; kind < HB_PRIVILEGED_N_KINDS; kind++) {
		struct hb_privileged_request request = make_request(kind);
		enum hb_privileged_channel other = kinds[kind].channel == HB_PRIVILEGED_FACT ? HB_PRIVILEGED_PROGRAM
											     : HB_PRIVILEGED_FACT;
		assert_null(refusal_of(&request, kinds[kind].channel));
		assert_string_equal(refusal_of(&request, other), "kind");
		assert_string_not_equal(hb_privileged_kind_name(kind), "?");
	}
	assert_string_equal(hb_privileged_kind_name(HB_PRIVILEGED_NONE), "?");
	assert_string_equal(hb_privileged_kind_name(HB_PRIVILEGED_N_KINDS), "?");
}

static void a_field_that_the_kind_does_not_use_must_be_zero(void **state)
{
	for (uint32_t kind = 1; kind < HB_PRIVILEGED_N_KINDS; kind++)
		for (size_t i = 0; i < sizeof all_fields / sizeof *all_fields; i++) {
			struct hb_privileged_request request = make_request(kind);
			set_fields(&request, all_fields[i]);
			bool is_used = kinds[kind].fields & all_fields[i];
			assert_int_equal(refusal_of(&request, kinds[kind].channel) == NULL, is_used);
		}
}

static void a_field_out_of_range_is_refused(void **state)
{
	struct hb_privileged_request request = make_request(HB_PRIVILEGED_TERMINATE_CLIENT);
	static const int32_t pids[] = {0, -1, INT32_MIN, HB_PRIVILEGED_PID_MAX + 1, INT32_MAX};
	for (size_t i = 0; i < sizeof pids / sizeof *pids; i++) {
		request.pid = pids[i];
		assert_string_equal(refusal_of(&request, HB_PRIVILEGED_PROGRAM), "pid");
		request.pid = HB_PRIVILEGED_PID_MAX;
		request.client = pids[i];
		assert_string_equal(refusal_of(&request, HB_PRIVILEGED_PROGRAM), "client");
		request.client = 1;
	}
	assert_null(refusal_of(&request, HB_PRIVILEGED_PROGRAM));
	request = make_request(HB_PRIVILEGED_SIGNAL_KILLS);
	request.signal = 65;
	assert_string_equal(refusal_of(&request, HB_PRIVILEGED_FACT), "signal");
	request = make_request(HB_PRIVILEGED_END_PROCESSES);
	request.uid = UINT32_MAX; /* in system calls it means: do not change the user */
	assert_string_equal(refusal_of(&request, HB_PRIVILEGED_PROGRAM), "uid");
	request.uid = 0; /* programs of root may be tenants */
	assert_null(refusal_of(&request, HB_PRIVILEGED_PROGRAM));
	request.page = 0; /* all processes with the page have ended */
	assert_null(refusal_of(&request, HB_PRIVILEGED_PROGRAM));
	request = make_request(HB_PRIVILEGED_SERVER_PAGE);
	request.start_ticks = 0;
	assert_string_equal(refusal_of(&request, HB_PRIVILEGED_FACT), "start time");
	request = make_request(HB_PRIVILEGED_BEGAN_WITH);
	memset(request.token, 0, sizeof request.token);
	assert_string_equal(refusal_of(&request, HB_PRIVILEGED_FACT), "token");
}

static void a_damaged_record_is_refused(void **state)
{
	struct hb_privileged_request request = make_request(HB_PRIVILEGED_QUIT), parsed;
	const char *why;
	for (size_t size = 0; size < sizeof request; size++)
		assert_int_equal(hb_privileged_request_parse(&request, size, HB_PRIVILEGED_PROGRAM, &parsed, &why),
				 -EPROTO);
	request.magic ^= 1;
	assert_string_equal(refusal_of(&request, HB_PRIVILEGED_PROGRAM), "magic number");
	request = make_request(HB_PRIVILEGED_QUIT);
	request.number = 0;
	assert_non_null(refusal_of(&request, HB_PRIVILEGED_PROGRAM));
	static const uint32_t wrong[] = {HB_PRIVILEGED_NONE, HB_PRIVILEGED_N_KINDS, UINT32_MAX};
	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
		request = make_request(HB_PRIVILEGED_QUIT);
		request.kind = wrong[i];
		assert_string_equal(refusal_of(&request, HB_PRIVILEGED_PROGRAM), "kind");
		assert_string_equal(refusal_of(&request, HB_PRIVILEGED_FACT), "kind");
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_kind_is_accepted_on_its_channel_only),
		cmocka_unit_test(a_field_that_the_kind_does_not_use_must_be_zero),
		cmocka_unit_test(a_field_out_of_range_is_refused),
		cmocka_unit_test(a_damaged_record_is_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
