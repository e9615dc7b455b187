/* SPDX-License-Identifier: Apache-2.0 */
/* Layout and mapping of a worker's shared memory; see worker_memory.h. */
#include "server/backends/worker_memory.h"

#include "base/json_scan.h"
#include "server/kserve/inference.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE_BYTES 4096
#define ALIGNMENT 64 /* bytes; hb_worker_aligned() rounds up to a multiple of it */

/*
 * Computes the bytes for the inputs or outputs of a lane. Tensors of variable size share their room; since each begins
 * at an aligned offset, each may need ALIGNMENT more.
 */
static uint64_t compute_room(const struct hb_model_config *config, const struct hb_tensor_spec *specs, uint32_t n)
{
	uint64_t items = config->max_batch ? (uint64_t)config->max_batch : 1, bytes = 0;
	for (uint32_t i = 0; i < n; i++)
		bytes += hb_worker_aligned(hb_tensor_spec_is_open(&specs[i]) ? config->room_bytes + ALIGNMENT
									     : items * hb_tensor_spec_bytes(&specs[i]));
	return bytes;
}

uint64_t hb_worker_room_bytes(const struct hb_model_config *config)
{
	uint64_t bytes = 0;
	for (uint32_t i = 0; i < config->n_inputs; i++)
		bytes += hb_tensor_spec_is_open(&config->inputs[i]) ? config->room_bytes : 0;
	return bytes;
}

static void compute_layout(const struct hb_model_config *config, struct hb_worker_memory *memory)
{
	uint64_t in = compute_room(config, config->inputs, config->n_inputs);
	uint64_t out = compute_room(config, config->outputs, config->n_outputs);
	uint64_t head = hb_worker_aligned(sizeof(struct hb_worker_lane));
	memory->lane_bytes = (head + in + out + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
	memory->in_offset = head;
	memory->out_offset = head + in;
	memory->out_bytes = out;
	memory->bytes = PAGE_BYTES + HB_WORKER_LANES * memory->lane_bytes;
}

static int map_memory(struct hb_worker_memory *memory)
{
	memory->fd = memfd_create("hb-worker", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (memory->fd < 0 || ftruncate(memory->fd, (off_t)memory->bytes) < 0 ||
	    fcntl(memory->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0)
		return -errno;
	void *page = mmap(NULL, memory->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory->fd, 0);
	if (page == MAP_FAILED)
		return -errno;
	memory->page = page;
	return 0;
}

int hb_worker_memory_init(const struct hb_model_config *config, struct hb_worker_memory *out, struct hb_error *error)
{
	*out = (struct hb_worker_memory){.fd = -1};
	compute_layout(config, out);
	int result = map_memory(out);
	if (result < 0)
		return hb_error_set(error, result, "model %s: shared memory of %zu bytes: %s", config->name, out->bytes,
				    strerror(-result));
	*out->page = (struct hb_worker_page){.magic = HB_WORKER_MAGIC,
					     .version = HB_WORKER_VERSION,
					     .lanes = HB_WORKER_LANES,
					     .lane_bytes = out->lane_bytes,
					     .in_offset = out->in_offset,
					     .out_offset = out->out_offset,
					     .out_bytes = out->out_bytes,
					     .n_inputs = config->n_inputs,
					     .n_outputs = config->n_outputs};
	return 0;
}

void hb_worker_memory_fini(struct hb_worker_memory *memory)
{
	if (memory->page)
		munmap(memory->page, memory->bytes);
	if (memory->fd >= 0)
		close(memory->fd);
	*memory = (struct hb_worker_memory){.fd = -1};
}

struct hb_worker_lane *hb_worker_memory_lane(const struct hb_worker_memory *memory, uint32_t lane)
{
	return (struct hb_worker_lane *)((char *)memory->page + PAGE_BYTES + lane * memory->lane_bytes);
}

void hb_worker_lane_read_error(const struct hb_worker_lane *lane, char *out, size_t size)
{
	size_t n = size - 1 < sizeof(lane->error) ? size - 1 : sizeof(lane->error);
	memcpy(out, lane->error, n);
	out[n] = '\0';
	if (!out[0])
		snprintf(out, size, "its worker failed and gave no reason");
	for (char *at = out, *end = out + strlen(out); at < end;) {
		size_t length = hb_utf8_length(at, end);
		if (length == 0)
			*at = '?';
		at += length ? length : 1;
	}
}
