/* SPDX-License-Identifier: Apache-2.0 */
/* Text of the address that metrics are served on. Used by the configuration, hbd's command line and the server. */
#ifndef HB_DAEMON_HTTP_ADDRESS_H
#define HB_DAEMON_HTTP_ADDRESS_H

#include "base/error.h"

#include <stdbool.h>
#include <sys/socket.h>

/*
 * "127.0.0.1:9464", "[::1]:9464", ":9464" or "9464" (loopback). 0, -EINVAL with *error. Port 0 = any free one.
 */
int hb_http_address_parse(const char *text, struct sockaddr_storage *address, struct hb_error *error);
bool hb_http_address_is_loopback(const struct sockaddr_storage *address);

#endif
