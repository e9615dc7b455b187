/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The shared pages: what a tenant's processes and the daemon tell each other
 * without a system call. One page per tenant (struct hb_page) and one per GPU
 * (struct hb_gpu_page), each a memfd made by the daemon, sealed against
 * resizing, and handed over the daemon's socket.
 *
 * Who writes: every field below names one writer, "daemon" or "process" (the
 * process that owns the slot) or says that it is a shared sum. Unless a field
 * says otherwise it is stored and loaded relaxed: it is a value, nothing else
 * hangs on it. Records with a `state` publish by it: the writer fills the other
 * fields, then stores state with release; readers load state with acquire.
 *
 * Trust: the mapping is writable for the tenant, so the daemon keeps its own
 * copy of everything it decides and treats every field as untrusted input. A
 * tenant that scribbles here harms only itself. On the GPU page, which tenants
 * share, a scribbler can spoil the memory reserve's sum and what LP knows of
 * HP's requests, and make the daemon look late (0.1 s), and nothing more.
 *
 * Life: a page outlives the daemon. A process that finds `heartbeat_ns` older
 * than HB_PAGE_SILENT_NS treats every gate as open and registers again (at most
 * once a second, never on the launch path), handing over the descriptor of its
 * page: the new daemon takes that same page over, so nothing is copied and no
 * count is lost. GPU pages are made anew and mapped over the old ones. Another
 * process of its tenant may have come first, and the heart beats again: then
 * `daemon_since_ns` of the page is not that of the GPU pages that it has mapped.
 *
 * The layout is fixed (see the asserts at the end). Readers check magic,
 * version and size once, when they map the page; a version they do not know
 * means "no daemon". Plain C11; no CUDA, no library.
 */
#ifndef HUMMINGBIRD_PAGE_H
#define HUMMINGBIRD_PAGE_H

#include <assert.h>
#include <stdatomic.h>
#include <stdint.h>

#define HB_PAGE_MAGIC UINT64_C(0x31544e4e45544248)     /* "HBTENNT1" */
#define HB_GPU_PAGE_MAGIC UINT64_C(0x3130555047424248) /* "HBBGPU01" */
#define HB_PAGE_VERSION 1

#define HB_PAGE_GPUS 16       /* GPUs one tenant can use */
#define HB_PAGE_PROCESSES 128 /* processes with CUDA one tenant can have at a time */
#define HB_PAGE_GROUPS 48     /* channel groups recorded per process: 12 contexts of 4 groups */
#define HB_PAGE_COUNTERS 64   /* room for counters.def */
#define HB_PAGE_GATE_BYTES 64
#define HB_PAGE_SIGNS_BYTES 704
#define HB_PAGE_SLACK_BYTES 1024

#define HB_PAGE_BEAT_NS INT64_C(100000000)    /* the daemon beats this often */
#define HB_PAGE_SILENT_NS INT64_C(2000000000) /* older than this: the daemon is taken for dead */

typedef _Atomic(uint32_t) hb_page_u32;
typedef _Atomic(uint64_t) hb_page_u64;
typedef _Atomic(int64_t) hb_page_i64;

enum hb_page_priority { HB_PAGE_LOW = 0, HB_PAGE_HIGH = 1 };

/* How this GPU is shared between its tenants. */
enum hb_engine { HB_ENGINE_NONE = 0, HB_ENGINE_TEMPORAL = 1, HB_ENGINE_TURNS = 2, HB_ENGINE_SPATIAL = 3 };

/* A tenant's page, and each of its process slots. */
enum hb_page_state {
	HB_PAGE_FREE = 0,   /* slot unused */
	HB_PAGE_ACTIVE = 1, /* in use */
	HB_PAGE_CLOSED = 2, /* given up by the daemon: gates are open for good, register again to be scheduled */
};

enum hb_page_counter {
#define HB_COUNTER(name, unit, what) HB_COUNT_##name,
#include "hummingbird/counters.def"
	HB_N_COUNTS
};

enum hb_group_state {
#define HB_GROUP_STATE(name, text) HB_GROUP_##name,
#include "hummingbird/group_states.def"
#undef HB_GROUP_STATE
	HB_N_GROUP_STATES
};

enum hb_group_class { HB_GROUP_COMPUTE = 0, HB_GROUP_COPY = 1, HB_N_GROUP_CLASSES };

/* One channel group of libcuda's. Writer: process. Published by `state` (release). */
struct hb_page_group {
	hb_page_u32 state;       /* enum hb_group_state */
	hb_page_u32 group_class; /* enum hb_group_class */
	hb_page_u32 client;      /* resource-manager handles, for messages */
	hb_page_u32 object;
	hb_page_u32 gpu;       /* index into hb_page.gpus; HB_PAGE_GPUS = not known */
	hb_page_u32 rm_status; /* of the last call that failed; 0 = none did */
	hb_page_u32 asked_us;  /* the slice last asked for */
	hb_page_u32 got_us;    /* the slice last read back */
};

/* What a process holds on one GPU. Writer: process (relaxed adds by its threads). */
struct hb_page_memory {
	hb_page_u64 used_bytes; /* allocations counted against the tenant's limit */
	hb_page_u64 reserved0;
};

/* A request that has ended. Writer: process. */
struct hb_page_request {
	hb_page_i64 begin_ns, end_ns; /* CLOCK_MONOTONIC */
	hb_page_i64 deadline_ns;      /* absolute; 0 = none was given */
	hb_page_u32 flags;            /* enum hb_page_request_flag */
	hb_page_u32 harm_us;          /* with HB_REQUEST_MEASURED: what low priority made it take longer */
};
enum hb_page_request_flag {
	HB_REQUEST_TOLD = 1,     /* by the application; else inferred: first launch after idle .. synchronize */
	HB_REQUEST_HELD = 2,     /* the GPU was held when it began to launch */
	HB_REQUEST_MEASURED = 4, /* in the spatial engine: harm_us is known */
};

/*
 * The requests of one process, newest last: request i lies in ring[i %
 * HB_PAGE_REQUESTS]. The writer fills it, then raises `written` (release). A
 * reader that finds `written` more than HB_PAGE_REQUESTS ahead of what it has
 * read lost the difference, and drops what was overwritten while it read.
 */
#define HB_PAGE_REQUESTS 20
struct hb_page_signs {
	hb_page_u64 written;    /* process */
	hb_page_u32 hold_fault; /* process; row of takeover_faults.def, 0 = holds work */
	hb_page_u32 reserved0;
	/* process; the request that runs, of several the one that began first: since when, 0 = none, and its own deadline. */
	hb_page_i64 running_since_ns;
	hb_page_i64 running_deadline_ns; /* absolute, 0 = the tenant's objective; written first */
	hb_page_u64 reserved1[4];
	struct hb_page_request ring[HB_PAGE_REQUESTS];
};

/*
 * One process of a tenant. The daemon hands out slots (it alone moves `state`
 * between FREE and ACTIVE) and clears a slot before it hands it out again.
 */
struct hb_page_process {
	hb_page_u32 state;          /* daemon; enum hb_page_state */
	hb_page_u32 pid;            /* daemon; in the daemon's pid namespace */
	hb_page_u32 generation;     /* daemon; changes each time the slot is handed out */
	hb_page_u32 shim_version;   /* process */
	hb_page_u32 driver_version; /* process; as cuDriverGetVersion gives it, 0 = not initialised yet */
	hb_page_u32 applied;        /* process; the last hb_page.slice_sequence acted on */
	/* process; threads between claiming in hb_page_gpu.used_bytes and noting it in memory[] (see below). */
	hb_page_u32 memory_pending;
	hb_page_u32 reserved0;
	hb_page_u64 start_ticks; /* daemon; the process's start (/proc/PID/stat field 22), so that a reused pid shows */
	hb_page_u32 mask_state;  /* process; whether its launches can leave SMs to others, row of mask_states.def */
	hb_page_u32 rings;       /* process; 1: it rings the bell of the GPU's page */
	hb_page_u32
		gpc_state; /* process; whether its masks leave out whole GPCs, row of nvidia/gpc_states.def; 0 = not wanted */
	hb_page_u32 reserved1[3];
	hb_page_u64 counters[HB_PAGE_COUNTERS]; /* process; relaxed adds */
	struct hb_page_memory memory[HB_PAGE_GPUS];
	struct hb_page_group groups[HB_PAGE_GROUPS];
	/* One gate for each GPU, struct hb_gate of gate/gate.h, whose header says who writes what. */
	_Alignas(64) unsigned char gates[HB_PAGE_GPUS][HB_PAGE_GATE_BYTES];
	struct hb_page_signs signs; /* process; all zero while unused */
};

/*
 * One GPU of a tenant, in the order of the tenant's registration (the daemon's
 * numbering, not CUDA's: find it by UUID).
 *
 * Memory: to claim n bytes a thread adds 1 to its slot's memory_pending
 * (release), raises used_bytes by compare-and-swap while used + n <= limit, an
 * LP thread then likewise hb_gpu_page.low_used_bytes while used + n <= total -
 * reserve, adds n to its slot's memory[].used_bytes, and takes memory_pending
 * down again (release); giving back is the same with the signs turned. When a
 * process dies the daemon sets the sums to those of the living slots at a
 * moment when none of them has a thread in between, so an account is exact
 * again after any crash.
 */
struct hb_page_gpu {
	unsigned char uuid[16];                   /* daemon; before the page is handed out */
	hb_page_u32 state;                        /* daemon; enum hb_page_state (release) */
	hb_page_u32 engine;                       /* daemon; enum hb_engine */
	hb_page_u32 slice_us[HB_N_GROUP_CLASSES]; /* daemon; by enum hb_group_class, 0 = leave as it is */
	hb_page_u32 reserved0[2];
	hb_page_u64 limit_bytes; /* daemon; UINT64_MAX = none */
	hb_page_u64 used_bytes;  /* shared sum over the tenant's processes */
	hb_page_u64 total_bytes; /* daemon; the GPU's memory, 0 = not known */
	hb_page_u32 reserved1[48];
};

/* The tenant page. */
struct hb_page {
	uint64_t magic; /* daemon; before the page is handed out, then constant, as the next three */
	uint32_t version;
	uint32_t size_bytes;
	uint32_t tenant;             /* the daemon's number for this tenant, never 0, not reused while it lives */
	hb_page_u32 n_gpus;          /* daemon; entries of gpus[] in use (release); only ever grows */
	hb_page_u32 state;           /* daemon; enum hb_page_state (release) */
	hb_page_u32 daemon_pid;      /* daemon */
	hb_page_i64 heartbeat_ns;    /* daemon; CLOCK_MONOTONIC of the last beat */
	hb_page_u32 priority;        /* daemon; enum hb_page_priority, what was granted, not what was asked */
	hb_page_u32 attainment_ppm;  /* daemon; share of requests that must meet slo_ns, in millionths */
	hb_page_i64 slo_ns;          /* daemon; 0 = none, -1 = learn it */
	hb_page_u32 slice_sequence;  /* daemon; raised (release) after a gpus[].slice_us[] changed */
	hb_page_u32 recording;       /* daemon; not 0: LP notes its launches for it (page_trace.h) */
	hb_page_i64 daemon_since_ns; /* daemon; when it started */
	unsigned char reserved1[4096 - 72];
	struct hb_page_gpu gpus[HB_PAGE_GPUS];
	struct hb_page_process processes[HB_PAGE_PROCESSES];
};

/* Who decides what LP may launch beside HP in the spatial engine. */
enum hb_low_rule { HB_LOW_RULE_SLACK, HB_LOW_RULE_ORION };

enum hb_gpu_news {
	HB_NEWS_WAITING = 1, /* a thread waits at a closed gate */
	HB_NEWS_ENDED = 2,   /* work of low priority has ended, or was found behind its closed gate */
};

/*
 * The page of one GPU, mapped by every tenant that uses it. It carries the one
 * sum that tenants share: what LP holds, so that the reserve for HP is exact.
 */
struct hb_gpu_page {
	uint64_t magic;
	uint32_t version;
	uint32_t size_bytes;
	unsigned char uuid[16];
	hb_page_u32 engine;        /* daemon; enum hb_engine */
	hb_page_u32 tenants_high;  /* daemon; how many of each there are */
	hb_page_u32 tenants_low;   /* daemon */
	hb_page_u32 high_at_work;  /* daemon; how many of tenants_high launched something in the last second or so */
	hb_page_u64 total_bytes;   /* daemon; 0 = not known */
	hb_page_u64 reserve_bytes; /* daemon; kept free of LP for HP */
	_Alignas(64) hb_page_u64 low_used_bytes; /* shared sum over LP tenants; repaired by the daemon after a crash */
	/* The spatial engine: struct hb_spatial_board of decide/spatial.h, whose header says who writes what. */
	_Alignas(64) unsigned char slack[HB_PAGE_SLACK_BYTES];
	/* daemon; the bounds of the spatial engine, from its configuration. */
	hb_page_u32 window_us; /* predicted LP time in flight while HP is at work */
	hb_page_u32 low_sms;   /* SMs that LP may have while HP is at work; 0 = slack decides */
	/*
	 * Who has news of a kind that is in `listening` adds 1 to `bell` and wakes a sleeper on that futex word. Shared;
	 * the daemon believes nothing of it but that a look may be worth while, and looks less often by itself then.
	 */
	hb_page_u32 bell;      /* processes, by atomic addition; its value has no meaning */
	hb_page_u32 listening; /* daemon; enum hb_gpu_news, several */
	hb_page_u32 low_rule;  /* daemon; enum hb_low_rule */
	/* HP, where the rule is Orion's: see shim_orion.c. */
	hb_page_u32 high_class;    /* the kind of kernel that was launched last */
	hb_page_u32 high_alone_ns; /* what a request takes alone; 0 = not known */
	/* Masks of LP leave out whole GPCs: whether they are wanted so, and which bits of a mask are of which GPC. */
	hb_page_u32 masks_whole; /* daemon; 0 = masks are spread over the GPU */
	hb_page_u32
		gpc_state; /* daemon; row of nvidia/gpc_states.def (release, after gpc_of, which is constant then) */
	unsigned char gpc_of[128];   /* daemon; counted from 1, 0 = the bit is no TPC */
	hb_page_i64 daemon_since_ns; /* daemon; when it started */
	_Alignas(64) unsigned char reserved[4096 - 320 - HB_PAGE_SLACK_BYTES];
};

_Static_assert(sizeof(hb_page_u32) == 4 && sizeof(hb_page_u64) == 8, "atomics are plain words");
_Static_assert(ATOMIC_INT_LOCK_FREE == 2 && ATOMIC_LLONG_LOCK_FREE == 2, "atomics work between processes");
_Static_assert(HB_N_COUNTS <= HB_PAGE_COUNTERS, "counters.def fits");
_Static_assert(sizeof(struct hb_page_signs) == HB_PAGE_SIGNS_BYTES, "request ring");
_Static_assert(sizeof(struct hb_page_group) == 32, "group record");
_Static_assert(sizeof(struct hb_page_process) == 4096, "process slot is one page");
_Static_assert(sizeof(struct hb_page_gpu) == 256, "GPU record");
_Static_assert(sizeof(struct hb_page) == 4096 + HB_PAGE_GPUS * 256 + HB_PAGE_PROCESSES * 4096, "tenant page");
_Static_assert(sizeof(struct hb_gpu_page) == 4096, "GPU page");

#endif
