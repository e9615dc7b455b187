/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stands for the driver's compiler of PTX, which the driver loads when it first needs it. Like that library it registers an
 * exit handler when it is loaded, and a compilation that still runs then crashes the process.
 */
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <unistd.h>

#define COMPILE_US 300000

static atomic_bool compiles;

__attribute__((visibility("default"))) bool hb_compiles(void);
bool hb_compiles(void)
{
	return atomic_load(&compiles);
}

__attribute__((visibility("default"))) void hb_compile(void);
void hb_compile(void)
{
	atomic_store(&compiles, true);
	usleep(COMPILE_US);
	atomic_store(&compiles, false);
}

static void end_library(void)
{
	if (atomic_load(&compiles))
		abort();
}

__attribute__((constructor)) static void begin_library(void)
{
	atexit(end_library);
}
