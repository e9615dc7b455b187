/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzz target: requests to the daemon's helper process. A packet is accepted only if its kind belongs to the channel and all
 * its fields are in range. The first byte of the input chooses the channel.
 */
#include "daemon/privileged_request.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int condition)
{
	if (!condition)
		abort();
}

static void check_accepted(const struct hb_privileged_request *request, enum hb_privileged_channel channel)
{
	bool is_program = request->kind >= HB_PRIVILEGED_START_CONTROL;
	require(request->magic == HB_PRIVILEGED_MAGIC && request->number != 0);
	require(hb_privileged_kind_name(request->kind)[0] != '?');
	require(is_program == (channel == HB_PRIVILEGED_PROGRAM));
	require(request->pid >= 0 && request->pid <= HB_PRIVILEGED_PID_MAX);
	require(request->client >= 0 && request->client <= HB_PRIVILEGED_PID_MAX);
	require(request->signal <= 64 && request->uid != UINT32_MAX);
	if (request->kind == HB_PRIVILEGED_TERMINATE_CLIENT)
		require(request->pid && request->client && !request->uid);
	if (request->kind == HB_PRIVILEGED_END_PROCESSES)
		require(!request->pid && !request->client && !request->start_ticks);
	else
		require(!request->page);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct hb_privileged_request request = {.kind = HB_PRIVILEGED_NONE};
	const char *why = NULL;
	if (size < 1)
		return 0;
	/* An allocation of exactly the packet's size, so that a sanitizer finds a read behind it. */
	void *packet = malloc(size - 1 ? size - 1 : 1);
	require(packet != NULL);
	memcpy(packet, data + 1, size - 1);
	enum hb_privileged_channel channel = data[0] & 1 ? HB_PRIVILEGED_PROGRAM : HB_PRIVILEGED_FACT;
	if (hb_privileged_request_parse(packet, size - 1, channel, &request, &why) == 0)
		check_accepted(&request, channel);
	else
		require(request.kind == HB_PRIVILEGED_NONE && why && *why);
	free(packet);
	return 0;
}
