/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzz target: the answers of the child processes that search for GPCs and try
 * masks. The daemon takes groups only if the state says that they are known; every
 * bit then belongs to one of them. Masks work only if the answer says so.
 */
#include "base/uuid.h"
#include "daemon/gpc_layout.h"
#include "daemon/mask_guard.h"
#include "fuzz.h"
#include "nvidia/gpc_find.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const unsigned char uuid[HB_UUID_BYTES] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
	unsigned char gpc_of[HB_GPC_BITS] = {0};
	unsigned highest = 0;
	char *text = fuzz_text(data, size);
	enum hb_gpc_state state = hb_gpc_layout_read(text, uuid, gpc_of);
	FUZZ_REQUIRE((unsigned)state < HB_N_GPC_STATES);
	for (int bit = 0; bit < HB_GPC_BITS; bit++) {
		FUZZ_REQUIRE(gpc_of[bit] <= HB_GPC_MOST && (state == HB_GPC_KNOWN || gpc_of[bit] == 0));
		highest = gpc_of[bit] > highest ? gpc_of[bit] : highest;
	}
	FUZZ_REQUIRE(state != HB_GPC_KNOWN || strstr(text, "GPU-01020304-0506-0708-090a-0b0c0d0e0f10"));
	enum hb_mask_state masks = hb_mask_guard_read(text);
	FUZZ_REQUIRE(masks > HB_MASK_UNTRIED && masks < HB_N_MASK_STATES);
	FUZZ_REQUIRE(masks != HB_MASK_WORKS || strstr(text, "state"));
	free(text);
	return 0;
}
