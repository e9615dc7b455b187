/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The page that the server shares with hb-demand-tenant (demand_tenant.c), the program that keeps the GPU busy while the
 * demand of a model is measured. Written by demand_process.c and demand_tenant.c.
 */
#ifndef HB_SERVER_DEMAND_PAGE_H
#define HB_SERVER_DEMAND_PAGE_H

#include <stdatomic.h>
#include <stdint.h>

/* What the tenant executes: short kernels without pause. */
enum hb_demand_mode {
	HB_DEMAND_IDLE,    /* nothing */
	HB_DEMAND_COMPUTE, /* kernels that need no memory bandwidth */
	HB_DEMAND_MEMORY,  /* kernels of the same size that copy memory of the GPU */
	HB_DEMAND_END,     /* it ends */
};

enum hb_demand_state { HB_DEMAND_STARTING, HB_DEMAND_READY, HB_DEMAND_UNABLE };

struct hb_demand_page {
	_Atomic(uint32_t) mode;    /* server; enum hb_demand_mode */
	_Atomic(uint32_t) state;   /* tenant; enum hb_demand_state */
	_Atomic(uint32_t) running; /* tenant; the mode whose kernels run now */
	_Atomic(uint32_t) gaps;    /* tenant; how often its last kernel had ended before the next was launched */
	/* SMs of the GPU: the server gives the number, or 0, and the tenant then asks the driver and stores the answer. */
	uint32_t sms;
	double probe_ns;                       /* tenant; time of a kernel that fills all SMs several times */
	double latency_ns[2], bytes_per_ns[2]; /* tenant; copies from pinned host memory to the GPU and back */
	char error[200];                       /* tenant; why it is unable, NUL-terminated */
};

#endif
