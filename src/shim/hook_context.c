/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hooks of initialisation and of contexts. Rare calls, made by the application;
 * they may use locks and system calls.
 */
#include "shim/shim.h"

CUresult hb_hook_cuInit(unsigned int flags)
{
	return HB_REAL(cuInit)(flags);
}
