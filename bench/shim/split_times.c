/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures how long kernels run, by function and launch shape: the shortest of a
 * few launches, timed with events around them. The events are read at a later
 * launch of the same shape, so that nothing waits. Called at launches while
 * splitting by time is on. One lock, held for table look-ups and for driver calls
 * that do not block. Nothing is timed while a stream of the process captures,
 * because querying an event would invalidate the capture.
 */
#include "bench_levers.h"
#include "shim/shim.h"

#include <pthread.h>

/* A shape is stored in one of NEIGHBOURS entries; the entry launched longest ago is reused. */
enum { SHAPES = 4096 /* power of two */, NEIGHBOURS = 8, SAMPLES = 3 };

struct hb_split_shape {
	uint64_t key;  /* 0 = unused */
	uint64_t used; /* value of n_lookups at the last launch */
	CUcontext context;
	int64_t duration_ns;
	uint32_t n_resident, n_samples;
	CUevent begin, end; /* events of the sample in progress; NULL = none */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct hb_split_shape shapes[SHAPES];
static uint64_t n_lookups;

static uint64_t mix_key(uint64_t key, uint64_t value)
{
	key = (key ^ value) * UINT64_C(0x9e3779b97f4a7c15);
	return key ^ key >> 29;
}

static uint32_t count_resident_blocks(CUfunction function, uint32_t n_threads, uint32_t shared_bytes)
{
	CUdevice device;
	int per_sm = 0, n_sms = 0;
	if (HB_REAL(cuOccupancyMaxActiveBlocksPerMultiprocessor)(&per_sm, function, (int)n_threads, shared_bytes) !=
		    CUDA_SUCCESS ||
	    HB_REAL(cuCtxGetDevice)(&device) != CUDA_SUCCESS ||
	    HB_REAL(cuDeviceGetAttribute)(&n_sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device) != CUDA_SUCCESS)
		return 0;
	return (uint32_t)(per_sm * n_sms);
}

static void drop_sample(struct hb_split_shape *shape)
{
	if (shape->begin)
		HB_REAL(cuEventDestroy_v2)(shape->begin);
	if (shape->end)
		HB_REAL(cuEventDestroy_v2)(shape->end);
	shape->begin = shape->end = NULL;
}

/* Reads the sample if its events have completed. With the lock held. */
static void read_sample(struct hb_split_shape *shape)
{
	float ms = 0;
	if (!shape->end || atomic_load(&hb_captures) > 0 || HB_REAL(cuEventQuery)(shape->end) != CUDA_SUCCESS)
		return;
	if (HB_REAL(cuEventElapsedTime_v2)(&ms, shape->begin, shape->end) == CUDA_SUCCESS && ms > 0) {
		int64_t ns = (int64_t)((double)ms * 1e6);
		if (!shape->duration_ns || ns < shape->duration_ns)
			shape->duration_ns = ns;
		shape->n_samples++;
	}
	drop_sample(shape);
}

/* A thread has recorded the begin event and is about to record the end event. */
static bool has_open_sample(const struct hb_split_shape *shape)
{
	return shape->begin && !shape->end;
}

static bool can_be_reused(const struct hb_split_shape *shape)
{
	return !shape->begin || (shape->end && atomic_load(&hb_captures) <= 0);
}

/* Returns the entry of this key, or one that can be reused for it; NULL: none. */
static struct hb_split_shape *find_entry(uint64_t key)
{
	struct hb_split_shape *oldest = NULL;
	for (unsigned i = 0; i < NEIGHBOURS; i++) {
		struct hb_split_shape *shape = &shapes[((key >> 1) + i) % SHAPES];
		if (shape->key == key)
			return shape;
		if (can_be_reused(shape) && (!oldest || shape->used < oldest->used))
			oldest = shape;
	}
	return oldest;
}

struct hb_split_known hb_split_shape_of(const struct hb_split_function *function, uint32_t n_blocks, uint32_t n_threads,
					uint32_t shared_bytes)
{
	uint64_t key = mix_key(mix_key(mix_key(function->serial, n_blocks), n_threads), shared_bytes) | 1;
	struct hb_split_known known = {.shape = NULL};
	pthread_mutex_lock(&lock);
	struct hb_split_shape *shape = find_entry(key);
	if (shape && shape->key != key) {
		drop_sample(shape);
		*shape = (struct hb_split_shape){.key = key, .context = function->context};
		shape->n_resident = count_resident_blocks(function->original, n_threads, shared_bytes);
	}
	if (shape) {
		shape->used = ++n_lookups;
		read_sample(shape);
		known = (struct hb_split_known){shape, key, shape->duration_ns, shape->n_resident};
	}
	pthread_mutex_unlock(&lock);
	return known;
}

bool hb_split_time_begin(const struct hb_split_known *known, CUstream stream)
{
	struct hb_split_shape *shape = known->shape;
	bool begun = false;
	pthread_mutex_lock(&lock);
	if (shape->key == known->key && shape->n_samples < SAMPLES && !shape->begin && atomic_load(&hb_captures) <= 0 &&
	    HB_REAL(cuEventCreate)(&shape->begin, CU_EVENT_DEFAULT) == CUDA_SUCCESS) {
		begun = HB_REAL(cuEventRecord)(shape->begin, stream) == CUDA_SUCCESS;
		if (!begun)
			drop_sample(shape);
	}
	pthread_mutex_unlock(&lock);
	return begun;
}

void hb_split_time_end(const struct hb_split_known *known, CUstream stream)
{
	struct hb_split_shape *shape = known->shape;
	pthread_mutex_lock(&lock);
	if (shape->key == known->key && has_open_sample(shape) &&
	    (HB_REAL(cuEventCreate)(&shape->end, CU_EVENT_DEFAULT) != CUDA_SUCCESS ||
	     HB_REAL(cuEventRecord)(shape->end, stream) != CUDA_SUCCESS))
		drop_sample(shape);
	pthread_mutex_unlock(&lock);
}

void hb_split_times_context_leaves(CUcontext context)
{
	pthread_mutex_lock(&lock);
	for (unsigned i = 0; i < SHAPES; i++)
		if (shapes[i].key && shapes[i].context == context)
			shapes[i] = (struct hb_split_shape){.key = 0};
	pthread_mutex_unlock(&lock);
}

/* Waits until no thread is inside read_sample(): later calls see the capture and query no event. */
void hb_split_times_before_capture(void)
{
	pthread_mutex_lock(&lock);
	pthread_mutex_unlock(&lock);
}

void hb_split_times_leave_in_child(void)
{
	pthread_mutex_init(&lock, NULL);
}
