/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The layout of the shared pages, through which the daemon and the processes of
 * its tenants exchange state without a system call. There is one page per tenant
 * (struct hb_page) and one per GPU (struct hb_gpu_page). Each is a memfd that the
 * daemon creates, seals against resizing, and passes over its socket. In addition,
 * each HP process of the spatial engine makes a board for each GPU (struct
 * hb_page_board).
 *
 * Writers. The comment of each field names its only writer: "daemon", "process"
 * (the process that owns the slot), or "shared" (several processes add to it).
 *
 * Order. Fields are stored and loaded with relaxed order unless their comment
 * says otherwise. A record with a `state` is published by that field: the writer
 * fills the other fields, then stores `state` with release; readers load `state`
 * with acquire.
 *
 * Units. Times are CLOCK_MONOTONIC in ns (`_ns`), durations ns or us by suffix,
 * sizes bytes, shares parts per million (`_ppm`).
 *
 * Trust. Only the daemon can write to a GPU page, which all tenants of the GPU map
 * read-only. Only its HP process can write to a board. A tenant's processes can
 * write to every byte of the tenant's page; no other tenant maps it. The daemon
 * therefore keeps its own copy of all it decides and treats each field as untrusted
 * input. False values on a tenant page harm this tenant only:
 *
 *	fields of the daemon	    its processes act on them: wrong gates, limits, slices
 *	used_bytes, memory[]	    its own limit; a report beyond what the driver sees does
 *				    not count (daemon/gpu_memory.h)
 *	memory_pending		    its own sum is repaired up to 5 s late
 *	gates			    its turn begins late or ends early; work that never ends
 *				    is waited for a bounded time (daemon/gpu_gates.c)
 *	requests, running_since_ns  the judgement of its own requests, and, in HP, its own SLO
 *	rings, doorbell		    the daemon notices its news up to 0.1 s late; rings without
 *				    news cost bounded time (daemon/doorbell_listener.h)
 *	groups, applied, versions,  the status of this tenant, and its own time slices
 *	counters, *_state
 *	rings of page_trace.h	    its own launches in a recording
 *	elastic_gpus		    the status of this tenant; orders to it. A move counts only as far as the GPU's free
 *				    memory has grown (daemon/gpu_elastic.h)
 *
 * A board is written by a tenant with granted high priority. False values hold LP
 * back, at most as long as requests that never end.
 *
 * When the daemon restarts. A page outlives the daemon that created it. A process
 * that finds heartbeat_ns older than HB_PAGE_SILENT_NS treats every gate as open
 * and registers again: at most once a second, never on the launch path. It passes
 * the descriptor of its page to the new daemon, which continues to use that page,
 * so counts survive. GPU pages are created anew and mapped over the old ones. If
 * another process of the tenant registered first, the page has a fresh heartbeat
 * again while this process still maps the old GPU pages; it detects that by
 * comparing daemon_since_ns of the page with daemon_since_ns of a GPU page.
 *
 * Versions. The asserts at the end fix the layout. Readers check magic, version
 * and size once, when they map a page, and treat an unknown version as if there
 * were no daemon. New fields use reserved bytes and get a bit in `features`, so
 * that an upgrade of the daemon keeps running tenants scheduled. Plain C11; needs neither CUDA nor a library.
 */
#ifndef HUMMINGBIRD_PAGE_H
#define HUMMINGBIRD_PAGE_H

#include <assert.h>
#include <stdatomic.h>
#include <stdint.h>

#define HB_PAGE_MAGIC UINT64_C(0x31544e4e45544248)     /* "HBTENNT1" */
#define HB_GPU_PAGE_MAGIC UINT64_C(0x3130555047424248) /* "HBBGPU01" */
#define HB_PAGE_VERSION 2

#define HB_PAGE_GPUS 16       /* GPUs that one tenant can use */
#define HB_PAGE_PROCESSES 128 /* CUDA processes that one tenant can have at the same time */
#define HB_PAGE_GROUPS 48     /* channel groups recorded per process: 12 contexts of 4 groups */
#define HB_PAGE_COUNTERS 64   /* capacity for rows of counters.def */
#define HB_PAGE_ELASTIC 16    /* records of elastic memory: pairs of a process and a GPU */
#define HB_PAGE_STAYS 8       /* capacity for rows of stay_reasons.def */
#define HB_PAGE_GATE_BYTES 64
#define HB_PAGE_REQUESTS_BYTES 704

#define HB_PAGE_TICK_NS INT64_C(100000000)    /* period of the daemon's heartbeat: 0.1 s */
#define HB_PAGE_SILENT_NS INT64_C(2000000000) /* a daemon whose heartbeat is older counts as dead: 2 s */

typedef _Atomic(uint32_t) hb_page_u32;
typedef _Atomic(uint64_t) hb_page_u64;
typedef _Atomic(int64_t) hb_page_i64;

enum hb_page_priority { HB_PAGE_LOW = 0, HB_PAGE_HIGH = 1 };

/* How a GPU is shared between its tenants. */
enum hb_engine { HB_ENGINE_NONE = 0, HB_ENGINE_TEMPORAL = 1, HB_ENGINE_TURNS = 2, HB_ENGINE_SPATIAL = 3 };

/* State of a tenant page and of each process slot in it. */
enum hb_page_state {
	HB_PAGE_FREE = 0,   /* the slot is unused */
	HB_PAGE_ACTIVE = 1, /* the page or slot is in use */
	/* The daemon no longer uses the page: gates count as open, the process registers again to be scheduled. */
	HB_PAGE_CLOSED = 2,
};

/* Abilities of a daemon that the first daemon with this page version did not have. */
enum hb_page_feature {
	HB_FEATURE_LEASES = 1,   /* it writes low_lease_bytes */
	HB_FEATURE_DOORBELL = 2, /* it listens to hb_page_gpu.doorbell */
	HB_FEATURE_BOARDS = 4,   /* HP processes have boards of their own */
	HB_FEATURE_ELASTIC = 8,  /* it writes hb_page.elastic and orders, and answers MEMORY of HP */
};
/* Value of hb_page_process.rings; 1 = the doorbell that earlier daemons had on the GPU page. */
#define HB_PAGE_RINGS 2

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

enum hb_page_stay {
#define HB_STAY_REASON(name, key, text) HB_PAGE_STAY_##name,
#include "hummingbird/stay_reasons.def"
#undef HB_STAY_REASON
	HB_N_PAGE_STAYS
};

enum hb_move_result {
#define HB_MOVE_RESULT(name, key, text) HB_MOVE_##name,
#include "hummingbird/move_results.def"
#undef HB_MOVE_RESULT
	HB_N_MOVE_RESULTS
};

enum hb_group_class { HB_GROUP_COMPUTE = 0, HB_GROUP_COPY = 1, HB_N_GROUP_CLASSES };

/* One channel group that libcuda created. Writer: process. Published by `state` (release). */
struct hb_page_group {
	hb_page_u32 state;       /* enum hb_group_state */
	hb_page_u32 group_class; /* enum hb_group_class */
	hb_page_u32 client;      /* resource-manager handle of the client, for messages */
	hb_page_u32 object;      /* resource-manager handle of the group, for messages */
	hb_page_u32 gpu;         /* index into hb_page.gpus; HB_PAGE_GPUS = unknown */
	hb_page_u32 rm_status;   /* status of the last resource-manager call that failed; 0 = none failed */
	hb_page_u32 asked_us;    /* time slice last requested */
	hb_page_u32 got_us;      /* time slice last read back */
};

/* Memory of one process on one GPU. Writer: process (relaxed additions by its threads). */
struct hb_page_memory {
	hb_page_u64 used_bytes; /* allocations counted against the tenant's limit */
	hb_page_u64 reserved0;
};

/* A request that has ended. Writer: process. */
struct hb_page_request {
	hb_page_i64 begin_ns, end_ns;
	hb_page_i64 deadline_ns; /* 0 = the application gave none */
	hb_page_u32 flags;       /* set of enum hb_page_request_flag */
	hb_page_u32 harm_us;     /* delay caused by LP; valid with HB_REQUEST_MEASURED */
};
enum hb_page_request_flag {
	/* The application reported the request through the client API; otherwise the shim inferred it. */
	HB_REQUEST_REPORTED = 1,
	HB_REQUEST_TAKEOVER = 2, /* the shim had taken the GPU over when the request's first launch arrived */
	HB_REQUEST_MEASURED = 4, /* the spatial engine measured harm_us */
	/* In bits 8 to 11 the class of the request's number of launches (decide/spatial_kind.h), 0 = not known. */
	HB_REQUEST_KIND_SHIFT = 8,
	HB_REQUEST_KIND_MASK = 15,
};

/*
 * The requests of one process. Request i is stored in ring[i % HB_PAGE_REQUESTS].
 * The writer fills the entry, then raises `written` (release). A reader that finds
 * `written` more than HB_PAGE_REQUESTS ahead of its own position lost the
 * difference; it also drops entries that were overwritten while it read them.
 */
#define HB_PAGE_REQUESTS 20
struct hb_page_requests {
	hb_page_u64 written;        /* process; number of requests that ended so far */
	hb_page_u32 takeover_fault; /* process; row of takeover_faults.def, 0 = takeovers work */
	hb_page_u32 reserved0;
	/* process; begin of the request in progress (of several: the one that began first), 0 = none. Written last. */
	hb_page_i64 running_since_ns;
	hb_page_i64 running_deadline_ns; /* process; deadline of that request, 0 = the tenant's SLO applies */
	hb_page_u64 reserved1[4];
	struct hb_page_request ring[HB_PAGE_REQUESTS];
};

/*
 * One process of a tenant. The daemon assigns slots: it alone moves `state`
 * between FREE and ACTIVE, and clears a slot before it assigns the slot again.
 */
struct hb_page_process {
	hb_page_u32 state;          /* daemon; enum hb_page_state */
	hb_page_u32 pid;            /* daemon; process id in the daemon's pid namespace */
	hb_page_u32 generation;     /* daemon; changes each time the slot is assigned */
	hb_page_u32 shim_version;   /* process */
	hb_page_u32 driver_version; /* process; as cuDriverGetVersion returns it, 0 = not initialised yet */
	hb_page_u32 applied;        /* process; last value of hb_page.slice_sequence that the process acted on */
	/* process; threads that added to hb_page_gpu.used_bytes and have not updated memory[] yet (see there). */
	hb_page_u32 memory_pending;
	hb_page_u32 reserved0;
	hb_page_u64 start_ticks; /* daemon; start time (/proc/PID/stat field 22): detects a pid that was reused */
	hb_page_u32 mask_state;  /* process; whether SM masks work for its launches, row of nvidia/mask_states.def */
	hb_page_u32 rings;       /* process; HB_PAGE_RINGS = the process rings hb_page_gpu.doorbell */
	hb_page_u32 gpc_state;   /* process; whether its masks exclude entire GPCs, row of nvidia/gpc_states.def */
	/* process; CUDA's number of the first error that ended its context, 0 = none. Written (release) after fault_ns. */
	hb_page_u32 fault;
	hb_page_i64 fault_ns;                   /* process; when the process saw that error */
	hb_page_u64 counters[HB_PAGE_COUNTERS]; /* process; relaxed additions */
	struct hb_page_memory memory[HB_PAGE_GPUS];
	struct hb_page_group groups[HB_PAGE_GROUPS];
	/* One gate per GPU: struct hb_gate of gate/gate.h, whose header names the writers. */
	_Alignas(64) unsigned char gates[HB_PAGE_GPUS][HB_PAGE_GATE_BYTES];
	struct hb_page_requests requests; /* process */
};

/*
 * One GPU of a tenant. GPUs have the order of the tenant's registration, not CUDA's;
 * processes find a GPU by its UUID.
 *
 * Memory accounting. To claim n bytes, a thread
 *	1. adds 1 to memory_pending of its slot (release);
 *	2. raises used_bytes by compare-and-swap while used + n <= limit, and in an
 *	   LP tenant while used + n <= low_lease_bytes;
 *	3. in an LP tenant, reads low_lease_bytes again (both sequentially
 *	   consistent), and lowers used_bytes again if the lease has become too small;
 *	4. adds n to memory[].used_bytes of its slot;
 *	5. subtracts 1 from memory_pending (release).
 * Freeing does the same with subtraction. When a process dies, the daemon waits
 * until memory_pending of every live slot is 0, at most 5 s, and sets used_bytes to
 * the sum of the live slots, so the account is exact again after any crash.
 *
 * The lease. LP tenants together may use the GPU's memory minus the reserve. The
 * daemon divides what none of them uses into leases. A process without enough
 * lease asks the daemon for more (message MEMORY), which takes it from the unused
 * leases of others: it lowers their low_lease_bytes and then reads used_bytes.
 * Because of step 3, either the daemon sees a claim or the claim sees the lower
 * lease, so no memory is given away twice.
 */
struct hb_page_gpu {
	unsigned char uuid[16];                   /* daemon; constant */
	hb_page_u32 state;                        /* daemon; enum hb_page_state (release) */
	hb_page_u32 engine;                       /* daemon; enum hb_engine */
	hb_page_u32 slice_us[HB_N_GROUP_CLASSES]; /* daemon; time slices by enum hb_group_class, 0 = leave unchanged */
	hb_page_u32 reserved0[2];
	hb_page_u64 limit_bytes;      /* daemon; UINT64_MAX = no limit */
	hb_page_u64 used_bytes;       /* shared; sum over the tenant's processes */
	hb_page_u64 total_bytes;      /* daemon; memory of the GPU, 0 = unknown */
	hb_page_u64 low_lease_bytes;  /* daemon; LP: what the tenant may use now, UINT64_MAX = no limit */
	hb_page_u64 low_others_bytes; /* daemon; LP: memory that the other LP tenants use */
	/*
	 * The doorbell. A process with news of a kind in hb_gpu_page.listening adds 1 to it and wakes a sleeper on this futex
	 * word. The daemon takes a ring only as a reason to check the GPU earlier; the value has no meaning.
	 */
	hb_page_u32 doorbell;      /* shared; atomic additions */
	hb_page_u32 allowance_ppm; /* daemon; HP, spatial engine: delay that LP may cause, in ppm of the time alone */
	hb_page_u32 reserved1[42];
};

/* Values of hb_page.elastic. */
enum hb_page_elastic_flag {
	HB_ELASTIC_ON = 1,   /* large allocations of the tenant's processes consist of granules */
	HB_ELASTIC_OVER = 2, /* what does not fit of them is created in memory of the host, within host_limit_bytes */
};

/* The direction in which an order moves memory. */
enum hb_order_direction {
	HB_ORDER_AWAY = 1, /* from this GPU to the peer and to the host */
	HB_ORDER_HOME = 2, /* from the peer and from the host to this GPU */
	/*
	 * As HB_ORDER_AWAY, because the tenant is idle. Afterwards the process is parked: its next call that gives work to a
	 * GPU waits, for an HB_ORDER_HOME (of 0 bytes if there is no room), at most 3 s.
	 */
	HB_ORDER_PAUSE = 3,
	HB_ORDER_LEAVE =
		4, /* order_peer_bytes from the peer to the host, because the peer's own tenants need the memory */
};

/* Values of hb_page_elastic.parked. */
enum hb_page_parked {
	HB_PARKED_NOT,
	HB_PARKED_IDLE,  /* an HB_ORDER_PAUSE was carried out; nothing has run since */
	HB_PARKED_WAITS, /* a call waits for the memory; then HB_NEWS_WAKES */
};

/*
 * The elastic memory of one process on one GPU (docs/decisions/0025-elastic-memory.md), in the list of its tenant's page.
 *
 * A process of a tenant with HB_FEATURE_ELASTIC and HB_ELASTIC_ON takes a record when it first allocates granules on a GPU:
 * by compare-and-swap of `owner` from 0 to HB_ELASTIC_OWNER. Without a free record its further allocations there are ordinary
 * ones. The daemon clears the record when the process has left its slot, and then sets `owner` to 0.
 *
 * An order is published by `order`, its result by `result`. The daemon gives a process one order at a time and waits for the
 * result until expires_ns. A process that has not exchanged any memory by then gives up (HB_MOVE_LATE). The process executes
 * only its newest order, and only if order != result. It may execute a part; `moved_bytes` says how much.
 */
struct hb_page_elastic {
	hb_page_u64 owner; /* process: HB_ELASTIC_OWNER; daemon: 0 = the record is unused (release) */
	hb_page_u32
		gpu; /* process, after taking the record; index into hb_page.gpus plus 1, 0 = not written yet (release) */
	hb_page_u32 reserved0;
	/* The process writes here, after each change, how much memory it has. */
	hb_page_u64 local_bytes;   /* process; granules on this GPU */
	hb_page_u64 peer_bytes;    /* process; granules of this GPU on peers, all together */
	hb_page_u64 host_bytes;    /* process; granules of this GPU in memory of the host */
	hb_page_u64 movable_bytes; /* process; the part of local_bytes that can move */
	hb_page_u64
		spare_bytes; /* process; page-locked memory of the host that is ready for moves, without host_bytes */
	hb_page_u64 leaked_bytes;               /* process; no longer used, but the driver refused to take it back */
	hb_page_u64 stays_bytes[HB_PAGE_STAYS]; /* process; memory on this GPU that cannot move, by enum hb_page_stay */
	/* The daemon writes here how much the process may have. */
	hb_page_u64 host_limit_bytes; /* daemon; most memory of the host: host_bytes and spare_bytes together */
	/* The order. */
	hb_page_u64 order_peer_bytes; /* daemon; to the peer, or home from it */
	hb_page_u64 order_host_bytes; /* daemon; to the host, or home from it */
	unsigned char
		order_peer[16]; /* daemon; UUID of the last peer to which memory was ordered; 0 = there was none */
	hb_page_i64 order_expires_ns; /* daemon */
	hb_page_u32 order_direction;  /* daemon; enum hb_order_direction */
	hb_page_u32 order; /* daemon; raised by 1 (release) with each order, never 0 afterwards; 0 = there was none */
	/* The result. */
	hb_page_u64 moved_bytes; /* process */
	hb_page_u32 reason;      /* process; enum hb_move_result */
	hb_page_u32 result;      /* process; the value of `order` that it belongs to (release); then HB_NEWS_MOVED */
	/* process; the part of host_bytes that does not count against limit and lease: it was created there (HB_ELASTIC_OVER) */
	hb_page_u64 over_bytes;
	hb_page_u32 parked; /* process; enum hb_page_parked (release) */
	hb_page_u32 reserved1;
	hb_page_u64 reserved2[3];
};
#define HB_ELASTIC_OWNER(slot, generation) ((uint64_t)(generation) << 32 | ((slot) + 1u))

/* The page of a tenant. */
struct hb_page {
	uint64_t magic;              /* daemon; constant, as the next three fields */
	uint32_t version;            /* HB_PAGE_VERSION */
	uint32_t size_bytes;         /* sizeof(struct hb_page) */
	uint32_t tenant;             /* the daemon's number for this tenant: not 0, unique while the daemon runs */
	hb_page_u32 n_gpus;          /* daemon; entries of gpus[] in use (release); never shrinks */
	hb_page_u32 state;           /* daemon; enum hb_page_state (release) */
	hb_page_u32 daemon_pid;      /* daemon */
	hb_page_i64 heartbeat_ns;    /* daemon; written ten times a second while its event loop works */
	hb_page_u32 priority;        /* daemon; enum hb_page_priority: the granted priority, not the requested one */
	hb_page_u32 attainment_ppm;  /* daemon; share of requests that must meet slo_ns */
	hb_page_i64 slo_ns;          /* daemon; 0 = no SLO, -1 = the daemon learns one */
	hb_page_u32 slice_sequence;  /* daemon; raised (release) after a change of gpus[].slice_us[] */
	hb_page_u32 recording;       /* daemon; not 0: LP processes record their launches (page_trace.h) */
	hb_page_i64 daemon_since_ns; /* daemon; time at which the daemon started */
	hb_page_u32 features;        /* daemon; set of enum hb_page_feature: what this daemon can do */
	/* daemon; share of the GPU that LP tenants get in any case, all together; 0 = none */
	hb_page_u32 low_minimum_ppm;
	hb_page_u32
		elastic; /* daemon; set of enum hb_page_elastic_flag; does not change while the tenant has processes */
	/* daemon; raised after each order. All elastic processes of the tenant may sleep on this futex word (not private). */
	hb_page_u32 order_bell;
	struct hb_page_elastic elastic_gpus[HB_PAGE_ELASTIC];
	unsigned char reserved1[4096 - 88 - HB_PAGE_ELASTIC * 240];
	struct hb_page_gpu gpus[HB_PAGE_GPUS];
	struct hb_page_process processes[HB_PAGE_PROCESSES];
};

/* Kinds of news that a process reports to the daemon by its tenant's doorbell for a GPU. */
enum hb_gpu_news {
	HB_NEWS_WAITING = 1, /* a thread waits at a closed gate */
	HB_NEWS_ENDED = 2,   /* LP work behind a closed gate has ended */
	HB_NEWS_MOVED = 4,   /* a process has written the result of an order (struct hb_page_elastic) */
	HB_NEWS_WAKES = 8,   /* a parked process waits for its memory (struct hb_page_elastic) */
};

/*
 * The board of one HP process on one GPU, in the list of the GPU page. A board is
 * a memfd of one page, which begins with a struct hb_spatial_beacon
 * (decide/spatial.h). The HP process makes it, maps it, seals it against further
 * writable mappings and gives it to the daemon (message BOARD), so no other
 * process can write to it. The daemon lists the boards of HP tenants only. LP
 * processes fetch the descriptors (message FETCH_BOARD) and map them read-only.
 */
struct hb_page_board {
	hb_page_u32 number;     /* not 0, and not used again soon; 0 = this entry is unused (release) */
	hb_page_u32 tenant;     /* hb_page.tenant of the HP tenant */
	hb_page_u32 slot;       /* of the process on the page of its tenant */
	hb_page_u32 generation; /* of that slot */
};
#define HB_PAGE_BOARDS 64
#define HB_PAGE_BOARD_BYTES 4096 /* size of a board */

/* The page of one GPU. Only the daemon writes to it: it is sealed against writable mappings of others. */
struct hb_gpu_page {
	uint64_t magic;            /* daemon; constant, as the next three fields */
	uint32_t version;          /* HB_PAGE_VERSION */
	uint32_t size_bytes;       /* sizeof(struct hb_gpu_page) */
	unsigned char uuid[16];    /* UUID of the GPU; constant */
	hb_page_u32 engine;        /* daemon; enum hb_engine */
	hb_page_u32 tenants_high;  /* daemon; number of HP tenants */
	hb_page_u32 tenants_low;   /* daemon; number of LP tenants */
	hb_page_u32 high_at_work;  /* daemon; number of HP tenants that launched something in about the last second */
	hb_page_u64 total_bytes;   /* daemon; memory of the GPU, 0 = unknown */
	hb_page_u64 reserve_bytes; /* daemon; memory that LP must leave free for HP */
	_Alignas(64)
		hb_page_u64 low_used_bytes; /* daemon; memory of all LP tenants, as far as the daemon believes them */
	_Alignas(64) struct hb_page_board boards[HB_PAGE_BOARDS]; /* daemon; the HP processes that LP reads */
	hb_page_u32 window_us; /* daemon; spatial engine: most predicted LP time in flight while HP works */
	hb_page_u32 low_sms; /* daemon; SMs that LP may use while HP works; 0 = the spatial engine decides per launch */
	hb_page_u32 reserved0; /* the doorbell of page versions before there were features */
	hb_page_u32 listening; /* daemon; set of enum hb_gpu_news: what tenants report by hb_page_gpu.doorbell */
	/* How SM masks of LP launches leave SMs to HP: spread over the GPU, or by entire GPCs. */
	hb_page_u32 masks_whole;     /* daemon; 1 = by entire GPCs, 0 = spread */
	hb_page_u32 gpc_state;       /* daemon; row of nvidia/gpc_states.def (release, after gpc_of, then constant) */
	unsigned char gpc_of[128];   /* daemon; GPC of each mask bit, counted from 1; 0 = the bit stands for no TPC */
	hb_page_i64 daemon_since_ns; /* daemon; time at which the daemon started */
	_Alignas(64) hb_page_u32 boards_epoch; /* daemon; raised (release) after a change of boards[] */
	/* daemon; why processes may not try masks, row of nvidia/mask_states.def; 0 = they may. May change at any time. */
	hb_page_u32 masks_refused;
	hb_page_u32
		lent; /* daemon; 1 = LP memory of other GPUs is on this one: a tenant that finds no memory asks for it */
	unsigned char reserved[4096 - 1344 - 12];
};

_Static_assert(sizeof(hb_page_u32) == 4 && sizeof(hb_page_u64) == 8, "atomics are plain words");
_Static_assert(ATOMIC_INT_LOCK_FREE == 2 && ATOMIC_LLONG_LOCK_FREE == 2, "atomics work between processes");
_Static_assert(HB_N_COUNTS <= HB_PAGE_COUNTERS, "counters.def fits");
_Static_assert(sizeof(struct hb_page_requests) == HB_PAGE_REQUESTS_BYTES, "request ring");
_Static_assert(sizeof(struct hb_page_group) == 32, "group record");
_Static_assert(sizeof(struct hb_page_elastic) == 240, "record of elastic memory");
_Static_assert(HB_N_PAGE_STAYS <= HB_PAGE_STAYS, "stay_reasons.def fits");
_Static_assert(sizeof(struct hb_page_board) * HB_PAGE_BOARDS == 1024, "list of boards");
_Static_assert(sizeof(struct hb_page_process) == 4096, "process slot is one page");
_Static_assert(sizeof(struct hb_page_gpu) == 256, "GPU record");
_Static_assert(sizeof(struct hb_page) == 4096 + HB_PAGE_GPUS * 256 + HB_PAGE_PROCESSES * 4096, "tenant page");
_Static_assert(sizeof(struct hb_gpu_page) == 4096, "GPU page");

#endif
