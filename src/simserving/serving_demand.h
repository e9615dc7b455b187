/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures the demands of a batch from run times alone, as one can with any program on a GPU: the batch runs alone, on an eighth
 * of the SMs, and beside a program that needs all of the memory bandwidth (server/scheduler/demand.h has the formulas). Used by
 * serving_gpu.c, on a GPU model of its own.
 */
#ifndef HB_SIMSERVING_DEMAND_H
#define HB_SIMSERVING_DEMAND_H

#include "gpumodel/model.h"

#include <stddef.h>

/* Where the demands of models come from. */
enum hb_demand_source {
	HB_DEMAND_KNOWN,    /* their recorded kernels, which a server does not have */
	HB_DEMAND_MEASURED, /* run times */
	HB_DEMAND_TYPED     /* the defaults of model.yaml, the same for all models */
};

/* The works of one batch; *sm and *memory are shares from 0 to 1. Returns 0, -EINVAL or -ENOMEM. */
int hb_serving_measure_demand(const struct hb_gpu_spec *spec, const struct hb_gpu_model_work *works, size_t n_works,
			      double *sm, double *memory);

#endif
