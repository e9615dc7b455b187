/* SPDX-License-Identifier: Apache-2.0 */
/* See privileged_request.h. */
#include "daemon/privileged_request.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

struct kind_rule {
	const char *name;
	enum hb_privileged_channel channel;
	unsigned fields;
};

static const struct kind_rule rules[HB_PRIVILEGED_N_KINDS] = {
#define X(kind, channel, fields) [HB_PRIVILEGED_##kind] = {#kind, HB_PRIVILEGED_##channel, fields},
	HB_PRIVILEGED_KINDS(X)
#undef X
};

static bool is_token(const unsigned char token[HB_TOKEN_BYTES])
{
	unsigned char any = 0;
	for (size_t i = 0; i < HB_TOKEN_BYTES; i++)
		any |= token[i];
	return any != 0;
}

/* A field that the kind uses must be in range, every other one zero. Returns the name of a field that is not; NULL = none. */
static const char *find_bad_field(const struct hb_privileged_request *request, unsigned fields)
{
	const struct {
		unsigned field;
		const char *name;
		bool is_zero, is_valid;
	} all[] = {
		{HB_PRIVILEGED_PID, "pid", request->pid == 0,
		 request->pid > 0 && request->pid <= HB_PRIVILEGED_PID_MAX},
		{HB_PRIVILEGED_CLIENT, "client", request->client == 0,
		 request->client > 0 && request->client <= HB_PRIVILEGED_PID_MAX},
		{HB_PRIVILEGED_SIGNAL, "signal", request->signal == 0, request->signal > 0 && request->signal <= 64},
		{HB_PRIVILEGED_UID, "uid", request->uid == 0, request->uid != UINT32_MAX},
		{HB_PRIVILEGED_PAGE, "page", request->page == 0, true},
		{HB_PRIVILEGED_START, "start time", request->start_ticks == 0, request->start_ticks != 0},
		{HB_PRIVILEGED_TOKEN, "token", !is_token(request->token), is_token(request->token)},
	};
	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		if (!(fields & all[i].field ? all[i].is_valid : all[i].is_zero))
			return all[i].name;
	return NULL;
}

int hb_privileged_request_parse(const void *packet, size_t size, enum hb_privileged_channel channel,
				struct hb_privileged_request *request, const char **why)
{
	struct hb_privileged_request copy;
	*why = "size";
	if (size != sizeof copy)
		return -EPROTO;
	memcpy(&copy, packet, sizeof copy);
	*why = "magic number";
	if (copy.magic != HB_PRIVILEGED_MAGIC || copy.number == 0)
		return -EPROTO;
	*why = "kind";
	if (copy.kind == HB_PRIVILEGED_NONE || copy.kind >= HB_PRIVILEGED_N_KINDS ||
	    rules[copy.kind].channel != channel)
		return -EPROTO;
	*why = find_bad_field(&copy, rules[copy.kind].fields);
	if (*why)
		return -EPROTO;
	*request = copy;
	return 0;
}

const char *hb_privileged_kind_name(uint32_t kind)
{
	return kind > HB_PRIVILEGED_NONE && kind < HB_PRIVILEGED_N_KINDS ? rules[kind].name : "?";
}
