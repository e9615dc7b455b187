/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzz target: messages of the daemon's protocol. A packet is accepted only if all
 * of its fields are inside the packet and in range. The first byte of the input
 * holds the sender (bit 7) and the number of descriptors.
 */
#include "protocol/protocol.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int condition)
{
	if (!condition)
		abort();
}

static void check_register(const struct hb_msg_register *m, size_t n_fds)
{
	require(m->n_gpus <= HB_PAGE_GPUS && m->slot <= HB_PAGE_PROCESSES && m->priority <= 1);
	require(m->slo_ns >= -1 && m->attainment_ppm <= 1000000 && m->pcie_weight <= 1000 && m->weight <= 1000);
	require(n_fds == (m->flags & HB_REGISTER_PAGE ? 1 : 0));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *why = NULL;
	size_t length;
	if (size < 1 || size - 1 > sizeof(union hb_msg))
		return 0;
	/* An allocation of exactly the packet's size, so that a sanitizer finds a read behind it. */
	union hb_msg *packet = malloc(size - 1 ? size - 1 : 1);
	require(packet != NULL);
	memcpy(packet, data + 1, size - 1);
	size_t n_fds = data[0] & 0x7f;
	enum hb_msg_sender sender = data[0] & 0x80 ? HB_SENDER_DAEMON : HB_SENDER_CLIENT;
	if (hb_msg_check(packet, size - 1, n_fds, sender, &why) == 0) {
		const char *text = hb_msg_text(packet, &length);
		require((const uint8_t *)text + length == (const uint8_t *)packet + size - 1);
		require(hb_msg_name(packet->header.kind)[0] != '?' && n_fds <= HB_MSG_FDS_MAX);
		if (packet->header.kind == HB_MSG_REGISTER)
			check_register(&packet->as_REGISTER, n_fds);
	} else {
		require(why != NULL && *why != '\0');
	}
	free(packet);
	return 0;
}
