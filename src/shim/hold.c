/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See hold.h. Each context that is used has a stream of ours (non-blocking, so
 * the legacy default stream does not wait for it; highest priority), the
 * kernel, loaded and launched once before the first hold so that nothing is
 * loaded while one is armed, and a word in memory of our own: it stays mapped
 * when its context goes, so a late release cannot fault.
 *
 * Why no hold can be there while a wide call waits: the caller raises `wide`
 * and then takes the HELD bits; the thread sets its HELD bit and then reads
 * `wide` (all sequentially consistent). So either the thread sees the call and
 * lets go, or the call sees the hold.
 *
 * A release between setting the bit and launching finds kernels that end at
 * once. A hold is only launched when the one before has ended, so resetting
 * the word revives nothing.
 */
#include "shim/hold.h"

#include "base/clock.h"
#include "base/log.h"
#include "core/foresight.h"
#include "gpu/hold_kernel.h"
#include "shim/foresee.h"
#include "shim/page_signs.h"
#include "shim/shim.h"
#include "shim/shim_tenant.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/*
 * After a launch: the next one comes within some 30 us where a program goes on launching (Python takes 10 to 20 us a call), and
 * a gap of 6 us already costs two switches. A launch takes 3 us; one that loads its kernel first may wait for us.
 */
#define LINGER_NS (100 * HB_NS_PER_US)
/* A program that launches faster than the GPU works is far enough ahead by then, and each boundary between two kernels costs
 * 0.7 us more while the GPU is held. */
#define LINGER_AT_MOST_NS (300 * HB_NS_PER_US)
#define DOUBT_NS (300 * HB_NS_PER_US) /* longer than a copy of some MB takes */
#define END_WAIT_NS (200 * HB_NS_PER_US)
#define PAGE_BYTES 4096

enum slot_state { SLOT_FREE, SLOT_NEW, SLOT_READY };

struct slot {
	enum slot_state state;
	_Atomic(CUcontext) context; /* written with the lock held */
	CUdevice device;
	CUstream stream;
	CUmodule module;
	CUfunction kernel;
	CUdeviceptr address;   /* of the word, for the GPU */
	bool lingers;          /* a real kernel, which knows more words than "end" */
	_Atomic(uint32_t) age; /* of a device's contexts the one that came or began to launch last is held */
};

_Atomic(uint32_t) hb_shim_alert = HB_ALERT_FIRST;

/* Guards slots; held over driver calls of our own thread, which do not wait for the application's work. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct slot slots[HB_HOLD_CONTEXTS];
static _Atomic(uint32_t) next_age;
static bool stopped;

/* One page a slot, made once and never unmapped; shared, so that a fork cannot part them from the GPU's view. */
static _Atomic(char *) pages;

static _Atomic(uint32_t) wide;
static _Atomic(int64_t) doubt_since_ns;

/* Of the hold that is there, or was last: its first launch and its latest; 0 = none has come yet. */
static _Atomic(int64_t) launched_first_ns, launched_last_ns;
static _Atomic(uint32_t) launches; /* never 0 or HB_HOLD_END when written to a word */

static struct hb_hold_page *page_of(unsigned index)
{
	return (struct hb_hold_page *)(atomic_load_explicit(&pages, memory_order_acquire) + (size_t)index * PAGE_BYTES);
}

/* ---- the application's threads ---- */

static void write_words(uint32_t bits, uint32_t value, bool lingering_only)
{
	for (unsigned i = 0; bits; i++, bits >>= 1)
		if ((bits & 1) && (!lingering_only || slots[i].lingers))
			atomic_store_explicit(&page_of(i)->word, value, memory_order_release);
}

static uint32_t held_bits(void)
{
	return atomic_load_explicit(&hb_shim_alert, memory_order_relaxed) & HB_ALERT_HELD;
}

bool hb_hold_release(void)
{
	if (!(atomic_load(&hb_shim_alert) & HB_ALERT_HELD))
		return false;
	uint32_t held = atomic_fetch_and(&hb_shim_alert, ~(uint32_t)HB_ALERT_HELD) & HB_ALERT_HELD;
	write_words(held, HB_HOLD_END, false);
	return held != 0;
}

bool hb_hold_is_lingering(int64_t now_ns)
{
	int64_t last_ns = atomic_load(&launched_last_ns);
	return last_ns && now_ns - last_ns < LINGER_NS;
}

bool hb_hold_is_there(void)
{
	uint32_t bits = held_bits();
	for (unsigned i = 0; bits; i++, bits >>= 1)
		if ((bits & 1) &&
		    (!slots[i].lingers || atomic_load_explicit(&page_of(i)->began_ns, memory_order_relaxed)))
			return true;
	return false;
}

/* Each note begins the kernel's linger time anew. */
void hb_hold_note_launch(int64_t now_ns)
{
	int64_t first_ns = 0;
	if (atomic_compare_exchange_strong(&launched_first_ns, &first_ns, now_ns)) {
		first_ns = now_ns;
		hb_shim_count(HB_COUNT_holds_released, 1);
	}
	if (now_ns - first_ns > LINGER_AT_MOST_NS)
		return;
	atomic_store(&launched_last_ns, now_ns);
	write_words(held_bits(), 1 + atomic_fetch_add(&launches, 1) % (HB_HOLD_END / 2), true);
}

void hb_hold_note_use(void)
{
	CUcontext context;
	if (HB_REAL(cuCtxGetCurrent)(&context) != CUDA_SUCCESS || !context)
		return;
	for (unsigned i = 0; i < HB_HOLD_CONTEXTS; i++)
		if (atomic_load_explicit(&slots[i].context, memory_order_relaxed) == context)
			atomic_store_explicit(&slots[i].age, atomic_fetch_add(&next_age, 1) + 1, memory_order_relaxed);
}

void hb_hold_begin_wide(void)
{
	atomic_fetch_add(&wide, 1);
	if (hb_hold_release())
		hb_shim_count(HB_COUNT_holds_wide, 1);
}

void hb_hold_end_wide(void)
{
	atomic_fetch_sub(&wide, 1);
}

int64_t hb_hold_begin_doubt(void)
{
	int64_t none = 0, now_ns;
	if (!(atomic_load_explicit(&hb_shim_alert, memory_order_relaxed) & HB_ALERT_HELD))
		return 0;
	now_ns = hb_clock_now_ns();
	return atomic_compare_exchange_strong(&doubt_since_ns, &none, now_ns) ? now_ns : 0;
}

/* One thread at a time is watched: the first that came in doubt. */
void hb_hold_end_doubt(int64_t since_ns)
{
	if (since_ns)
		atomic_compare_exchange_strong(&doubt_since_ns, &since_ns, 0);
}

bool hb_hold_is_doubtful(int64_t now_ns)
{
	int64_t since_ns = atomic_load(&doubt_since_ns);
	return since_ns && now_ns - since_ns > DOUBT_NS;
}

/* ---- contexts ---- */

static void take_slot(struct slot *slot, CUcontext context, CUdevice device)
{
	slot->device = device;
	slot->stream = NULL;
	slot->module = NULL;
	slot->kernel = NULL;
	slot->address = 0;
	slot->state = SLOT_NEW;
	atomic_store_explicit(&slot->age, atomic_fetch_add(&next_age, 1) + 1, memory_order_relaxed);
	atomic_store_explicit(&slot->context, context, memory_order_relaxed);
}

static void leave_slot(struct slot *slot)
{
	atomic_store_explicit(&slot->context, NULL, memory_order_relaxed);
	slot->state = SLOT_FREE;
}

void hb_hold_add_context(CUcontext context, CUdevice device)
{
	struct slot *place = NULL;
	pthread_mutex_lock(&lock);
	for (unsigned i = 0; i < HB_HOLD_CONTEXTS; i++) {
		if (slots[i].state != SLOT_FREE && slots[i].context == context)
			place = NULL, i = HB_HOLD_CONTEXTS;
		else if (slots[i].state == SLOT_FREE && !place)
			place = &slots[i];
	}
	if (place)
		take_slot(place, context, device);
	pthread_mutex_unlock(&lock);
	hb_hold_thread_call(0); /* it prepares */
}

/* With the context current. What fails here goes with the context. */
static void tear_down(struct slot *slot, unsigned index)
{
	if (slot->stream)
		HB_REAL(cuStreamDestroy_v2)(slot->stream);
	if (slot->module)
		HB_REAL(cuModuleUnload)(slot->module);
	if (slot->address)
		HB_REAL(cuMemHostUnregister)((void *)page_of(index));
}

void hb_hold_forget_context(CUcontext context)
{
	hb_hold_release();
	pthread_mutex_lock(&lock);
	for (unsigned i = 0; i < HB_HOLD_CONTEXTS; i++) {
		struct slot *slot = &slots[i];
		CUcontext popped;
		if (slot->state == SLOT_FREE || slot->context != context)
			continue;
		if (slot->state == SLOT_READY && HB_REAL(cuCtxPushCurrent_v2)(context) == CUDA_SUCCESS) {
			tear_down(slot, i);
			HB_REAL(cuCtxPopCurrent_v2)(&popped);
		}
		leave_slot(slot);
	}
	pthread_mutex_unlock(&lock);
	hb_foresee_idle(); /* what was launched there is no more */
}

/* ---- our own thread: preparing ---- */

static bool fail(enum hb_hold_fault fault, CUresult result)
{
	hb_page_signs_fault(fault);
	hb_log_warning("no holds in this process any more: %s (CUDA error %d)", hb_hold_fault_text(fault), (int)result);
	return false;
}

static CUresult launch(const struct slot *slot, int64_t limit_ns)
{
	struct hb_hold_params params = {.word = slot->address, .limit_ns = (uint64_t)limit_ns, .linger_ns = LINGER_NS};
	void *arguments[] = {&params.word, &params.limit_ns, &params.linger_ns};
	return HB_REAL(cuLaunchKernel)(slot->kernel, 1, 1, 1, 1, 1, 1, 0, slot->stream, arguments, NULL);
}

static CUresult load(struct slot *slot)
{
	CUresult result = HB_REAL(cuModuleLoadData)(&slot->module, hb_hold_ptx);
	slot->lingers = result == CUDA_SUCCESS;
	if (result == CUDA_ERROR_NO_BINARY_FOR_GPU) /* the simulated driver's answer to PTX */
		result = HB_REAL(cuModuleLoadData)(&slot->module, hb_hold_simulated);
	if (result == CUDA_SUCCESS)
		result = HB_REAL(cuModuleGetFunction)(&slot->kernel, slot->module, HB_HOLD_KERNEL_NAME);
	/* As much shared memory on its SM as there can be: a block that needs 200 KiB then runs beside it. A wish only. */
	if (result == CUDA_SUCCESS)
		HB_REAL(cuFuncSetAttribute)(slot->kernel, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, 100);
	return result;
}

static CUresult map_word(struct slot *slot, unsigned index)
{
	void *page = (void *)page_of(index);
	CUresult result = HB_REAL(cuMemHostRegister_v2)(page, PAGE_BYTES, CU_MEMHOSTREGISTER_DEVICEMAP);
	if (result == CUDA_SUCCESS)
		result = HB_REAL(cuMemHostGetDevicePointer_v2)(&slot->address, page, 0);
	return result;
}

static CUresult make_stream(struct slot *slot)
{
	int least = 0, greatest = 0;
	HB_REAL(cuCtxGetStreamPriorityRange)(&least, &greatest);
	return HB_REAL(cuStreamCreateWithPriority)(&slot->stream, CU_STREAM_NON_BLOCKING, greatest);
}

/* Launched once, with a word that ends it, so that a lazily loading driver has loaded it. */
static CUresult try_once(struct slot *slot, unsigned index)
{
	atomic_store(&page_of(index)->word, HB_HOLD_END);
	CUresult result = launch(slot, 0);
	return result == CUDA_SUCCESS ? HB_REAL(cuStreamSynchronize)(slot->stream) : result;
}

/* With the lock held and the context current. */
static bool set_up(struct slot *slot, unsigned index)
{
	CUresult result = make_stream(slot);
	if (result != CUDA_SUCCESS)
		return fail(HB_HOLD_NO_STREAM, result);
	result = map_word(slot, index);
	if (result != CUDA_SUCCESS)
		return fail(HB_HOLD_NO_MEMORY, result);
	result = load(slot);
	if (result != CUDA_SUCCESS)
		return fail(HB_HOLD_NO_IMAGE, result);
	result = try_once(slot, index);
	if (result != CUDA_SUCCESS)
		return fail(HB_HOLD_NO_LAUNCH, result);
	slot->state = SLOT_READY;
	return true;
}

static bool make_pages(void)
{
	if (atomic_load(&pages))
		return true;
	char *made = mmap(NULL, (size_t)HB_HOLD_CONTEXTS * PAGE_BYTES, PROT_READ | PROT_WRITE,
			  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (made == MAP_FAILED)
		return fail(HB_HOLD_NO_MEMORY, CUDA_ERROR_OUT_OF_MEMORY);
	atomic_store_explicit(&pages, made, memory_order_release);
	return true;
}

void hb_hold_enter_thread(void)
{
	/* Legal beside any capture of another thread, and invalidates none. */
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	HB_REAL(cuThreadExchangeStreamCaptureMode)(&mode);
}

/* Not while a stream records: what is legal beside a capture differs between drivers. */
static bool can_prepare(void)
{
	return !stopped && atomic_load(&hb_captures) == 0;
}

bool hb_hold_prepare(void)
{
	bool all = true;
	if (hb_page_signs_faulty() || !make_pages())
		return true;
	pthread_mutex_lock(&lock);
	for (unsigned i = 0; i < HB_HOLD_CONTEXTS; i++) {
		if (slots[i].state != SLOT_NEW)
			continue;
		if (can_prepare() && HB_REAL(cuCtxSetCurrent)(slots[i].context) == CUDA_SUCCESS)
			set_up(&slots[i], i);
		HB_REAL(cuCtxSetCurrent)(NULL); /* contexts must be free to go */
		all &= slots[i].state != SLOT_NEW;
	}
	pthread_mutex_unlock(&lock);
	return all;
}

/* ---- our own thread: holding ---- */

/* Whether this is the context of its device to hold: one is enough, and two would keep each other off the GPU. */
static bool is_chosen(unsigned index)
{
	for (unsigned i = 0; i < HB_HOLD_CONTEXTS; i++)
		if (i != index && slots[i].state == SLOT_READY && slots[i].device == slots[index].device &&
		    slots[i].age > slots[index].age)
			return false;
	return true;
}

/* A GPU that this process never launched on, or without low priority, is not worth holding. */
static bool is_in_use(const struct slot *slot)
{
	const struct hb_place *place = hb_place();
	if (slot->device < 0 || slot->device >= HB_PAGE_GPUS)
		return false;
	unsigned gpu = place->gpu_of_device[slot->device];
	return gpu < HB_PAGE_GPUS && place->gpus[gpu] &&
	       atomic_load_explicit(&place->gpus[gpu]->tenants_low, memory_order_relaxed) > 0 &&
	       atomic_load(&((struct hb_gate *)place->process->gates[gpu])->submitted) > 0;
}

/* The hold before must be over. It was let go long ago, so it is, unless the GPU has not come to it yet. */
static bool is_over(const struct slot *slot, int64_t patience_ns)
{
	int64_t until_ns = hb_clock_now_ns() + patience_ns;
	CUresult result;
	do
		result = HB_REAL(cuStreamQuery)(slot->stream);
	while (result == CUDA_ERROR_NOT_READY && hb_clock_now_ns() < until_ns);
	if (result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY)
		fail(HB_HOLD_NO_LAUNCH, result);
	return result == CUDA_SUCCESS;
}

static bool hold_slot(const struct slot *slot, unsigned index, int64_t patience_ns)
{
	if (!is_over(slot, patience_ns))
		return false;
	atomic_store(&page_of(index)->began_ns, 0);
	atomic_store(&page_of(index)->word, HB_HOLD_KEEP);
	atomic_store(&launched_first_ns, 0);
	atomic_store(&launched_last_ns, 0);
	atomic_fetch_or(&hb_shim_alert, 1u << index);
	if (atomic_load(&wide)) {
		hb_hold_release();
		return false;
	}
	CUresult result = launch(slot, HB_FORESIGHT_HOLD_MAX_NS);
	if (result == CUDA_SUCCESS)
		result = launch(slot, 0); /* only has to be queued behind the first, see hold_kernel.h */
	if (result != CUDA_SUCCESS) {
		hb_hold_release();
		return fail(HB_HOLD_NO_LAUNCH, result);
	}
	return true;
}

/* With the lock held. */
static bool hold_all(int64_t patience_ns)
{
	bool any = false;
	for (unsigned i = 0; i < HB_HOLD_CONTEXTS && !stopped; i++) {
		CUcontext popped;
		if (slots[i].state != SLOT_READY || !is_chosen(i) || !is_in_use(&slots[i]) ||
		    HB_REAL(cuCtxPushCurrent_v2)(slots[i].context) != CUDA_SUCCESS)
			continue;
		any |= hold_slot(&slots[i], i, patience_ns);
		HB_REAL(cuCtxPopCurrent_v2)(&popped); /* contexts must be free to go */
	}
	return any;
}

bool hb_hold_fire(void)
{
	if (hb_page_signs_faulty() || atomic_load(&wide))
		return false;
	pthread_mutex_lock(&lock);
	bool any = hold_all(END_WAIT_NS);
	pthread_mutex_unlock(&lock);
	return any;
}

enum hb_hold_tried hb_hold_try_fire(void)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	if (hb_page_signs_faulty() || atomic_load(&wide) || atomic_load(&hb_captures) ||
	    pthread_mutex_trylock(&lock) != 0)
		return HB_HOLD_NOT_HERE;
	HB_REAL(cuThreadExchangeStreamCaptureMode)(&mode);
	bool any = hold_all(0);
	HB_REAL(cuThreadExchangeStreamCaptureMode)(&mode);
	pthread_mutex_unlock(&lock);
	return any ? HB_HOLD_FIRED : HB_HOLD_NOT_HERE;
}

/* ---- the end ---- */

void hb_hold_stop(void)
{
	hb_hold_release();
	pthread_mutex_lock(&lock);
	stopped = true;
	pthread_mutex_unlock(&lock);
	hb_hold_release();
}

/* The words are the parent's: the child lets them be. */
void hb_hold_leave_in_child(void)
{
	pthread_mutex_init(&lock, NULL);
	memset(slots, 0, sizeof(slots));
	atomic_store(&hb_shim_alert, HB_ALERT_FIRST);
	atomic_store(&pages, NULL);
	atomic_store(&wide, 0);
	atomic_store(&doubt_since_ns, 0);
	atomic_store(&launched_first_ns, 0);
	atomic_store(&launched_last_ns, 0);
	stopped = false;
}
