/* SPDX-License-Identifier: Apache-2.0 */
/* Formatting of user-facing errors; see error.h. */
#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>

int hb_error_set(struct hb_error *error, int code, const char *format, ...)
{
	if (!error)
		return code;
	va_list arguments;
	va_start(arguments, format);
	vsnprintf(error->text, sizeof error->text, format, arguments);
	va_end(arguments);
	return code;
}
