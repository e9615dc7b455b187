/* SPDX-License-Identifier: Apache-2.0 */
/* Allocations of an elastic process (elastic.h). */
#include "shim/elastic.h"

#include "base/clock.h"
#include "base/log.h"
#include "shim/drain.h"
#include "shim/hold.h"
#include "shim/hook_memory.h"
#include "shim/memory_share.h"
#include "shim/own_handles.h"
#include "shim/takeover.h"

#include <pthread.h>
#include <string.h>
#include <time.h>

/* How long an allocation waits for the daemon to grant memory of the host. */
#define GRANT_MOST_NS (300 * HB_NS_PER_MS)
#define GRANT_AGAIN_NS (20 * HB_NS_PER_MS)
#define DEFERRED_MAX 256 /* most allocations that wait for the end of a capture to be freed */

atomic_bool hb_elastic_any;

/* Held while a device is prepared, which makes driver calls that do not wait for work. */
static pthread_mutex_t preparing = PTHREAD_MUTEX_INITIALIZER;
static _Atomic(struct hb_granules *) all_granules[HB_PAGE_GPUS]; /* by CUDA device */
static struct hb_granule_driver driver;
static bool unusable[HB_PAGE_GPUS];
static atomic_bool ordinary; /* no further granules */

/* Never held during a driver call. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static CUdeviceptr deferred[DEFERRED_MAX];
static atomic_uint n_deferred;

static bool is_capturing(void)
{
	return atomic_load_explicit(&hb_captures, memory_order_relaxed) > 0;
}

/* ---- which allocations ---- */

static bool is_elastic(const struct hb_place *place)
{
	return place->page && !hb_tenant_is_high() &&
	       (atomic_load_explicit(&place->page->features, memory_order_relaxed) & HB_FEATURE_ELASTIC) &&
	       (atomic_load_explicit(&place->page->elastic, memory_order_relaxed) & HB_ELASTIC_ON) &&
	       !atomic_load_explicit(&ordinary, memory_order_relaxed);
}

static bool has_virtual_memory(CUdevice device)
{
	const CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
						.location = {CU_MEM_LOCATION_TYPE_DEVICE, device}};
	int supported = 0;
	size_t unit = 0;
	return HB_REAL(cuDeviceGetAttribute)(&supported, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
					     device) == CUDA_SUCCESS &&
	       supported &&
	       HB_REAL(cuMemGetAllocationGranularity)(&unit, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM) ==
		       CUDA_SUCCESS &&
	       unit && HB_GRANULE_UNIT % unit == 0;
}

static void fill_driver(void)
{
	driver = (struct hb_granule_driver){
		.address_reserve = HB_REAL(cuMemAddressReserve),
		.address_free = HB_REAL(cuMemAddressFree),
		.create = HB_REAL(cuMemCreate),
		.release = HB_REAL(cuMemRelease),
		.map = HB_REAL(cuMemMap),
		.unmap = HB_REAL(cuMemUnmap),
		.set_access = HB_REAL(cuMemSetAccess),
		.copy = HB_REAL(cuMemcpyDtoDAsync_v2),
		.query = HB_REAL(cuStreamQuery),
		.synchronize = HB_REAL(cuStreamSynchronize),
	};
}

/* The driver says -1 for a host without nodes, and a driver before 12.2 does not know the question. */
static CUmemLocation find_host(int device)
{
	int node = 0;
	if (HB_REAL(cuDeviceGetAttribute)(&node, CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, device) != CUDA_SUCCESS || node < 0)
		node = 0;
	return (CUmemLocation){CU_MEM_LOCATION_TYPE_HOST_NUMA, node};
}

static struct hb_granules *make_granules(const struct hb_place *place, CUdevice device)
{
	const struct hb_granule_config config = {.driver = &driver,
						 .device = device,
						 .host = find_host(device),
						 .granule_bytes = HB_GRANULE_BYTES_MAX,
						 .handle_types = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR};
	if (!has_virtual_memory(device) || !hb_elastic_record(place, device))
		return NULL;
	if (!driver.create)
		fill_driver();
	struct hb_granules *granules = hb_granules_new(&config);
	if (granules && hb_hold_prepare(hb_elastic_wake) && hb_elastic_start_thread())
		return granules;
	hb_granules_free(granules);
	return NULL;
}

/* The granules of the current device; NULL: there can be none now. */
static struct hb_granules *prepare_device(const struct hb_place *place)
{
	CUdevice device;
	CUcontext context;
	if (HB_REAL(cuCtxGetDevice)(&device) != CUDA_SUCCESS || device < 0 || device >= HB_PAGE_GPUS ||
	    place->gpu_of_device[device] >= HB_PAGE_GPUS)
		return NULL;
	/* Work of a context that the shim does not know could not be waited for. */
	if (HB_REAL(cuCtxGetCurrent)(&context) != CUDA_SUCCESS || !hb_drain_knows_context(context))
		return NULL;
	struct hb_granules *granules = hb_elastic_granules(device);
	if (granules)
		return granules;
	pthread_mutex_lock(&preparing);
	granules = hb_elastic_granules(device);
	if (!granules && !unusable[device]) {
		granules = make_granules(place, device);
		unusable[device] = !granules;
		atomic_store(&all_granules[device], granules);
	}
	pthread_mutex_unlock(&preparing);
	return granules;
}

static void free_deferred(void);

bool hb_elastic_allocate(CUdeviceptr *pointer, size_t bytes)
{
	const struct hb_place *place = hb_place();
	if (bytes < HB_GRANULE_UNIT || !pointer || !is_elastic(place) || is_capturing())
		return false;
	free_deferred();
	struct hb_granules *granules = prepare_device(place);
	if (!granules || HB_DOUBT(hb_granules_allocate(granules, bytes, pointer)) != CUDA_SUCCESS)
		return false;
	atomic_store(&hb_elastic_any, true);
	hb_elastic_note_change();
	return true;
}

struct hb_granules *hb_elastic_prepare(int device)
{
	const struct hb_place *place = hb_place();
	CUdevice current;
	if (!is_elastic(place) || HB_REAL(cuCtxGetDevice)(&current) != CUDA_SUCCESS || current != device)
		return NULL;
	struct hb_granules *granules = prepare_device(place);
	if (granules)
		atomic_store(&hb_elastic_any, true);
	return granules;
}

bool hb_elastic_has_over(const struct hb_place *place)
{
	return is_elastic(place) &&
	       (atomic_load_explicit(&place->page->elastic, memory_order_relaxed) & HB_ELASTIC_OVER);
}

/* A process that has just got its record waits for the daemon's next tick, which grants memory of the host. */
static CUresult allocate_within_limit(const struct hb_place *place, struct hb_granules *granules, size_t bytes,
				      size_t local_bytes, size_t *over_bytes, CUdeviceptr *pointer)
{
	const int64_t until_ns = hb_clock_now_ns() + GRANT_MOST_NS;
	CUdevice device;
	CUresult result = HB_REAL(cuCtxGetDevice)(&device);
	const struct hb_page_elastic *record = result == CUDA_SUCCESS ? hb_elastic_record(place, device) : NULL;
	if (!record)
		return CUDA_ERROR_OUT_OF_MEMORY;
	for (;;) {
		hb_granules_limit_host(granules, atomic_load_explicit(&record->host_limit_bytes, memory_order_relaxed));
		result = hb_granules_allocate_over(granules, bytes, local_bytes, over_bytes, pointer);
		if (result != CUDA_ERROR_OUT_OF_MEMORY || hb_clock_now_ns() >= until_ns)
			return HB_DOUBT(result);
		nanosleep(&(struct timespec){.tv_nsec = GRANT_AGAIN_NS}, NULL);
	}
}

bool hb_elastic_allocate_over(CUdeviceptr *pointer, size_t bytes, struct hb_claim *claim)
{
	const struct hb_place *place = hb_place();
	if (bytes < HB_GRANULE_UNIT || bytes > SIZE_MAX - HB_GRANULE_UNIT || !pointer || !hb_elastic_has_over(place) ||
	    is_capturing())
		return false;
	free_deferred();
	struct hb_granules *granules = prepare_device(place);
	if (!granules)
		return false;
	/* What is noted is what granules take, so that the sums agree when they move. */
	const size_t all = (bytes + HB_GRANULE_UNIT - 1) / HB_GRANULE_UNIT * HB_GRANULE_UNIT;
	size_t over = 0, local = hb_memory_claim_part(claim, hb_tenant_gpu(), all, HB_GRANULE_UNIT);
	bool done = allocate_within_limit(place, granules, bytes, local, &over, pointer) == CUDA_SUCCESS;
	hb_memory_adjust(claim, done ? all - over : 0);
	claim->bytes = all;
	if (done) {
		atomic_store(&hb_elastic_any, true);
		hb_elastic_note_change();
	}
	return done;
}

void hb_elastic_stop_allocating(void)
{
	atomic_store(&ordinary, true);
}

/* ---- look-up ---- */

struct hb_granules *hb_elastic_granules(int device)
{
	return device >= 0 && device < HB_PAGE_GPUS ? atomic_load(&all_granules[device]) : NULL;
}

bool hb_elastic_find(CUdeviceptr pointer, struct hb_elastic_found *found)
{
	if (!atomic_load_explicit(&hb_elastic_any, memory_order_relaxed))
		return false;
	for (int device = 0; device < HB_PAGE_GPUS; device++) {
		struct hb_granules *granules = hb_elastic_granules(device);
		found->device = device;
		if (granules && hb_granules_find(granules, pointer, &found->range))
			return true;
	}
	return false;
}

/* Pinned first, so that no order moves it in between. */
CUresult hb_elastic_pin(CUdeviceptr pointer, enum hb_granules_stay why)
{
	struct hb_elastic_found found;
	if (!hb_elastic_find(pointer, &found))
		return CUDA_SUCCESS;
	struct hb_granules *granules = hb_elastic_granules(found.device);
	(void)hb_granules_pin(granules, pointer, why);
	CUresult result = hb_elastic_bring_home(&found);
	if (result != CUDA_SUCCESS) {
		(void)hb_granules_pin(granules, pointer, found.range.stays);
		hb_log_warning(
			"elastic memory: an allocation of %zu bytes is in memory of the host or of another GPU and "
			"could not return, so it cannot be shared now",
			found.range.bytes);
	}
	hb_elastic_note_change();
	return result;
}

size_t hb_elastic_moved_bytes(int device)
{
	struct hb_granules_bytes counts;
	struct hb_granules *granules = hb_elastic_granules(device);
	if (!granules)
		return 0;
	hb_granules_count(granules, &counts);
	return counts.peer + counts.host;
}

/* ---- free ---- */

static CUresult wait_for_context(CUcontext context)
{
	CUcontext before;
	if (!context)
		return HB_REAL(cuCtxSynchronize)();
	CUresult result = HB_REAL(cuCtxPushCurrent_v2)(context);
	if (result != CUDA_SUCCESS)
		return result;
	result = HB_REAL(cuCtxSynchronize)();
	HB_REAL(cuCtxPopCurrent_v2)(&before);
	return result;
}

static CUresult free_now(CUdeviceptr pointer, const struct hb_elastic_found *found)
{
	struct hb_memory_entry entry = {.owner = 0};
	bool known = hb_memory_begin_free(HB_MEMORY_POINTER, pointer, &entry);
	CUresult result = wait_for_context((CUcontext)(uintptr_t)entry.owner);
	size_t over = 0;
	if (result == CUDA_SUCCESS)
		result = hb_granules_release(hb_elastic_granules(found->device), pointer, entry.bytes, &over);
	entry.bytes -= over;
	hb_elastic_note_change();
	return hb_memory_released(known, &entry, result);
}

/* With the lock held. Returns the number of deferred frees if it is not among them. */
static unsigned find_deferred(CUdeviceptr pointer)
{
	unsigned i = 0;
	while (i < atomic_load(&n_deferred) && deferred[i] != pointer)
		i++;
	return i;
}

static CUresult free_later(CUdeviceptr pointer)
{
	CUresult result = CUDA_SUCCESS;
	pthread_mutex_lock(&lock);
	unsigned n = atomic_load(&n_deferred);
	if (find_deferred(pointer) < n)
		result = CUDA_ERROR_INVALID_VALUE;
	else if (n == DEFERRED_MAX)
		result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	else {
		deferred[n] = pointer;
		atomic_store(&n_deferred, n + 1);
	}
	pthread_mutex_unlock(&lock);
	return result;
}

static void forget_deferred(CUdeviceptr pointer)
{
	pthread_mutex_lock(&lock);
	unsigned n = atomic_load(&n_deferred), i = find_deferred(pointer);
	if (i < n) {
		deferred[i] = deferred[n - 1];
		atomic_store(&n_deferred, n - 1);
	}
	pthread_mutex_unlock(&lock);
}

static bool take_deferred(CUdeviceptr *pointer)
{
	pthread_mutex_lock(&lock);
	unsigned n = atomic_load(&n_deferred);
	if (n) {
		*pointer = deferred[n - 1];
		atomic_store(&n_deferred, n - 1);
	}
	pthread_mutex_unlock(&lock);
	return n > 0;
}

static void free_deferred(void)
{
	CUdeviceptr pointer;
	struct hb_elastic_found found;
	while (atomic_load_explicit(&n_deferred, memory_order_relaxed) && !is_capturing() && take_deferred(&pointer))
		if (hb_elastic_find(pointer, &found) && free_now(pointer, &found) != CUDA_SUCCESS) {
			(void)free_later(pointer);
			return;
		}
}

bool hb_elastic_free(CUdeviceptr pointer, CUresult *result)
{
	struct hb_elastic_found found;
	if (!hb_elastic_find(pointer, &found))
		return false;
	free_deferred();
	if (found.range.base != pointer)
		*result = CUDA_ERROR_INVALID_VALUE;
	else if (is_capturing())
		*result = free_later(pointer);
	else
		*result = HB_WIDE(free_now(pointer, &found));
	return true;
}

size_t hb_elastic_drop(CUdeviceptr pointer, size_t counted_bytes)
{
	struct hb_elastic_found found;
	size_t over = 0;
	if (!hb_elastic_find(pointer, &found) || found.range.base != pointer)
		return 0;
	forget_deferred(pointer);
	(void)hb_granules_release(hb_elastic_granules(found.device), pointer, counted_bytes, &over);
	hb_elastic_note_change();
	return over;
}

/* ---- fork ---- */

void hb_elastic_leave_in_child(void)
{
	hb_elastic_thread_leave_in_child();
	hb_own_leave_in_child();
	hb_share_export_leave_in_child();
	hb_share_import_leave_in_child();
	hb_hold_leave_in_child();
	pthread_mutex_init(&preparing, NULL);
	pthread_mutex_init(&lock, NULL);
	/* Not freed: the parent's threads may have held locks of the granules and of the allocator at the fork. */
	for (int device = 0; device < HB_PAGE_GPUS; device++)
		atomic_store(&all_granules[device], NULL);
	memset(unusable, 0, sizeof(unusable));
	atomic_store(&ordinary, false);
	atomic_store(&hb_elastic_any, false);
	atomic_store(&n_deferred, 0);
}
