/* SPDX-License-Identifier: Apache-2.0 */
/* Parses HTTP requests; see http_request.h. */
#include "daemon/http_request.h"

#include <errno.h>
#include <string.h>
#include <strings.h>

struct http_span {
	const char *at;
	size_t n;
};

/* Takes the next line without its end, CRLF or LF. False: the line is incomplete. */
static bool take_line(struct http_span *left, struct http_span *line)
{
	const char *end = memchr(left->at, '\n', left->n);
	if (!end)
		return false;
	*line = (struct http_span){left->at, (size_t)(end - left->at)};
	left->n -= line->n + 1;
	left->at = end + 1;
	if (line->n && line->at[line->n - 1] == '\r')
		line->n--;
	return true;
}

static struct http_span take_word(struct http_span *line)
{
	const char *end = memchr(line->at, ' ', line->n);
	struct http_span word = {line->at, end ? (size_t)(end - line->at) : line->n};
	size_t used = word.n + (end != NULL);
	line->at += used;
	line->n -= used;
	return word;
}

static bool is_word(struct http_span word, const char *text)
{
	return word.n == strlen(text) && memcmp(word.at, text, word.n) == 0;
}

static bool is_printable(struct http_span text)
{
	for (size_t i = 0; i < text.n; i++)
		if (text.at[i] <= 0x20 || text.at[i] >= 0x7f)
			return false;
	return true;
}

static int read_target(struct http_span target, struct hb_http_request *request)
{
	if (target.n == 0 || target.at[0] != '/' || !is_printable(target))
		return 400;
	const char *query = memchr(target.at, '?', target.n);
	size_t n = query ? (size_t)(query - target.at) : target.n;
	if (n >= sizeof request->path)
		return 414;
	memcpy(request->path, target.at, n);
	request->path[n] = '\0';
	return 0;
}

/* Reads a line such as "GET /metrics HTTP/1.1". */
static int read_request_line(struct http_span line, struct hb_http_request *request)
{
	struct http_span method = take_word(&line), target = take_word(&line);
	if (method.n == 0 || line.n < 7 || memcmp(line.at, "HTTP/", 5) != 0)
		return 400;
	if (memcmp(line.at, "HTTP/1.", 7) != 0)
		return 505;
	request->head = is_word(method, "HEAD");
	if (!request->head && !is_word(method, "GET"))
		return 405;
	return read_target(target, request);
}

/* Reads the value of the Host header, such as "localhost:9464" or "[::1]:9464". */
static int read_host(struct http_span value, struct hb_http_request *request)
{
	while (value.n && (*value.at == ' ' || *value.at == '\t')) {
		value.at++;
		value.n--;
	}
	while (value.n && (value.at[value.n - 1] == ' ' || value.at[value.n - 1] == '\t'))
		value.n--;
	if (request->host[0] || !hb_http_host_read(value.at, value.n, request->host))
		return 400;
	return 0;
}

static int read_header(struct http_span line, struct hb_http_request *request)
{
	const char *colon = memchr(line.at, ':', line.n);
	if (!colon || colon == line.at)
		return 400;
	size_t name = (size_t)(colon - line.at);
	if (name != 4 || strncasecmp(line.at, "Host", 4) != 0)
		return 0;
	return read_host((struct http_span){colon + 1, line.n - name - 1}, request);
}

int hb_http_request_read(const char *text, size_t n, struct hb_http_request *request)
{
	struct hb_http_request found = {.path = ""};
	struct http_span left = {text, n}, line;
	int more = n >= HB_HTTP_HEAD_MAX ? 431 : -EAGAIN;
	if (!take_line(&left, &line))
		return more;
	int status = read_request_line(line, &found);
	while (status == 0) {
		if (!take_line(&left, &line))
			return more;
		if (line.n == 0)
			break;
		status = read_header(line, &found);
	}
	if (status == 0)
		*request = found;
	return status;
}

const char *hb_http_reason(int status)
{
	static const struct {
		int status;
		const char *reason;
	} reasons[] = {
		{200, "OK"},
		{400, "Bad Request"},
		{403, "Forbidden"},
		{404, "Not Found"},
		{405, "Method Not Allowed"},
		{414, "URI Too Long"},
		{431, "Request Header Fields Too Large"},
		{503, "Service Unavailable"},
		{505, "HTTP Version Not Supported"},
	};
	for (size_t i = 0; i < sizeof reasons / sizeof *reasons; i++)
		if (reasons[i].status == status)
			return reasons[i].reason;
	return "Error";
}
