/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The trial of GPCs on a fake driver whose clock advances when it is read. The
 * trial finds all groups, lone TPCs included, never launches a cluster that fits
 * into no GPC, and does not wait for a launch that never ends.
 */
#include "nvidia/gpc_trial.h"

#include "base/clock.h"
#include "unit.h"

#include <string.h>

enum { GROUPS_MOST = 16, BLOCKS_MOST = 8 * HB_GPC_SMS_MAX };

static struct {
	uint8_t group_of[HB_GPC_BITS]; /* from 1; 0 = the bit is no TPC */
	uint32_t removed[HB_GPC_WORDS], words[BLOCKS_MOST];
	uint32_t seed, largest; /* the largest cluster that was launched */
	bool pairs_only;        /* clusters of two are placed on one TPC each, whatever is free beside it */
	bool never_ends, ended_by_force;
	int64_t now_ns;
} gpu;

/* ---- what the trial calls ---- */

int64_t hb_clock_now_ns(void)
{
	return gpu.now_ns += 50000;
}

uint32_t hb_mask_bits(unsigned number, uint8_t bits[HB_MASK_BITS])
{
	uint32_t n = 0;
	for (int bit = 0; bit < HB_GPC_BITS; bit++)
		if (gpu.group_of[bit])
			bits[n++] = (uint8_t)bit;
	return n;
}

void hb_mask_remove(const uint32_t removed[HB_MASK_BITS / 32])
{
	memset(gpu.removed, 0, sizeof gpu.removed);
	if (removed)
		memcpy(gpu.removed, removed, sizeof gpu.removed);
}

static uint32_t draw(uint32_t below)
{
	gpu.seed = gpu.seed * 1664525u + 1013904223u;
	return (uint32_t)((uint64_t)(gpu.seed >> 8) * below >> 24);
}

struct place {
	uint32_t n;
	uint8_t sms[HB_GPC_SMS_MAX];
};

/* The SMs of each group that are left, numbered anew; [0]: of all. */
static void look_around(struct place places[GROUPS_MOST + 1])
{
	uint8_t sm = 0;
	memset(places, 0, (GROUPS_MOST + 1) * sizeof *places);
	for (int bit = 0; bit < HB_GPC_BITS; bit++) {
		struct place *place = &places[gpu.group_of[bit]];
		if (!gpu.group_of[bit] || (gpu.removed[bit / 32] >> bit % 32 & 1))
			continue;
		for (int i = 0; i < HB_GPC_SMS_PER_BIT; i++, sm++)
			place->sms[place->n++] = places[0].sms[places[0].n++] = sm;
	}
}

static uint32_t find(const struct place *place, uint8_t sm)
{
	uint32_t i = 0;
	while (i < place->n && place->sms[i] != sm)
		i++;
	assert_true(i < place->n);
	return i;
}

/* `cluster` of the group's SMs, drawn, to the front. */
static void choose(struct place *place, uint32_t cluster)
{
	for (uint32_t i = 0; i < cluster; i++) {
		uint32_t other = gpu.pairs_only && i % 2 ? find(place, place->sms[i - 1] ^ 1) : i + draw(place->n - i);
		uint8_t sm = place->sms[i];
		place->sms[i] = place->sms[other];
		place->sms[other] = sm;
	}
}

static CUresult launch(const CUlaunchConfig *config, CUfunction f, void **params, void **extra)
{
	uint32_t cluster = config->numAttrs ? config->attrs[0].value.clusterDim.x : 1, fitting = 0;
	struct place places[GROUPS_MOST + 1];
	(void)f, (void)params, (void)extra;
	look_around(places);
	for (uint32_t group = 1; group <= GROUPS_MOST; group++)
		fitting += places[group].n >= cluster;
	assert_true(fitting > 0);
	assert_int_equal(config->gridDimX % cluster, 0);
	assert_true(config->gridDimX > 0 && config->gridDimX <= BLOCKS_MOST);
	gpu.largest = cluster > gpu.largest ? cluster : gpu.largest;
	for (uint32_t i = 0; i < config->gridDimX; i += cluster) {
		struct place *place = &places[1 + draw(GROUPS_MOST)];
		while (place->n < cluster)
			place = place == &places[GROUPS_MOST] ? &places[1] : place + 1;
		choose(place, cluster);
		for (uint32_t k = 0; k < cluster; k++)
			gpu.words[i + k] = (i / cluster) << 16 | (place->sms[k] + 1u);
	}
	for (uint32_t i = 0; cluster == 1 && i < config->gridDimX; i++)
		gpu.words[i] = places[0].sms[i % places[0].n] + 1u;
	return CUDA_SUCCESS;
}

static CUresult copy(void *to, CUdeviceptr from, size_t bytes, CUstream stream)
{
	(void)from, (void)stream;
	assert_false(gpu.never_ends);
	memcpy(to, gpu.words, bytes);
	return CUDA_SUCCESS;
}

static CUresult query(CUstream stream)
{
	(void)stream;
	return gpu.never_ends ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

static CUresult synchronize(CUstream stream)
{
	(void)stream;
	assert_false(gpu.never_ends);
	return CUDA_SUCCESS;
}

static CUresult get_device(CUdevice *device)
{
	*device = 0;
	return CUDA_SUCCESS;
}

static CUresult get_attribute(int *value, CUdevice_attribute attribute, CUdevice device)
{
	uint8_t bits[HB_GPC_BITS];
	(void)device;
	*value = attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR ? 9
		 : attribute == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT
			 ? (int)hb_mask_bits(0, bits) * HB_GPC_SMS_PER_BIT
			 : 233472;
	return CUDA_SUCCESS;
}

static CUresult load(CUmodule *module, const void *image)
{
	(void)image;
	*module = (CUmodule)&gpu;
	return CUDA_SUCCESS;
}

static CUresult get_function(CUfunction *function, CUmodule module, const char *name)
{
	(void)module, (void)name;
	*function = (CUfunction)&gpu;
	return CUDA_SUCCESS;
}

static CUresult set_function(CUfunction function, CUfunction_attribute attribute, int value)
{
	(void)function, (void)attribute, (void)value;
	return CUDA_SUCCESS;
}

static CUresult allocate(CUdeviceptr *address, size_t bytes)
{
	(void)bytes;
	*address = 4096;
	return CUDA_SUCCESS;
}

static CUresult set_memory(CUdeviceptr address, unsigned char value, size_t n, CUstream stream)
{
	(void)address, (void)stream;
	memset(gpu.words, value, n);
	return CUDA_SUCCESS;
}

static CUresult create(CUstream *stream, unsigned flags)
{
	(void)flags;
	*stream = (CUstream)&gpu;
	return CUDA_SUCCESS;
}

/* These wait for what runs. */
static CUresult give_back(void)
{
	gpu.ended_by_force |= gpu.never_ends;
	return CUDA_SUCCESS;
}

static CUresult destroy(CUstream stream)
{
	(void)stream;
	return give_back();
}

static CUresult release(CUdeviceptr address)
{
	(void)address;
	return give_back();
}

static CUresult unload(CUmodule module)
{
	(void)module;
	return give_back();
}

static const struct hb_gpc_calls calls = {
	.cuCtxGetDevice = get_device,
	.cuDeviceGetAttribute = get_attribute,
	.cuModuleLoadData = load,
	.cuModuleUnload = unload,
	.cuModuleGetFunction = get_function,
	.cuFuncSetAttribute = set_function,
	.cuMemAlloc_v2 = allocate,
	.cuMemFree_v2 = release,
	.cuMemsetD8Async = set_memory,
	.cuMemcpyDtoHAsync_v2 = copy,
	.cuLaunchKernelEx = launch,
	.cuStreamCreate = create,
	.cuStreamDestroy_v2 = destroy,
	.cuStreamQuery = query,
	.cuStreamSynchronize = synchronize,
};

/* Groups of so many TPCs, ended by 0: a bit of each in turn. */
static void make(const uint8_t *tpcs)
{
	uint8_t left[GROUPS_MOST];
	uint32_t n_groups = (uint32_t)strlen((const char *)tpcs);
	memset(&gpu, 0, sizeof gpu);
	memcpy(left, tpcs, n_groups);
	for (uint32_t bit = 1, group = 0, none = 0; none < n_groups; group = (group + 1) % n_groups) {
		none = left[group] ? 0 : none + 1;
		if (left[group]) {
			gpu.group_of[bit++] = (uint8_t)(group + 1);
			left[group]--;
		}
	}
}

static const uint8_t h200[] = {4, 8, 8, 8, 8, 8, 9, 9, 1, 1, 1, 1, 0};

static void test_groups_are_found_and_every_cluster_has_room(void **state)
{
	static const uint8_t kinds[][14] = {
		{4, 8, 8, 8, 8, 8, 9, 9, 1, 1, 1, 1, 0},
		{9, 9, 8, 8, 8, 8, 8, 8, 0},
		{4, 4, 1, 2, 3, 1, 0},
	};
	(void)state;
	for (size_t kind = 0; kind < sizeof kinds / sizeof kinds[0]; kind++) {
		struct hb_gpc_layout layout;
		struct hb_gpc_seen seen;
		struct hb_gpc_effort effort;
		make(kinds[kind]);
		assert_int_equal(hb_gpc_trial(&calls, &layout, &seen, &effort), HB_GPC_KNOWN);
		for (int a = 0; a < HB_GPC_BITS; a++)
			for (int b = 0; b < a; b++)
				assert_int_equal(layout.group_of[a] == layout.group_of[b],
						 gpu.group_of[a] == gpu.group_of[b]);
		assert_int_equal(gpu.largest, 8);
		assert_true(effort.looks < 300 && !effort.hangs);
	}
}

/* Then nothing shows that larger ones have room, so none are launched. */
static void test_clusters_that_show_no_group_are_all_there_are(void **state)
{
	struct hb_gpc_layout layout;
	struct hb_gpc_seen seen;
	struct hb_gpc_effort effort;
	(void)state;
	make(h200);
	gpu.pairs_only = true;
	assert_int_equal(hb_gpc_trial(&calls, &layout, &seen, &effort), HB_GPC_NO_GROUPS);
	assert_int_equal(gpu.largest, 2);
}

static void test_a_launch_that_never_ends_is_left_alone(void **state)
{
	struct hb_gpc_layout layout;
	struct hb_gpc_seen seen;
	struct hb_gpc_effort effort;
	(void)state;
	make(h200);
	gpu.never_ends = true;
	assert_int_equal(hb_gpc_trial(&calls, &layout, &seen, &effort), HB_GPC_TOO_LONG);
	assert_true(effort.hangs && !gpu.ended_by_force);
	assert_int_equal(effort.launches, 1);
	assert_int_equal(effort.cluster, 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_groups_are_found_and_every_cluster_has_room),
		cmocka_unit_test(test_clusters_that_show_no_group_are_all_there_are),
		cmocka_unit_test(test_a_launch_that_never_ends_is_left_alone),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
