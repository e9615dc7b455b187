/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The spatial engine inside a process. An HP process publishes the progress of its
 * requests on its board. An LP process reads the boards of HP at each launch; the launch goes now, goes with an SM mask, is split, or waits.
 * decide/spatial*.h makes the decisions; the files here apply them to a real
 * program with several threads, streams and contexts.
 *
 * None of these functions runs at a launch unless HB_ALERT_SPATIAL is set (see
 * duties.h): while the process's engine is spatial and, in LP, while there is HP.
 * In doubt a launch goes.
 */
#ifndef HB_SHIM_SPATIAL_H
#define HB_SHIM_SPATIAL_H

#include "nvidia/cuda_abi.h"
#include "shim/shim_tenant.h"

#include <stdint.h>

/* ---- HP: shim_spatial_high.c ---- */

/* Before the first launch of a request. deadline_ns is absolute; 0 = the tenant's SLO. */
void hb_shim_spatial_high_begin(int64_t deadline_ns);
/* Before each launch. */
void hb_shim_spatial_high_launch(unsigned fn, const uint64_t *args);
/* Before a call that may wait for earlier launches; of several calls in a row the first one counts. */
void hb_shim_spatial_high_wait(void);
/* The next request is expected to begin between these times; until_ns 0 = none is. Safe in signal handlers. */
void hb_shim_spatial_high_expect(int64_t from_ns, int64_t until_ns);
/*
 * After the process waited for the request's results. Returns when the request began, 0 = there was none. *harm_ns: the delay
 * caused by LP; negative = unknown. *kind: of the request (hb_spatial_high_kind).
 */
int64_t hb_shim_spatial_high_end(int64_t *harm_ns, uint32_t *kind);
/* Whether this process serves a request on any of its GPUs; whether on another one than the calling thread's. */
bool hb_shim_spatial_high_serves(void);
bool hb_shim_spatial_high_serves_beside(void);

/* ---- LP: shim_spatial_low.c ---- */

/* Before a launch that is not captured. Returns when the launch may go, with the function to call after it, or NULL. */
void (*hb_shim_spatial_low_launch(unsigned fn, const uint64_t *args))(CUresult result);
/* Around a call that writes the launch descriptors of a graph: sets a mask. Returns the function to call after it, or NULL. */
void (*hb_shim_spatial_low_graph(void))(CUresult result);

/*
 * The next four are for split_launch.c, on the thread whose launch is being made. A split launch ends with the function that
 * hb_shim_spatial_low_launch() returned, after its last part.
 */

/* Whether this launch must be split. Its first part may go now. */
bool hb_shim_spatial_wants_split(void);
/* Returns how many of the n_left remaining blocks the next part runs; the grid has n_blocks. */
uint32_t hb_shim_spatial_count_part_blocks(uint32_t n_left, uint32_t n_blocks);
/* Before each part but the first: returns when the part may go. */
void hb_shim_spatial_wait_for_next_part(uint32_t n_left, uint32_t n_blocks);
/* The kernel cannot be split and nothing was launched: returns when it may go unsplit. */
void hb_shim_spatial_give_up_split(void);

/* ---- both: shim_spatial_rows.c ---- */

/* Sets or clears HB_ALERT_SPATIAL as the pages require. From any thread at any time; a few loads. */
void hb_shim_spatial_update_alert(const struct hb_place *place);
/* In calls that are slow anyway: prepares in the current context what LP needs. */
void hb_shim_spatial_refresh(void);
/* Before the driver destroys a stream. */
void hb_shim_spatial_forget_stream(CUstream stream);
/* Before a call that may destroy the context, and after it by its outcome. */
void hb_shim_spatial_context_leaves(CUcontext context);
void hb_shim_spatial_context_stays(CUcontext context);
void hb_shim_spatial_context_gone(CUcontext context);
void hb_shim_spatial_leave_in_child(void);

/* ---- boards: shim_spatial_boards.c ---- */

/* Gives this process's board to the daemon, or fetches those of HP, if that is needed. Not at a launch; may wait for the daemon. */
void hb_shim_spatial_update_boards(const struct hb_place *place);
/* The same on a connection to the daemon. */
void hb_shim_spatial_exchange_boards(int socket);

/* ---- between the files of the spatial engine ---- */

struct hb_spatial_beacon;
struct hb_spatial_view;
/*
 * LP: whether there is an HP process, idle or not, and what HP's boards say. One whose board is not mapped yet counts as
 * serving a request.
 */
bool hb_shim_spatial_sees_high(const struct hb_place *place, unsigned gpu, int64_t now_ns);
void hb_shim_spatial_look(const struct hb_place *place, unsigned gpu, int64_t now_ns, uint32_t sms,
			  struct hb_spatial_view *view);
/* HP: the record that LP reads; NULL: there is none yet. */
struct hb_spatial_beacon *hb_shim_spatial_own_beacon(unsigned gpu);
void hb_shim_spatial_boards_leave_in_child(void);

void hb_shim_spatial_high_leave_in_child(void);

/*
 * shim_spatial_masks.c. The trial finds out, in the current context, which is on this GPU, whether SM masks work; one caller
 * at a time. The first two need a GPU below HB_PAGE_GPUS.
 * hb_shim_spatial_masked_sms() returns the SMs of a GPU if masks work there, 0 if they do not (also for HB_PAGE_GPUS).
 * hb_shim_spatial_choose_masks() selects masks of entire GPCs if the GPU page wants and knows them, else spread masks; call
 * it with the lock of shim_spatial_rows.h.
 */
bool hb_shim_spatial_masks_are_judged(unsigned gpu);
void hb_shim_spatial_find_masks(unsigned gpu);
uint32_t hb_shim_spatial_masked_sms(unsigned gpu);
void hb_shim_spatial_choose_masks(unsigned gpu, const struct hb_gpu_page *page);
void hb_shim_spatial_masks_leave_in_child(void);

/* shim_spatial_shape.c: what is known of a launch. */
struct hb_spatial_shape;
struct hb_low_launch {
	CUstream stream;     /* never 0: the default streams have their special handles */
	CUfunction function; /* NULL: not a kernel of the application */
	uint32_t threads, shared_bytes;
};
/* Returns the kernel that is launched; NULL: a graph or another operation without a kernel of the application. */
CUfunction hb_shim_spatial_find_function(unsigned fn, const uint64_t *args);
/* HP: the SMs that a launch fills, estimated; 0 = not known. */
uint32_t hb_shim_spatial_needed_sms(unsigned fn, const uint64_t *args);
void hb_shim_spatial_describe(unsigned fn, const uint64_t *args, struct hb_low_launch *launch,
			      struct hb_spatial_shape *shape);
/*
 * Notes a launch that is captured, or an attribute of a graph's kernel. A kernel whose blocks wait for each other may need all
 * SMs, and a mask holds for all kernels of a graph: after the first such kernel no graph of this process gets a mask.
 */
void hb_shim_spatial_note_captured(unsigned fn, const uint64_t *args);
void hb_shim_spatial_note_attribute(CUlaunchAttributeID id, const CUlaunchAttributeValue *value);
bool hb_shim_spatial_may_mask_graphs(void);
/* Asks the driver how many blocks fit on an SM; worth the time once for each shape. */
void hb_shim_spatial_classify(const struct hb_low_launch *launch, struct hb_spatial_shape *shape);

#endif
