/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SM masks (launch_mask.h). The table and its slots are those of the driver's tools
 * interface; the layout of the descriptor was measured on an H200 (driver 580). The
 * callback reads and writes the descriptor only, and each time only after checking
 * its version.
 */
#include "nvidia/launch_mask.h"

#include "nvidia/gpc_mask_order.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define TABLE_ID ((CUuuid){"\x2c\x8e\x0a\xd8\x07\x10\xab\x4e\x90\xdd\x54\x71\x9f\xe5\xf7\x4b"})
enum { SLOT_SUBSCRIBE = 3, SLOT_ENABLE = 6, TABLE_LEAST_BYTES = 7 * 8 };
enum { DOMAIN_LAUNCH = 0xb, ID_BEFORE_UPLOAD = 1 };

/* Offsets in 32-bit words of the descriptor. */
enum { WORD_VALID = 0, WORD_VERSION = 18, WORD_MASK = 76, MASK_BITS = HB_MASK_BITS, MASK_WORDS = MASK_BITS / 32 };
#define VALID_BIT UINT32_C(0x80000000)
#define VERSION_4_0 0x40

enum { SMS_MAX = 256, COUNT = SMS_MAX, MARKS, SMS_PER_TPC = 2, BLOCKS_PER_SM = 4, ATTEMPTS = 3, LAUNCHES_MOST = 100 };
enum { ROOM_TPCS = HB_GPC_ROOM_SMS / SMS_PER_TPC };

typedef void callback(void *user, int domain, int id, const void *parameters);
typedef int subscribe(uint32_t *handle, callback *called, void *user);
typedef int enable(uint32_t on, uint32_t handle, int domain, int id);

struct mask_words {
	uint32_t word[MASK_WORDS];
};

/* A trial needs these in its context. Each is NULL or 0 until it is made, and then stays. */
struct trial_tools {
	CUcontext context;
	CUmodule module;
	CUfunction kernel;
	CUdeviceptr marks;
	CUstream stream;
};

/* What is known of one GPU. Which bits are real differs from GPU to GPU. */
struct masked_gpu {
	/* The spread mask for each number of TPCs; written before `state` becomes WORKS, then constant. */
	struct mask_words spread[SMS_MAX / SMS_PER_TPC + 1];
	uint8_t bits[MASK_BITS]; /* those that stand for a TPC */
	/* The mask of entire GPCs for each number of TPCs, and the layout it was made for; written once before `whole` is set. */
	struct mask_words gpcs[SMS_MAX / SMS_PER_TPC + 1];
	uint8_t gpc_layout[MASK_BITS];
	bool gpcs_made;
	_Atomic(bool) whole; /* masks exclude entire GPCs now */
	_Atomic(uint32_t) state, sms;
	struct trial_tools tools; /* guarded by the callers, as trials are */
};

static struct masked_gpu gpus[HB_MASK_GPUS];
static _Atomic(uint64_t) called, unknown_versions;

/* The mask of this thread's launches; NULL = none. Initial-exec: a thread's first use allocates nothing. */
static __thread const struct mask_words *thread_mask __attribute__((tls_model("initial-exec")));

/* The callback, inside the driver on the launching thread: makes no call. The parameters begin with their own size. */
static void before_upload(void *user, int domain, int id, const void *parameters)
{
	const struct mask_words *mask = thread_mask;
	uint32_t bytes;
	if (!mask || domain != DOMAIN_LAUNCH || id != ID_BEFORE_UPLOAD || !parameters)
		return;
	atomic_fetch_add_explicit(&called, 1, memory_order_relaxed);
	memcpy(&bytes, parameters, sizeof bytes);
	uint32_t *descriptor = bytes < 5 * sizeof(void *) ? NULL : ((uint32_t *const *)parameters)[4];
	if (!descriptor || (descriptor[WORD_VERSION] & 0xff) != VERSION_4_0) {
		atomic_fetch_add_explicit(&unknown_versions, 1, memory_order_relaxed);
		return;
	}
	memcpy(&descriptor[WORD_MASK], mask->word, sizeof mask->word);
	descriptor[WORD_VALID] |= VALID_BIT;
}

/* Registers the callback, once per process: the driver keeps it. */
static enum hb_mask_state register_callback(const struct hb_mask_calls *cuda)
{
	static enum hb_mask_state taken = HB_MASK_UNTRIED;
	const CUuuid id = TABLE_ID;
	const void *const *table = NULL;
	uint32_t handle = 0;
	if (taken != HB_MASK_UNTRIED)
		return taken;
	taken = HB_MASK_NO_TABLE;
	const void *found = NULL;
	if (cuda->cuGetExportTable(&found, &id) != CUDA_SUCCESS || !found)
		return taken;
	table = found;
	/* Tables begin with their size. */
	if ((uintptr_t)table[0] < TABLE_LEAST_BYTES || !table[SLOT_SUBSCRIBE] || !table[SLOT_ENABLE])
		return taken;
	taken = HB_MASK_NOT_TAKEN;
	if (((subscribe *)(uintptr_t)table[SLOT_SUBSCRIBE])(&handle, before_upload, NULL) == 0 &&
	    ((enable *)(uintptr_t)table[SLOT_ENABLE])(1, handle, DOMAIN_LAUNCH, ID_BEFORE_UPLOAD) == 0)
		taken = HB_MASK_WORKS;
	return taken;
}

/* --- the trial ------------------------------------------------------------------------ */

/*
 * The kernel marks its SM, counts its blocks, and stays for a while, so that every SM gets a block. Numbers of SMs may have
 * gaps, so it checks that the mark is not the count.
 */
static const char ptx[] = ".version 7.0\n.target sm_70\n.address_size 64\n"
			  ".visible .entry hb_mark(.param .u64 marks, .param .u64 ns)\n{\n"
			  ".reg .u64 %at, %off, %now, %end;\n.reg .u32 %sm, %one, %thread;\n.reg .pred %more, %first;\n"
			  "ld.param.u64 %at, [marks];\nld.param.u64 %end, [ns];\n"
			  "mov.u32 %one, 1;\nmov.u32 %thread, %tid.x;\nsetp.eq.u32 %first, %thread, 0;\n"
			  "@%first red.global.add.u32 [%at+1024], %one;\n"
			  "mov.u32 %sm, %smid;\nmul.wide.u32 %off, %sm, 4;\nadd.u64 %at, %at, %off;\n"
			  "setp.lt.u32 %more, %sm, 256;\n@%more st.global.u32 [%at], %one;\n"
			  "mov.u64 %now, %globaltimer;\nadd.u64 %end, %end, %now;\n"
			  "L: mov.u64 %now, %globaltimer;\nsetp.lt.u64 %more, %now, %end;\n@%more bra L;\nret;\n}\n";
static const char simulated[] = "HBSIM1\nmarks hb_mark\n";

struct mask_trial {
	const struct hb_mask_calls *cuda;
	struct masked_gpu *gpu;
	int sms;
	uint64_t stay_ns;
	int calm;          /* number of launches without a new SM after which no more SMs are expected */
	bool failed, lost; /* a call failed; a launch had fewer blocks than it should */
};
_Static_assert(SMS_MAX == 256 && COUNT * sizeof(uint32_t) == 1024, "the kernel counts blocks behind the marks");

/* Makes one launch with this mask. It marks the SMs that it uses, and adds its blocks to marks[COUNT]. */
static void mark_sms(struct mask_trial *trial, const struct mask_words *mask, uint32_t marks[MARKS])
{
	const struct hb_mask_calls *cuda = trial->cuda;
	const struct trial_tools *tools = &trial->gpu->tools;
	uint64_t address = tools->marks;
	void *arguments[] = {&address, &trial->stay_ns};
	thread_mask = mask;
	CUresult result = cuda->cuLaunchKernel(tools->kernel, (unsigned)(BLOCKS_PER_SM * trial->sms), 1, 1, 1024, 1, 1,
					       0, tools->stream, arguments, NULL);
	thread_mask = NULL;
	if (result == CUDA_SUCCESS)
		result = cuda->cuMemcpyDtoHAsync_v2(marks, tools->marks, MARKS * sizeof *marks, tools->stream);
	if (result == CUDA_SUCCESS)
		result = cuda->cuStreamSynchronize(tools->stream);
	trial->failed |= result != CUDA_SUCCESS;
}

/*
 * Counts the SMs that launches with this mask use; `least` are expected. A launch misses SMs that other programs occupy, so
 * many launches may be necessary.
 */
static int count_sms(struct mask_trial *trial, const struct mask_words *mask, int least)
{
	uint32_t marks[MARKS], blocks = 0;
	int n = 0, calm = 0;
	const struct trial_tools *tools = &trial->gpu->tools;
	trial->failed |= trial->cuda->cuMemsetD8Async(tools->marks, 0, sizeof marks, tools->stream) != CUDA_SUCCESS;
	for (int i = 0; i < LAUNCHES_MOST && !trial->failed && n < trial->sms && (n < least || calm < trial->calm);
	     i++) {
		int before = n;
		mark_sms(trial, mask, marks);
		blocks += (uint32_t)(BLOCKS_PER_SM * trial->sms);
		trial->lost |= !trial->failed && marks[COUNT] != blocks;
		n = 0;
		for (int sm = 0; !trial->failed && sm < SMS_MAX; sm++)
			n += marks[sm] != 0;
		calm = n == before ? calm + 1 : 0;
	}
	return trial->failed ? 0 : n;
}

/* Finds the bits that stand for a TPC by removing one bit at a time, so a launch always has SMs to run on. */
static int find_bits(struct mask_trial *trial, int bits[MASK_BITS])
{
	int n = 0, left = trial->sms - SMS_PER_TPC;
	for (int bit = 0; bit < MASK_BITS && !trial->failed; bit++) {
		struct mask_words one = {.word = {0}};
		one.word[bit / 32] = UINT32_C(1) << bit % 32;
		if (count_sms(trial, &one, left) == left)
			bits[n++] = bit;
	}
	return n;
}

/* Makes the mask for each number of TPCs, spread over the GPU; bits that stand for no TPC stay set. */
static void make_masks(struct masked_gpu *gpu, const int *bits, int n)
{
	for (int keep = 0; keep <= n; keep++) {
		struct mask_words *mask = &gpu->spread[keep];
		memset(mask, 0xff, sizeof *mask);
		for (int i = 0; i < n; i++)
			if ((i + 1) * keep / n > i * keep / n)
				mask->word[bits[i] / 32] &= ~(UINT32_C(1) << bits[i] % 32);
	}
}

/* Checks that the bits found account for all SMs, and that half a mask halves the SMs of a launch. */
static enum hb_mask_state judge_bits(struct mask_trial *trial)
{
	int bits[MASK_BITS], n;
	if (count_sms(trial, NULL, trial->sms) != trial->sms)
		return trial->failed ? HB_MASK_CALL_FAILED : HB_MASK_UNCLEAR;
	n = find_bits(trial, bits);
	if (trial->failed)
		return HB_MASK_CALL_FAILED;
	if (!atomic_load(&called))
		return HB_MASK_NOT_CALLED;
	if (atomic_load(&unknown_versions))
		return HB_MASK_VERSION;
	if (trial->lost)
		return HB_MASK_LOST_BLOCKS;
	if (n == 0)
		return HB_MASK_NO_EFFECT;
	if (n * SMS_PER_TPC != trial->sms)
		return HB_MASK_UNCLEAR;
	make_masks(trial->gpu, bits, n);
	for (int i = 0; i < n; i++)
		trial->gpu->bits[i] = (uint8_t)bits[i];
	if (count_sms(trial, &trial->gpu->spread[n / 2], n / 2 * SMS_PER_TPC) != n / 2 * SMS_PER_TPC)
		return HB_MASK_UNCLEAR;
	if (count_sms(trial, NULL, trial->sms) != trial->sms)
		return trial->failed ? HB_MASK_CALL_FAILED : HB_MASK_STICKS;
	atomic_store(&trial->gpu->sms, (uint32_t)trial->sms);
	return HB_MASK_WORKS;
}

/* A real driver refuses one image, the simulated driver the other. */
static bool load_kernel(const struct hb_mask_calls *cuda, struct trial_tools *tools)
{
	if (tools->kernel)
		return true;
	if (!tools->module && cuda->cuModuleLoadData(&tools->module, ptx) != CUDA_SUCCESS &&
	    cuda->cuModuleLoadData(&tools->module, simulated) != CUDA_SUCCESS) {
		tools->module = NULL;
		return false;
	}
	return cuda->cuModuleGetFunction(&tools->kernel, tools->module, "hb_mark") == CUDA_SUCCESS;
}

static bool begin_trial(struct mask_trial *trial)
{
	const struct hb_mask_calls *cuda = trial->cuda;
	struct trial_tools *tools = &trial->gpu->tools;
	CUcontext context = NULL;
	CUdevice device;
	int least, greatest;
	if (cuda->cuCtxGetCurrent(&context) != CUDA_SUCCESS || cuda->cuCtxGetDevice(&device) != CUDA_SUCCESS ||
	    cuda->cuDeviceGetAttribute(&trial->sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device) != CUDA_SUCCESS ||
	    trial->sms < 2 * SMS_PER_TPC || trial->sms > SMS_MAX ||
	    cuda->cuCtxGetStreamPriorityRange(&least, &greatest) != CUDA_SUCCESS)
		return false;
	if (tools->context != context)
		*tools = (struct trial_tools){.context = context};
	return load_kernel(cuda, tools) &&
	       (tools->marks || cuda->cuMemAlloc_v2(&tools->marks, MARKS * sizeof(uint32_t)) == CUDA_SUCCESS) &&
	       (tools->stream ||
		cuda->cuStreamCreateWithPriority(&tools->stream, CU_STREAM_NON_BLOCKING, greatest) == CUDA_SUCCESS);
}

static bool is_profiled(void)
{
	const char *injected = getenv("CUDA_INJECTION64_PATH");
	return injected && *injected;
}

static bool is_switched_off(void)
{
	const char *masks_wanted = getenv("HB_MASKS");
	return masks_wanted && strcmp(masks_wanted, "0") == 0;
}

static enum hb_mask_state run_trial(const struct hb_mask_calls *cuda, struct masked_gpu *gpu)
{
	struct mask_trial trial = {.cuda = cuda, .gpu = gpu, .stay_ns = 8000, .calm = 0};
	if (is_switched_off())
		return HB_MASK_SWITCHED_OFF;
	if (is_profiled())
		return HB_MASK_PROFILER;
	enum hb_mask_state found = register_callback(cuda);
	if (found != HB_MASK_WORKS)
		return found;
	found = begin_trial(&trial) ? HB_MASK_UNCLEAR : HB_MASK_CALL_FAILED;
	/* Other programs may occupy SMs, so a second trial waits longer for them. */
	for (int i = 0; i < ATTEMPTS && found == HB_MASK_UNCLEAR; i++, trial.calm += 4)
		found = judge_bits(&trial);
	return found;
}

enum hb_mask_state hb_mask_probe(const struct hb_mask_calls *cuda, unsigned gpu)
{
	enum hb_mask_state known = (enum hb_mask_state)atomic_load(&gpus[gpu].state);
	if (known == HB_MASK_WORKS)
		return known;
	known = run_trial(cuda, &gpus[gpu]);
	atomic_store(&gpus[gpu].state, known);
	return known;
}

void hb_mask_forget_context(CUcontext context)
{
	for (struct masked_gpu *gpu = gpus; gpu < gpus + HB_MASK_GPUS; gpu++)
		if (gpu->tools.context == context)
			gpu->tools = (struct trial_tools){0};
}

void hb_mask_keep(unsigned gpu, uint32_t sms)
{
	const struct masked_gpu *known = &gpus[gpu];
	uint32_t all = atomic_load_explicit(&known->sms, memory_order_acquire);
	uint32_t half = (all / SMS_PER_TPC + 1) / 2, tpcs = sms / SMS_PER_TPC;
	const struct mask_words *table = atomic_load_explicit(&known->whole, memory_order_acquire) ? known->gpcs
												   : known->spread;
	thread_mask = sms && sms < all ? &table[tpcs > half ? tpcs : half] : NULL;
}

void hb_mask_keep_all(void)
{
	thread_mask = NULL;
}

/* ---- entire GPCs ---------------------------------------------------------------------- */

static bool are_found_bits(unsigned gpu, const uint8_t *group_of)
{
	uint8_t found[MASK_BITS];
	bool is_tpc[MASK_BITS] = {false};
	uint32_t n = hb_mask_bits(gpu, found);
	for (uint32_t i = 0; i < n; i++)
		is_tpc[found[i]] = true;
	for (int bit = 0; bit < MASK_BITS; bit++)
		if (is_tpc[bit] != (group_of[bit] != 0))
			return false;
	return n > 0;
}

static void make_gpc_masks(unsigned gpu, const uint8_t *group_of)
{
	struct masked_gpu *known = &gpus[gpu];
	uint8_t found[MASK_BITS], groups[MASK_BITS], rank[MASK_BITS];
	uint32_t n = hb_mask_bits(gpu, found);
	for (uint32_t i = 0; i < n; i++)
		groups[i] = group_of[found[i]];
	for (uint32_t keep = 0; keep <= n; keep++) {
		struct mask_words *mask = &known->gpcs[keep];
		hb_gpc_mask_order(groups, n, ROOM_TPCS, (n - keep) % ROOM_TPCS, rank);
		memset(mask, 0xff, sizeof *mask);
		for (uint32_t i = 0; i < n; i++)
			if (rank[i] < keep)
				mask->word[found[i] / 32] &= ~(UINT32_C(1) << found[i] % 32);
	}
	memcpy(known->gpc_layout, group_of, sizeof known->gpc_layout);
	known->gpcs_made = true;
}

bool hb_mask_use_gpcs(unsigned gpu, const uint8_t *group_of)
{
	struct masked_gpu *known = &gpus[gpu];
	if (group_of && !known->gpcs_made && are_found_bits(gpu, group_of))
		make_gpc_masks(gpu, group_of);
	if (group_of && (!known->gpcs_made || memcmp(known->gpc_layout, group_of, sizeof known->gpc_layout) != 0))
		return false;
	atomic_store_explicit(&known->whole, group_of != NULL, memory_order_release);
	return true;
}

bool hb_mask_uses_gpcs(unsigned gpu)
{
	return atomic_load_explicit(&gpus[gpu].whole, memory_order_relaxed);
}

uint32_t hb_mask_bits(unsigned gpu, uint8_t bits[HB_MASK_BITS])
{
	uint32_t n = hb_mask_sms(gpu) / SMS_PER_TPC;
	memcpy(bits, gpus[gpu].bits, n);
	return n;
}

void hb_mask_remove(const uint32_t removed[HB_MASK_BITS / 32])
{
	static __thread struct mask_words own __attribute__((tls_model("initial-exec")));
	bool any = false;
	for (int i = 0; removed && i < MASK_WORDS; i++) {
		own.word[i] = removed[i];
		any |= removed[i] != 0;
	}
	thread_mask = any ? &own : NULL;
}

uint32_t hb_mask_sms(unsigned gpu)
{
	return atomic_load_explicit(&gpus[gpu].sms, memory_order_acquire);
}
