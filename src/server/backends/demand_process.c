/* SPDX-License-Identifier: Apache-2.0 */
/* See demand_process.h. */
#include "server/backends/demand_process.h"

#include "base/clock.h"
#include "base/install_path.h"
#include "server/scheduler/predictor.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

/* The tenant has this time to end by itself: a client of an MPS server should not be killed with unfinished work. */
#define END_NS HB_NS_PER_S

static int make_page(struct hb_demand_process *process, uint32_t sms)
{
	process->doorbell = eventfd(0, EFD_CLOEXEC);
	process->memory = memfd_create("hb-demand", MFD_CLOEXEC);
	if (process->doorbell < 0 || process->memory < 0 || ftruncate(process->memory, sizeof(*process->page)) < 0)
		return -errno;
	void *page = mmap(NULL, sizeof(*process->page), PROT_READ | PROT_WRITE, MAP_SHARED, process->memory, 0);
	if (page == MAP_FAILED)
		return -errno;
	process->page = page;
	process->page->sms = sms;
	return 0;
}

int hb_demand_process_start(struct hb_demand_process *process, const struct hb_model_config *model,
			    const struct hb_worker_place *place, uint32_t sms, struct hb_error *error)
{
	struct hb_model_config called = *model;
	char program[sizeof(called.command) - 2];
	*process = (struct hb_demand_process){.memory = -1, .doorbell = -1};
	int result = make_page(process, sms);
	if (result < 0)
		return hb_error_set(error, result, "%s", strerror(-result));
	if (hb_install_program("hb-demand-tenant", program, sizeof(program)) < 0)
		return hb_error_set(error, -ENOENT, "hb-demand-tenant is not installed");
	snprintf(called.command, sizeof(called.command), "'%s'", program);
	called.priority = HB_SCHEDULER_LOW;
	const int fds[3] = {process->memory, process->doorbell, process->doorbell};
	return hb_worker_process_start(&called, place, fds, &process->process, error);
}

static bool is_time(double ns)
{
	return ns > 0 && isfinite(ns);
}

/* Copies what the tenant has measured. Returns whether it is possible. */
static bool read_probe(const struct hb_demand_page *page, struct hb_demand_probe *probe)
{
	*probe = (struct hb_demand_probe){.sms = page->sms, .probe_ns = page->probe_ns};
	bool possible = probe->sms && is_time(probe->probe_ns);
	for (int i = 0; i < 2; i++) {
		probe->latency_ns[i] = page->latency_ns[i];
		probe->bytes_per_ns[i] = page->bytes_per_ns[i];
		possible &= is_time(probe->latency_ns[i]) && is_time(probe->bytes_per_ns[i]);
	}
	return possible;
}

int hb_demand_process_poll(struct hb_demand_process *process, struct hb_demand_probe *probe, struct hb_error *error)
{
	char how[96], why[sizeof(process->page->error)];
	uint32_t state = atomic_load(&process->page->state);
	if (state == HB_DEMAND_UNABLE) {
		memcpy(why, process->page->error, sizeof(why));
		why[sizeof(why) - 1] = '\0';
		return hb_error_set(error, -EIO, "hb-demand-tenant: %s", why);
	}
	if (hb_worker_process_ended(&process->process, how, sizeof(how)))
		return hb_error_set(error, -EPIPE, "hb-demand-tenant ended: %s", how);
	if (state != HB_DEMAND_READY)
		return 0;
	return read_probe(process->page, probe)
		       ? 1
		       : hb_error_set(error, -EIO, "hb-demand-tenant measured impossible times");
}

void hb_demand_process_set_mode(struct hb_demand_process *process, enum hb_demand_mode mode)
{
	if (process->page && atomic_exchange(&process->page->mode, (uint32_t)mode) != (uint32_t)mode)
		eventfd_write(process->doorbell, 1); /* one write for each change: the counter never gets full */
}

bool hb_demand_process_runs(const struct hb_demand_process *process, enum hb_demand_mode mode)
{
	return process->page && atomic_load(&process->page->running) == (uint32_t)mode;
}

uint32_t hb_demand_process_gaps(const struct hb_demand_process *process)
{
	return process->page ? atomic_load(&process->page->gaps) : 0;
}

void hb_demand_process_end(struct hb_demand_process *process)
{
	if (!process->page && process->memory <= 0)
		return;
	hb_demand_process_set_mode(process, HB_DEMAND_END);
	hb_worker_process_dismiss(&process->process, END_NS);
	if (process->page)
		munmap(process->page, sizeof(*process->page));
	if (process->memory >= 0)
		close(process->memory);
	if (process->doorbell >= 0)
		close(process->doorbell);
	*process = (struct hb_demand_process){.memory = -1, .doorbell = -1};
}
