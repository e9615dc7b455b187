/* SPDX-License-Identifier: Apache-2.0 */
/* What foresight knows, as text: for hb_core_dump() and scenarios. Apart from foresight.c, which is also compiled into
 * programs that print nothing. */
#include "base/units.h"
#include "decide/foresight.h"

#include <inttypes.h>

static void print_offset(FILE *out, const char *what, int64_t offset_ns)
{
	char text[HB_UNITS_TEXT_MAX];
	fprintf(out, " %s=%s%s", what, offset_ns < 0 ? "-" : "",
		hb_duration_format(offset_ns < 0 ? -offset_ns : offset_ns, text));
}

static void print_sign(const struct hb_foresight *foresight, uint32_t slot, FILE *out)
{
	static const char *const kinds[] = {[HB_SIGN_API] = "api",
					    [HB_SIGN_SOCKET] = "socket",
					    [HB_SIGN_CALL] = "call",
					    [HB_SIGN_PERIOD] = "period"};
	const struct hb_foresight_sign *sign = &foresight->signs[slot];
	uint32_t nothing = 0;
	for (uint32_t i = 0; i < hb_foresight_known(sign); i++)
		nothing += sign->outcome_ns[i] == HB_FORESIGHT_NONE;
	static const char *const ends[HB_FORESIGHT_FIRST_SOURCE] = {[HB_FORESIGHT_IDLE] = "idle",
								    [HB_FORESIGHT_QUEUED] = "idle_queued",
								    [HB_FORESIGHT_LATER_IDLE] = "later_idle",
								    [HB_FORESIGHT_LATER_QUEUED] = "later_idle_queued"};
	bool end = slot < HB_FORESIGHT_FIRST_SOURCE && ends[slot];
	fprintf(out, "  sign %s", end ? ends[slot] : kinds[sign->kind]);
	if (slot >= HB_FORESIGHT_FIRST_SOURCE)
		fprintf(out, " source=0x%" PRIx64, foresight->sources[slot]);
	fprintf(out, "%s outcomes=%" PRIu32 " nothing=%" PRIu32 "/%" PRIu32, sign->timed ? " timed" : "", sign->seen,
		nothing, hb_foresight_known(sign));
	if (sign->plan.end_ns > sign->plan.start_ns) {
		print_offset(out, "hold_from", sign->plan.start_ns);
		print_offset(out, "to", sign->plan.end_ns);
		fprintf(out, " misses=%" PRIu32 "%%", sign->plan.miss_ppm / 10000);
	}
	fputc('\n', out);
}

void hb_foresight_dump(const struct hb_foresight *foresight, FILE *out)
{
	for (uint32_t slot = 0; slot < foresight->n_signs; slot++)
		if (foresight->signs[slot].seen)
			print_sign(foresight, slot, out);
}
