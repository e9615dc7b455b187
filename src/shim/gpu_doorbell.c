/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls the daemon to a GPU ahead of its next look: see hb_gpu_page.bell. Called
 * where a thread is about to sleep at a closed gate (gate_wait.c) and where work
 * was found to have ended (drain.c); never by a launch that goes straight through.
 */
#include "shim/shim_tenant.h"

#include <linux/futex.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

void hb_gpu_ring(const struct hb_place *place, unsigned gpu, enum hb_gpu_news news)
{
	struct hb_gpu_page *page = gpu < HB_PAGE_GPUS ? place->gpus[gpu] : NULL;
	if (!page || !(atomic_load(&page->listening) & news))
		return;
	atomic_fetch_add(&page->doorbell, 1);
	syscall(SYS_futex, &page->doorbell, FUTEX_WAKE, 1, NULL, NULL, 0);
}
