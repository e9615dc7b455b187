/* SPDX-License-Identifier: Apache-2.0 */
/* What every cmocka test includes: cmocka wants these four before its own header. */
#ifndef HB_TESTS_UNIT_H
#define HB_TESTS_UNIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#endif
