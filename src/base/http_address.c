/* SPDX-License-Identifier: Apache-2.0 */
/* See http_address.h. */
#include "base/http_address.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool parse_port(const char *text, uint16_t *port)
{
	char *end = NULL;
	unsigned long value = strtoul(text, &end, 10);
	if (text[0] < '0' || text[0] > '9' || *end || value > 65535)
		return false;
	*port = (uint16_t)value;
	return true;
}

int hb_http_address_parse(const char *text, struct sockaddr_storage *address, struct hb_error *error)
{
	char host[64] = "127.0.0.1";
	uint16_t port = 0;
	const char *colon = strrchr(text, ':');
	size_t n = colon ? (size_t)(colon - text) : 0;
	bool fits = n < sizeof host && parse_port(colon ? colon + 1 : text, &port);
	if (fits && n > 0)
		snprintf(host, sizeof host, "%.*s", (int)n, text);
	n = strlen(host);
	struct sockaddr_in *four = (struct sockaddr_in *)address;
	struct sockaddr_in6 *six = (struct sockaddr_in6 *)address;
	memset(address, 0, sizeof *address);
	if (fits && host[0] == '[' && host[n - 1] == ']') {
		host[n - 1] = '\0';
		*six = (struct sockaddr_in6){.sin6_family = AF_INET6, .sin6_port = htons(port)};
		fits = inet_pton(AF_INET6, host + 1, &six->sin6_addr) == 1;
	} else if (fits) {
		*four = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(port)};
		fits = inet_pton(AF_INET, host, &four->sin_addr) == 1;
	}
	return fits ? 0
		    : hb_error_set(error, -EINVAL, "'%s' is no address; write 127.0.0.1:PORT, [::1]:PORT or PORT",
				   text);
}

bool hb_http_address_is_loopback(const struct sockaddr_storage *address)
{
	const struct sockaddr_in *four = (const struct sockaddr_in *)address;
	const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)address;
	if (address->ss_family == AF_INET)
		return ntohl(four->sin_addr.s_addr) >> 24 == 127;
	/* A server that listens at [::] sees IPv4 clients as ::ffff:127.0.0.1. */
	return IN6_IS_ADDR_LOOPBACK(&six->sin6_addr) ||
	       (IN6_IS_ADDR_V4MAPPED(&six->sin6_addr) && six->sin6_addr.s6_addr[12] == 127);
}
