/* SPDX-License-Identifier: Apache-2.0 */
/* Words for the reasons of slice_reasons.def; see slice_reason.h. */
#include "cubin/slice_reason.h"

static const struct {
	const char *name, *text;
} reasons[] = {
#define HB_SLICE_REASON(name, text) {#name, text},
#include "cubin/slice_reasons.def"
};

const char *hb_slice_reason_name(enum hb_slice_reason reason)
{
	return reason < HB_N_SLICE_REASONS ? reasons[reason].name : "?";
}

const char *hb_slice_reason_text(enum hb_slice_reason reason)
{
	return reason < HB_N_SLICE_REASONS ? reasons[reason].text : "?";
}
