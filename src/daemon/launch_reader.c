/* SPDX-License-Identifier: Apache-2.0 */
/* See launch_reader.h. */
#include "daemon/launch_reader.h"

#include "base/clock.h"
#include "core/recording.h"
#include "hummingbird/page_trace.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define RING ((uint64_t)HB_TRACE_LAUNCHES)
/* Enough for 200,000 launches per second of one process. */
#define READ_EVERY_NS (10 * HB_NS_PER_MS)
#define LINES_BYTES_MAX (8 << 20)
#define NAMES_MAX 4096
#define NAME_VALUES (HB_TRACE_FIRST_NAME + HB_TRACE_NAMES)

/* The ring of one process. */
struct launch_source {
	uint32_t generation;
	uint64_t read;
	uint32_t names
		[NAME_VALUES]; /* number of the name in the recording + 1, by hb_trace_launch.name; 0 = not seen yet */
};

struct launch_area {
	uint64_t inode;
	struct hb_trace_ring *rings; /* NULL: not mapped, or the page has no rings */
	struct launch_source *sources[HB_PAGE_PROCESSES];
};

struct hb_launch_reader {
	FILE *lines;
	char *text;
	size_t length;
	uint32_t number; /* written to the pages while the recording runs */
	int64_t since_ns, next_ns;
	uint64_t lost;
	bool full, ended;
	char *names[NAMES_MAX];
	uint32_t n_names;
	struct launch_area areas[HB_TENANCIES_MAX];
};

struct hb_launch_reader *hb_launch_reader_new(int64_t now_ns)
{
	struct hb_launch_reader *made = calloc(1, sizeof *made);
	if (!made)
		return NULL;
	made->number = (uint32_t)(now_ns / HB_NS_PER_MS) | 1;
	made->since_ns = now_ns;
	made->lines = open_memstream(&made->text, &made->length);
	if (!made->lines) {
		free(made);
		return NULL;
	}
	return made;
}

static void forget_area(struct launch_area *area)
{
	if (area->rings)
		munmap(area->rings, HB_TRACE_BYTES);
	for (uint32_t i = 0; i < HB_PAGE_PROCESSES; i++)
		free(area->sources[i]);
	*area = (struct launch_area){.rings = NULL};
}

/* --- names ----------------------------------------------------------------------------- */

/* Makes a name one printable word, as the recording's text needs. */
static void clean_name(char text[HB_TRACE_NAME_BYTES])
{
	text[HB_TRACE_NAME_BYTES - 1] = '\0';
	for (char *at = text; *at; at++)
		if (*at <= ' ' || *at > '~')
			*at = '_';
	if (!text[0])
		strcpy(text, "?");
}

/* Returns the number of this name, and writes a line for a new one. NAMES_MAX: no room for another name. */
static uint32_t find_name_number(struct hb_launch_reader *reader, const char *name)
{
	for (uint32_t i = 0; i < reader->n_names; i++)
		if (strcmp(reader->names[i], name) == 0)
			return i;
	char *copy = reader->n_names < NAMES_MAX ? strdup(name) : NULL;
	if (!copy)
		return NAMES_MAX;
	reader->names[reader->n_names] = copy;
	hb_recording_write_name(reader->lines, reader->n_names, copy);
	return reader->n_names++;
}

static uint32_t find_source_name(struct hb_launch_reader *reader, struct launch_source *source,
				 const struct hb_trace_ring *ring, uint32_t name)
{
	char text[HB_TRACE_NAME_BYTES] = "kernel";
	if (name >= NAME_VALUES)
		name = HB_TRACE_OTHER;
	if (source->names[name])
		return source->names[name] - 1;
	if (name == HB_TRACE_GRAPH)
		strcpy(text, "graph");
	else if (name >= HB_TRACE_FIRST_NAME)
		memcpy(text, ring->names[name - HB_TRACE_FIRST_NAME], sizeof text);
	clean_name(text);
	source->names[name] = find_name_number(reader, text) + 1;
	return source->names[name] - 1;
}

/* --- launches ---------------------------------------------------------------------------- */

static void add_launch(struct hb_launch_reader *reader, const struct hb_tenancy *tenancy, struct launch_source *source,
		       const struct hb_trace_ring *ring, int64_t at_ns, uint64_t what)
{
	uint32_t gpu_index = (uint32_t)(what >> 48);
	bool valid = at_ns >= reader->since_ns && at_ns <= hb_clock_now_ns() && gpu_index < tenancy->n_gpus;
	if (!valid || reader->full || ftell(reader->lines) > LINES_BYTES_MAX) {
		reader->full |= valid;
		reader->lost++;
		return;
	}
	uint32_t name = find_source_name(reader, source, ring, (uint32_t)(what >> 32) & 0xffff);
	hb_recording_write_launch(reader->lines, tenancy->gpus[gpu_index]->number, at_ns, tenancy->index, name);
}

static void read_ring(struct hb_launch_reader *reader, const struct hb_tenancy *tenancy, struct launch_source *source,
		      const struct hb_trace_ring *ring)
{
	uint64_t claimed = atomic_load_explicit(&ring->claimed, memory_order_acquire), n = claimed - source->read;
	if (n > INT64_MAX) { /* backwards: the process has overwritten the counter */
		source->read = claimed;
	} else if (n > RING) {
		reader->lost += n - RING;
		source->read = claimed - RING;
	}
	for (; source->read != claimed; source->read++) {
		uint64_t i = source->read;
		const struct hb_trace_launch *entry = &ring->launches[i % RING];
		uint64_t what = atomic_load_explicit(&entry->what, memory_order_acquire);
		int64_t at_ns = atomic_load_explicit(&entry->at_ns, memory_order_relaxed);
		atomic_thread_fence(memory_order_acquire);
		bool complete = (uint32_t)what == (uint32_t)(i + 1);
		if (!complete && claimed - i < RING / 2)
			return; /* the entry is being written; if its writer was killed, the entry is skipped later */
		if (complete && atomic_load_explicit(&ring->claimed, memory_order_relaxed) - i < RING)
			add_launch(reader, tenancy, source, ring, at_ns, what);
		else
			reader->lost++;
	}
}

/* Returns the ring of the process in this slot; a new one is read from its present end. */
static struct launch_source *find_source(struct launch_area *area, const struct hb_tenancy *tenancy, uint32_t slot)
{
	uint32_t generation = tenancy->page->processes[slot].generation;
	struct launch_source *source = area->sources[slot];
	if (source && source->generation == generation)
		return source;
	if (!source)
		source = area->sources[slot] = malloc(sizeof *source);
	if (source)
		*source = (struct launch_source){.generation = generation, .read = area->rings[slot].claimed};
	return source;
}

static void map_area(struct launch_area *area, const struct hb_tenancy *tenancy)
{
	struct stat found;
	if (area->inode == tenancy->page_inode)
		return;
	forget_area(area);
	area->inode = tenancy->page_inode;
	if (fstat(tenancy->page_fd, &found) < 0 || (size_t)found.st_size != HB_TRACE_OFFSET + HB_TRACE_BYTES)
		return;
	void *memory = mmap(NULL, HB_TRACE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, tenancy->page_fd,
			    HB_TRACE_OFFSET);
	if (memory != MAP_FAILED)
		area->rings = memory;
}

static void read_tenancy(struct hb_launch_reader *reader, struct hb_tenancy *tenancy)
{
	struct launch_area *area = &reader->areas[tenancy->index];
	map_area(area, tenancy);
	if (!area->rings)
		return;
	tenancy->page->recording = reader->number;
	for (uint32_t slot = 0; slot < tenancy->slots_end; slot++) {
		struct launch_source *source = tenancy->members[slot].watch ? find_source(area, tenancy, slot) : NULL;
		if (source)
			read_ring(reader, tenancy, source, &area->rings[slot]);
	}
}

static void read_all(struct hb_launch_reader *reader, struct hb_daemon *daemon)
{
	for (uint32_t i = 0; i < HB_TENANCIES_MAX; i++)
		if (daemon->tenancies[i] && hb_tenancy_is_low(daemon->tenancies[i]))
			read_tenancy(reader, daemon->tenancies[i]);
}

int64_t hb_launch_reader_read(struct hb_launch_reader *reader, struct hb_daemon *daemon, int64_t now_ns)
{
	if (now_ns < reader->next_ns)
		return reader->next_ns;
	read_all(reader, daemon);
	reader->next_ns = now_ns + READ_EVERY_NS;
	return reader->next_ns;
}

void hb_launch_reader_end(struct hb_launch_reader *reader, struct hb_daemon *daemon)
{
	if (!reader->ended)
		read_all(reader, daemon);
	reader->ended = true;
	/* The recording may wait long until somebody fetches it, but no longer needs the memory of tenants. */
	for (uint32_t i = 0; i < HB_TENANCIES_MAX; i++) {
		forget_area(&reader->areas[i]);
		if (daemon->tenancies[i])
			daemon->tenancies[i]->page->recording = 0;
	}
}

void hb_launch_reader_write(struct hb_launch_reader *reader, struct hb_daemon *daemon, FILE *out)
{
	hb_launch_reader_end(reader, daemon);
	fflush(reader->lines);
	fwrite(reader->text, 1, reader->length, out);
	if (reader->lost)
		fprintf(out, "# %llu launches are missing%s\n", (unsigned long long)reader->lost,
			reader->full ? ": the recording is full" : "");
}

void hb_launch_reader_free(struct hb_launch_reader *reader, struct hb_daemon *daemon)
{
	if (!reader)
		return;
	reader->ended = true;
	hb_launch_reader_end(reader, daemon);
	for (uint32_t i = 0; i < reader->n_names; i++)
		free(reader->names[i]);
	fclose(reader->lines);
	free(reader->text);
	free(reader);
}
