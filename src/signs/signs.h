/* SPDX-License-Identifier: Apache-2.0 */
/* The interface between libhb-signs and the shim, which finds hb_signs_attach by name in the process. */
#ifndef HB_SIGNS_SIGNS_H
#define HB_SIGNS_SIGNS_H

#include <stdint.h>

/* Bytes arrived from `who` (a connection; 0 = unknown). Called inside the application's read(), perhaps in a signal handler. */
typedef void hb_signs_report(uint64_t source, uint32_t who);

/* Sets the function that is called for each sign; NULL: none. */
void hb_signs_attach(hb_signs_report *sign);

#endif
