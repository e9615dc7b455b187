/* SPDX-License-Identifier: Apache-2.0 */
/* Names and texts of the reasons in split_reasons.def; see split_reason.h. */
#include "cubin/split_reason.h"

static const struct {
	const char *name, *text;
} reasons[] = {
#define HB_SPLIT_REASON(name, text) {#name, text},
#include "cubin/split_reasons.def"
};

const char *hb_split_reason_name(enum hb_split_reason reason)
{
	return reason < HB_N_SPLIT_REASONS ? reasons[reason].name : "?";
}

const char *hb_split_reason_text(enum hb_split_reason reason)
{
	return reason < HB_N_SPLIT_REASONS ? reasons[reason].text : "?";
}
