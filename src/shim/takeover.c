/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See takeover.h. Each context that is used has a stream of ours (non-blocking, so
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
 *
 * A GPU that is to be kept beyond the end of work has holds of its own kind, with
 * a stream and a word of their own (the other ones may linger still): they wait
 * for an event behind the work, so they run when it is done and not beside it.
 */
#include "shim/takeover_slots.h"

#include "decide/defaults.h"
#include "decide/foresight.h"
#include "shim/page_requests.h"
#include "shim/shim.h"
#include "shim/shim_tenant.h"

#include <string.h>

#define DOUBT_NS (300 * HB_NS_PER_US) /* longer than a copy of some MB takes */
#define END_WAIT_NS (200 * HB_NS_PER_US)
_Atomic(uint32_t) hb_shim_alert = HB_ALERT_FIRST;

pthread_mutex_t hb_takeover_lock = PTHREAD_MUTEX_INITIALIZER;
struct slot hb_takeover_slots[HB_TAKEOVER_CONTEXTS];
_Atomic(uint32_t) hb_takeover_next_age;
bool hb_takeover_stopped;
_Atomic(char *) hb_takeover_pages;

static _Atomic(uint32_t) wide;
static _Atomic(int64_t) doubt_since_ns;

/* Of the hold that is there, or was last: its first launch and its latest; 0 = none has come yet. */
static _Atomic(int64_t) launched_first_ns, launched_last_ns;
static _Atomic(uint32_t) launches; /* never 0 or HB_TAKEOVER_END when written to a word */

/* Kept holds have not begun: the call that waits for the work before them is still under way. */
static atomic_bool keep_waits;

/* ---- the application's threads ---- */

static void write_words(uint32_t bits, uint32_t value, bool lingering_only)
{
	for (unsigned i = 0; bits; i++, bits >>= 1)
		if ((bits & 1) && (!lingering_only || hb_takeover_slots[i % HB_TAKEOVER_CONTEXTS].lingers))
			atomic_store_explicit(&hb_takeover_page_of(i)->word, value, memory_order_release);
}

static uint32_t held_bits(void)
{
	return atomic_load_explicit(&hb_shim_alert, memory_order_relaxed) & HB_ALERT_HELD;
}

static bool release(uint32_t which)
{
	if (!(atomic_load(&hb_shim_alert) & which))
		return false;
	uint32_t held = atomic_fetch_and(&hb_shim_alert, ~which) & which;
	write_words(held, HB_TAKEOVER_END, false);
	return held != 0;
}

bool hb_takeover_release(void)
{
	return release(HB_ALERT_HELD);
}

static uint32_t held_now(void)
{
	return atomic_load(&keep_waits) ? HB_ALERT_TAKEN : HB_ALERT_HELD;
}

void hb_takeover_release_now(void)
{
	release(held_now());
}

bool hb_takeover_is_held(void)
{
	return atomic_load(&hb_shim_alert) & held_now();
}

bool hb_takeover_is_lingering(int64_t now_ns)
{
	int64_t last_ns = atomic_load(&launched_last_ns);
	return last_ns && now_ns - last_ns < HB_DEFAULT_TAKEOVER_LINGER_NS;
}

bool hb_takeover_is_there(void)
{
	uint32_t bits = held_bits();
	for (unsigned i = 0; bits; i++, bits >>= 1)
		if ((bits & 1) && (!hb_takeover_slots[i % HB_TAKEOVER_CONTEXTS].lingers ||
				   atomic_load_explicit(&hb_takeover_page_of(i)->began_ns, memory_order_relaxed)))
			return true;
	return false;
}

/* Each note begins the kernel's linger time anew. */
void hb_takeover_note_launch(int64_t now_ns)
{
	int64_t first_ns = 0;
	if (atomic_compare_exchange_strong(&launched_first_ns, &first_ns, now_ns)) {
		first_ns = now_ns;
		hb_shim_count(HB_COUNT_holds_released, 1);
	}
	if (now_ns - first_ns > HB_DEFAULT_TAKEOVER_LINGER_MOST_NS)
		return;
	atomic_store(&launched_last_ns, now_ns);
	write_words(held_bits(), 1 + atomic_fetch_add(&launches, 1) % (HB_TAKEOVER_END / 2), true);
}

/* Behind another hold's launches a new one would not linger. */
static void forget_launches(void)
{
	atomic_store(&launched_first_ns, 0);
	atomic_store(&launched_last_ns, 0);
}

void hb_takeover_note_use(void)
{
	CUcontext context;
	if (HB_REAL(cuCtxGetCurrent)(&context) != CUDA_SUCCESS || !context)
		return;
	for (unsigned i = 0; i < HB_TAKEOVER_CONTEXTS; i++)
		if (atomic_load_explicit(&hb_takeover_slots[i].context, memory_order_relaxed) == context)
			atomic_store_explicit(&hb_takeover_slots[i].age, atomic_fetch_add(&hb_takeover_next_age, 1) + 1,
					      memory_order_relaxed);
}

void hb_takeover_begin_wide(void)
{
	atomic_fetch_add(&wide, 1);
	if (hb_takeover_release())
		hb_shim_count(HB_COUNT_holds_wide, 1);
}

void hb_takeover_end_wide(void)
{
	atomic_fetch_sub(&wide, 1);
}

int64_t hb_takeover_begin_doubt(void)
{
	int64_t none = 0, now_ns;
	if (!(atomic_load_explicit(&hb_shim_alert, memory_order_relaxed) & HB_ALERT_HELD))
		return 0;
	now_ns = hb_clock_now_ns();
	return atomic_compare_exchange_strong(&doubt_since_ns, &none, now_ns) ? now_ns : 0;
}

/* One thread at a time is watched: the first that came in doubt. */
void hb_takeover_end_doubt(int64_t since_ns)
{
	if (since_ns)
		atomic_compare_exchange_strong(&doubt_since_ns, &since_ns, 0);
}

bool hb_takeover_is_doubtful(int64_t now_ns)
{
	int64_t since_ns = atomic_load(&doubt_since_ns);
	return since_ns && now_ns - since_ns > DOUBT_NS;
}

/* ---- our own thread: holding ---- */

/* Whether this is the context of its device to hold: one is enough, and two would keep each other off the GPU. */
static bool is_chosen(unsigned index)
{
	for (unsigned i = 0; i < HB_TAKEOVER_CONTEXTS; i++)
		if (i != index && hb_takeover_slots[i].state == SLOT_READY &&
		    hb_takeover_slots[i].device == hb_takeover_slots[index].device &&
		    hb_takeover_slots[i].age > hb_takeover_slots[index].age)
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
static bool is_over(const struct slot *slot, enum kind kind, int64_t patience_ns)
{
	int64_t until_ns = hb_clock_now_ns() + patience_ns;
	CUresult result;
	do
		result = HB_REAL(cuStreamQuery)(slot->streams[kind]);
	while (result == CUDA_ERROR_NOT_READY && hb_clock_now_ns() < until_ns);
	if (result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY)
		hb_takeover_fail(HB_TAKEOVER_NO_LAUNCH, result);
	return result == CUDA_SUCCESS;
}

static bool launch_two(const struct slot *slot, unsigned index, enum kind kind, int64_t limit_ns)
{
	unsigned bit = hb_takeover_bit_of(index, kind);
	atomic_store(&hb_takeover_page_of(bit)->began_ns, 0);
	atomic_store(&hb_takeover_page_of(bit)->word, HB_TAKEOVER_KEEP);
	if (kind == TAKE)
		forget_launches();
	atomic_fetch_or(&hb_shim_alert, 1u << bit);
	if (atomic_load(&wide)) {
		release(1u << bit);
		return false;
	}
	CUresult result = hb_takeover_launch(slot, kind, limit_ns);
	if (result == CUDA_SUCCESS)
		result = hb_takeover_launch(slot, kind,
					    0); /* only has to be queued behind the first, see takeover_kernel.h */
	if (result != CUDA_SUCCESS) {
		release(1u << bit);
		return hb_takeover_fail(HB_TAKEOVER_NO_LAUNCH, result);
	}
	return true;
}

static bool hold_slot(const struct slot *slot, unsigned index, int64_t patience_ns)
{
	return is_over(slot, TAKE, patience_ns) && launch_two(slot, index, TAKE, HB_FORESIGHT_HOLD_MAX_NS);
}

/* With the lock held. */
static bool hold_all(int64_t patience_ns)
{
	bool any = false;
	for (unsigned i = 0; i < HB_TAKEOVER_CONTEXTS && !hb_takeover_stopped; i++) {
		CUcontext popped;
		if (hb_takeover_slots[i].state != SLOT_READY || !is_chosen(i) || !is_in_use(&hb_takeover_slots[i]) ||
		    HB_REAL(cuCtxPushCurrent_v2)(hb_takeover_slots[i].context) != CUDA_SUCCESS)
			continue;
		any |= hold_slot(&hb_takeover_slots[i], i, patience_ns);
		HB_REAL(cuCtxPopCurrent_v2)(&popped); /* contexts must be free to go */
	}
	return any;
}

bool hb_takeover_fire(void)
{
	if (hb_page_signs_faulty() || atomic_load(&wide))
		return false;
	pthread_mutex_lock(&hb_takeover_lock);
	bool any = hold_all(END_WAIT_NS);
	pthread_mutex_unlock(&hb_takeover_lock);
	return any;
}

enum hb_takeover_tried hb_takeover_try_fire(void)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	if (hb_page_signs_faulty() || atomic_load(&wide) || atomic_load(&hb_captures) ||
	    pthread_mutex_trylock(&hb_takeover_lock) != 0)
		return HB_TAKEOVER_NOT_HERE;
	HB_REAL(cuThreadExchangeStreamCaptureMode)(&mode);
	bool any = hold_all(0);
	HB_REAL(cuThreadExchangeStreamCaptureMode)(&mode);
	pthread_mutex_unlock(&hb_takeover_lock);
	return any ? HB_TAKEOVER_FIRED : HB_TAKEOVER_NOT_HERE;
}

/* ---- the application's threads: keeping ---- */

static struct slot *find_current(unsigned *index)
{
	CUcontext context;
	if (HB_REAL(cuCtxGetCurrent)(&context) != CUDA_SUCCESS || !context)
		return NULL;
	for (unsigned i = 0; i < HB_TAKEOVER_CONTEXTS; i++)
		if (hb_takeover_slots[i].state == SLOT_READY && hb_takeover_slots[i].context == context) {
			*index = i;
			return is_chosen(i) && is_in_use(&hb_takeover_slots[i]) ? &hb_takeover_slots[i] : NULL;
		}
	return NULL;
}

/* Behind what the thread will wait for. A stream of another context than the current one is refused by the driver. */
static bool stand_behind(const struct slot *slot, CUstream stream, CUevent event)
{
	if ((event ? HB_REAL(cuEventQuery)(event) : HB_REAL(cuStreamQuery)(stream)) != CUDA_ERROR_NOT_READY)
		return false;
	if (!event && HB_REAL(cuEventRecord)(slot->work_done, stream) != CUDA_SUCCESS)
		return false;
	return HB_REAL(cuStreamWaitEvent)(slot->streams[KEEP], event ? event : slot->work_done, 0) == CUDA_SUCCESS;
}

/* With the lock held. */
static bool keep(CUstream stream, CUevent event, int64_t keep_ns)
{
	unsigned index = 0;
	const struct slot *slot = hb_takeover_stopped ? NULL : find_current(&index);
	if (!slot || !is_over(slot, KEEP, 0) || !stand_behind(slot, stream, event))
		return false;
	atomic_store(&keep_waits, true);
	return launch_two(slot, index, KEEP, keep_ns);
}

bool hb_takeover_keep(CUstream stream, CUevent event, int64_t keep_ns)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	if (hb_page_signs_faulty() || atomic_load(&wide) || atomic_load(&hb_captures) ||
	    pthread_mutex_trylock(&hb_takeover_lock) != 0)
		return false;
	HB_REAL(cuThreadExchangeStreamCaptureMode)(&mode);
	bool kept = keep(stream, event, keep_ns);
	HB_REAL(cuThreadExchangeStreamCaptureMode)(&mode);
	pthread_mutex_unlock(&hb_takeover_lock);
	return kept;
}

bool hb_takeover_keep_begins(void)
{
	forget_launches(); /* what lingers behind them has nothing to wait for any more */
	atomic_store(&keep_waits, false);
	return atomic_load(&hb_shim_alert) & HB_ALERT_KEPT;
}

/* ---- the end ---- */

void hb_takeover_stop(void)
{
	hb_takeover_release();
	pthread_mutex_lock(&hb_takeover_lock);
	hb_takeover_stopped = true;
	pthread_mutex_unlock(&hb_takeover_lock);
	hb_takeover_release();
}

/* The words are the parent's: the child lets them be. */
void hb_takeover_leave_in_child(void)
{
	pthread_mutex_init(&hb_takeover_lock, NULL);
	memset(hb_takeover_slots, 0, sizeof(hb_takeover_slots));
	atomic_store(&hb_shim_alert, HB_ALERT_FIRST);
	atomic_store(&hb_takeover_pages, NULL);
	atomic_store(&wide, 0);
	atomic_store(&doubt_since_ns, 0);
	forget_launches();
	atomic_store(&keep_waits, false);
	hb_takeover_stopped = false;
}
