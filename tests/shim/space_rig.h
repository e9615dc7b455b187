/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One process in the spatial engine over the simulated driver: a page that says
 * so, a context with a stream of its own, and a kernel that tells how it was
 * launched. For the tests of masks and waiting and of priorities. Link with
 * -rdynamic: the driver finds the kernel's function by name.
 */
#ifndef HB_TEST_SPACE_RIG_H
#define HB_TEST_SPACE_RIG_H

#include "nvidia/cuda_abi.h"
#include "page_host.h"
#include "unit/unit.h"

#include <stdatomic.h>

#define OK(call) CHECK((call) == CUDA_SUCCESS)
#define SPACE_PID 4242

extern struct hb_page_host space_host;

/* In the child. */
extern CUcontext space_context;
extern CUfunction space_look;
extern CUstream space_stream;
extern atomic_uint space_sms_seen;           /* what the last launch had */
extern atomic_int space_priority_seen;       /* the same */
extern _Atomic(uint32_t) space_mask_seen[4]; /* TPCs that it did without, by bit */
void space_begin(void);
void space_end(void);
uint64_t space_count_of(enum hb_page_counter counter);

/* In the test: a process of low priority, HP at work, nothing masked. */
int space_set_up(void **state);
int space_tear_down(void **state);
struct hb_page_process *space_run(void (*scenario)(void));

#endif
