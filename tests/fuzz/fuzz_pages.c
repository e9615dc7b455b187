/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzz target: the daemon's side of a tenant page that its tenant overwrites. The
 * input is a list of steps of 11 bytes: what to do, where, and a value. The daemon
 * may adopt the page or refuse it, reads the ring of requests and the ring of
 * recorded launches, and repairs memory sums; all that it takes from there is
 * within bounds.
 */
#include "base/clock.h"
#include "core/tenant.h"
#include "daemon/daemon.h"
#include "daemon/launch_reader.h"
#include "daemon/page_memory.h"
#include "daemon/request_rings.h"
#include "fuzz.h"
#include "hummingbird/page_trace.h"

#include <sys/mman.h>
#include <unistd.h>

#define STEP_BYTES 11
#define STEPS_MAX 400
#define HEAD_BYTES offsetof(struct hb_page, processes)

struct fuzz_step {
	uint8_t kind;
	uint16_t where;
	uint64_t value;
};

static struct hb_daemon fuzz_daemon;
static struct hb_gpu fuzz_gpu;
static struct hb_tenancy tenancy;
static struct hb_trace_ring *rings;
static struct hb_request_list list;

static void make_page(void)
{
	FUZZ_REQUIRE(hb_page_new(7, &tenancy.page, &tenancy.page_fd) == 0);
	rings = mmap(NULL, sizeof *rings, PROT_READ | PROT_WRITE, MAP_SHARED, tenancy.page_fd, HB_TRACE_OFFSET);
	FUZZ_REQUIRE(rings != MAP_FAILED);
	hb_page_slot_take(tenancy.page, 0, 1, 1);
	tenancy.rights.priority = HB_PAGE_LOW;
	tenancy.slots_end = 1;
	/* Only whether it is NULL is looked at. */
	tenancy.members[0].watch = (struct hb_pid_watch *)&tenancy;
	tenancy.gpus[0] = &fuzz_gpu;
	tenancy.n_gpus = 1;
	tenancy.page_inode = 1;
	fuzz_daemon.tenancies[0] = &tenancy;
}

static void write_word(void *memory, size_t size, size_t offset, uint64_t value)
{
	offset %= size - sizeof value + 1;
	memcpy((char *)memory + offset, &value, sizeof value);
}

static void adopt_page(void)
{
	struct hb_page *adopted = NULL;
	if (hb_page_adopt(tenancy.page_fd, &adopted) == 0) {
		FUZZ_REQUIRE(adopted->n_gpus <= HB_PAGE_GPUS && adopted->size_bytes == sizeof *adopted);
		hb_page_free(adopted, -1);
	} else {
		FUZZ_REQUIRE(adopted == NULL);
	}
}

static void read_requests(void)
{
	int64_t now_ns = hb_clock_now_ns();
	tenancy.rings_next_ns = 0;
	hb_request_rings_read(&tenancy, now_ns, &list);
	FUZZ_REQUIRE(list.n <= HB_PAGE_REQUESTS && tenancy.rings_next_ns > now_ns);
	now_ns = hb_clock_now_ns();
	for (size_t i = 0; i < list.n; i++) {
		const struct hb_reported_request *request = &list.requests[i];
		FUZZ_REQUIRE(request->begin_ns > 0 && request->begin_ns <= request->end_ns);
		FUZZ_REQUIRE(request->end_ns <= now_ns && request->deadline_ns >= 0);
	}
	list.n = 0;
}

static void ask_running(uint64_t value)
{
	const struct hb_tenant tenant = {.slo_ns = (int64_t)(value % 1000000000), .alone_ns = (int64_t)(value >> 40)};
	int64_t now_ns = hb_clock_now_ns();
	struct hb_request_running running = hb_request_running(&tenancy, &tenant, now_ns);
	FUZZ_REQUIRE(running.since_ns >= 0 && running.since_ns <= now_ns);
}

static void do_step(struct hb_launch_reader *reader, const struct fuzz_step *step)
{
	struct hb_page *page = tenancy.page;
	switch (step->kind % 12) {
	case 0:
		write_word(page, HEAD_BYTES, step->where, step->value);
		break;
	case 1:
		write_word(&page->processes[0], sizeof *page->processes, step->where, step->value);
		break;
	case 2:
		write_word(&page->processes[0].requests, sizeof page->processes[0].requests, step->where, step->value);
		break;
	case 3:
		write_word(rings, sizeof *rings, step->where, step->value);
		break;
	case 4: /* a launch as the shim records it, at the present time */
		rings->launches[step->where % HB_TRACE_LAUNCHES].at_ns = hb_clock_now_ns();
		rings->launches[step->where % HB_TRACE_LAUNCHES].what = step->value;
		break;
	case 5:
		rings->claimed += step->where;
		break;
	case 6: /* a request as the shim reports it */
		page->processes[0].requests.ring[step->where % HB_PAGE_REQUESTS].begin_ns = hb_clock_now_ns() - 1;
		page->processes[0].requests.ring[step->where % HB_PAGE_REQUESTS].end_ns = hb_clock_now_ns();
		page->processes[0].requests.written++;
		break;
	case 7:
		adopt_page();
		break;
	case 8:
		read_requests();
		break;
	case 9:
		ask_running(step->value);
		break;
	case 10:
		hb_launch_reader_read(reader, &fuzz_daemon, INT64_MAX / 2);
		break;
	default:
		hb_page_memory_repair(page, step->where % HB_PAGE_GPUS, step->value & 1);
		break;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct hb_page_process fresh_slot;
	static char fresh_head[HEAD_BYTES];
	if (!tenancy.page) {
		make_page();
		fresh_slot = tenancy.page->processes[0];
		memcpy(fresh_head, tenancy.page, HEAD_BYTES);
	}
	tenancy.page->processes[0] = fresh_slot;
	memcpy((void *)tenancy.page, fresh_head, HEAD_BYTES);
	memset((void *)rings, 0, sizeof *rings);
	tenancy.members[0].requests_read = tenancy.members[0].requests_lost = 0;
	struct hb_launch_reader *reader = hb_launch_reader_new(hb_clock_now_ns());
	FUZZ_REQUIRE(reader != NULL);
	for (size_t i = 0; (i + 1) * STEP_BYTES <= size && i < STEPS_MAX; i++) {
		struct fuzz_step step = {.kind = data[i * STEP_BYTES]};
		memcpy(&step.where, data + i * STEP_BYTES + 1, sizeof step.where);
		memcpy(&step.value, data + i * STEP_BYTES + 3, sizeof step.value);
		do_step(reader, &step);
	}
	char *text = NULL;
	size_t length = 0;
	FILE *out = open_memstream(&text, &length);
	FUZZ_REQUIRE(out != NULL);
	hb_launch_reader_write(reader, &fuzz_daemon, out);
	fclose(out);
	for (size_t i = 0; i < length; i++)
		FUZZ_REQUIRE(text[i] == '\n' || (text[i] >= ' ' && text[i] <= '~'));
	free(text);
	hb_launch_reader_free(reader, &fuzz_daemon);
	return 0;
}
