/* SPDX-License-Identifier: Apache-2.0 */
/* Heads of HTTP requests: valid, malformed, and every prefix of a valid one; and addresses to listen on. */
#include "unit.h"

#include "daemon/http_request.h"
#include "daemon/http_server.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

static int read_text(const char *text, struct hb_http_request *request)
{
	/* A copy of the exact size, so that a sanitizer finds reads beyond its end. */
	size_t n = strlen(text);
	char *copy = malloc(n ? n : 1);
	memcpy(copy, text, n);
	int status = hb_http_request_read(copy, n, request);
	free(copy);
	return status;
}

static void a_request_of_a_scraper_is_parsed(void **state)
{
	struct hb_http_request request;
	assert_int_equal(
		read_text("GET /metrics?x=1 HTTP/1.1\r\nHost: localhost:9464\r\nAccept: */*\r\n\r\n", &request), 0);
	assert_string_equal(request.path, "/metrics");
	assert_string_equal(request.host, "localhost");
	assert_false(request.head);
	assert_int_equal(read_text("HEAD / HTTP/1.0\n\n", &request), 0);
	assert_true(request.head);
	assert_string_equal(request.host, "");
	assert_int_equal(read_text("GET / HTTP/1.1\r\nhost:\t[::1]:80 \r\n\r\n", &request), 0);
	assert_string_equal(request.host, "[::1]");
}

static void an_incomplete_head_asks_for_more(void **state)
{
	const char *text = "GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n";
	struct hb_http_request request = {.path = "untouched"};
	for (size_t n = 0; n < strlen(text); n++) {
		char *copy = malloc(n ? n : 1);
		memcpy(copy, text, n);
		assert_int_equal(hb_http_request_read(copy, n, &request), -EAGAIN);
		free(copy);
	}
	assert_string_equal(request.path, "untouched");
}

static void malformed_requests_are_refused(void **state)
{
	static const struct {
		const char *text;
		int status;
	} cases[] = {
		{"POST / HTTP/1.1\r\n\r\n", 405},
		{"get / HTTP/1.1\r\n\r\n", 405},
		{"GET / HTTP/2.0\r\n\r\n", 505},
		{"GET /\r\n\r\n", 400},
		{"\r\n\r\n", 400},
		{"GET metrics HTTP/1.1\r\n\r\n", 400},
		{"GET /a\tb HTTP/1.1\r\n\r\n", 400},
		{"GET / HTTP/1.1\r\nno colon\r\n\r\n", 400},
		{"GET / HTTP/1.1\r\n: empty\r\n\r\n", 400},
		{"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400},
		{"GET / HTTP/1.1\r\nHost: a b\r\n\r\n", 400},
	};
	struct hb_http_request request;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
		assert_int_equal(read_text(cases[i].text, &request), cases[i].status);
}

static void too_long_requests_are_refused(void **state)
{
	static char text[HB_HTTP_HEAD_MAX + 1];
	struct hb_http_request request;
	memset(text, 'a', HB_HTTP_HEAD_MAX);
	assert_int_equal(read_text(text, &request), 431);
	memcpy(text, "GET /", 5);
	assert_int_equal(read_text(text, &request), 431);
	memcpy(text + 5 + HB_HTTP_PATH_MAX, " HTTP/1.1\r\n", 11);
	assert_int_equal(read_text(text, &request), 414);
}

static void only_loopback_names_are_loopback(void **state)
{
	assert_true(hb_http_host_is_loopback("localhost"));
	assert_true(hb_http_host_is_loopback("127.0.0.1"));
	assert_true(hb_http_host_is_loopback("[::1]"));
	assert_false(hb_http_host_is_loopback("evil.example"));
	assert_false(hb_http_host_is_loopback("127.0.0.1.evil.example"));
	assert_false(hb_http_host_is_loopback("10.0.0.1"));
}

static void addresses_differ_from_names(void **state)
{
	assert_true(hb_http_host_is_address("10.0.0.1"));
	assert_true(hb_http_host_is_address("[::1]"));
	assert_true(hb_http_host_is_address("[2001:db8::1]"));
	assert_false(hb_http_host_is_address("10.0.0.1.evil.example"));
	assert_false(hb_http_host_is_address("[evil.example]"));
	assert_false(hb_http_host_is_address("::1"));
	assert_false(hb_http_host_is_address(""));
}

static void a_host_is_read_without_its_port(void **state)
{
	char host[HB_HTTP_HOST_MAX] = "before";
	assert_true(hb_http_host_read("a.example:80", 12, host));
	assert_string_equal(host, "a.example");
	assert_true(hb_http_host_read("[::1]:80", 8, host));
	assert_string_equal(host, "[::1]");
	assert_false(hb_http_host_read("a b", 3, host));
	assert_false(hb_http_host_read("a\x80", 2, host));
	assert_string_equal(host, "[::1]");
}

static void a_port_alone_means_the_loopback_address(void **state)
{
	static const char *const good[] = {"9464", ":9464", "127.0.0.1:9464", "[::1]:9464"};
	static const char *const open[] = {"0.0.0.0:9464", "[::]:9464", "10.1.2.3:0"};
	static const char *const bad[] = {"",    "x",      "localhost:1", "127.0.0.1", "127.0.0.1:",
					  ":-1", ":65536", "::1:9464",    "[::1:9464", "1.2.3.4.5:1"};
	struct sockaddr_storage address;
	struct hb_error error;
	for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
		assert_int_equal(hb_http_address_parse(good[i], &address, &error), 0);
		assert_true(hb_http_address_is_loopback(&address));
	}
	assert_int_equal(ntohs(((struct sockaddr_in6 *)&address)->sin6_port), 9464);
	for (size_t i = 0; i < sizeof open / sizeof *open; i++) {
		assert_int_equal(hb_http_address_parse(open[i], &address, &error), 0);
		assert_false(hb_http_address_is_loopback(&address));
	}
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
		assert_int_equal(hb_http_address_parse(bad[i], &address, &error), -EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_request_of_a_scraper_is_parsed),
		cmocka_unit_test(an_incomplete_head_asks_for_more),
		cmocka_unit_test(malformed_requests_are_refused),
		cmocka_unit_test(too_long_requests_are_refused),
		cmocka_unit_test(only_loopback_names_are_loopback),
		cmocka_unit_test(addresses_differ_from_names),
		cmocka_unit_test(a_host_is_read_without_its_port),
		cmocka_unit_test(a_port_alone_means_the_loopback_address),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
