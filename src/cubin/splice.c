/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes the split copy of a cubin; see splice.h.
 *
 * The file is copied in order, with some sections replaced by longer ones. Each
 * section grows by a multiple of GROWTH_UNIT, so all that follows keeps its
 * alignment. Cubins with overlapping sections or a larger alignment are refused.
 */
#include "cubin/splice.h"

#include "cubin/sass.h"
#include "cubin/splice_info.h"
#include "cubin/split_rule.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define GROWTH_UNIT 128

/* A section to replace. */
struct section_edit {
	uint32_t section;
	uint64_t begin, end; /* offsets in the old file */
	uint64_t growth;     /* bytes added to the file, padding included */
	uint64_t new_size;   /* size of the new section */
	uint8_t *content;
};

struct splice_job {
	const struct hb_cubin *cubin;
	const struct hb_prologue *prologue;
	struct section_edit *edits; /* sorted by `begin` */
	size_t n_edits;
	uint8_t *out;
	size_t out_size;
};

static int compare_edits(const void *a, const void *b)
{
	const struct section_edit *x = a, *y = b;
	return x->begin < y->begin ? -1 : x->begin > y->begin;
}

/* Returns the offset in the new file of an offset in the old file, which must not be inside a replaced section. */
static uint64_t move_offset(const struct splice_job *job, uint64_t place)
{
	uint64_t growth = 0;
	for (size_t i = 0; i < job->n_edits && job->edits[i].end <= place; i++)
		growth += job->edits[i].growth;
	return place + growth;
}

static bool is_inside_edit(const struct splice_job *job, uint64_t begin, uint64_t end)
{
	for (size_t i = 0; i < job->n_edits; i++)
		if (begin < job->edits[i].end && end > job->edits[i].begin)
			return true;
	return false;
}

static int add_edit(struct splice_job *job, uint32_t section, uint64_t new_size)
{
	const Elf64_Shdr *header = &job->cubin->sections[section];
	struct section_edit *edit = &job->edits[job->n_edits];
	uint64_t more = new_size - header->sh_size;
	*edit = (struct section_edit){
		.section = section,
		.begin = header->sh_offset,
		.end = header->sh_offset + header->sh_size,
		.growth = (more + GROWTH_UNIT - 1) / GROWTH_UNIT * GROWTH_UNIT,
		.new_size = new_size,
		.content = calloc(1, new_size),
	};
	if (!edit->content)
		return -ENOMEM;
	job->n_edits++;
	return 0;
}

static int edit_kernel(struct splice_job *job, const struct hb_cubin_kernel *kernel, const struct hb_code_facts *facts)
{
	const struct hb_cubin *cubin = job->cubin;
	uint64_t text_bytes = cubin->sections[kernel->text].sh_size;
	uint32_t bounds = hb_splice_bounds_place(facts);
	int code = add_edit(job, kernel->text, job->prologue->n_bytes + text_bytes);
	if (code)
		return code;
	uint8_t *text = job->edits[job->n_edits - 1].content;
	hb_prologue_write(job->prologue, bounds, text);
	memcpy(text + job->prologue->n_bytes, hb_cubin_content(cubin, kernel->text), text_bytes);
	uint64_t info_bytes = cubin->sections[kernel->info].sh_size;
	code = add_edit(job, kernel->info, info_bytes + HB_SPLICE_INFO_GROWTH);
	if (code)
		return code;
	struct section_edit *info = &job->edits[job->n_edits - 1];
	info->new_size = hb_splice_info(cubin, kernel, facts, job->prologue, info->content);
	uint64_t bank_bytes = cubin->sections[kernel->constants].sh_size;
	code = add_edit(job, kernel->constants, facts->parameter_base + bounds + HB_BOUNDS_BYTES);
	if (code == 0)
		memcpy(job->edits[job->n_edits - 1].content, hb_cubin_content(cubin, kernel->constants), bank_bytes);
	return code;
}

static enum hb_split_reason judge_kernel(const struct splice_job *job, const struct hb_cubin_kernel *kernel,
					 struct hb_code_facts *facts)
{
	enum hb_split_reason reason = hb_split_rule(job->cubin, kernel, facts);
	if (reason != HB_SPLIT_none)
		return reason;
	if (!hb_sass_runs_on(job->cubin->arch, job->prologue->arch))
		return HB_SPLIT_arch;
	if (facts->parameter_base != job->prologue->parameter_base)
		return HB_SPLIT_parameters;
	return facts->n_registers < job->prologue->n_registers ? HB_SPLIT_registers : HB_SPLIT_none;
}

static int collect_edits(struct splice_job *job, struct hb_splice *splice)
{
	int code = 0;
	for (uint32_t i = 0; i < job->cubin->n_kernels && code == 0; i++) {
		const struct hb_cubin_kernel *kernel = &job->cubin->kernels[i];
		struct hb_code_facts facts;
		splice->kernels[i].reason = judge_kernel(job, kernel, &facts);
		if (splice->kernels[i].reason != HB_SPLIT_none)
			continue;
		splice->kernels[i].n_parameters = facts.n_parameters;
		splice->kernels[i].parameter_bytes = facts.parameter_bytes;
		splice->kernels[i].bounds_place = hb_splice_bounds_place(&facts);
		splice->n_split++;
		code = edit_kernel(job, kernel, &facts);
	}
	qsort(job->edits, job->n_edits, sizeof *job->edits, compare_edits);
	return code;
}

/* Returns whether nothing overlaps a replaced section, and no alignment is larger than GROWTH_UNIT. */
static bool is_layout_sound(const struct splice_job *job)
{
	const struct hb_cubin *cubin = job->cubin;
	const Elf64_Ehdr *header = &cubin->header;
	for (size_t i = 1; i < job->n_edits; i++)
		if (job->edits[i].begin < job->edits[i - 1].end)
			return false;
	if (is_inside_edit(job, header->e_shoff, header->e_shoff + cubin->n_sections * sizeof(Elf64_Shdr)) ||
	    is_inside_edit(job, header->e_phoff, header->e_phoff + cubin->n_segments * sizeof(Elf64_Phdr)) ||
	    is_inside_edit(job, 0, sizeof *header))
		return false;
	for (uint32_t i = 1; i < cubin->n_sections; i++) {
		const Elf64_Shdr *section = &cubin->sections[i];
		if (section->sh_type == SHT_NOBITS || section->sh_type == SHT_NULL || section->sh_size == 0)
			continue;
		bool is_edit = false;
		for (size_t k = 0; k < job->n_edits; k++)
			is_edit |= job->edits[k].section == i;
		if (section->sh_addralign > GROWTH_UNIT || section->sh_addr != 0)
			return false;
		if (!is_edit && is_inside_edit(job, section->sh_offset, section->sh_offset + section->sh_size))
			return false;
	}
	return true;
}

/* Returns whether no segment begins or ends inside a replaced section. */
static bool are_segments_sound(const struct splice_job *job)
{
	for (uint32_t i = 0; i < job->cubin->n_segments; i++) {
		const Elf64_Phdr *segment = &job->cubin->segments[i];
		uint64_t end = segment->p_offset + segment->p_filesz;
		if (segment->p_vaddr != 0 || segment->p_memsz < segment->p_filesz)
			return false;
		for (size_t k = 0; k < job->n_edits; k++) {
			const struct section_edit *edit = &job->edits[k];
			if ((segment->p_offset > edit->begin && segment->p_offset < edit->end) ||
			    (end > edit->begin && end < edit->end))
				return false;
		}
	}
	return true;
}

static void copy_bytes(struct splice_job *job)
{
	const uint8_t *old = job->cubin->bytes;
	uint64_t done = 0;
	for (size_t i = 0; i < job->n_edits; i++) {
		const struct section_edit *edit = &job->edits[i];
		memcpy(job->out + move_offset(job, done), old + done, edit->begin - done);
		memcpy(job->out + move_offset(job, edit->begin), edit->content, edit->new_size);
		done = edit->end;
	}
	memcpy(job->out + move_offset(job, done), old + done, job->cubin->size - done);
}

static void write_headers(struct splice_job *job)
{
	const struct hb_cubin *cubin = job->cubin;
	Elf64_Ehdr header = cubin->header;
	header.e_shoff = move_offset(job, header.e_shoff);
	header.e_phoff = move_offset(job, header.e_phoff);
	memcpy(job->out, &header, sizeof header);
	for (uint32_t i = 0; i < cubin->n_sections; i++) {
		Elf64_Shdr section = cubin->sections[i];
		section.sh_offset = move_offset(job, section.sh_offset);
		for (size_t k = 0; k < job->n_edits; k++)
			if (job->edits[k].section == i)
				section.sh_size = job->edits[k].new_size;
		memcpy(job->out + header.e_shoff + i * sizeof section, &section, sizeof section);
	}
	for (uint32_t i = 0; i < cubin->n_segments; i++) {
		Elf64_Phdr segment = cubin->segments[i];
		uint64_t begin = move_offset(job, segment.p_offset);
		uint64_t growth = move_offset(job, segment.p_offset + segment.p_filesz) - begin - segment.p_filesz;
		segment.p_offset = begin;
		segment.p_filesz += growth;
		segment.p_memsz += growth;
		memcpy(job->out + header.e_phoff + i * sizeof segment, &segment, sizeof segment);
	}
}

/* Writes the symbol table. In the text of a changed kernel the kernel's symbol grows and the other symbols move. */
static void write_symbols(struct splice_job *job, const struct hb_splice *splice)
{
	const struct hb_cubin *cubin = job->cubin;
	uint8_t *table = job->out + move_offset(job, cubin->sections[cubin->symtab].sh_offset);
	for (uint32_t k = 0; k < cubin->n_kernels; k++) {
		if (splice->kernels[k].reason != HB_SPLIT_none)
			continue;
		for (uint32_t i = 0; i < cubin->n_symbols; i++) {
			Elf64_Sym symbol = cubin->symbols[i];
			if (symbol.st_shndx != cubin->kernels[k].text)
				continue;
			if (i == cubin->kernels[k].symbol)
				symbol.st_size += job->prologue->n_bytes;
			else if (ELF64_ST_TYPE(symbol.st_info) != STT_SECTION)
				symbol.st_value += job->prologue->n_bytes;
			memcpy(table + i * sizeof symbol, &symbol, sizeof symbol);
		}
	}
}

/* Parses and checks the copy: its kernels must be valid and have the added parameter. */
static int check_result(const struct splice_job *job, const struct hb_splice *splice)
{
	struct hb_cubin again;
	int code = hb_cubin_open(&again, job->out, job->out_size);
	if (code)
		return -EINVAL;
	if (again.n_kernels != job->cubin->n_kernels)
		code = -EINVAL;
	for (uint32_t i = 0; code == 0 && i < again.n_kernels; i++) {
		struct hb_code_facts facts;
		if (splice->kernels[i].reason == HB_SPLIT_none &&
		    (hb_split_rule(&again, &again.kernels[i], &facts) != HB_SPLIT_none ||
		     facts.n_parameters != splice->kernels[i].n_parameters + 1))
			code = -EINVAL;
	}
	hb_cubin_close(&again);
	return code;
}

static int write_copy(struct splice_job *job, struct hb_splice *splice)
{
	if (!is_layout_sound(job) || !are_segments_sound(job))
		return -EINVAL;
	job->out_size = move_offset(job, job->cubin->size);
	job->out = calloc(1, job->out_size);
	if (!job->out)
		return -ENOMEM;
	copy_bytes(job);
	write_headers(job);
	write_symbols(job, splice);
	return check_result(job, splice);
}

int hb_splice(const struct hb_cubin *cubin, const struct hb_prologue *prologue, struct hb_splice *splice)
{
	uint32_t n = cubin->n_kernels;
	struct splice_job job = {
		.cubin = cubin, .prologue = prologue, .edits = calloc((size_t)n * 3 + 1, sizeof *job.edits)};
	*splice = (struct hb_splice){.n_kernels = n, .kernels = calloc((size_t)n + 1, sizeof *splice->kernels)};
	int code = job.edits && splice->kernels ? collect_edits(&job, splice) : -ENOMEM;
	if (code == 0 && splice->n_split)
		code = write_copy(&job, splice);
	if (code == 0) {
		splice->bytes = job.out;
		splice->size = job.out_size;
	} else {
		free(job.out);
		hb_splice_free(splice);
	}
	for (size_t i = 0; i < job.n_edits; i++)
		free(job.edits[i].content);
	free(job.edits);
	return code;
}

void hb_splice_free(struct hb_splice *splice)
{
	free(splice->bytes);
	free(splice->kernels);
	*splice = (struct hb_splice){0};
}
