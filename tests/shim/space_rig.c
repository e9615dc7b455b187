/* SPDX-License-Identifier: Apache-2.0 */
/* See space_rig.h. */
#include "space_rig.h"

#include "simcuda/simcuda.h"

#include <stdlib.h>

static const char image[] = "HBSIM1\nkernel look ns=10000 host=space_rig_look\n";

struct hb_page_host space_host;
CUcontext space_context;
CUfunction space_look;
CUstream space_stream;
atomic_uint space_sms_seen;
atomic_int space_priority_seen;
_Atomic(uint32_t) space_mask_seen[4];

/* The simulated driver finds it by name. */
void space_rig_look(const struct hb_sim_launch *launch);
__attribute__((visibility("default"))) void space_rig_look(const struct hb_sim_launch *launch)
{
	atomic_store(&space_sms_seen, launch->sms);
	atomic_store(&space_priority_seen, launch->priority);
	for (int i = 0; i < 4; i++)
		atomic_store(&space_mask_seen[i], launch->mask[i]);
}

uint64_t space_count_of(enum hb_page_counter counter)
{
	return atomic_load(&space_host.page->processes[0].counters[counter]);
}

void space_begin(void)
{
	CUmodule module;
	OK(CU(cuInit)(0));
	OK(CU(cuCtxCreate_v2)(&space_context, 0, 0));
	OK(CU(cuModuleLoadData)(&module, image));
	OK(CU(cuModuleGetFunction)(&space_look, module, "look"));
	OK(CU(cuStreamCreate)(&space_stream, CU_STREAM_NON_BLOCKING));
	OK(CU(cuCtxSynchronize)()); /* where what the engine needs is made */
}

void space_end(void)
{
	OK(CU(cuCtxDestroy_v2)(space_context));
}

int space_set_up(void **state)
{
	hb_page_host_init(&space_host);
	hb_page_host_simulate(&space_host);
	setenv("HB_MPS", "1", 1);
	unsetenv("HB_SIM_MASKS");
	unsetenv("HB_MASKS");
	unsetenv("CUDA_INJECTION64_PATH");
	space_host.page->gpus[0].engine = HB_ENGINE_SPATIAL;
	space_host.page->processes[0].pid = SPACE_PID;
	space_host.gpu->tenants_high = 1;
	space_host.gpu->tenants_low = 1;
	space_host.gpu->high_at_work = 1;
	space_host.gpu->window_us = 100000;
	return 0;
}

int space_tear_down(void **state)
{
	hb_page_host_fini(&space_host);
	return 0;
}

struct hb_page_process *space_run(void (*scenario)(void))
{
	struct hb_page_process *process = hb_page_host_run(&space_host, scenario);
	assert_non_null(process);
	return process;
}
