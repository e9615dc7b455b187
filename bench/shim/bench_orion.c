/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The baseline Orion between processes. HB_BENCH_ORION=FILE in the environment of
 * the HP program and of the LP programs switches it on; they exchange what the
 * rule needs through that file. HP reports the class of the kernel it launched
 * last and its request time alone. LP applies decide/baseline_orion.h to each launch
 * beside a request, in place of the spatial engine's rule. One GPU only.
 *
 * Both sides know of a kernel what can be known of a closed library: the class
 * from its name, the size from grid and occupancy, and the duration from launches
 * while HP was idle. A kernel that was never measured waits, like a kernel without
 * a profile in Orion. Kernels that HP launches in a graph have no class.
 */
#include "bench_orion.h"
#include "base/log.h"
#include "bench_levers.h"
#include "decide/baseline_orion.h"
#include "decide/kernel_class.h"
#include "shim/shim.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Entries of the cache of classes; a collision only costs another question to the driver. */
#define KNOWN 1024
/* Function and class in one word, so that threads cannot mix two entries: addresses of programs have 47 bits. */
#define CLASS_SHIFT 56
static _Atomic uint64_t known[KNOWN];

static struct hb_orion_file *file; /* NULL = off; constant after the first use */
static pthread_once_t opened = PTHREAD_ONCE_INIT;

/* LP time launched beside HP since HP was idle; guarded by the lock of shim_spatial_rows.h. */
static int64_t used_ns;

static void open_file(void)
{
	const char *path = getenv("HB_BENCH_ORION");
	int fd = path ? open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600) : -1;
	if (!path)
		return;
	void *memory = MAP_FAILED;
	if (fd >= 0 && ftruncate(fd, sizeof *file) == 0)
		memory = mmap(NULL, sizeof *file, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (memory == MAP_FAILED)
		hb_log_warning("HB_BENCH_ORION: %s: %s", path, strerror(errno));
	else
		file = memory;
	if (fd >= 0)
		close(fd);
}

bool hb_bench_orion_is_on(void)
{
	pthread_once(&opened, open_file);
	return file != NULL;
}

/* ---- high priority ---- */

static enum hb_class find_class(CUfunction function)
{
	const char *name = NULL;
	if (HB_REAL(cuFuncGetName)(&name, function) != CUDA_SUCCESS &&
	    HB_REAL(cuKernelGetName)(&name, (CUkernel)function) != CUDA_SUCCESS)
		return HB_CLASS_UNKNOWN;
	return name ? hb_kernel_class(name) : HB_CLASS_UNKNOWN;
}

static enum hb_class class_of(CUfunction function)
{
	uint64_t address = (uintptr_t)function;
	_Atomic uint64_t *entry = &known[(address >> 4) % KNOWN];
	if (!function)
		return HB_CLASS_UNKNOWN;
	uint64_t found = atomic_load_explicit(entry, memory_order_relaxed);
	if ((found & ((UINT64_C(1) << CLASS_SHIFT) - 1)) == address)
		return (enum hb_class)(found >> CLASS_SHIFT);
	enum hb_class class = find_class(function);
	atomic_store_explicit(entry, address | (uint64_t) class << CLASS_SHIFT, memory_order_relaxed);
	return class;
}

void hb_bench_orion_high_begin(const struct hb_spatial_high *high)
{
	if (!hb_bench_orion_is_on())
		return;
	int64_t alone_ns = high->alone_ns < HB_ORION_LEARNING ? high->alone_ns : HB_ORION_LEARNING - 1;
	atomic_store_explicit(&file->high_alone_ns, high->closed ? HB_ORION_LEARNING : (uint32_t)alone_ns,
			      memory_order_relaxed);
	atomic_store_explicit(&file->high_class, HB_CLASS_UNKNOWN, memory_order_relaxed);
}

void hb_bench_orion_high_launch(CUfunction function)
{
	if (hb_bench_orion_is_on())
		atomic_store_explicit(&file->high_class, (uint32_t)class_of(function), memory_order_relaxed);
}

/* ---- low priority ---- */

static uint32_t count_sms(const struct hb_spatial_kernel *kernel, uint32_t all)
{
	if (!kernel->blocks || !kernel->per_sm)
		return 0;
	uint64_t sms = (kernel->blocks + kernel->per_sm - 1) / kernel->per_sm;
	return sms < all ? (uint32_t)sms : all;
}

void hb_bench_orion_low(const struct hb_spatial_low *low, CUfunction function, const struct hb_spatial_view *view,
			struct hb_spatial_answer *answer)
{
	const struct hb_orion_launch launch = {.sms = count_sms(&low->kernels[answer->kernel], low->limits.sms),
					       .duration_ns = answer->known ? answer->ns : 0,
					       .class = class_of(function)};
	uint32_t alone_ns = atomic_load_explicit(&file->high_alone_ns, memory_order_relaxed);
	const struct hb_orion_high high = {
		.present = view->present,
		.measures_alone = alone_ns == HB_ORION_LEARNING,
		.alone_ns = alone_ns,
		.class = (enum hb_class)atomic_load_explicit(&file->high_class, memory_order_relaxed),
	};
	if (hb_orion_may_start(&used_ns, &high, &launch, low->limits.sms / 2))
		return;
	answer->verdict = HB_SPATIAL_WAIT;
	answer->for_high = true;
	answer->until_ns = view->look_at_ns;
}
