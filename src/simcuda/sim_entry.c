/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The exported driver functions, generated from cuda_api.def, and their common
 * parts: failures injected by HB_SIM_FAIL, and the variants whose NULL stream is
 * the thread's own. Also entry-point lookup. sim_missing.c has the driver's names
 * that the simulated driver does not implement.
 */
#include "simcuda/sim_driver.h"

#include "base/log.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define EXPORT __attribute__((visibility("default")))

_Thread_local int sim_per_thread;

enum {
#define HB_CU(base, symbol, since, streams, params, args) ENTRY_##symbol,
#include "nvidia/cuda_api.def"
#undef HB_CU
	ENTRIES
};

struct driver_entry {
	const char *base, *symbol;
	int since;
	void *plain, *per_thread; /* per_thread NULL = the call has no per-thread variant */
};

/*
 * An injected failure of one function: calls after..after+times-1 take slow_ms longer. Then the process gets the signal, or,
 * unless `code` is 0, the call fails with it.
 */
struct injected_fault {
	bool set;
	int code, signal;
	uint64_t after, times, slow_ms, calls;
};
static pthread_mutex_t faults_lock = PTHREAD_MUTEX_INITIALIZER;
static struct injected_fault faults[ENTRIES];
static uint64_t faults_hit;
static atomic_bool faulty;

/* Counts the call. Returns whether the failure hits it. */
static bool is_hit(int entry, struct injected_fault *fault)
{
	pthread_mutex_lock(&faults_lock);
	*fault = faults[entry];
	faults[entry].calls++;
	bool hit = fault->set && fault->calls >= fault->after && fault->calls - fault->after < fault->times;
	faults_hit += hit;
	pthread_mutex_unlock(&faults_lock);
	return hit;
}

static CUresult fault_of(int entry)
{
	struct injected_fault fault;
	if (!is_hit(entry, &fault))
		return CUDA_SUCCESS;
	if (fault.slow_ms)
		nanosleep(&(struct timespec){(time_t)(fault.slow_ms / 1000), (long)(fault.slow_ms % 1000) * 1000000},
			  NULL);
	if (fault.signal)
		raise(fault.signal);
	return (CUresult)fault.code;
}

#define ENTER(symbol) \
	do { \
		CUresult fault; \
		if (__builtin_expect(atomic_load_explicit(&faulty, memory_order_relaxed), 0) && \
		    (fault = fault_of(ENTRY_##symbol)) != CUDA_SUCCESS) \
			return fault; \
	} while (0)

#define HB_CU(base, symbol, since, streams, params, args) \
	EXPORT CUresult symbol params \
	{ \
		ENTER(symbol); \
		return sim_##symbol args; \
	} \
	TWIN_##streams(symbol, params, args)
#define TWIN_NONE(symbol, params, args)
#define TWIN(twin, symbol, params, args) \
	EXPORT CUresult twin params \
	{ \
		ENTER(symbol); \
		sim_per_thread++; \
		CUresult result = sim_##symbol args; \
		sim_per_thread--; \
		return result; \
	}
#define TWIN_PTSZ(symbol, params, args) TWIN(symbol##_ptsz, symbol, params, args)
#define TWIN_PTDS(symbol, params, args) TWIN(symbol##_ptds, symbol, params, args)
#include "nvidia/cuda_api.def"
#undef HB_CU

#define ADDRESS_NONE(symbol) NULL
#define ADDRESS_PTSZ(symbol) (void *)(uintptr_t)symbol##_ptsz
#define ADDRESS_PTDS(symbol) (void *)(uintptr_t)symbol##_ptds
static const struct driver_entry entries[ENTRIES] = {
#define HB_CU(base, symbol, since, streams, params, args) \
	{#base, #symbol, since, (void *)(uintptr_t)symbol, ADDRESS_##streams(symbol)},
#include "nvidia/cuda_api.def"
#undef HB_CU
};

void *sim_missing_find(const char *base); /* sim_missing.c */

static uint64_t number_after(const char *text, const char *key, uint64_t otherwise)
{
	const char *found = strstr(text, key);
	return found ? strtoull(found + strlen(key), NULL, 10) : otherwise;
}

/* "cuFoo:2:after=10:times=1", "cuFoo:0:slow=100", "cuFoo:kill:after=3" */
static void read_fault(char *text)
{
	char *rest = strchr(text, ':');
	if (!rest)
		return;
	*rest++ = '\0';
	for (int i = 0; i < ENTRIES; i++) {
		if (strcmp(entries[i].symbol, text) != 0)
			continue;
		faults[i].set = true;
		faults[i].code = atoi(rest);
		faults[i].signal = strncmp(rest, "kill", 4) == 0   ? SIGKILL
				   : strncmp(rest, "stop", 4) == 0 ? SIGSTOP
								   : 0;
		faults[i].after = number_after(rest, "after=", 0);
		faults[i].times = number_after(rest, "times=", UINT64_MAX);
		faults[i].slow_ms = number_after(rest, "slow=", 0);
		atomic_store(&faulty, true);
		return;
	}
	hb_log_warning("HB_SIM_FAIL: %s is not a function of the simulated driver", text);
}

/* With the lock held, or before there are threads. */
static void read_list(const char *list)
{
	char *copy = list ? strdup(list) : NULL, *state = NULL;
	for (char *item = copy ? strtok_r(copy, ",", &state) : NULL; item; item = strtok_r(NULL, ",", &state))
		read_fault(item);
	free(copy);
}

__attribute__((constructor)) static void read_faults(void)
{
	read_list(getenv("HB_SIM_FAIL"));
}

uint64_t sim_set_faults(const char *list)
{
	pthread_mutex_lock(&faults_lock);
	uint64_t hit = faults_hit;
	memset(faults, 0, sizeof(faults));
	faults_hit = 0;
	atomic_store(&faulty, false);
	read_list(list);
	pthread_mutex_unlock(&faults_lock);
	return hit;
}

static bool is_listed(const char *variable, const char *name)
{
	const char *list = getenv(variable);
	size_t n = strlen(name);
	for (const char *at = list; at && (at = strstr(at, name)); at += n)
		if ((at == list || at[-1] == ',') && (at[n] == '\0' || at[n] == ','))
			return true;
	return false;
}

/* HB_SIM_MISSING=cuFoo,cuBar: entry-point lookup does not find these names, as in an older driver. */
static bool listed_missing(const char *name)
{
	return is_listed("HB_SIM_MISSING", name);
}

/* HB_SIM_NEWER=cuFoo,cuBar: a program for a later CUDA finds functions under these names that no other driver has. */
static CUresult call_newer(void)
{
	return sim_unsupported("a function of a later driver");
}

static CUdriverProcAddressQueryResult find_entry(const char *name, int version, uint64_t flags, void **found)
{
	const struct driver_entry *best = NULL;
	bool implemented = false, known = false;
	*found = NULL;
	for (int i = 0; i < ENTRIES; i++) {
		const struct driver_entry *entry = &entries[i];
		if (strcmp(entry->base, name) != 0)
			continue;
		implemented = true;
		if (listed_missing(entry->symbol) || entry->since > sim.driver_version)
			continue;
		known = true;
		if (entry->since <= version && (!best || entry->since > best->since))
			best = entry;
	}
	if (best) {
		bool own = (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) && best->per_thread &&
			   version >= 7000;
		*found = own ? best->per_thread : best->plain;
		return CU_GET_PROC_ADDRESS_SUCCESS;
	}
	if (known)
		return CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
	*found = implemented ? NULL : sim_missing_find(name);
	return *found ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
}

CUresult sim_cuGetProcAddress_v2(const char *symbol, void **pfn, int cudaVersion, uint64_t flags,
				 CUdriverProcAddressQueryResult *symbolStatus)
{
	if (!symbol || !pfn)
		return CUDA_ERROR_INVALID_VALUE;
	if (!sim.driver_version) {
		const char *version = getenv("HB_SIM_DRIVER_VERSION");
		sim.driver_version = version && atoi(version) > 0 ? atoi(version) : CUDA_VERSION;
	}
	CUdriverProcAddressQueryResult status = find_entry(symbol, cudaVersion, flags, pfn);
	if (cudaVersion > CUDA_VERSION && is_listed("HB_SIM_NEWER", symbol)) {
		*pfn = (void *)call_newer;
		status = CU_GET_PROC_ADDRESS_SUCCESS;
	}
	if (listed_missing(symbol)) {
		*pfn = NULL;
		status = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
	}
	if (symbolStatus)
		*symbolStatus = status;
	return status == CU_GET_PROC_ADDRESS_SUCCESS ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

CUresult sim_cuGetProcAddress(const char *symbol, void **pfn, int cudaVersion, uint64_t flags)
{
	return sim_cuGetProcAddress_v2(symbol, pfn, cudaVersion, flags, NULL);
}

CUresult sim_unsupported(const char *name)
{
	atomic_fetch_add(&sim.unsupported, 1);
	hb_log_info("%s: not in the simulated driver", name);
	return CUDA_ERROR_NOT_SUPPORTED;
}
