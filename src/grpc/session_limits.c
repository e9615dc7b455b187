/* SPDX-License-Identifier: Apache-2.0 */
/* See session_limits.h. The library's own defaults differ between its versions, so each limit is set. */
#include "grpc/session_limits.h"

#include <malloc.h>
#include <stdlib.h>

/* Limits on what a client sends besides messages. A connection that exceeds one is closed. */
#define SETTINGS_MAX 32         /* entries of a SETTINGS frame */
#define CONTINUATIONS_MAX 8     /* CONTINUATION frames of a header */
#define UNSENT_REPLIES_MAX 1000 /* answers to PING and SETTINGS that the client has not read */
#define RESETS_AT_ONCE 1000     /* streams that a client resets ... */
#define RESETS_PER_S 33         /* ... at once, and then each second */

static void *allocate_for_session(size_t bytes, void *memory_)
{
	struct hb_session_memory *memory = memory_;
	void *data = malloc(bytes);
	memory->bytes += malloc_usable_size(data);
	return data;
}

static void free_for_session(void *data, void *memory_)
{
	struct hb_session_memory *memory = memory_;
	memory->bytes -= malloc_usable_size(data);
	free(data);
}

static void *clear_for_session(size_t n, size_t bytes, void *memory_)
{
	struct hb_session_memory *memory = memory_;
	void *data = calloc(n, bytes);
	memory->bytes += malloc_usable_size(data);
	return data;
}

static void *resize_for_session(void *data, size_t bytes, void *memory_)
{
	struct hb_session_memory *memory = memory_;
	size_t before = malloc_usable_size(data);
	void *resized = realloc(data, bytes);
	if (resized)
		memory->bytes += malloc_usable_size(resized) - before;
	return resized;
}

nghttp2_mem hb_session_memory_functions(struct hb_session_memory *memory)
{
	return (nghttp2_mem){memory, allocate_for_session, free_for_session, clear_for_session, resize_for_session};
}

nghttp2_option *hb_session_limits_new(void)
{
	nghttp2_option *limits;
	if (nghttp2_option_new(&limits) != 0)
		return NULL;
	nghttp2_option_set_max_settings(limits, SETTINGS_MAX);
	nghttp2_option_set_max_continuations(limits, CONTINUATIONS_MAX);
	nghttp2_option_set_max_outbound_ack(limits, UNSENT_REPLIES_MAX);
	nghttp2_option_set_stream_reset_rate_limit(limits, RESETS_AT_ONCE, RESETS_PER_S);
	nghttp2_option_set_max_deflate_dynamic_table_size(limits, HB_SESSION_HEADER_TABLE_BYTES);
	return limits;
}
