/* SPDX-License-Identifier: Apache-2.0 */
/* One process in the spatial engine for tests; see shim_spatial_rig.h. */
#include "shim_spatial_rig.h"

#include "simcuda/simcuda.h"

#include <stdlib.h>

static const char image[] = "HBSIM1\nkernel look ns=10000 host=spatial_rig_look\n";

struct hb_page_host spatial_host;
CUcontext spatial_context;
CUfunction spatial_look;
CUstream spatial_stream;
atomic_uint spatial_sms_seen;
atomic_int spatial_priority_seen;
_Atomic(uint32_t) spatial_mask_seen[4];

/* The simulated driver finds this function by name. */
void spatial_rig_look(const struct hb_sim_launch *launch);
__attribute__((visibility("default"))) void spatial_rig_look(const struct hb_sim_launch *launch)
{
	atomic_store(&spatial_sms_seen, launch->sms);
	atomic_store(&spatial_priority_seen, launch->priority);
	for (int i = 0; i < 4; i++)
		atomic_store(&spatial_mask_seen[i], launch->mask[i]);
}

uint64_t spatial_count_of(enum hb_page_counter counter)
{
	return atomic_load(&spatial_host.page->processes[0].counters[counter]);
}

void spatial_begin(void)
{
	CUmodule module;
	OK(CU(cuInit)(0));
	OK(CU(cuCtxCreate_v2)(&spatial_context, 0, 0));
	OK(CU(cuModuleLoadData)(&module, image));
	OK(CU(cuModuleGetFunction)(&spatial_look, module, "look"));
	OK(CU(cuStreamCreate)(&spatial_stream, CU_STREAM_NON_BLOCKING));
	OK(CU(cuCtxSynchronize)()); /* a slow call, in which the engine prepares */
}

void spatial_end(void)
{
	OK(CU(cuCtxDestroy_v2)(spatial_context));
}

int spatial_set_up(void **state)
{
	hb_page_host_init(&spatial_host);
	hb_page_host_simulate(&spatial_host);
	setenv("HB_MPS", "1", 1);
	unsetenv("HB_SIM_MASKS");
	unsetenv("HB_MASKS");
	unsetenv("CUDA_INJECTION64_PATH");
	spatial_host.page->gpus[0].engine = HB_ENGINE_SPATIAL;
	spatial_host.page->processes[0].pid = SPATIAL_PID;
	spatial_host.gpu->tenants_high = 1;
	spatial_host.gpu->tenants_low = 1;
	spatial_host.gpu->high_at_work = 1;
	spatial_host.gpu->window_us = 100000;
	hb_page_host_list_board(&spatial_host);
	return 0;
}

int spatial_tear_down(void **state)
{
	hb_page_host_fini(&spatial_host);
	return 0;
}

struct hb_page_process *spatial_run(void (*scenario)(void))
{
	struct hb_page_process *process = hb_page_host_run(&spatial_host, scenario);
	assert_non_null(process);
	return process;
}
