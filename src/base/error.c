/* SPDX-License-Identifier: Apache-2.0 */
/* Formats errors that users read; see error.h. */
#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>

void hb_error_format(struct hb_error *error, const char *format, ...)
{
	if (!error)
		return;
	va_list arguments;
	va_start(arguments, format);
	vsnprintf(error->text, sizeof error->text, format, arguments);
	va_end(arguments);
}
