/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One process in the spatial engine over the simulated driver: a page with that
 * engine, a context with a stream, and a kernel that records how it was launched.
 * For the tests of masks, waits and priorities. Link with -rdynamic, because the
 * driver finds the kernel's function by name.
 */
#ifndef HB_TEST_SHIM_SPATIAL_RIG_H
#define HB_TEST_SHIM_SPATIAL_RIG_H

#include "nvidia/cuda_abi.h"
#include "page_host.h"
#include "unit/unit.h"

#include <stdatomic.h>

#define OK(call) CHECK((call) == CUDA_SUCCESS)
#define SPATIAL_PID 4242

extern struct hb_page_host spatial_host;

/* In the child. */
extern CUcontext spatial_context;
extern CUfunction spatial_look;
extern CUstream spatial_stream;
extern atomic_uint spatial_sms_seen;           /* SMs of the last launch */
extern atomic_int spatial_priority_seen;       /* priority of the last launch */
extern _Atomic(uint32_t) spatial_mask_seen[4]; /* bits of the TPCs that the last launch did not use */
void spatial_begin(void);
void spatial_end(void);
uint64_t spatial_count_of(enum hb_page_counter counter);

/* In the test: an LP process, while HP is at work; nothing masked yet. */
int spatial_set_up(void **state);
int spatial_tear_down(void **state);
struct hb_page_process *spatial_run(void (*scenario)(void));

#endif
