/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures the demands of a batch from run times alone, as one can with any program on a GPU: the batch runs alone, on an eighth
 * of the SMs, and beside a program that needs all of the memory bandwidth. Used by serving_gpu.c, on a GPU model of its own.
 *
 *	SM demand      On a share f of the SMs a batch that uses the share s takes s/f times as long (if s > f), so s = f T_f / T.
 *	bandwidth      A batch waits for memory during the share m of its time, and beside a program that wants all of the bandwidth
 *	               that part takes 1 + m times as long, so the batch takes 1 + m m times as long. A program of the same size that
 *	               needs no bandwidth shows which part of the delay has another cause.
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
