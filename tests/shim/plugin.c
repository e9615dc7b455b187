/* SPDX-License-Identifier: Apache-2.0 */
/* Finds driver functions by linking; see plugin.h. */
#include "plugin.h"

#include <stddef.h>
#include <string.h>

#define LINKED(X) \
	X(cuInit) \
	X(cuLaunchKernel) \
	X(cuLaunchKernel_ptsz) \
	X(cuGraphLaunch) \
	X(cuMemcpyHtoDAsync_v2) \
	X(cuMemsetD2D8Async) \
	X(cuStreamSynchronize) \
	X(cuTexObjectDestroy) \
	X(cuParamSetf)

#define X(name) extern __attribute__((visibility("default"))) char name[];
LINKED(X)
#undef X

void *hb_test_plugin_find(const char *name)
{
	static const struct {
		const char *name;
		void *address;
	} linked[] = {
#define X(symbol) {#symbol, symbol},
		LINKED(X)
#undef X
	};
	for (size_t i = 0; i < sizeof(linked) / sizeof(linked[0]); i++)
		if (strcmp(linked[i].name, name) == 0)
			return linked[i].address;
	return NULL;
}
