/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The common launch takes no lock, allocates nothing and makes no system call. This
 * program's own malloc and pthread_mutex_lock count calls, and a seccomp filter kills
 * the child at the first system call. Each check has a negative control. Not built
 * with sanitizers, which have allocators of their own.
 */
#include "hummingbird/page_trace.h"
#include "nvidia/cuda_abi.h"
#include "page_host.h"
#include "unit/unit.h"

#include <dlfcn.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define PUBLIC __attribute__((visibility("default")))
#define STREAM ((CUstream)0x5000)
#define KERNEL ((CUfunction)0x6000)
#define LAUNCHES 1000

static atomic_uint counted;
static atomic_bool counting;

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *old, size_t size);
PUBLIC void *malloc(size_t size);
PUBLIC void *calloc(size_t n, size_t size);
PUBLIC void *realloc(void *old, size_t size);
PUBLIC int pthread_mutex_lock(pthread_mutex_t *mutex);

static void note(void)
{
	if (atomic_load(&counting))
		atomic_fetch_add(&counted, 1);
}

void *malloc(size_t size)
{
	note();
	return __libc_malloc(size);
}

void *calloc(size_t n, size_t size)
{
	note();
	return __libc_calloc(n, size);
}

void *realloc(void *old, size_t size)
{
	note();
	return __libc_realloc(old, size);
}

int pthread_mutex_lock(pthread_mutex_t *mutex)
{
	static int (*lock)(pthread_mutex_t *);
	note();
	if (!lock)
		lock = (int (*)(pthread_mutex_t *))dlsym(RTLD_NEXT, "pthread_mutex_lock");
	return lock(mutex);
}

/* From here on every system call except exit_group kills this process with SIGSYS. */
static bool forbid_system_calls(void)
{
	struct sock_filter rules[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit_group, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
	};
	struct sock_fprog program = {.len = sizeof(rules) / sizeof(rules[0]), .filter = rules};
	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

/* The calls of a common inference, looked up before the filter is active. */
struct calls {
	__typeof__(&cuLaunchKernel) kernel, kernel_ptsz;
	__typeof__(&cuLaunchKernelEx) kernel_ex;
	__typeof__(&cuGraphLaunch) graph;
	__typeof__(&cuMemcpyHtoDAsync_v2) copy;
	__typeof__(&cuMemsetD8Async) set;
};

static void make_calls(const struct calls *calls, int n)
{
	CUlaunchConfig config = {.hStream = STREAM};
	for (int i = 0; i < n; i++) {
		calls->kernel(KERNEL, 1, 1, 1, 1, 1, 1, 0, STREAM, NULL, NULL);
		calls->kernel_ptsz(KERNEL, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
		calls->kernel_ex(&config, KERNEL, NULL, NULL);
		calls->graph(NULL, STREAM);
		calls->copy(1, NULL, 100, STREAM);
		calls->set(1, 0, 100, STREAM);
	}
}

static struct calls prepare(void)
{
	CHECK(CU(cuInit)(0) == CUDA_SUCCESS);
	struct calls calls = {CU(cuLaunchKernel), CU(cuLaunchKernel_ptsz),  CU(cuLaunchKernelEx),
			      CU(cuGraphLaunch),  CU(cuMemcpyHtoDAsync_v2), CU(cuMemsetD8Async)};
	make_calls(&calls, 1); /* binds the slots */
	return calls;
}

static void launch_and_count(void)
{
	struct calls calls = prepare();
	atomic_store(&counting, true);
	make_calls(&calls, LAUNCHES);
	CHECK(atomic_load(&counted) == 0);
}

static void allocate_and_count(void)
{
	CUdeviceptr pointer;
	prepare();
	atomic_store(&counting, true);
	CU(cuMemAlloc_v2)(&pointer, 100); /* records the allocation in a table, under a lock */
	CHECK(atomic_load(&counted) > 0);
}

static void launch_without_system_calls(void)
{
	struct calls calls = prepare();
	CHECK(forbid_system_calls());
	make_calls(&calls, LAUNCHES);
}

static struct hb_trace_ring *ring;

/* Waits until the shim records launches and knows the kernel's name. */
static struct calls prepare_recorded(void)
{
	struct calls calls = prepare();
	while (atomic_load(&ring->claimed) < 4)
		make_calls(&calls, 1);
	return calls;
}

static void launch_recorded_and_count(void)
{
	struct calls calls = prepare_recorded();
	unsigned (*asked)(const char *) = (unsigned (*)(const char *))hb_test_fake_symbol("hb_fake_calls");
	atomic_store(&counting, true);
	make_calls(&calls, LAUNCHES);
	CHECK(atomic_load(&counted) == 0);
	CHECK(asked("cuFuncGetName") == 1); /* once per kernel, not once per launch */
}

static void launch_recorded_without_system_calls(void)
{
	struct calls calls = prepare_recorded();
	CHECK(forbid_system_calls());
	make_calls(&calls, LAUNCHES);
}

static void launch_and_make_a_system_call(void)
{
	prepare();
	CHECK(forbid_system_calls());
	syscall(SYS_getppid);
}

static struct hb_page_host host;

static int set_up(void **state)
{
	hb_page_host_init(&host);
	return 0;
}

static int tear_down(void **state)
{
	hb_page_host_fini(&host);
	return 0;
}

static void a_launch_takes_no_lock_and_allocates_nothing(void **state)
{
	pid_t child = hb_page_host_start(launch_and_count);
	struct hb_page_process *process = hb_page_host_serve(&host);
	assert_true(hb_page_host_ended_well(child));
	assert_int_equal(atomic_load(&process->counters[HB_COUNT_kernels]), 3 * (LAUNCHES + 1));
	child = hb_page_host_start(allocate_and_count);
	hb_page_host_serve(&host);
	assert_true(hb_page_host_ended_well(child));
}

static void a_launch_makes_no_system_call(void **state)
{
	pid_t child = hb_page_host_start(launch_without_system_calls);
	struct hb_page_process *process = hb_page_host_serve(&host);
	assert_true(hb_page_host_ended_well(child));
	assert_int_equal(atomic_load(&process->counters[HB_COUNT_graphs]), LAUNCHES + 1);
	child = hb_page_host_start(launch_and_make_a_system_call);
	hb_page_host_serve(&host);
	int status = 0;
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS);
}

/* Per round: 3 kernels, whose names this driver does not return, and a graph. */
static void expect_recorded(void (*scenario)(void))
{
	ring = mmap(NULL, sizeof *ring, PROT_READ | PROT_WRITE, MAP_SHARED, host.page_fd,
		    (off_t)(HB_TRACE_OFFSET + host.next_slot * sizeof *ring));
	assert_ptr_not_equal(ring, MAP_FAILED);
	atomic_store(&host.page->recording, 7);
	pid_t child = hb_page_host_start(scenario);
	hb_page_host_serve(&host);
	assert_true(hb_page_host_ended_well(child));
	assert_int_equal(ring->recording, 7);
	assert_true(ring->claimed >= 4 * LAUNCHES + 4);
	uint64_t last = ring->claimed - 1;
	assert_true(ring->launches[last % HB_TRACE_LAUNCHES].what == hb_trace_what(last, HB_TRACE_GRAPH, 0));
	last--;
	assert_true(ring->launches[last % HB_TRACE_LAUNCHES].what == hb_trace_what(last, HB_TRACE_OTHER, 0));
	munmap(ring, sizeof *ring);
}

static void neither_does_a_launch_that_the_daemon_records(void **state)
{
	expect_recorded(launch_recorded_and_count);
	expect_recorded(launch_recorded_without_system_calls);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_launch_takes_no_lock_and_allocates_nothing, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_launch_makes_no_system_call, set_up, tear_down),
		cmocka_unit_test_setup_teardown(neither_does_a_launch_that_the_daemon_records, set_up, tear_down),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
