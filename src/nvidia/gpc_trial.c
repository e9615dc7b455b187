/* SPDX-License-Identifier: Apache-2.0 */
/* See gpc_trial.h. */
#include "nvidia/gpc_trial.h"

#include "base/clock.h"
#include "nvidia/gpc_rank.h"

#include <string.h>

/* Blocks that an SM runs one after the other in one launch; each stays for one to eight times STAY_NS, so that clusters
 * find other SMs free each time. */
#define WAVES 8
#define STAY_NS 2000
#define THREADS 32
#define BLOCKS_MOST (WAVES * HB_GPC_SMS_MAX)
/* A look ends when two rounds of all sizes have shown nothing new, or with the last round. */
#define CALM_ROUNDS 2
#define ROUNDS_MOST 24
#define TRIAL_MOST_NS (40 * HB_NS_PER_S)
/* One launch takes 0.3 ms, and a few turns of others who use the GPU. */
#define LAUNCH_MOST_NS (10 * HB_NS_PER_S)

/* The odd ones join what even ones keep apart; those of one block show SMs that no cluster reaches. In this order: what was
 * seen so far says how large the next ones may be. */
static const uint32_t cluster_sizes[] = {2, 3, 5, 8, 1};
enum { SIZES = sizeof cluster_sizes / sizeof cluster_sizes[0] };

/* Each block writes its cluster and its SM plus one, and stays for a time that is drawn. */
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

struct trial {
	const struct hb_gpc_calls *cuda;
	struct hb_gpc_effort *effort;
	CUmodule module;
	CUfunction kernel;
	CUdeviceptr records;
	CUstream stream;
	uint32_t shared_bytes;
	int64_t began_ns;
};

static CUresult launch(const struct trial *trial, uint32_t cluster, uint32_t n_blocks)
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

/* Until what was launched has ended. Nobody may wait for it in the driver, for it may never end. */
static int await(const struct trial *trial)
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

/* One launch; words[i] is what block i wrote. 0 or a negative state. */
static int run(struct trial *trial, const uint32_t removed[HB_GPC_WORDS], uint32_t cluster, uint32_t n_blocks,
	       uint32_t *words)
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
	CUresult result = launch(trial, cluster, n_blocks);
	hb_mask_remove(NULL);
	if (result != CUDA_SUCCESS)
		return cluster > 1 ? -HB_GPC_NO_CLUSTERS : -HB_GPC_CALL_FAILED;
	int ended = await(trial);
	if (ended < 0)
		return ended;
	if (cuda->cuMemcpyDtoHAsync_v2(words, trial->records, bytes, trial->stream) != CUDA_SUCCESS ||
	    cuda->cuStreamSynchronize(trial->stream) != CUDA_SUCCESS)
		return -HB_GPC_CALL_FAILED;
	return 0;
}

/* Blocks that are not in the cluster that they should be in: the launch was not what was asked for. A launch that names no
 * clusters need not number them. */
static int join(struct hb_gpc_sights *sights, uint32_t *words, uint32_t n_blocks, uint32_t cluster)
{
	for (uint32_t i = 0; i < n_blocks; i++) {
		if ((cluster > 1 && words[i] >> 16 != i / cluster) || !(words[i] & 0xffff))
			return -HB_GPC_NO_CLUSTERS;
		words[i] = (words[i] & 0xffff) - 1;
	}
	return hb_gpc_join(sights, words, n_blocks, cluster) < 0 ? -HB_GPC_NO_GROUPS : 0;
}

/* The largest group so far. Two SMs of a TPC are always together, so that much may be tried from the start. */
static uint32_t most_together(const struct hb_gpc_sights *sights)
{
	struct hb_gpc_sizes sizes;
	uint32_t most = HB_GPC_SMS_MAX;
	hb_gpc_sizes_of(sights, &sizes);
	while (most > HB_GPC_SMS_PER_BIT && !sizes.with[most])
		most--;
	return most;
}

static int round_of_sizes(struct trial *trial, const uint32_t removed[HB_GPC_WORDS], uint32_t n_sms,
			  struct hb_gpc_sights *sights)
{
	uint32_t words[BLOCKS_MOST];
	for (int i = 0; i < SIZES; i++) {
		uint32_t cluster = cluster_sizes[i], n_blocks = WAVES * n_sms / cluster * cluster;
		if (cluster > most_together(sights))
			continue;
		int result = run(trial, removed, cluster, n_blocks, words);
		if (result == 0)
			result = join(sights, words, n_blocks, cluster);
		if (result < 0)
			return result;
	}
	return 0;
}

/* An hb_gpc_show. */
static int show(void *user, const uint32_t removed[HB_GPC_WORDS], uint32_t n_sms, struct hb_gpc_sizes *sizes)
{
	struct trial *trial = user;
	struct hb_gpc_sights sights = {{0}};
	int calm = 0;
	trial->effort->looks++;
	for (int i = 0; i < ROUNDS_MOST && (calm < CALM_ROUNDS || sizes->n_sms != n_sms); i++) {
		struct hb_gpc_sizes before = *sizes;
		int result = round_of_sizes(trial, removed, n_sms, &sights);
		if (result < 0)
			return result;
		hb_gpc_sizes_of(&sights, sizes);
		calm = hb_gpc_same_sizes(&before, sizes) ? calm + 1 : 0;
	}
	return 0;
}

/* More than half of an SM's shared memory, so that each block of a cluster has an SM of its own. */
static bool take_an_sm(struct trial *trial, CUdevice device)
{
	int bytes = 0;
	if (trial->cuda->cuDeviceGetAttribute(&bytes, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR,
					      device) != CUDA_SUCCESS)
		return false;
	trial->shared_bytes = (uint32_t)bytes / 2 + 1024;
	return trial->cuda->cuFuncSetAttribute(trial->kernel, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
					       (int)trial->shared_bytes) == CUDA_SUCCESS;
}

/* A real driver refuses the one image, a simulated one the other; one for a GPU without clusters both. */
static enum hb_gpc_state begin_trial(struct trial *trial)
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
		    take_an_sm(trial, device) &&
		    cuda->cuMemAlloc_v2(&trial->records, BLOCKS_MOST * sizeof(uint32_t)) == CUDA_SUCCESS &&
		    cuda->cuStreamCreate(&trial->stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS;
	return made ? HB_GPC_UNTRIED : HB_GPC_CALL_FAILED;
}

static void end_trial(struct trial *trial)
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
	struct trial trial = {.cuda = cuda, .effort = effort, .began_ns = hb_clock_now_ns()};
	uint8_t bits[HB_GPC_BITS];
	memset(effort, 0, sizeof *effort);
	memset(seen, 0, sizeof *seen);
	uint32_t n_bits = hb_mask_bits(bits);
	if (!n_bits)
		return HB_GPC_NO_MASKS;
	enum hb_gpc_state state = begin_trial(&trial);
	if (state == HB_GPC_UNTRIED)
		state = hb_gpc_find(bits, n_bits, show, &trial, layout, seen);
	if (!effort->hangs)
		end_trial(&trial);
	effort->took_ns = hb_clock_now_ns() - trial.began_ns;
	return state;
}
