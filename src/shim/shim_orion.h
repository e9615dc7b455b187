/* SPDX-License-Identifier: Apache-2.0 */
/* Orion's rule between processes; see shim_orion.c. Callers: shim_spatial_high.c, shim_spatial_low.c. */
#ifndef HB_SHIM_WINDOW_ORION_H
#define HB_SHIM_WINDOW_ORION_H

#include "decide/spatial_high.h"
#include "decide/spatial_low.h"
#include "hummingbird/page.h"
#include "nvidia/cuda_abi.h"

/* In place of a time alone: the request measures it, nothing goes beside it. */
#define HB_ORION_LEARNING UINT32_MAX

bool hb_orion_is_asked_for(const struct hb_gpu_page *page);
/* HP: a request begins; a kernel is launched, NULL = a graph or the like. */
void hb_orion_high_begin(struct hb_gpu_page *page, const struct hb_spatial_high *high);
void hb_orion_high_launch(struct hb_gpu_page *page, CUfunction function);
/* LP: turns an answer of slack, which was asked for a free launch, into waiting where the rule says so. */
void hb_orion_ask(unsigned gpu, struct hb_gpu_page *page, const struct hb_spatial_low *low, CUfunction function,
		  const struct hb_spatial_view *view, struct hb_spatial_answer *answer);

#endif
