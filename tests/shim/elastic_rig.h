/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An elastic LP process over the simulated driver with two GPUs, for tests. The
 * child runs the program and also plays the daemon, which writes orders to the
 * page. Link with -rdynamic, because the driver finds the kernel by name.
 */
#ifndef HB_TEST_ELASTIC_RIG_H
#define HB_TEST_ELASTIC_RIG_H

#include "nvidia/cuda_abi.h"
#include "page_host.h"
#include "unit/unit.h"

#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)
#define OK(call) CHECK((call) == CUDA_SUCCESS)

/* Other threads or processes bring this about within a moment. */
#define AWAIT(condition) \
	while (!(condition)) \
	usleep(100)

extern struct hb_page_host elastic_host;

/* In the test. */
int elastic_set_up(void **state);
int elastic_tear_down(void **state);

/* In the child: the program. */
extern CUcontext elastic_context;
extern CUfunction elastic_add_one; /* adds 1 to each of the first 256 words */
void elastic_begin(void);
CUdeviceptr elastic_allocate(size_t bytes);
/* Memory that the program creates and maps itself, accessible to its own device. */
struct elastic_segment {
	CUdeviceptr base;
	size_t bytes;
	CUmemGenericAllocationHandle handle;
};
CUmemGenericAllocationHandle elastic_create(size_t bytes, CUmemAllocationHandleType types);
CUdeviceptr elastic_map(CUmemGenericAllocationHandle handle, size_t bytes);
void elastic_unmap(CUdeviceptr base, size_t bytes);
struct elastic_segment elastic_open_segment(size_t bytes);
void elastic_close_segment(const struct elastic_segment *segment);
void elastic_fill(CUdeviceptr pointer, size_t bytes, uint32_t seed);
/* The word that elastic_fill() writes. */
uint32_t elastic_word_of(uint32_t seed, size_t i);
/* Whether each word has grown by `added` in the first KiB, and by nothing elsewhere. */
bool elastic_is_intact(CUdeviceptr pointer, size_t bytes, uint32_t seed, uint32_t added);
void elastic_launch(CUdeviceptr pointer, CUstream stream);

/* Sets the simulated driver's failures from now on (HB_SIM_FAIL); "": none. Returns how many calls the earlier ones have hit. */
uint64_t elastic_fail(const char *faults);
/* Bytes of this process on the first GPU, as the driver counts them. */
uint64_t elastic_own_bytes(void);
/* What the GPU holds for so many bytes on the host: 8 bytes of page table for each 4 KiB. */
#define ELASTIC_TABLES(bytes) ((bytes) / 512)
/* Whether the driver counts so many bytes for this process, beside the page tables of the host memory of this record. Host
   memory that the shim has prepared for moves is mapped at a second address. */
bool elastic_has_own_bytes(const struct hb_page_elastic *record, uint64_t bytes);
/* The same as the account counts them. */
uint64_t elastic_used_bytes(void);

/* In the child: the daemon. */
struct hb_page_elastic *elastic_record_of(unsigned slot);
struct test_order {
	enum hb_order_direction direction;
	size_t peer_bytes, host_bytes;
	int64_t expires_ns; /* from now */
};

uint32_t elastic_give_order(struct hb_page_elastic *record, const struct test_order *order);
/* Gives the order and returns its result. */
enum hb_move_result elastic_try_move(enum hb_order_direction direction, size_t peer_bytes, size_t host_bytes);
/* Repeats it while the process's work does not end in time, as on a busy machine. */
enum hb_move_result elastic_move(enum hb_order_direction direction, size_t peer_bytes, size_t host_bytes);
/* Moves so much to the host. */
void elastic_move_away(size_t bytes);

#endif
