/* SPDX-License-Identifier: Apache-2.0 */
/* Records LP launches; see launch_trace.h. */
#include "shim/launch_trace.h"

#include "base/clock.h"
#include "hummingbird/page_trace.h"
#include "shim/shim.h"
#include "shim/takeover.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

/* Handles seen in this recording. For a handle that finds no entry the driver is asked each time, which is slow but right. */
enum { KNOWN = 1024, PROBES = 8 };
struct known_handle {
	_Atomic(const void *) handle;
	atomic_uint name_plus_one; /* 0: a thread is asking the driver */
};
static struct known_handle known[KNOWN];

/* Mapped once per page and never unmapped, because a thread may be using it. NULL: nothing was recorded yet, or mapping failed. */
static _Atomic(struct hb_trace_ring *) ring;
static const struct hb_page *mapped_for; /* page of `ring`; used by the thread of drain.c only */
static uint32_t recording;               /* value of hb_page.recording now acted on; 0 = none; drain.c's thread only */

static bool is_graph(unsigned fn)
{
	return fn == HB_FN_cuGraphLaunch || fn == HB_FN_cuGraphLaunch_ptsz;
}

static const void *find_handle(unsigned fn, const uint64_t *args)
{
	int which = 0; /* argument that holds the function in all older forms */
	if (fn == HB_FN_cuLaunchKernelEx || fn == HB_FN_cuLaunchKernelEx_ptsz)
		which = 1;
	else if (fn == HB_FN_cuLaunchCooperativeKernelMultiDevice) /* passes a list of launches */
		return NULL;
	return (const void *)(uintptr_t)hb_argument(args, which); /* NOLINT(performance-no-int-to-ptr) */
}

/* The driver knows the handle as a function or as a kernel, because the application launches it now. */
static const char *ask_name(const void *handle)
{
	const char *name = NULL;
	if (HB_REAL(cuFuncGetName)(&name, (CUfunction)(uintptr_t)handle) == CUDA_SUCCESS && name)
		return name;
	if (HB_REAL(cuKernelGetName)(&name, (CUkernel)(uintptr_t)handle) == CUDA_SUCCESS)
		return name;
	return NULL;
}

static uint32_t add_name(struct hb_trace_ring *into, const void *handle)
{
	const char *name = handle ? ask_name(handle) : NULL;
	uint32_t row = name ? atomic_fetch_add(&into->n_names, 1) : HB_TRACE_NAMES;
	if (row >= HB_TRACE_NAMES)
		return HB_TRACE_OTHER;
	memcpy(into->names[row], name, strnlen(name, HB_TRACE_NAME_BYTES - 1) + 1);
	into->names[row][HB_TRACE_NAME_BYTES - 1] = '\0';
	return row + HB_TRACE_FIRST_NAME;
}

static size_t hash_handle(const void *handle)
{
	return (size_t)((uintptr_t)handle * UINT64_C(0x9e3779b97f4a7c15) >> 54) % KNOWN;
}

static __attribute__((noinline, cold)) uint32_t learn_name(struct hb_trace_ring *into, const void *handle)
{
	for (size_t i = 0; i < PROBES; i++) {
		struct known_handle *row = &known[(hash_handle(handle) + i) % KNOWN];
		const void *empty = NULL;
		if (!atomic_compare_exchange_strong(&row->handle, &empty, handle))
			continue;
		uint32_t name = add_name(into, handle);
		atomic_store_explicit(&row->name_plus_one, name + 1, memory_order_release);
		return name;
	}
	return HB_TRACE_OTHER;
}

static uint32_t find_name(struct hb_trace_ring *into, const void *handle)
{
	for (size_t i = 0; handle && i < PROBES; i++) {
		struct known_handle *row = &known[(hash_handle(handle) + i) % KNOWN];
		const void *found = atomic_load_explicit(&row->handle, memory_order_relaxed);
		if (found == handle) {
			uint32_t name_plus_one = atomic_load_explicit(&row->name_plus_one, memory_order_acquire);
			return name_plus_one ? name_plus_one - 1 : HB_TRACE_OTHER;
		}
		if (!found)
			break;
	}
	return handle ? learn_name(into, handle) : HB_TRACE_OTHER;
}

void hb_launch_trace_note(unsigned fn, const uint64_t *args)
{
	struct hb_trace_ring *into = atomic_load_explicit(&ring, memory_order_acquire);
	unsigned counter = hb_hooks[fn].counter;
	if (!into || (counter != HB_COUNT_kernels && counter != HB_COUNT_graphs))
		return;
	uint32_t name = is_graph(fn) ? HB_TRACE_GRAPH : find_name(into, find_handle(fn, args));
	uint64_t i = atomic_fetch_add_explicit(&into->claimed, 1, memory_order_relaxed);
	struct hb_trace_launch *entry = &into->launches[i % HB_TRACE_LAUNCHES];
	atomic_store_explicit(&entry->at_ns, hb_clock_now_ns(), memory_order_relaxed);
	atomic_store_explicit(&entry->what, hb_trace_what(i, name, hb_tenant_gpu()), memory_order_release);
}

/* ---- start and stop ---- */

void hb_launch_trace_forget(void)
{
	for (size_t i = 0; i < KNOWN; i++) {
		atomic_store(&known[i].handle, NULL);
		atomic_store(&known[i].name_plus_one, 0);
	}
}

/* False: try again later. */
static bool map_ring(const struct hb_place *place)
{
	size_t slot = (size_t)(place->process - place->page->processes);
	int fd = hb_tenant_page_fd(HB_TRACE_OFFSET + HB_TRACE_BYTES);
	if (fd == -EAGAIN)
		return false;
	mapped_for = place->page;
	atomic_store(&ring, NULL);
	if (fd < 0)
		return true;
	void *memory = mmap(NULL, sizeof(struct hb_trace_ring), PROT_READ | PROT_WRITE, MAP_SHARED, fd,
			    (off_t)(HB_TRACE_OFFSET + slot * sizeof(struct hb_trace_ring)));
	if (memory != MAP_FAILED)
		atomic_store(&ring, memory);
	return true;
}

static void start_recording(void)
{
	struct hb_trace_ring *into = atomic_load(&ring);
	if (!into)
		return;
	hb_launch_trace_forget();
	atomic_store(&into->n_names, 0);
	atomic_store(&into->recording, recording);
	atomic_fetch_or(&hb_shim_alert, HB_ALERT_TRACE);
}

void hb_launch_trace_refresh(const struct hb_place *place)
{
	uint32_t wanted = 0;
	if (place->page && !hb_tenant_is_high())
		wanted = atomic_load_explicit(&place->page->recording, memory_order_relaxed);
	if (wanted == recording)
		return;
	atomic_fetch_and(&hb_shim_alert, ~(uint32_t)HB_ALERT_TRACE);
	recording = 0;
	if (!wanted || (mapped_for != place->page && !map_ring(place)))
		return;
	recording = wanted;
	start_recording();
}

void hb_launch_trace_leave_in_child(void)
{
	atomic_store(&ring, NULL);
	mapped_for = NULL;
	recording = 0;
	atomic_fetch_and(&hb_shim_alert, ~(uint32_t)HB_ALERT_TRACE);
}
