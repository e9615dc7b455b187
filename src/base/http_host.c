/* SPDX-License-Identifier: Apache-2.0 */
/* See http_host.h. */
#include "base/http_host.h"

#include <arpa/inet.h>
#include <string.h>
#include <strings.h>

bool hb_http_host_read(const char *text, size_t n, char out[static HB_HTTP_HOST_MAX])
{
	const char *bracket = memchr(text, ']', n);
	const char *from = bracket ? bracket : text;
	const char *colon = memchr(from, ':', n - (size_t)(from - text));
	size_t length = colon ? (size_t)(colon - text) : n;
	if (length >= HB_HTTP_HOST_MAX)
		return false;
	for (size_t i = 0; i < length; i++)
		if (text[i] <= 0x20 || text[i] >= 0x7f)
			return false;
	memcpy(out, text, length);
	out[length] = '\0';
	return true;
}

bool hb_http_host_is_loopback(const char *host)
{
	if (strcasecmp(host, "localhost") == 0 || strcmp(host, "[::1]") == 0)
		return true;
	return strncmp(host, "127.", 4) == 0 && strspn(host, "0123456789.") == strlen(host);
}

bool hb_http_host_is_address(const char *host)
{
	char text[HB_HTTP_HOST_MAX];
	struct in6_addr address;
	size_t n = strlen(host);
	if (n < 2 || n >= sizeof text || host[0] != '[' || host[n - 1] != ']')
		return inet_pton(AF_INET, host, &address) == 1;
	memcpy(text, host + 1, n - 2);
	text[n - 2] = '\0';
	return inet_pton(AF_INET6, text, &address) == 1;
}
