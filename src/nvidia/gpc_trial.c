/* SPDX-License-Identifier: Apache-2.0 */
/* Launches clusters to find the GPC of each mask bit; see gpc_trial.h. */
#include "nvidia/gpc_trial.h"

#include "base/clock.h"
#include "nvidia/gpc_mask_order.h"

#include <string.h>

/* Blocks that an SM runs one after the other in one launch. Each block stays for one to eight times STAY_NS, so that clusters
 * find other SMs free each time. */
#define WAVES 8
#define STAY_NS 2000
#define THREADS 32
#define BLOCKS_MOST (WAVES * HB_GPC_SMS_MAX)
/* A look ends after two rounds of all sizes without anything new, or with the last round. */
#define CALM_ROUNDS 2
#define ROUNDS_MOST 24
#define TRIAL_MOST_NS (40 * HB_NS_PER_S)
/* One launch takes 0.3 ms plus a few time slices of other programs. */
#define LAUNCH_MOST_NS (10 * HB_NS_PER_S)

/* Sizes of clusters, in this order, because earlier results show how large the next ones may be. Odd sizes join groups that
 * even sizes keep apart; size 1 shows SMs that no cluster reaches. */
static const uint32_t cluster_sizes[] = {2, 3, 5, 8, 1};
enum { SIZES = sizeof cluster_sizes / sizeof cluster_sizes[0] };

/* Each block writes its cluster and its SM + 1, then stays for a random time. */
static const char ptx[] = ".version 7.8\n.target sm_90\n.address_size 64\n"
			  ".visible .entry hb_meet(.param .u64 records, .param .u64 ns, .param .u64 draw)\n{\n"
			  ".reg .u64 %at, %off, %stay, %now, %end;\n.reg .u32 %sm, %block, %word, %mix, %seed;\n"
			  ".reg .pred %more;\n"
			  "ld.param.u64 %at, [records];\nld.param.u64 %stay, [ns];\nld.param.u32 %seed, [draw];\n"
			  "mov.u32 %block, %ctaid.x;\nmov.u32 %sm, %smid;\nmov.u32 %word, %clusterid.x;\n"
			  "shl.b32 %word, %word, 16;\nadd.u32 %sm, %sm, 1;\nor.b32 %word, %word, %sm;\n"
			  "mul.wide.u32 %off, %block, 4;\nadd.u64 %at, %at, %off;\nst.global.u32 [%at], %word;\n"
			  "add.u32 %mix, %block, %seed;\nmul.lo.u32 %mix, %mix, 2654435769;\nshr.u32 %mix, %mix, 29;\n"
			  "add.u32 %mix, %mix, 1;\ncvt.u64.u32 %off, %mix;\nmul.lo.u64 %stay, %stay, %off;\n"
			  "mov.u64 %now, %globaltimer;\nadd.u64 %end, %now, %stay;\n"
			  "L: mov.u64 %now, %globaltimer;\nsetp.lt.u64 %more, %now, %end;\n@%more bra L;\nret;\n}\n";
static const char simulated[] = "HBSIM1\nmeets hb_meet\n";

struct gpc_trial {
	const struct hb_gpc_calls *cuda;
	struct hb_gpc_effort *effort;
	CUmodule module;
	CUfunction kernel;
	CUdeviceptr records;
	CUstream stream;
	uint32_t shared_bytes;
	int64_t began_ns;
};

static CUresult launch_clusters(const struct gpc_trial *trial, uint32_t cluster, uint32_t n_blocks)
{
	CUlaunchAttribute attribute = {.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION};
	attribute.value.clusterDim.x = cluster;
	attribute.value.clusterDim.y = attribute.value.clusterDim.z = 1;
	CUlaunchConfig config = {.gridDimX = n_blocks,
				 .gridDimY = 1,
				 .gridDimZ = 1,
				 .blockDimX = THREADS,
				 .blockDimY = 1,
				 .blockDimZ = 1,
				 .sharedMemBytes = trial->shared_bytes,
				 .hStream = trial->stream,
				 .attrs = &attribute,
				 .numAttrs = cluster > 1};
	uint64_t address = trial->records, stay_ns = STAY_NS, draw = (uint64_t)trial->effort->launches * BLOCKS_MOST;
	void *arguments[] = {&address, &stay_ns, &draw};
	return trial->cuda->cuLaunchKernelEx(&config, trial->kernel, arguments, NULL);
}

/* Polls until the launch has ended. Waiting in the driver is not possible, because the launch may never end. */
static int await_launch(const struct gpc_trial *trial)
{
	int64_t began_ns = hb_clock_now_ns();
	CUresult result;
	while ((result = trial->cuda->cuStreamQuery(trial->stream)) == CUDA_ERROR_NOT_READY) {
		if (hb_clock_now_ns() - began_ns < LAUNCH_MOST_NS)
			continue;
		trial->effort->hangs = true;
		return -HB_GPC_TOO_LONG;
	}
	return result == CUDA_SUCCESS ? 0 : -HB_GPC_CALL_FAILED;
}

/* Makes one launch; words[i] is what block i wrote. Returns 0 or a negative state. */
static int run_launch(struct gpc_trial *trial, const uint32_t removed[HB_GPC_WORDS], uint32_t cluster,
		      uint32_t n_blocks, uint32_t *words)
{
	const struct hb_gpc_calls *cuda = trial->cuda;
	size_t bytes = n_blocks * sizeof *words;
	if (hb_clock_now_ns() - trial->began_ns > TRIAL_MOST_NS)
		return -HB_GPC_TOO_LONG;
	if (cuda->cuMemsetD8Async(trial->records, 0, bytes, trial->stream) != CUDA_SUCCESS)
		return -HB_GPC_CALL_FAILED;
	trial->effort->launches++;
	trial->effort->cluster = cluster;
	hb_mask_remove(removed);
	CUresult result = launch_clusters(trial, cluster, n_blocks);
	hb_mask_remove(NULL);
	if (result != CUDA_SUCCESS)
		return cluster > 1 ? -HB_GPC_NO_CLUSTERS : -HB_GPC_CALL_FAILED;
	int ended = await_launch(trial);
	if (ended < 0)
		return ended;
	if (cuda->cuMemcpyDtoHAsync_v2(words, trial->records, bytes, trial->stream) != CUDA_SUCCESS ||
	    cuda->cuStreamSynchronize(trial->stream) != CUDA_SUCCESS)
		return -HB_GPC_CALL_FAILED;
	return 0;
}

/* Adds a launch to the sightings. Fails if a block reports another cluster than its own, except in a launch without
 * clusters, which need not number them. */
static int join_launch(struct hb_gpc_sights *sights, uint32_t *words, uint32_t n_blocks, uint32_t cluster)
{
	for (uint32_t i = 0; i < n_blocks; i++) {
		if ((cluster > 1 && words[i] >> 16 != i / cluster) || !(words[i] & 0xffff))
			return -HB_GPC_NO_CLUSTERS;
		words[i] = (words[i] & 0xffff) - 1;
	}
	return hb_gpc_join(sights, words, n_blocks, cluster) < 0 ? -HB_GPC_NO_GROUPS : 0;
}

/* Returns the size of the largest group so far, at least 2: the two SMs of a TPC are always together. */
static uint32_t find_largest_group(const struct hb_gpc_sights *sights)
{
	struct hb_gpc_sizes sizes;
	uint32_t most = HB_GPC_SMS_MAX;
	hb_gpc_sizes_of(sights, &sizes);
	while (most > HB_GPC_SMS_PER_BIT && !sizes.with[most])
		most--;
	return most;
}

static int run_round(struct gpc_trial *trial, const uint32_t removed[HB_GPC_WORDS], uint32_t n_sms,
		     struct hb_gpc_sights *sights)
{
	uint32_t words[BLOCKS_MOST];
	for (int i = 0; i < SIZES; i++) {
		uint32_t cluster = cluster_sizes[i], n_blocks = WAVES * n_sms / cluster * cluster;
		if (cluster > find_largest_group(sights))
			continue;
		int result = run_launch(trial, removed, cluster, n_blocks, words);
		if (result == 0)
			result = join_launch(sights, words, n_blocks, cluster);
		if (result < 0)
			return result;
	}
	return 0;
}

/* An hb_gpc_show. */
static int show_groups(void *user, const uint32_t removed[HB_GPC_WORDS], uint32_t n_sms, struct hb_gpc_sizes *sizes)
{
	struct gpc_trial *trial = user;
	struct hb_gpc_sights sights = {{0}};
	int calm = 0;
	trial->effort->looks++;
	for (int i = 0; i < ROUNDS_MOST && (calm < CALM_ROUNDS || sizes->n_sms != n_sms); i++) {
		struct hb_gpc_sizes before = *sizes;
		int result = run_round(trial, removed, n_sms, &sights);
		if (result < 0)
			return result;
		hb_gpc_sizes_of(&sights, sizes);
		calm = hb_gpc_same_sizes(&before, sizes) ? calm + 1 : 0;
	}
	return 0;
}

/* Gives blocks more than half of an SM's shared memory, so that each block of a cluster has its own SM. */
static bool set_one_block_per_sm(struct gpc_trial *trial, CUdevice device)
{
	int bytes = 0;
	if (trial->cuda->cuDeviceGetAttribute(&bytes, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR,
					      device) != CUDA_SUCCESS)
		return false;
	trial->shared_bytes = (uint32_t)bytes / 2 + 1024;
	return trial->cuda->cuFuncSetAttribute(trial->kernel, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
					       (int)trial->shared_bytes) == CUDA_SUCCESS;
}

/* A real driver refuses one image and the simulated driver the other; a driver for a GPU without clusters refuses both. */
static enum hb_gpc_state begin_trial(struct gpc_trial *trial)
{
	const struct hb_gpc_calls *cuda = trial->cuda;
	CUdevice device;
	int major = 0, sms = 0;
	if (cuda->cuCtxGetDevice(&device) != CUDA_SUCCESS ||
	    cuda->cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device) != CUDA_SUCCESS ||
	    cuda->cuDeviceGetAttribute(&sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device) != CUDA_SUCCESS)
		return HB_GPC_CALL_FAILED;
	if (major < 9)
		return HB_GPC_NO_CLUSTERS;
	if (sms < 2 * HB_GPC_ROOM_SMS || sms > HB_GPC_SMS_MAX)
		return HB_GPC_NO_GROUPS;
	if (cuda->cuModuleLoadData(&trial->module, ptx) != CUDA_SUCCESS &&
	    cuda->cuModuleLoadData(&trial->module, simulated) != CUDA_SUCCESS) {
		trial->module = NULL;
		return HB_GPC_CALL_FAILED;
	}
	bool made = cuda->cuModuleGetFunction(&trial->kernel, trial->module, "hb_meet") == CUDA_SUCCESS &&
		    set_one_block_per_sm(trial, device) &&
		    cuda->cuMemAlloc_v2(&trial->records, BLOCKS_MOST * sizeof(uint32_t)) == CUDA_SUCCESS &&
		    cuda->cuStreamCreate(&trial->stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS;
	return made ? HB_GPC_UNTRIED : HB_GPC_CALL_FAILED;
}

static void end_trial(struct gpc_trial *trial)
{
	const struct hb_gpc_calls *cuda = trial->cuda;
	if (trial->stream)
		cuda->cuStreamDestroy_v2(trial->stream);
	if (trial->records)
		cuda->cuMemFree_v2(trial->records);
	if (trial->module)
		cuda->cuModuleUnload(trial->module);
}

enum hb_gpc_state hb_gpc_trial(const struct hb_gpc_calls *cuda, struct hb_gpc_layout *layout, struct hb_gpc_seen *seen,
			       struct hb_gpc_effort *effort)
{
	struct gpc_trial trial = {.cuda = cuda, .effort = effort, .began_ns = hb_clock_now_ns()};
	uint8_t bits[HB_GPC_BITS];
	memset(effort, 0, sizeof *effort);
	memset(seen, 0, sizeof *seen);
	uint32_t n_bits = hb_mask_bits(0, bits);
	if (!n_bits)
		return HB_GPC_NO_MASKS;
	enum hb_gpc_state state = begin_trial(&trial);
	if (state == HB_GPC_UNTRIED)
		state = hb_gpc_find(bits, n_bits, show_groups, &trial, layout, seen);
	if (!effort->hangs)
		end_trial(&trial);
	effort->took_ns = hb_clock_now_ns() - trial.began_ns;
	return state;
}
