/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rings the tenant's doorbell for a GPU, so that the daemon checks the GPU earlier
 * than at its next tick; see hb_page_gpu.doorbell. Called when a thread is about to
 * sleep at a closed gate (gate_wait.c) and when work has ended (drain.c), never by
 * a launch that goes through.
 */
#include "shim/shim_tenant.h"

#include <linux/futex.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

void hb_gpu_ring(const struct hb_place *place, unsigned gpu, enum hb_gpu_news news)
{
	const struct hb_gpu_page *page = gpu < HB_PAGE_GPUS ? place->gpus[gpu] : NULL;
	if (!page || !(atomic_load(&page->listening) & news))
		return;
	hb_page_u32 *doorbell = &place->page->gpus[gpu].doorbell;
	atomic_fetch_add(doorbell, 1);
	syscall(SYS_futex, doorbell, FUTEX_WAKE, 1, NULL, NULL, 0);
}
