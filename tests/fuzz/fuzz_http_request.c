/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzz target: heads of HTTP requests to the daemon. Reading the bytes as they
 * arrive, in two pieces, gives the same result as reading all of them.
 */
#include "daemon/http_request.h"
#include "fuzz.h"

#include <errno.h>

static void check_text(const char *text, size_t size)
{
	size_t length = strnlen(text, size);
	FUZZ_REQUIRE(length < size);
	for (size_t i = 0; i < length; i++)
		FUZZ_REQUIRE(text[i] > ' ' && text[i] <= '~');
}

static void check_request(const struct hb_http_request *request)
{
	check_text(request->path, sizeof request->path);
	check_text(request->host, sizeof request->host);
	FUZZ_REQUIRE(request->path[0] == '/' && !strchr(request->path, '?'));
	if (hb_http_host_is_loopback(request->host))
		FUZZ_REQUIRE(request->host[0] == '1' || request->host[0] == '[' || (request->host[0] | 32) == 'l');
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct hb_http_request request, before, first;
	char *text = (char *)fuzz_copy(data, size), *piece = (char *)fuzz_copy(data, size / 2);
	memset(&request, 0xa5, sizeof request);
	before = request;
	int status = hb_http_request_read(text, size, &request), early = hb_http_request_read(piece, size / 2, &first);
	if (status == 0)
		check_request(&request);
	else
		FUZZ_REQUIRE(memcmp(&request, &before, sizeof request) == 0);
	FUZZ_REQUIRE(status <= 0 || strcmp(hb_http_reason(status), "Error") != 0);
	FUZZ_REQUIRE(status != -EAGAIN || size < HB_HTTP_HEAD_MAX);
	if (early != -EAGAIN && early != 431)
		FUZZ_REQUIRE(early == status && (status || memcmp(&first, &request, sizeof first) == 0));
	free(text);
	free(piece);
	return 0;
}
