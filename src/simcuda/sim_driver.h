/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Internals of the simulated driver: the objects behind the driver API's handles,
 * and the functions that its files share. sim_entry.c generates the exported
 * functions from cuda_api.def; each of them calls sim_NAME, which is defined in
 * the file of its subject.
 *
 * Locks, in the order in which they may be taken:
 *   sim.lock     tables of contexts, modules, memory
 *   sim.drain    completions and their effects
 *   sim.submit   the submission ring, slots, sequence numbers
 *   sim.request  the control socket
 * No thread waits for the GPU while it holds one of these locks.
 */
#ifndef HB_SIMCUDA_SIM_DRIVER_H
#define HB_SIMCUDA_SIM_DRIVER_H

#include "gpumodel/model.h"
#include "simcuda/sim_wire.h"
#include "simcuda/simcuda.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/types.h>

#define HB_CU(base, symbol, since, streams, params, args) CUresult sim_##symbol params;
#include "nvidia/cuda_api.def"
#undef HB_CU

#define SIM_PARAMS_MAX 64
#define SIM_MASK_BITS 128
#define SIM_MASK_WORDS (SIM_MASK_BITS / 32)
#define SIM_PARAMS_BYTES 4096 /* all parameters of one launch together */
#define SIM_LIKELY(x) __builtin_expect(!!(x), 1)

enum sim_magic {
	SIM_MAGIC_CONTEXT = 0x43545831,
	SIM_MAGIC_STREAM = 0x53545231,
	SIM_MAGIC_EVENT = 0x45564e31,
	SIM_MAGIC_MODULE = 0x4d4f4431,
	SIM_MAGIC_FUNCTION = 0x46554e31,
	SIM_MAGIC_KERNEL = 0x4b524e31,
	SIM_MAGIC_LIBRARY = 0x4c494231,
	SIM_MAGIC_GRAPH = 0x47524131,
	SIM_MAGIC_EXEC = 0x47584531,
	SIM_MAGIC_POOL = 0x504f4f31,
	SIM_MAGIC_ARRAY = 0x41525231,
	SIM_MAGIC_DEAD = 0x44454144,
};

/* --- images ------------------------------------------------------------------------ */

/* A kernel of an image. */
struct sim_kernel {
	char *name;
	int64_t ns;
	double ns_per_block;
	int ns_param; /* parameter whose value in ns is added to the duration; -1 = none */
	uint32_t registers, shared_bytes, local_bytes, max_threads;
	float memory_share;
	bool takeover;
	uint32_t n_params;
	uint32_t param_bytes[SIM_PARAMS_MAX], param_offset[SIM_PARAMS_MAX];
	uint32_t params_size;
	hb_sim_function *host; /* NULL = no effect */
};

struct sim_global {
	char *name;
	size_t bytes;
};

struct sim_image {
	size_t n_kernels, n_globals;
	struct sim_kernel *kernels;
	struct sim_global *globals;
};

/* Parses an image (docs/simcuda.md). `text` ends with NUL. */
CUresult sim_image_parse(const char *text, struct sim_image **image);
void sim_image_free(struct sim_image *image);
/* Finds the image's text in the argument of a load call: plain text, or a fatbinary wrapper around it. */
CUresult sim_image_text(const void *data, const char **text);

/* --- objects ----------------------------------------------------------------------- */

struct sim_task;

struct CUstream_st {
	uint32_t magic;
	uint32_t id; /* number that the broker uses */
	CUcontext context;
	int priority;
	unsigned flags; /* CU_STREAM_NON_BLOCKING */
	bool builtin;   /* legacy or per-thread default stream */
	bool legacy;
	uint64_t unique;
	struct CUstream_st *next; /* next stream of the context */
	/* Under sim.submit. */
	uint64_t last_seq;
	uint64_t legacy_seen;                /* last item of the legacy stream for which this stream waits */
	uint64_t legacy_joined;              /* last own item for which the legacy stream waits */
	_Atomic uint64_t done_seq;           /* last item that completed, with its effects */
	_Atomic uint32_t users;              /* references: the handle, each item in flight, each waiter */
	struct sim_capture *_Atomic capture; /* see sim_capture.c */
	CUlaunchAttributeValue attributes[CU_LAUNCH_ATTRIBUTE_MAX + 1];
};

struct CUevent_st {
	uint32_t magic;
	unsigned flags;
	CUcontext context;
	_Atomic uint32_t users;        /* references: the handle and each record in flight */
	_Atomic uint64_t wanted, done; /* records submitted and completed */
	_Atomic int64_t at_ns;         /* GPU time of the last completed record */
	uint32_t stream_id;            /* under sim.submit: stream of the last record, for waits */
	uint64_t stream_seq;
	uint64_t captured_id; /* capture in which it was last recorded; 0 = outside any */
	CUgraphNode *captured_nodes;
	size_t n_captured;
};

struct CUctx_st {
	uint32_t magic;
	int device;
	uint32_t index; /* number that the broker uses */
	bool primary, alive;
	uint32_t uses; /* retains of a primary context */
	unsigned flags;
	unsigned api_version;
	uint64_t unique;
	uint32_t sm_limit;
	struct CUctx_st *next;
	struct CUstream_st *streams; /* under sim.submit, legacy stream included */
	struct CUstream_st *legacy;
	_Atomic int error;         /* sticky CUresult */
	_Atomic uint32_t captures; /* blocking streams of this context that are being captured */
	size_t limits[CU_LIMIT_MAX + 1];
	CUfunc_cache cache;
	uint32_t rm_groups[4], rm_channels[8];
	bool member; /* the process is a member of an MPS server's context */
};

struct CUfunc_st {
	uint32_t magic;
	const struct sim_kernel *kernel;
	CUmodule module;
	CUkernel of; /* NULL: the function belongs to a plain module */
	int max_dynamic_shared;
	int attributes[CU_FUNC_ATTRIBUTE_MAX];
	/* The old launch interface keeps its state here. */
	int old_block[3];
	unsigned old_shared, old_size;
	unsigned char old_params[4096];
};

struct CUmod_st {
	uint32_t magic;
	CUcontext context;
	CUlibrary library; /* NULL: loaded by cuModuleLoad* */
	bool owns_image;
	struct sim_image *image;
	struct CUfunc_st *functions;
	CUdeviceptr *globals; /* per global of the image */
	struct CUmod_st *next;
};

struct CUkern_st {
	uint32_t magic;
	const struct sim_kernel *kernel;
	CUlibrary library;
	int attributes[CU_FUNC_ATTRIBUTE_MAX];
};

struct CUlib_st {
	uint32_t magic;
	struct sim_image *image;
	struct CUkern_st *kernels;
	struct CUmod_st *modules; /* one module for each context that used the library */
	struct CUlib_st *next;
};

struct CUarray_st {
	uint32_t magic;
	CUDA_ARRAY3D_DESCRIPTOR descriptor;
	size_t pitch, bytes;
	CUdeviceptr memory;
};

/* --- process ------------------------------------------------------------------------ */

struct sim_process {
	_Atomic int state; /* enum sim_state */
	pthread_mutex_t lock, submit, drain, request;
	int fd;    /* control socket */
	int rm_fd; /* descriptor for resource-manager calls */
	int doorbell;
	pid_t pid;
	struct sim_share *share;
	struct sim_reply info; /* the broker's answer to HELLO */
	int driver_version;
	int n_visible;
	int visible[SIM_GPUS]; /* CUDA_VISIBLE_DEVICES: ordinal -> GPU */
	CUcontext contexts;    /* every context ever made; they stay, so that old handles are recognised */
	CUcontext primary[SIM_GPUS];
	unsigned primary_flags[SIM_GPUS];
	_Atomic bool lost; /* the broker has ended */
	_Atomic uint64_t unique;
	_Atomic uint64_t unsupported;
};
extern struct sim_process sim;

enum sim_state { SIM_NEW, SIM_READY, SIM_FORKED };

extern _Thread_local int sim_per_thread; /* > 0: the NULL stream is the thread's own default stream */

/* CUDA_SUCCESS once cuInit has been called in this process. */
CUresult sim_ready(void);
/* Finds the thread's current context. Fails also when the context or the GPU is lost. */
CUresult sim_current(CUcontext *context);
CUresult sim_check_context(CUcontext context);
bool sim_device_valid(CUdevice device);
int sim_gpu_of(CUdevice device);
/* The device of this process that stands for the GPU; -1 = CUDA_VISIBLE_DEVICES hides it. */
CUdevice sim_device_of(int gpu);

/* sim_link.c */
int sim_link_open(void);
void sim_link_forget(void); /* in a forked child */
int sim_request(struct sim_request *request, struct sim_reply *reply);
bool sim_broker_alive(void);

/* sim_rm.c */
int sim_rm_open(void);
int sim_rm_make_groups(CUcontext context);
void sim_rm_free_groups(CUcontext context);

/* sim_mps.c: token of the MPS server's context for this GPU; 0 = no server, plain context. */
CUresult sim_mps_join(int gpu, uint64_t *token, uint32_t *sm_limit);

struct sim_segment;

/* --- work ---------------------------------------------------------------------------- */

enum sim_task_kind {
	SIM_TASK_EMPTY,
	SIM_TASK_KERNEL,
	SIM_TASK_COPY,
	SIM_TASK_SET,
	SIM_TASK_HOST,
	SIM_TASK_CALLBACK,
	SIM_TASK_EVENT,
	SIM_TASK_EVENT_WAIT, /* in graphs only; streams wait by SIM_OP_WAIT */
	SIM_TASK_WAIT_VALUE,
	SIM_TASK_WRITE_VALUE,
	SIM_TASK_FREE,
	SIM_TASK_ALLOC,
	SIM_TASK_GRAPH, /* a segment of a launched graph */
	SIM_TASK_CHILD, /* in graphs only: another graph */
};

struct sim_box {
	char *base;
	size_t pitch, slice; /* bytes from row to row, from plane to plane */
};

/* One operation: its cost on the GPU and its effect on completion. */
struct sim_task {
	enum sim_task_kind kind;
	struct sim_work work; /* KERNEL, COPY, SET */
	union {
		struct {
			const struct sim_kernel *kernel;
			CUfunction function;
			CUkernel kern;
			unsigned grid[3], block[3], shared_bytes;
			int cooperative;
			int priority;                  /* priority given by the launch or the node; 0 = none */
			unsigned char *args;           /* parameters, packed as the image's table says */
			uint32_t mask[SIM_MASK_WORDS]; /* TPCs that the launch must not use */
		} kernel;
		struct {
			struct sim_box from, to;
			size_t width, height, depth;
			void *staging;       /* copy of pageable source bytes, owned */
			bool on_gpu;         /* false: host to host, costs no GPU time */
			CUDA_MEMCPY3D given; /* the copy as given, for getters of graph nodes */
		} copy;
		struct {
			struct sim_box to;
			size_t width, height; /* in elements, rows */
			unsigned value, element;
		} set;
		struct {
			CUhostFn fn;
			void *argument;
		} host;
		struct {
			CUstreamCallback fn;
			CUstream stream;
			void *argument;
		} callback;
		struct {
			CUevent event;
			uint64_t generation;
		} event;
		struct {
			CUdeviceptr address;
			uint64_t value;
			unsigned flags;
			bool wide;
		} value;
		struct {
			CUdeviceptr address;
			size_t bytes;
		} memory;
		struct {
			struct sim_segment *segment;
			bool host, effects;
		} graph;
		struct {
			CUgraph graph;
		} child;
	} u;
};

/* sim_task.c */
struct sim_task *sim_task_new(enum sim_task_kind kind);
struct sim_task *sim_task_copy(const struct sim_task *task);
void sim_task_free(struct sim_task *task);
/* Runs the effect; `end_ns` is the GPU time of completion. */
void sim_task_run(struct sim_task *task, int64_t end_ns);
/* Returns true if the effect must happen even if no thread waits for the stream. */
bool sim_task_has_effect(const struct sim_task *task);

/* sim_graph_launch.c */
void sim_segment_run(struct sim_segment *segment, int64_t end_ns);
void sim_segment_done(struct sim_segment *segment);

/* sim_queue.c */
int sim_queue_init(void);
CUresult sim_stream_start(CUstream stream); /* announces the stream to the broker */
void sim_stream_end(CUstream stream);
/*
 * Queues the task on the stream and takes ownership of it. `work` may be given
 * without a task (kernels without effect). seq may be NULL.
 */
CUresult sim_submit(CUstream stream, const struct sim_work *work, struct sim_task *task, uint64_t *seq);
/* Submits a segment of a graph that was uploaded under the number `graph`. */
CUresult sim_submit_graph(CUstream stream, uint32_t graph, struct sim_task *task);
void sim_upload_piece(uint32_t graph, const struct sim_work *work);
void sim_upload_free(uint32_t graph);
void sim_submit_wait(CUstream stream, uint32_t other, uint64_t seq);
void sim_drain(void);
/* Returns CUDA_SUCCESS while the context works, else its sticky error. */
CUresult sim_context_trouble(CUcontext context);
CUresult sim_wait_stream(CUstream stream, uint64_t seq);
CUresult sim_wait_event(CUevent event, uint64_t generation);
CUresult sim_wait_context(CUcontext context);
/* Releases the stream's takeover kernels up to `seq` once *word is not 0. */
void sim_watch_takeover(CUstream stream, uint64_t seq, const volatile uint32_t *word);

/* sim_stream.c */
CUresult sim_stream_resolve(CUstream handle, CUstream *stream);
CUstream sim_legacy_stream(CUcontext context);
CUstream sim_stream_new(CUcontext context, unsigned flags, int priority);
void sim_streams_of_context_end(CUcontext context);

/* sim_event.c */
void sim_event_unuse(CUevent event);

/* sim_mask.c */
/* The driver's private table with this id, or NULL. */
const void *sim_mask_table(const CUuuid *id);
/* Applies the mask of a launch that is about to start: sets sm_limit and sm_spread, and the removed bits. */
void sim_mask_launch(struct sim_work *work, uint32_t mask[SIM_MASK_WORDS]);
/* The effect of the kernels that images call `marks`. */
hb_sim_function sim_mask_mark;

/* sim_gpc.c */
/* Returns how many SMs a mask leaves. *whole: the mask removes complete GPCs, and a part of at most one. */
uint32_t sim_gpc_left(const uint32_t mask[SIM_MASK_WORDS], bool *whole);
/* Returns whether the driver refuses launches of clusters, for tests. */
bool sim_gpc_refuses(uint32_t cluster);
/* Returns whether a launch of a `meets` kernel never ends: no GPC has room for its clusters under this mask, or a test asks for it. */
bool sim_gpc_is_stuck(const struct sim_kernel *kernel, uint32_t cluster, const uint32_t mask[SIM_MASK_WORDS]);
/* The effect of the kernels that images call `meets`. */
hb_sim_function sim_gpc_meet;

/* sim_channel.c */
/* The effect of the kernels that images call `hammers`. */
hb_sim_function sim_channel_hammer;

/* sim_capture.c */

/* Sends a task to the GPU or, during a capture, into the captured graph. Takes ownership of the task. */
CUresult sim_issue(CUstream stream, struct sim_task *task, uint64_t *seq);
/* Returns CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED and invalidates the capture if this call is forbidden now. */
CUresult sim_capture_forbids(CUstream stream);
CUresult sim_capture_forbids_unsafe(void);
/* Returns true if the capture handled the wait; *result is the answer then. */
bool sim_capture_wait(CUstream stream, CUevent event, unsigned flags, CUresult *result);
bool sim_capture_record(CUstream stream, CUevent event, unsigned flags, CUresult *result);
/* The stream is about to end: a capture that began there ends, a capture that it joined becomes invalid. */
void sim_capture_lose(CUstream stream);

/* sim_memory.c */
enum sim_memory_kind { SIM_MEMORY_DEVICE, SIM_MEMORY_MANAGED, SIM_MEMORY_HOST, SIM_MEMORY_REGISTERED, SIM_MEMORY_VMM };
struct sim_memory {
	uintptr_t base;
	size_t size;
	enum sim_memory_kind kind;
	int gpu;        /* -1: memory of a VMM mapping that is on the host */
	unsigned flags; /* VMM: handle types for which the memory can be exported */
	uint64_t unique;
	CUcontext context; /* NULL: VMM */
	CUmemoryPool pool;
	size_t charged, mapped; /* bytes accounted on the GPU; bytes of the mapping to unmap */
};
/* Writes outputs only on success; *found is a copy. */
bool sim_memory_find(uintptr_t address, struct sim_memory *found);
/* Whether the range lies in one allocation, or in VMM mappings without a gap. */
bool sim_memory_covers(uintptr_t address, size_t bytes);
CUresult sim_memory_add(const struct sim_memory *memory);
bool sim_memory_remove(uintptr_t base, struct sim_memory *removed);
/* Accounts bytes to a GPU, or to the host with SIM_HOST. */
CUresult sim_memory_charge(int gpu, int64_t bytes);
CUresult sim_memory_new(CUcontext context, enum sim_memory_kind kind, size_t bytes, CUmemoryPool pool,
			CUdeviceptr *address);
CUresult sim_memory_delete(CUdeviceptr address);
void sim_memory_of_context_end(CUcontext context);
/* Whether the memory is on the host and the GPU can access it without staging. */
bool sim_memory_is_host(const struct sim_memory *memory);

/* sim_vmm.c */
/* Returns the GPU on which memory of this location is; -1 = host. */
int sim_location_gpu(const CUmemLocation *location);
/* Finds the reserved address range around the address. Writes outputs only on success. */
bool sim_vmm_find_reservation(uintptr_t address, uintptr_t *base, size_t *bytes);

/* sim_pool.c */
void sim_pool_used(CUmemoryPool pool, int64_t bytes);

/* sim_module.c */
/* Finds the function of a CUfunction or CUkernel handle in the current context. */
CUresult sim_function_of(CUfunction handle, CUcontext context, CUfunction *function);
void sim_modules_of_context_end(CUcontext context);

/* sim_launch.c */
CUresult sim_kernel_task(CUcontext context, const CUDA_KERNEL_NODE_PARAMS *params, const CUlaunchAttribute *attributes,
			 unsigned n_attributes, struct sim_task *task);

/* sim_copy.c */
CUresult sim_copy_task(const CUDA_MEMCPY3D *copy, struct sim_task **task);

/* sim_set.c */
CUresult sim_set_task(CUdeviceptr to, size_t pitch, unsigned value, unsigned element, size_t width, size_t height,
		      struct sim_task **task);

/* sim_entry.c */
CUresult sim_unsupported(const char *name);

/* sim_entry.c: see hb_sim_table.set_faults. */
uint64_t sim_set_faults(const char *list);

#endif
