/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzz target: identifying the sender of a request to `hb serve`. The first three lines of the input are Host, Origin and
 * Authorization; the rest is a file of tokens. For every input, a Host that does not name the server gets no right, and
 * only a known token may control the server.
 */
#include "fuzz.h"
#include "server/security/access.h"
#include "server/security/tokens.h"

#include <stdio.h>
#include <unistd.h>

#define TOKEN "0123456789abcdef"

static struct hb_access *access_with_token;

static void start(void)
{
	char path[] = "/tmp/hb-fuzz-access-XXXXXX";
	struct hb_error error = {""};
	struct hb_access_config config = {.control = HB_TO_TOKEN,
					  .shared_memory = HB_TO_TOKEN,
					  .hosts = {"gpu.example"},
					  .n_hosts = 1,
					  .token_file = path};
	int fd = mkstemp(path);
	FUZZ_REQUIRE(fd >= 0 && write(fd, TOKEN " low control\n", strlen(TOKEN) + 13) > 0);
	close(fd);
	FUZZ_REQUIRE(hb_access_new(&config, &access_with_token, &error) == 0);
	unlink(path);
}

static void check_tokens(char *text, size_t size)
{
	static struct hb_tokens tokens;
	struct hb_error error = {""};
	int result = hb_tokens_parse("tokens", text, size, &tokens, &error);
	FUZZ_REQUIRE(result == 0 ? tokens.n > 0 : error.text[0] != '\0');
	for (uint32_t i = 0; i < tokens.n; i++) {
		size_t n = strlen(tokens.all[i].text);
		FUZZ_REQUIRE(n >= HB_TOKEN_MIN && n <= HB_TOKEN_MAX);
		FUZZ_REQUIRE(hb_tokens_find(&tokens, tokens.all[i].text, n) == &tokens.all[i]);
	}
}

static void check_caller(const char *host, const char *origin, const char *authorization)
{
	struct hb_access_request request = {.client = {.kind = HB_CLIENT_LOOPBACK, .fd = -1},
					    .loopback_listener = true,
					    .host = host,
					    .origin = origin[0] ? origin : NULL,
					    .authorization = authorization};
	struct hb_caller caller = hb_access_identify(access_with_token, &request);
	bool known = strstr(authorization, TOKEN) != NULL;
	FUZZ_REQUIRE(known || !(caller.rights & (HB_RIGHT_USE | HB_RIGHT_CONTROL)));
	FUZZ_REQUIRE(!(caller.rights & HB_RIGHT_SHARED_MEMORY));
	FUZZ_REQUIRE(!caller.refusal == !!(caller.rights & HB_RIGHT_USE));
	char name[HB_HTTP_HOST_MAX];
	if (hb_http_host_read(host, strlen(host), name))
		FUZZ_REQUIRE(!strstr(name, "evil") || caller.rights == 0);
	else
		FUZZ_REQUIRE(caller.rights == 0);
	FUZZ_REQUIRE(!caller.refusal || hb_access_text(access_with_token, caller.refusal)[0]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = calloc(1, size + 1), *rest = text;
	FUZZ_REQUIRE(text);
	if (!access_with_token)
		start();
	memcpy(text, data, size);
	const char *lines[3];
	for (int i = 0; i < 3; i++) {
		const char *line = strsep(&rest, "\n");
		lines[i] = line ? line : "";
	}
	check_caller(lines[0], lines[1], lines[2]);
	if (rest)
		check_tokens(rest, size - (size_t)(rest - text));
	free(text);
	return 0;
}
