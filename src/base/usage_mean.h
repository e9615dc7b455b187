/* SPDX-License-Identifier: Apache-2.0 */
/* Shares of the last minute, from what `hb status --json` prints (docs/daemon.md). Callers: hb-k8s, `hb place`. */
#ifndef HB_BASE_USAGE_MEAN_H
#define HB_BASE_USAGE_MEAN_H

#include <jansson.h>
#include <stdint.h>

/* Returns the entry of `gpus` with this UUID, a borrowed reference; NULL = there is none, so no tenant is on the GPU. */
const json_t *hb_usage_find(const json_t *status, const char *uuid);
/*
 * Returns the mean of the last minute of a list of the GPU's `history`, such as high_ppm, 0 to 1000000; steps that are not known
 * count as 0. -1 = there is no history yet.
 */
int64_t hb_usage_mean_ppm(const json_t *gpu, const char *list);

#endif
