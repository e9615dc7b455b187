/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fake driver (fake_driver.h). The tests of the shim use it in place of the real
 * library, with and without the shim before it.
 *
 * Its look-up knows three ages of a name: for version 14000 and later it returns
 * functions that the shim cannot know, like a driver newer than the shim. Built with
 * FAKE_OLD it lacks the functions of CUDA 12 and later.
 */
#include "fake_driver.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#pragma GCC visibility push(default)
#include "nvidia/cuda_abi.h"
const struct hb_fake_call *hb_fake_last_call(void);
unsigned hb_fake_calls(const char *name);
#define X(name) extern char name##_address[] __asm__(#name);
#include "nvidia/exports.def"
#undef X
#pragma GCC visibility pop

static const struct name {
	const char *text;
	void *address;
} names[] = {
#define X(name) {#name, name##_address},
#include "nvidia/exports.def"
#undef X
};
enum { N_NAMES = sizeof(names) / sizeof(names[0]) };

static atomic_uint calls[N_NAMES];
static __thread struct hb_fake_call last;
static __thread unsigned answer;

void *hb_fake_record(unsigned fn, const uint64_t *args);

static unsigned give_answer(void)
{
	return answer;
}

/*
 * Called by the recording stubs, which define the layout of args; returns the address
 * to which they jump. It reads as many arguments as any function has, so it often
 * reads past them into the caller's frame, which the address sanitizer would report.
 */
__attribute__((no_sanitize("address"))) void *hb_fake_record(unsigned fn, const uint64_t *args)
{
#if defined(__x86_64__)
	enum { IN_REGISTERS = 6, BETWEEN = 2 };
	const float *float0 = (const float *)(args - 16), *float1 = (const float *)(args - 14);
#else
	enum { IN_REGISTERS = 8, BETWEEN = 0 };
	const float *float0 = (const float *)(args - 16), *float1 = (const float *)(args - 14);
#endif
	last.name = names[fn].text;
	for (int i = 0; i < HB_FAKE_ARGS; i++)
		last.args[i] = args[i < IN_REGISTERS ? i : i + BETWEEN];
	last.floats[0] = *float0;
	last.floats[1] = *float1;
	atomic_fetch_add(&calls[fn], 1);
	answer = HB_FAKE_ANSWER_BASE + fn;
	return (void *)give_answer;
}

const struct hb_fake_call *hb_fake_last_call(void)
{
	return &last;
}

unsigned hb_fake_calls(const char *name)
{
	for (unsigned i = 0; i < N_NAMES; i++)
		if (strcmp(names[i].text, name) == 0)
			return atomic_load(&calls[i]);
	return 0;
}

void hb_fake_count(const char *name)
{
	for (unsigned i = 0; i < N_NAMES; i++)
		if (strcmp(names[i].text, name) == 0)
			atomic_fetch_add(&calls[i], 1);
}

CUresult cuInit(unsigned int flags)
{
	hb_fake_count("cuInit");
	return flags ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

/* Functions of a driver newer than the shim. */
static CUresult launch_of_tomorrow(void)
{
	return HB_FAKE_ANSWER_BASE - 1;
}

static CUresult wholly_new_function(void)
{
	return HB_FAKE_ANSWER_BASE - 2;
}

static void *find_exact(const char *text)
{
	for (unsigned i = 0; i < N_NAMES; i++)
		if (strcmp(names[i].text, text) == 0)
			return names[i].address;
	return NULL;
}

/* Finds base + version suffix + stream suffix with the highest version that `newest` allows. */
static void *find_version(const char *base, int newest, const char *stream_suffix)
{
	for (int v = newest; v >= 1; v--) {
		char text[128];
		if (v > 1)
			snprintf(text, sizeof(text), "%s_v%d%s", base, v, stream_suffix);
		else
			snprintf(text, sizeof(text), "%s%s", base, stream_suffix);
		void *address = find_exact(text);
		if (address)
			return address;
	}
	return NULL;
}

static void *look_up(const char *symbol, int version, uint64_t flags)
{
	if (version >= 14000 && strcmp(symbol, "cuLaunchKernel") == 0)
		return (void *)launch_of_tomorrow;
	if (strcmp(symbol, "cuBrandNewFunction") == 0)
		return (void *)wholly_new_function;
	int newest = version >= 13000 ? 4 : version >= 4000 ? 2 : 1;
	void *address = NULL;
	if (flags & 2) { /* per-thread default stream */
		address = find_version(symbol, newest, "_ptsz");
		if (!address)
			address = find_version(symbol, newest, "_ptds");
	}
	return address ? address : find_version(symbol, newest, "");
}

static CUresult get_proc_address(const char *symbol, void **function, int version, uint64_t flags)
{
	if (!symbol || !function)
		return CUDA_ERROR_INVALID_VALUE;
	*function = look_up(symbol, version, flags);
	return *function ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

CUresult cuGetProcAddress(const char *symbol, void **function, int version, uint64_t flags)
{
	hb_fake_count("cuGetProcAddress");
	return get_proc_address(symbol, function, version, flags);
}

#ifndef FAKE_OLD
CUresult cuGetProcAddress_v2(const char *symbol, void **function, int version, uint64_t flags,
			     CUdriverProcAddressQueryResult *status)
{
	hb_fake_count("cuGetProcAddress_v2");
	CUresult result = get_proc_address(symbol, function, version, flags);
	if (status)
		*status = result == CUDA_SUCCESS ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
	return result;
}
#endif
