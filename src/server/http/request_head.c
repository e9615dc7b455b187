/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See request_head.h. libmicrohttpd 0.9.75 (Debian 12) takes a bare LF as the end
 * of a line, joins folded lines in a wrong way and allows blanks before a colon,
 * and its table of headers does not show it. But it parses the head in place: when
 * the handler is called, the bytes of the head are still there, except that each
 * CR, LF and first colon of a line was replaced by a zero. check_lines() reads
 * these bytes. Newer versions refuse such heads themselves, with
 * MHD_OPTION_STRICT_FOR_CLIENT.
 */
#include "server/http/request_head.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define DIGITS "0123456789"

/* Counts of the headers that say where the body ends and for which host the request is. */
struct request_framing {
	uint32_t n_lengths, n_codings, n_hosts;
	bool chunked, host_fits;
};

static enum MHD_Result count_framing_header(void *framing_, enum MHD_ValueKind kind, const char *name,
					    const char *value)
{
	struct request_framing *framing = framing_;
	framing->n_lengths += strcasecmp(name, MHD_HTTP_HEADER_CONTENT_LENGTH) == 0;
	if (strcasecmp(name, MHD_HTTP_HEADER_TRANSFER_ENCODING) == 0) {
		framing->n_codings++;
		framing->chunked = value && strcasecmp(value, "chunked") == 0;
	}
	if (strcasecmp(name, MHD_HTTP_HEADER_HOST) == 0) {
		framing->n_hosts++;
		framing->host_fits = value && !value[strcspn(value, " \t,/\\@?#")];
	}
	return MHD_YES;
}

static bool is_name_character(char c)
{
	return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
	       (c && strchr("!#$%&'*+-.^_`|~", c));
}

static bool is_value_character(char c)
{
	return c == '\t' || ((unsigned char)c >= 0x20 && c != 0x7f);
}

/* Returns the place behind CR and LF (now zeros) at `at`; NULL = something else is there. */
static const char *skip_line_end(const char *at, const char *end)
{
	return end - at >= 2 && !at[0] && !at[1] ? at + 2 : NULL;
}

/* Reads a header field at `at`. Returns the place behind it; NULL = it is not NAME, colon, value, CR, LF. */
static const char *skip_field(const char *at, const char *end)
{
	const char *name = at;
	while (at < end && is_name_character(*at))
		at++;
	if (at == name || at == end || *at) /* the colon is now a zero */
		return NULL;
	at++;
	while (at < end && is_value_character(*at))
		at++;
	return skip_line_end(at, end);
}

/* Returns whether the lines from the end of the request line to `end` are whole, and as many as the library has found. */
static bool check_lines(struct MHD_Connection *connection, const char *at, const char *end)
{
	int n = 0;
	at = skip_line_end(at, end);
	while (at && end - at > 2) {
		at = skip_field(at, end);
		n++;
	}
	return at && skip_line_end(at, end) && n == MHD_get_connection_values(connection, MHD_HEADER_KIND, NULL, NULL);
}

/* Versions before 1.0.0 accept a bare LF as the end of a line. */
static bool is_library_lax(void)
{
	return strtol(MHD_get_version(), NULL, 10) < 1;
}

static bool is_head_whole(struct MHD_Connection *connection, const char *method, const char *url, const char *version)
{
	const union MHD_ConnectionInfo *info = MHD_get_connection_info(connection,
								       MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);
	if (!is_library_lax())
		return true;
	return info && url == method + strlen(method) + 1 &&
	       check_lines(connection, version + strlen(version), method + info->header_size);
}

const char *hb_request_head_find_error(struct MHD_Connection *connection, const char *method, const char *url,
				       const char *version)
{
	struct request_framing framing = {.n_lengths = 0};
	bool has_host = strcmp(version, "HTTP/1.1") == 0;
	if (!has_host && strcmp(version, "HTTP/1.0") != 0)
		return "the request is not of HTTP/1.1 or HTTP/1.0";
	if (!is_head_whole(connection, method, url, version))
		return "a line of the request's head is not \"NAME: VALUE\" with CR and LF at its end";
	MHD_get_connection_values(connection, MHD_HEADER_KIND, count_framing_header, &framing);
	if (framing.n_hosts > 1 || (has_host && framing.n_hosts == 0) || (framing.n_hosts && !framing.host_fits))
		return "the request needs one Host";
	/* If there are two such headers, the library takes the first, but a proxy may take the other. HTTP/1.0 has no codings. */
	if (framing.n_lengths + framing.n_codings > 1 || (framing.n_codings && (!framing.chunked || !has_host)))
		return "the request needs one Content-Length, or Transfer-Encoding: chunked";
	return NULL;
}

bool hb_request_body_end_is_unclear(struct MHD_Connection *connection)
{
	return is_library_lax() &&
	       MHD_lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_TRANSFER_ENCODING);
}

bool hb_request_target_fits(const char *target)
{
	for (; target && *target; target++)
		if ((unsigned char)*target <= 0x20 || *target == 0x7f)
			return false;
	return target != NULL;
}

bool hb_request_head_has_bad_length(struct MHD_Connection *connection)
{
	const char *length = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_CONTENT_LENGTH);
	return length && (!*length || length[strspn(length, DIGITS)] || strlen(length) > 18);
}
