/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Prints the layout of the daemon's messages and pages, for live_daemon.py. Lines:
 *   message NAME NUMBER BYTES
 *   field STRUCT FIELD OFFSET BYTES
 *   value NAME NUMBER
 */
#include "hummingbird/page_trace.h"
#include "protocol/protocol.h"

#include <stdio.h>

#define FIELD(type, field) \
	printf("field %s %s %zu %zu\n", #type, #field, offsetof(struct type, field), sizeof(((struct type *)0)->field));
#define VALUE(name) printf("value %s %llu\n", #name, (unsigned long long)(name));

static void print_messages(void)
{
#define HB_MESSAGE(name, number, sender, type, text_max, fds_max) \
	printf("message %s %d %zu\n", #name, number, sizeof(type));
#include "protocol/messages.def"
#undef HB_MESSAGE
	FIELD(hb_msg_hello, version_min)
	FIELD(hb_msg_hello, version_max)
	FIELD(hb_msg_hello, page_version)
	FIELD(hb_msg_hello, features)
	FIELD(hb_msg_register, flags)
	FIELD(hb_msg_register, priority)
	FIELD(hb_msg_register, slo_ns)
	FIELD(hb_msg_register, attainment_ppm)
	FIELD(hb_msg_register, pcie_weight)
	FIELD(hb_msg_register, weight)
	FIELD(hb_msg_register, memory_bytes)
	FIELD(hb_msg_register, token)
	FIELD(hb_msg_register, slot)
	FIELD(hb_msg_register, generation)
	FIELD(hb_msg_register, engine)
	FIELD(hb_msg_register, n_gpus)
	FIELD(hb_msg_register, uuids)
	FIELD(hb_msg_register, totals)
	FIELD(hb_msg_registered, tenant)
	FIELD(hb_msg_registered, slot)
	FIELD(hb_msg_registered, n_fds)
	FIELD(hb_msg_bye, token)
	FIELD(hb_msg_terminate, token)
	FIELD(hb_msg_terminate, signal)
	FIELD(hb_msg_memory, token)
	FIELD(hb_msg_memory, uuid)
	FIELD(hb_msg_memory, bytes)
	FIELD(hb_msg_board, token)
	FIELD(hb_msg_board, uuid)
	FIELD(hb_msg_board, number)
	FIELD(hb_msg_set, tenant)
	FIELD(hb_msg_set, fields)
	FIELD(hb_msg_set, priority)
	FIELD(hb_msg_set, attainment_ppm)
	FIELD(hb_msg_set, slo_ns)
	FIELD(hb_msg_set, memory_bytes)
	FIELD(hb_msg_set, pcie_weight)
	FIELD(hb_msg_set, weight)
	FIELD(hb_msg_record, action)
	FIELD(hb_msg_record, seconds)
	FIELD(hb_msg_text, more)
	FIELD(hb_msg_error, code)
}

static void print_pages(void)
{
	FIELD(hb_page, n_gpus)
	FIELD(hb_page, state)
	FIELD(hb_page, heartbeat_ns)
	FIELD(hb_page, processes)
	FIELD(hb_page_process, requests)
	VALUE(HB_PROTOCOL_VERSION)
	VALUE(HB_PAGE_VERSION)
	VALUE(HB_PAGE_GPUS)
	VALUE(HB_PAGE_PROCESSES)
	VALUE(HB_PAGE_SILENT_NS)
	VALUE(HB_PROTOCOL_ALL_FEATURES)
	VALUE(HB_REGISTER_CREATE)
	VALUE(HB_REGISTER_SERVER)
	VALUE(HB_REGISTER_SIMULATED)
	VALUE(HB_REGISTER_PAGE)
	VALUE(HB_REGISTER_MPS)
	VALUE(HB_REGISTER_SUPERVISED)
	VALUE(HB_SET_ALL_FIELDS)
	VALUE(HB_TRACE_OFFSET)
	VALUE(HB_TRACE_BYTES)
	printf("value PAGE_BYTES %zu\nvalue PROCESS_BYTES %zu\nvalue GPU_PAGE_BYTES %zu\n", sizeof(struct hb_page),
	       sizeof(struct hb_page_process), sizeof(struct hb_gpu_page));
}

int main(void)
{
	print_messages();
	print_pages();
	return 0;
}
