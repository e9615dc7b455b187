/* SPDX-License-Identifier: Apache-2.0 */
/* See grpc_text.h. */
#include "grpc/grpc_text.h"

#include "base/clock.h"

#include <string.h>

size_t hb_grpc_message_encode(const char *from, char *to, size_t size)
{
	static const char digits[] = "0123456789ABCDEF";
	size_t n = 0;
	for (; *from && n + 4 < size; from++) {
		unsigned char c = (unsigned char)*from;
		if (c >= 0x20 && c <= 0x7e && c != '%') {
			to[n++] = (char)c;
			continue;
		}
		to[n++] = '%';
		to[n++] = digits[c >> 4];
		to[n++] = digits[c & 15];
	}
	return n;
}

int64_t hb_grpc_timeout_parse(const char *text, size_t length)
{
	static const struct {
		char unit;
		int64_t ns;
	} units[] = {{'H', INT64_C(3600000000000)}, {'M', INT64_C(60000000000)}, {'S', HB_NS_PER_S},
		     {'m', HB_NS_PER_MS},           {'u', HB_NS_PER_US},         {'n', 1}};
	int64_t number = 0;
	if (length < 2 || length > 9) /* the protocol allows at most 8 digits */
		return 0;
	for (size_t i = 0; i + 1 < length; i++) {
		if (text[i] < '0' || text[i] > '9')
			return 0;
		number = number * 10 + (text[i] - '0');
	}
	for (size_t i = 0; i < sizeof(units) / sizeof(*units); i++)
		if (units[i].unit == text[length - 1])
			return number > INT64_C(86400000000000) / units[i].ns ? INT64_C(86400000000000)
									      : number * units[i].ns;
	return 0;
}

void hb_grpc_header_copy(char *to, size_t size, const uint8_t *value, size_t length)
{
	size_t n = length < size ? length : size - 1;
	memcpy(to, value, n);
	to[n] = '\0';
	if (n < length)
		to[n - 1] = ' ';
}

bool hb_grpc_header_is_named(const uint8_t *name, size_t length, const char *wanted)
{
	return length == strlen(wanted) && memcmp(name, wanted, length) == 0;
}
