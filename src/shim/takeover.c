/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See takeover.h. Each context in use has
 *  - two streams of the shim (non-blocking, highest priority). They are used if the
 *    process begins its requests on blocking streams; otherwise the kernels run on
 *    the legacy stream (decide/takeover_steps.h);
 *  - the takeover kernel, loaded and launched once before the first takeover so
 *    that nothing has to be loaded when it counts;
 *  - a control word in memory of our own. The memory stays mapped when the
 *    context is destroyed, so a late release cannot fault.
 *
 * Why no takeover can be there while a wide call waits: the caller raises `wide`
 * and then clears the TAKEN and KEPT bits; the launching thread sets its bit and
 * then reads `wide` (all sequentially consistent). So either the thread sees the call
 * and lets go, or the call sees the takeover.
 *
 * A release between setting the bit and launching makes the kernels end at
 * once. Takeover kernels are launched only when those before have ended, so
 * resetting the word revives no old kernel.
 *
 * To keep the GPU beyond the end of work there are takeovers of other kinds
 * (KEEP_EVEN and KEEP_ODD, in turn), because kernels of the first kind may still
 * linger. KEEP kernels wait for an event behind the work, so they run after the
 * work and not beside it. Those for the work in flight are queued before those of
 * the work before are released: once their stream is empty the hardware loads
 * low priority's channel in its place, and does not start a KEEP kernel in time
 * (docs/decisions/0046-keeping-between-tokens.md).
 */
#include "shim/takeover_slots.h"

#include "decide/defaults.h"
#include "shim/page_requests.h"
#include "shim/shim.h"
#include "shim/shim_tenant.h"

#include <string.h>

#define DOUBT_NS (300 * HB_NS_PER_US) /* longer than a copy of some MB takes */
#define END_WAIT_NS (200 * HB_NS_PER_US)
_Atomic(uint32_t) hb_shim_alert = HB_ALERT_FIRST;

pthread_mutex_t hb_takeover_lock = PTHREAD_MUTEX_INITIALIZER;
struct takeover_slot hb_takeover_slots[HB_TAKEOVER_CONTEXTS];
_Atomic(uint32_t) hb_takeover_next_age;
bool hb_takeover_stopped;
_Atomic(char *) hb_takeover_pages;

static _Atomic(uint32_t) wide;
static _Atomic(int64_t) doubt_since_ns;

static struct hb_takeover_linger linger;
static struct hb_takeover_apart apart;
static _Atomic(CUstream) apart_stream; /* a non-blocking stream on which the process launched */
static _Atomic(uint32_t) legacy_bits;  /* takeovers whose kernels are on the legacy stream */
static _Atomic(uint32_t) launches;     /* never 0 or HB_TAKEOVER_END when written to a word */

/* KEEP kernels have not begun: the call that waits for the work before them has not returned. */
static atomic_bool keep_waits;
/* A call would have waited behind KEEP kernels in the legacy stream, so none are put there any more (see hb_takeover_meet). */
static atomic_bool legacy_is_used;

/* ---- the application's threads ---- */

static void end_kernels(uint32_t bits)
{
	for (unsigned i = 0; bits; i++, bits >>= 1)
		if (bits & 1)
			atomic_store_explicit(&hb_takeover_page_of(i)->word, HB_TAKEOVER_END, memory_order_release);
}

/* A new word makes the kernels stay longer. It never replaces the order to end, which another thread may just have written. */
static void renew_kernels(uint32_t bits, uint32_t value)
{
	for (unsigned i = 0; bits; i++, bits >>= 1) {
		if (!(bits & 1) || !hb_takeover_slots[i % HB_TAKEOVER_CONTEXTS].lingers)
			continue;
		_Atomic(uint32_t) *word = &hb_takeover_page_of(i)->word;
		uint32_t old = atomic_load_explicit(word, memory_order_relaxed);
		while (old != HB_TAKEOVER_END && !atomic_compare_exchange_weak_explicit(
							 word, &old, value, memory_order_release, memory_order_relaxed))
			;
	}
}

static uint32_t held_bits(void)
{
	return atomic_load_explicit(&hb_shim_alert, memory_order_relaxed) & HB_ALERT_TAKEOVER;
}

static bool release_bits(uint32_t which)
{
	if (!(atomic_load(&hb_shim_alert) & which))
		return false;
	uint32_t held = atomic_fetch_and(&hb_shim_alert, ~which) & which;
	end_kernels(held);
	return held != 0;
}

bool hb_takeover_release(void)
{
	return release_bits(HB_ALERT_TAKEOVER);
}

static uint32_t bits_on_gpu(void)
{
	return atomic_load(&keep_waits) ? HB_ALERT_TAKEN : HB_ALERT_TAKEOVER;
}

void hb_takeover_release_now(void)
{
	release_bits(bits_on_gpu());
}

bool hb_takeover_is_held(void)
{
	return atomic_load(&hb_shim_alert) & bits_on_gpu();
}

bool hb_takeover_is_lingering(int64_t now_ns)
{
	return hb_takeover_linger_runs(&linger, now_ns);
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

void hb_takeover_note_launch(int64_t now_ns)
{
	enum hb_takeover_note note = hb_takeover_linger_note(&linger, now_ns);
	if (note == HB_TAKEOVER_FIRST_RENEWED)
		hb_shim_count(HB_COUNT_takeovers_released, 1);
	if (note != HB_TAKEOVER_NOT_RENEWED)
		renew_kernels(held_bits(), 1 + atomic_fetch_add(&launches, 1) % (HB_TAKEOVER_END / 2));
}

/* Whether work on this stream runs beside work on the legacy stream. */
static bool is_apart(CUstream stream)
{
	unsigned int flags = 0;
	if (!stream || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD)
		return false;
	if (stream == atomic_load_explicit(&apart_stream, memory_order_relaxed))
		return true;
	if (HB_REAL(cuStreamGetFlags)(stream, &flags) != CUDA_SUCCESS || !(flags & CU_STREAM_NON_BLOCKING))
		return false;
	atomic_store_explicit(&apart_stream, stream, memory_order_relaxed);
	return true;
}

void hb_takeover_note_stream(CUstream stream, int64_t now_ns)
{
	hb_takeover_note_begin(&apart, is_apart(stream), now_ns);
}

bool hb_takeover_is_on_legacy(void)
{
	return held_bits() & atomic_load_explicit(&legacy_bits, memory_order_relaxed);
}

/*
 * KEEP kernels that have not begun are behind the work of another stream. A release ends the kernels, but the call still waits
 * for that work.
 */
void hb_takeover_meet(CUstream stream)
{
	uint32_t met = held_bits() & atomic_load(&legacy_bits);
	if (!met || is_apart(stream))
		return;
	if ((met & HB_ALERT_KEPT) && atomic_load(&keep_waits))
		atomic_store(&legacy_is_used, true);
	if (release_bits(met))
		hb_shim_count(HB_COUNT_takeovers_wide, 1);
}

void hb_takeover_forget_stream(CUstream stream)
{
	atomic_compare_exchange_strong(&apart_stream, &stream, NULL);
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
		hb_shim_count(HB_COUNT_takeovers_wide, 1);
}

void hb_takeover_end_wide(void)
{
	atomic_fetch_sub(&wide, 1);
}

int64_t hb_takeover_begin_doubt(void)
{
	int64_t none = 0, now_ns;
	if (!(atomic_load_explicit(&hb_shim_alert, memory_order_relaxed) & HB_ALERT_TAKEOVER))
		return 0;
	now_ns = hb_clock_now_ns();
	return atomic_compare_exchange_strong(&doubt_since_ns, &none, now_ns) ? now_ns : 0;
}

/* Only one thread is watched at a time, the first whose call was in doubt. */
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

/* ---- the takeover thread ---- */

/* Whether this context of its device is the one to take over with. Two contexts would keep each other off the GPU. */
static bool is_chosen(unsigned index)
{
	for (unsigned i = 0; i < HB_TAKEOVER_CONTEXTS; i++)
		if (i != index && hb_takeover_slots[i].state == SLOT_READY &&
		    hb_takeover_slots[i].device == hb_takeover_slots[index].device &&
		    hb_takeover_slots[i].age > hb_takeover_slots[index].age)
			return false;
	return true;
}

/* Without LP on the GPU, or where this process never launched, a takeover gains nothing. */
static bool is_in_use(const struct takeover_slot *slot)
{
	const struct hb_place *place = hb_place();
	if (slot->device < 0 || slot->device >= HB_PAGE_GPUS)
		return false;
	unsigned gpu = place->gpu_of_device[slot->device];
	return gpu < HB_PAGE_GPUS && place->gpus[gpu] &&
	       atomic_load_explicit(&place->gpus[gpu]->tenants_low, memory_order_relaxed) > 0 &&
	       atomic_load(&((struct hb_gate *)place->process->gates[gpu])->submitted) > 0;
}

/* Chooses the stream of a takeover. False: there is none now. With the lock held; a capture waits for the lock before it begins. */
static bool choose_stream(const struct takeover_slot *slot, enum takeover_kind kind, CUstream *stream)
{
	enum hb_takeover_where where = hb_takeover_choose_where(&apart, hb_clock_now_ns());
	*stream = where == HB_TAKEOVER_ON_OWN ? hb_takeover_own_stream(slot, kind) : CU_STREAM_LEGACY;
	return where == HB_TAKEOVER_ON_OWN || (where == HB_TAKEOVER_ON_LEGACY && !atomic_load(&hb_captures));
}

/* Whether the takeover kernels before have ended. They were released long ago, but the GPU may not have run them yet. */
static bool is_over(const struct takeover_slot *slot, enum takeover_kind kind, int64_t patience_ns)
{
	int64_t until_ns = hb_clock_now_ns() + patience_ns;
	CUresult result;
	do
		result = HB_REAL(cuEventQuery)(slot->over[kind]);
	while (result == CUDA_ERROR_NOT_READY && hb_clock_now_ns() < until_ns);
	if (result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY)
		hb_takeover_fail(HB_TAKEOVER_NO_LAUNCH, result);
	return result == CUDA_SUCCESS;
}

static bool launch_kernels(const struct takeover_slot *slot, unsigned index, enum takeover_kind kind, CUstream stream,
			   int64_t limit_ns)
{
	unsigned behind = kind == TAKE ? 1 : 2;
	unsigned bit = hb_takeover_bit_of(index, kind);
	atomic_store(&hb_takeover_page_of(bit)->began_ns, 0);
	atomic_store(&hb_takeover_page_of(bit)->word, HB_TAKEOVER_KEEP);
	if (kind == TAKE)
		hb_takeover_linger_reset(&linger);
	if (stream == CU_STREAM_LEGACY)
		atomic_fetch_or(&legacy_bits, 1u << bit);
	else
		atomic_fetch_and(&legacy_bits, ~(1u << bit));
	atomic_fetch_or(&hb_shim_alert, 1u << bit);
	if (atomic_load(&wide)) {
		release_bits(1u << bit);
		return false;
	}
	CUresult result = hb_takeover_launch(slot, kind, stream, limit_ns);
	for (unsigned i = 0; i < behind && result == CUDA_SUCCESS; i++)
		/* These only have to be queued behind the first, see takeover_kernel.h. */
		result = hb_takeover_launch(slot, kind, stream, 0);
	if (result == CUDA_SUCCESS)
		result = HB_REAL(cuEventRecord)(slot->over[kind], stream);
	if (result != CUDA_SUCCESS) {
		release_bits(1u << bit);
		return hb_takeover_fail(HB_TAKEOVER_NO_LAUNCH, result);
	}
	return true;
}

static bool take_with_slot(const struct takeover_slot *slot, unsigned index, int64_t patience_ns)
{
	CUstream stream;
	return choose_stream(slot, TAKE, &stream) && is_over(slot, TAKE, patience_ns) &&
	       launch_kernels(slot, index, TAKE, stream, HB_FORESIGHT_TAKEOVER_MAX_NS);
}

/* With the lock held. */
static bool take_all_gpus(int64_t patience_ns)
{
	bool any = false;
	for (unsigned i = 0; i < HB_TAKEOVER_CONTEXTS && !hb_takeover_stopped; i++) {
		CUcontext popped;
		if (hb_takeover_slots[i].state != SLOT_READY || !is_chosen(i) || !is_in_use(&hb_takeover_slots[i]) ||
		    HB_REAL(cuCtxPushCurrent_v2)(hb_takeover_slots[i].context) != CUDA_SUCCESS)
			continue;
		any |= take_with_slot(&hb_takeover_slots[i], i, patience_ns);
		HB_REAL(cuCtxPopCurrent_v2)(&popped); /* the application may destroy any context that is not current */
	}
	return any;
}

bool hb_takeover_fire(void)
{
	if (hb_takeover_has_fault() || atomic_load(&wide))
		return false;
	pthread_mutex_lock(&hb_takeover_lock);
	bool any = take_all_gpus(END_WAIT_NS);
	pthread_mutex_unlock(&hb_takeover_lock);
	return any;
}

enum hb_takeover_tried hb_takeover_try_fire(void)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	if (hb_takeover_has_fault() || atomic_load(&wide) || atomic_load(&hb_captures) ||
	    pthread_mutex_trylock(&hb_takeover_lock) != 0)
		return HB_TAKEOVER_NOT_HERE;
	HB_REAL(cuThreadExchangeStreamCaptureMode)(&mode);
	bool any = take_all_gpus(0);
	HB_REAL(cuThreadExchangeStreamCaptureMode)(&mode);
	pthread_mutex_unlock(&hb_takeover_lock);
	return any ? HB_TAKEOVER_FIRED : HB_TAKEOVER_NOT_HERE;
}

/* ---- keeping the GPU after the work, on the application's threads ---- */

static struct takeover_slot *find_current_slot(unsigned *index)
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

static bool is_working(CUstream stream, CUevent event)
{
	return (event ? HB_REAL(cuEventQuery)(event) : HB_REAL(cuStreamQuery)(stream)) == CUDA_ERROR_NOT_READY;
}

/* Queues the stream of KEEP kernels behind the work. The driver refuses a stream of a context that is not current. */
static bool queue_behind_work(const struct takeover_slot *slot, CUstream keep, CUstream stream, CUevent event)
{
	if (!is_working(stream, event))
		return false;
	if (!event && HB_REAL(cuEventRecord)(slot->work_done, stream) != CUDA_SUCCESS)
		return false;
	return HB_REAL(cuStreamWaitEvent)(keep, event ? event : slot->work_done, 0) == CUDA_SUCCESS;
}

/*
 * With the lock held. The kernels that kept the GPU for the work in flight may still linger. They are released when those for
 * the time after it are queued.
 */
static bool keep_gpu(struct takeover_slot *slot, unsigned index, CUstream stream, CUevent event, bool marked,
		     int64_t keep_ns)
{
	CUstream keep;
	if (!choose_stream(slot, KEEP_EVEN, &keep) ||
	    (keep == CU_STREAM_LEGACY &&
	     (atomic_load(&legacy_is_used) ||
	      (!event && !is_apart(stream))))) /* the process would wait for the kernels, too */
		return false;
	enum takeover_kind last = slot->kept_last, kind = last == KEEP_EVEN ? KEEP_ODD : KEEP_EVEN;
	bool queued = is_over(slot, kind, 0) && queue_behind_work(slot, keep, stream, marked ? slot->work_done : event);
	if (queued) {
		atomic_store(&keep_waits, true);
		queued = launch_kernels(slot, index, kind, keep, keep_ns);
		slot->kept_last = kind;
	}
	if (last != TAKE)
		release_bits(1u << hb_takeover_bit_of(index, last));
	return queued;
}

/* The slot of the calling thread's context, with the lock held, or NULL. The driver accepts calls during a capture elsewhere. */
static struct takeover_slot *enter_slot(unsigned *index, CUstreamCaptureMode *mode)
{
	*mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	if (hb_takeover_has_fault() || atomic_load(&wide) || atomic_load(&hb_captures) ||
	    pthread_mutex_trylock(&hb_takeover_lock) != 0)
		return NULL;
	struct takeover_slot *slot = hb_takeover_stopped ? NULL : find_current_slot(index);
	if (slot)
		HB_REAL(cuThreadExchangeStreamCaptureMode)(mode);
	else
		pthread_mutex_unlock(&hb_takeover_lock);
	return slot;
}

static void exit_slot(CUstreamCaptureMode mode)
{
	HB_REAL(cuThreadExchangeStreamCaptureMode)(&mode);
	pthread_mutex_unlock(&hb_takeover_lock);
}

bool hb_takeover_keep(CUstream stream, CUevent event, bool marked, int64_t keep_ns)
{
	unsigned index = 0;
	CUstreamCaptureMode mode;
	struct takeover_slot *slot = enter_slot(&index, &mode);
	if (!slot)
		return false;
	/* The copies behind the mark do not count; the takeover thread ends the takeover in time. */
	bool kept = keep_gpu(slot, index, stream, event, marked,
			     keep_ns + (marked ? HB_DEFAULT_TAKEOVER_LINGER_NS : 0));
	exit_slot(mode);
	return kept;
}

bool hb_takeover_mark_work(CUstream stream)
{
	unsigned index = 0;
	CUstreamCaptureMode mode;
	const struct takeover_slot *slot = enter_slot(&index, &mode);
	if (!slot)
		return false;
	bool marked = HB_REAL(cuEventRecord)(slot->work_done, stream) == CUDA_SUCCESS;
	exit_slot(mode);
	return marked;
}

bool hb_takeover_keep_begins(void)
{
	hb_takeover_linger_reset(&linger); /* the work is done, so nothing has to linger */
	atomic_store(&keep_waits, false);
	return atomic_load(&hb_shim_alert) & HB_ALERT_KEPT;
}

void hb_takeover_yield_to_capture(void)
{
	if (hb_takeover_has_fault())
		return;
	pthread_mutex_lock(&hb_takeover_lock);
	pthread_mutex_unlock(&hb_takeover_lock);
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

/* The words belong to the parent, so the child does not write them. */
void hb_takeover_leave_in_child(void)
{
	pthread_mutex_init(&hb_takeover_lock, NULL);
	memset(hb_takeover_slots, 0, sizeof(hb_takeover_slots));
	atomic_store(&hb_shim_alert, HB_ALERT_FIRST);
	atomic_store(&hb_takeover_pages, NULL);
	atomic_store(&wide, 0);
	atomic_store(&doubt_since_ns, 0);
	hb_takeover_linger_reset(&linger);
	atomic_store(&apart.known, false);
	atomic_store(&apart.blocking_since_ns, 0);
	atomic_store(&apart_stream, NULL);
	atomic_store(&legacy_bits, 0);
	atomic_store(&keep_waits, false);
	atomic_store(&legacy_is_used, false);
	hb_takeover_stopped = false;
}
