/* SPDX-License-Identifier: Apache-2.0 */
/* Parses the address on which hbd (metrics) and `hb serve` listen. */
#ifndef HB_BASE_HTTP_ADDRESS_H
#define HB_BASE_HTTP_ADDRESS_H

#include "base/error.h"

#include <stdbool.h>
#include <sys/socket.h>

/*
 * Parses "127.0.0.1:8000", "[::1]:8000", ":8000" or "8000" (loopback). Returns 0 or -EINVAL with *error. Port 0 = any
 * free one.
 */
int hb_http_address_parse(const char *text, struct sockaddr_storage *address, struct hb_error *error);
bool hb_http_address_is_loopback(const struct sockaddr_storage *address);

#endif
