/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rule for Host headers of HTTP servers that have no password. A web site whose name resolves to 127.0.0.1 could
 * otherwise use the server through the browser of a user of this machine (DNS rebinding). Pure. Used by the daemon's
 * metrics page and by `hb serve`.
 */
#ifndef HB_BASE_HTTP_HOST_H
#define HB_BASE_HTTP_HOST_H

#include <stdbool.h>
#include <stddef.h>

#define HB_HTTP_HOST_MAX 128

/*
 * Copies the host of "HOST", "HOST:PORT" or "[ADDRESS]:PORT", n characters, into out. Returns false if the host is too
 * long, or has a character that no host has.
 */
bool hb_http_host_read(const char *text, size_t n, char out[static HB_HTTP_HOST_MAX]);
/* Returns whether the host is a name or an address of the loopback interface. */
bool hb_http_host_is_loopback(const char *host);
/* Returns whether the host is an IP address, and no name. An IPv6 address is in brackets. */
bool hb_http_host_is_address(const char *host);

#endif
