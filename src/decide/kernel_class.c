/* SPDX-License-Identifier: Apache-2.0 */
/* Kernel names to classes; see kernel_class.h. */
#include "decide/kernel_class.h"

#include <stdio.h>
#include <string.h>

/* First match wins: matrix kernels often have an element-wise epilogue in their name. */
static const struct {
	const char *part;
	enum hb_class class;
} rules[] = {
	{"gemm", HB_CLASS_COMPUTE},      {"nvjet", HB_CLASS_COMPUTE},     {"cutlass", HB_CLASS_COMPUTE},
	{"xmma", HB_CLASS_COMPUTE},      {"conv", HB_CLASS_COMPUTE},      {"fprop", HB_CLASS_COMPUTE},
	{"dgrad", HB_CLASS_COMPUTE},     {"wgrad", HB_CLASS_COMPUTE},     {"flash", HB_CLASS_COMPUTE},
	{"fmha", HB_CLASS_COMPUTE},      {"attention", HB_CLASS_COMPUTE}, {"elementwise", HB_CLASS_MEMORY},
	{"batch_norm", HB_CLASS_MEMORY}, {"bn_", HB_CLASS_MEMORY},        {"layer_norm", HB_CLASS_MEMORY},
	{"pool", HB_CLASS_MEMORY},       {"reduce", HB_CLASS_MEMORY},     {"multi_tensor", HB_CLASS_MEMORY},
	{"softmax", HB_CLASS_MEMORY},    {"SoftMax", HB_CLASS_MEMORY},    {"copy", HB_CLASS_MEMORY},
	{"Copy", HB_CLASS_MEMORY},       {"Memset", HB_CLASS_MEMORY},     {"Memcpy", HB_CLASS_MEMORY},
	{"nchwToNhwc", HB_CLASS_MEMORY}, {"nhwcToNchw", HB_CLASS_MEMORY}, {"transpose", HB_CLASS_MEMORY},
	{"embedding", HB_CLASS_MEMORY},
};

enum hb_class hb_kernel_class(const char *name)
{
	for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
		if (strstr(name, rules[i].part))
			return rules[i].class;
	return HB_CLASS_UNKNOWN;
}

double hb_kernel_memory_share(enum hb_class class)
{
	switch (class) {
	case HB_CLASS_MEMORY:
		return 0.8;
	case HB_CLASS_COMPUTE:
		return 0.3;
	case HB_CLASS_UNKNOWN:
		break;
	}
	return 0.5;
}

/* nvjet_sm90_TYPES_TILE_KTILExSTAGES_CLUSTER_...: the fourth field after the architecture, as AxB. */
uint32_t hb_kernel_cluster(const char *name)
{
	unsigned x, y;
	int end = 0;
	if (sscanf(name, "nvjet_sm%*u_%*[a-z]_%*ux%*u_%*ux%*u_%ux%u_%n", &x, &y, &end) != 2 || !end)
		return 1;
	return x >= 1 && x <= 16 && y >= 1 && y <= 16 && x * y <= 16 ? x * y : 1;
}
