/* SPDX-License-Identifier: Apache-2.0 */
/* Texts in the headers of gRPC. Used by server and client of gRPC. */
#ifndef HB_GRPC_TEXT_H
#define HB_GRPC_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Parses a time-out like "100m", a number and a unit. Returns ns; 0 = the text is not a valid time-out. */
int64_t hb_grpc_timeout_parse(const char *text, size_t length);
/* Writes a message in gRPC's percent-encoding. Returns the length. */
size_t hb_grpc_message_encode(const char *from, char *to, size_t size);
/* Copies a value of a header as text, cut to the size. */
void hb_grpc_header_copy(char *to, size_t size, const uint8_t *value, size_t length);
bool hb_grpc_header_is_named(const uint8_t *name, size_t length, const char *wanted);

#endif
