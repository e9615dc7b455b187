/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Several processes on one simulated GPU: what they share, how one may die, how
 * the library is reached, which drivers it can pretend to be, and MPS. The test
 * runs itself again as the other process: `test_simcuda_processes MODE`.
 */
#include "sim_test.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)

extern char **environ;
static const char *self;

struct child {
	pid_t pid;
	int out; /* what it prints */
};

static struct child start(const char *mode, const char *variable, const char *value)
{
	int pipes[2];
	struct child child;
	posix_spawn_file_actions_t actions;
	char *arguments[] = {(char *)(uintptr_t)self, (char *)(uintptr_t)mode, NULL};
	assert_int_equal(pipe2(pipes, O_CLOEXEC), 0);
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, pipes[1], STDOUT_FILENO);
	if (variable)
		setenv(variable, value, 1);
	assert_int_equal(posix_spawn(&child.pid, self, &actions, NULL, arguments, environ), 0);
	if (variable)
		unsetenv(variable);
	posix_spawn_file_actions_destroy(&actions);
	close(pipes[1]);
	child.out = pipes[0];
	return child;
}

/* The next line the child prints; "" at its end. */
static const char *line_of(const struct child *child)
{
	static char line[256];
	size_t n = 0;
	while (n < sizeof line - 1 && read(child->out, &line[n], 1) == 1 && line[n] != '\n')
		n++;
	line[n] = '\0';
	return line;
}

static int end_of(struct child *child)
{
	int status;
	assert_int_equal(waitpid(child->pid, &status, 0), child->pid);
	close(child->out);
	return status;
}

static void expect_good(const char *mode, const char *variable, const char *value)
{
	struct child child = start(mode, variable, value);
	char said[256];
	snprintf(said, sizeof said, "%s", line_of(&child));
	int status = end_of(&child);
	if (status != 0)
		print_error("%s: %s\n", mode, said);
	assert_int_equal(status, 0);
}

static uint64_t free_memory(void)
{
	struct hb_sim_stats stats;
	CU(sim_test_table()->stats(0, &stats));
	return stats.memory_free;
}

/* --- the other process --------------------------------------------------------------------- */

#define CHILD_MUST(condition) \
	do { \
		if (!(condition)) { \
			printf("line %d: %s\n", __LINE__, #condition); \
			return 1; \
		} \
	} while (0)

static int say(const char *text)
{
	printf("%s\n", text);
	return fflush(stdout);
}

/* Takes a GiB, fills the GPU (or as many blocks as HOG_BLOCKS says) for as long as it is let, and says so. */
static int child_hog(void)
{
	CUcontext context;
	CUdeviceptr memory;
	CUmodule module;
	CUfunction work;
	uint64_t ns = 1000000000000;
	const char *given = getenv("HOG_BLOCKS");
	unsigned blocks = given ? (unsigned)atoi(given) : 1320;
	CHILD_MUST(cuInit(0) == CUDA_SUCCESS && cuCtxCreate_v2(&context, 0, 0) == CUDA_SUCCESS);
	CHILD_MUST(cuMemAlloc_v2(&memory, 1024 * MIB) == CUDA_SUCCESS);
	CHILD_MUST(cuModuleLoadData(&module, sim_test_image) == CUDA_SUCCESS);
	CHILD_MUST(cuModuleGetFunction(&work, module, "wait_us") == CUDA_SUCCESS);
	CHILD_MUST(cuLaunchKernel(work, blocks, 1, 1, 1024, 1, 1, 0, NULL, (void *[]){&ns}, NULL) == CUDA_SUCCESS);
	say("running");
	return cuCtxSynchronize() != CUDA_SUCCESS;
}

/* A hundred kernels, and what they should have done. */
static int child_work(void)
{
	CUcontext context;
	CUdeviceptr word;
	CUmodule module;
	CUfunction add;
	uint32_t value;
	CHILD_MUST(cuInit(0) == CUDA_SUCCESS && cuCtxCreate_v2(&context, 0, 0) == CUDA_SUCCESS);
	CHILD_MUST(cuModuleLoadData(&module, sim_test_image) == CUDA_SUCCESS);
	CHILD_MUST(cuModuleGetFunction(&add, module, "add_one") == CUDA_SUCCESS);
	CHILD_MUST(cuMemAlloc_v2(&word, 4) == CUDA_SUCCESS && cuMemsetD32_v2(word, 0, 1) == CUDA_SUCCESS);
	for (int i = 0; i < 100; i++)
		CHILD_MUST(cuLaunchKernel(add, 1, 1, 1, 1, 1, 1, 0, NULL, (void *[]){&word}, NULL) == CUDA_SUCCESS);
	CHILD_MUST(cuMemcpyDtoH_v2(&value, word, 4) == CUDA_SUCCESS);
	CHILD_MUST(value == 100);
	return 0;
}

/* An MPS client that waits on the GPU until it loses its context, and prints with which error. */
static int child_lose(void)
{
	char text[32];
	CUcontext context;
	CUmodule module;
	CUfunction work;
	uint64_t ns = 1000000000000;
	CHILD_MUST(cuInit(0) == CUDA_SUCCESS && cuCtxCreate_v2(&context, 0, 0) == CUDA_SUCCESS);
	CHILD_MUST(cuModuleLoadData(&module, sim_test_image) == CUDA_SUCCESS);
	CHILD_MUST(cuModuleGetFunction(&work, module, "wait_us") == CUDA_SUCCESS);
	CHILD_MUST(cuLaunchKernel(work, 1, 1, 1, 32, 1, 1, 0, NULL, (void *[]){&ns}, NULL) == CUDA_SUCCESS);
	say("running");
	CUresult error = cuCtxSynchronize();
	CHILD_MUST(cuCtxSynchronize() == error); /* for good */
	snprintf(text, sizeof text, "error %d", (int)error);
	return say(text);
}

static int child_dlopen(void)
{
	CUresult (*look_up)(const char *, void **, int, uint64_t, CUdriverProcAddressQueryResult *);
	CUresult (*init)(unsigned), (*count)(int *), (*version)(int *);
	int n = 0;
	void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	CHILD_MUST(library);
	*(void **)&look_up = dlsym(library, "cuGetProcAddress_v2");
	CHILD_MUST(look_up && look_up("cuInit", (void **)&init, 12000, 0, NULL) == CUDA_SUCCESS);
	CHILD_MUST(look_up("cuDeviceGetCount", (void **)&count, 12000, 0, NULL) == CUDA_SUCCESS);
	CHILD_MUST(look_up("cuDriverGetVersion", (void **)&version, 12000, 0, NULL) == CUDA_SUCCESS);
	CHILD_MUST(count(&n) == CUDA_ERROR_NOT_INITIALIZED);
	CHILD_MUST(init(0) == CUDA_SUCCESS && count(&n) == CUDA_SUCCESS && n == 1);
	return 0;
}

static int child_old_driver(void)
{
	CUdriverProcAddressQueryResult status;
	void *found;
	int version;
	CHILD_MUST(cuDriverGetVersion(&version) == CUDA_SUCCESS && version == 12020);
	CHILD_MUST(cuGetProcAddress_v2("cuCtxCreate", &found, 13000, 0, &status) == CUDA_SUCCESS &&
		   found == (void *)(uintptr_t)cuCtxCreate_v3);
	CHILD_MUST(cuGetProcAddress_v2("cuStreamGetDevice", &found, 13000, 0, &status) == CUDA_ERROR_NOT_FOUND &&
		   !found && status == CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
	return 0;
}

static int child_missing(void)
{
	void *found;
	CHILD_MUST(cuGetProcAddress_v2("cuMemAlloc", &found, 13000, 0, NULL) == CUDA_ERROR_NOT_FOUND);
	CHILD_MUST(cuGetProcAddress_v2("cuMemAllocPitch", &found, 13000, 0, NULL) == CUDA_SUCCESS);
	return 0;
}

static int child_failing(void)
{
	CUcontext context;
	CUdeviceptr memory[4];
	CHILD_MUST(cuInit(0) == CUDA_SUCCESS && cuCtxCreate_v2(&context, 0, 0) == CUDA_SUCCESS);
	CHILD_MUST(cuMemAlloc_v2(&memory[0], 64) == CUDA_SUCCESS && cuMemAlloc_v2(&memory[1], 64) == CUDA_SUCCESS);
	CHILD_MUST(cuMemAlloc_v2(&memory[2], 64) == CUDA_ERROR_OUT_OF_MEMORY);
	CHILD_MUST(cuMemAlloc_v2(&memory[3], 64) == CUDA_SUCCESS);
	return 0;
}

/* Ends in the third cuMemCreate, because HB_SIM_FAIL says so. */
static int child_killed(void)
{
	const CUmemAllocationProp place = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
					   .location = {CU_MEM_LOCATION_TYPE_HOST_NUMA, 0}};
	CUmemGenericAllocationHandle handle;
	CHILD_MUST(cuInit(0) == CUDA_SUCCESS);
	for (int i = 0; i < 3; i++) {
		CHILD_MUST(cuMemCreate(&handle, 2 * MIB, &place, 0) == CUDA_SUCCESS);
		puts("created");
		fflush(stdout);
	}
	return 0;
}

static int child_fork(void)
{
	CUcontext context;
	int status, n;
	CHILD_MUST(cuInit(0) == CUDA_SUCCESS && cuCtxCreate_v2(&context, 0, 0) == CUDA_SUCCESS);
	pid_t pid = fork();
	if (pid == 0)
		_exit(cuDeviceGetCount(&n) != CUDA_ERROR_NOT_INITIALIZED || cuInit(0) != CUDA_ERROR_NOT_INITIALIZED ||
		      cuCtxSynchronize() != CUDA_ERROR_NOT_INITIALIZED);
	CHILD_MUST(waitpid(pid, &status, 0) == pid && status == 0);
	CHILD_MUST(cuCtxSynchronize() == CUDA_SUCCESS && cuCtxDestroy_v2(context) == CUDA_SUCCESS);
	return 0;
}

/* The child of a process that has not initialised CUDA may do so. */
static int child_fork_first(void)
{
	int status;
	pid_t pid = fork();
	if (pid == 0)
		_exit(child_work());
	CHILD_MUST(waitpid(pid, &status, 0) == pid && status == 0);
	return child_work();
}

static int child_gpus(void)
{
	int n;
	CUuuid first, second;
	CUcontext context;
	CUdeviceptr memory;
	CHILD_MUST(cuInit(0) == CUDA_SUCCESS && cuDeviceGetCount(&n) == CUDA_SUCCESS && n == 2);
	CHILD_MUST(cuDeviceGetUuid_v2(&first, 0) == CUDA_SUCCESS && cuDeviceGetUuid_v2(&second, 1) == CUDA_SUCCESS);
	CHILD_MUST(memcmp(&first, &second, sizeof first) != 0);
	CHILD_MUST(second.bytes[15] == 1); /* CUDA_VISIBLE_DEVICES=2,1 */
	CHILD_MUST(cuCtxCreate_v2(&context, 0, 1) == CUDA_SUCCESS && cuMemAlloc_v2(&memory, MIB) == CUDA_SUCCESS);
	struct hb_sim_stats stats;
	CHILD_MUST(sim_test_table()->stats(1, &stats) == CUDA_SUCCESS && stats.memory_own > MIB);
	CHILD_MUST(sim_test_table()->stats(2, &stats) == CUDA_SUCCESS && stats.memory_own == 0);
	return 0;
}

/* --- tests ------------------------------------------------------------------------------------ */

static void a_killed_process_leaves_nothing_behind(void **state)
{
	uint64_t before = free_memory();
	struct child child = start("hog", NULL, NULL);
	(void)state;
	assert_string_equal(line_of(&child), "running");
	assert_true(before - free_memory() >= 1024 * MIB);
	kill(child.pid, SIGKILL);
	end_of(&child);
	/* The broker sees the end of its connection; requests are answered in order, so a few suffice. */
	uint64_t after = free_memory();
	for (int i = 0; i < 10000 && after != before; i++)
		after = free_memory();
	assert_int_equal(after, before);
	expect_good("work", NULL, NULL);
}

static void processes_run_beside_one_another(void **state)
{
	struct child hog = start("hog", NULL, NULL), children[6];
	(void)state;
	assert_string_equal(line_of(&hog), "running");
	for (int i = 0; i < 6; i++)
		children[i] = start("work", NULL, NULL);
	for (int i = 0; i < 6; i++)
		assert_int_equal(end_of(&children[i]), 0);
	kill(hog.pid, SIGKILL);
	end_of(&hog);
}

static void the_library_can_be_opened_at_run_time(void **state)
{
	(void)state;
	expect_good("dlopen", NULL, NULL);
}

static void it_pretends_to_be_older_or_broken(void **state)
{
	(void)state;
	expect_good("old_driver", "HB_SIM_DRIVER_VERSION", "12020");
	expect_good("missing", "HB_SIM_MISSING", "cuFoo,cuMemAlloc");
	expect_good("failing", "HB_SIM_FAIL", "cuMemAlloc_v2:2:after=2:times=1");
}

static void a_call_can_be_the_last_one(void **state)
{
	struct child child = start("killed", "HB_SIM_FAIL", "cuMemCreate:kill:after=2");
	(void)state;
	assert_string_equal(line_of(&child), "created");
	assert_string_equal(line_of(&child), "created");
	assert_string_equal(line_of(&child), "");
	assert_int_equal(WTERMSIG(end_of(&child)), SIGKILL);
}

static void a_forked_child_is_told_that_it_has_no_driver(void **state)
{
	(void)state;
	expect_good("fork", NULL, NULL);
	expect_good("fork_first", NULL, NULL);
}

static void other_gpus_are_other_devices(void **state)
{
	const char *usual = getenv("HB_SIM_GPU");
	char own[4096], folder[4096];
	(void)state;
	snprintf(own, sizeof own, "%s", usual);
	snprintf(folder, sizeof folder, "%s/three", usual);
	setenv("HB_SIM_GPU", folder, 1);
	setenv("HB_SIM_GPUS", "3", 1);
	expect_good("gpus", "CUDA_VISIBLE_DEVICES", "2,1,7");
	/* Also by UUID; a beginning that several GPUs have, or none, ends the list. */
	expect_good("gpus", "CUDA_VISIBLE_DEVICES",
		    "GPU-48425349-4d47-5055-4000-800000000002,GPU-48425349-4d47-5055-4000-800000000001,GPU-48425349,0");
	unsetenv("HB_SIM_GPUS");
	setenv("HB_SIM_GPU", own, 1);
	char command[8300];
	snprintf(command, sizeof command, "rm -r '%s'", folder);
	assert_int_equal(system(command), 0);
}

/* Output of the control program for one command. */
static const char *mps(const char *command)
{
	static char out[512];
	char line[8300];
	snprintf(line, sizeof line, "echo '%s' | '%s'", command, getenv("SIM_MPS_CONTROL"));
	FILE *pipe = popen(line, "r");
	assert_non_null(pipe);
	size_t n = fread(out, 1, sizeof out - 1, pipe);
	out[n] = '\0';
	pclose(pipe);
	return out;
}

static void mps_start(void)
{
	char line[8300];
	snprintf(line, sizeof line, "'%s' -d", getenv("SIM_MPS_CONTROL"));
	assert_int_equal(system(line), 0);
}

static void clients_share_the_server_s_context(void **state)
{
	struct hb_sim_stats before, after;
	char line[8300];
	(void)state;
	mps_start();
	snprintf(line, sizeof line, "'%s' -d 2>/dev/null", getenv("SIM_MPS_CONTROL"));
	assert_int_not_equal(system(line), 0); /* one is enough */
	assert_string_equal(mps("get_server_list"), "");
	assert_string_equal(mps("start_server -uid 0"), "");
	assert_true(atoi(mps("get_server_list")) > 1);
	struct child hog = start("hog", "HOG_BLOCKS", "32");
	assert_string_equal(line_of(&hog), "running");
	assert_int_equal(atoi(mps("get_client_list 1")), hog.pid);
	CU(sim_test_table()->stats(0, &before));
	expect_good("work", NULL, NULL); /* beside the hog, in the same context: the GPU need not be taken from it */
	CU(sim_test_table()->stats(0, &after));
	assert_int_equal(after.switches, before.switches);
	kill(hog.pid, SIGKILL); /* a client may die in mid-kernel */
	end_of(&hog);
	expect_good("work", NULL, NULL);
	mps("quit");
	assert_null(strstr(mps("get_server_list"), "1"));
	expect_good("work", NULL, NULL); /* without MPS */
}

static void expect_loss(struct child *child, CUresult error)
{
	char expected[32];
	snprintf(expected, sizeof expected, "error %d", (int)error);
	assert_string_equal(line_of(child), expected);
	assert_int_equal(end_of(child), 0);
}

static struct child start_running(const char *variable, const char *value)
{
	struct child child = start("lose", variable, value);
	assert_string_equal(line_of(&child), "running");
	return child;
}

static void an_illegal_access_ends_all_clients_of_the_server(void **state)
{
	(void)state;
	struct child outside = start("hog", "HOG_BLOCKS", "32");
	assert_string_equal(line_of(&outside), "running");
	mps_start();
	struct child other = start_running(NULL, NULL), culprit = start_running("HB_SIM_ILLEGAL", "1");
	expect_loss(&culprit, CUDA_ERROR_ILLEGAL_ADDRESS);
	expect_loss(&other, CUDA_ERROR_ILLEGAL_ADDRESS);
	assert_int_equal(waitpid(outside.pid, NULL, WNOHANG), 0); /* it still waits for its kernel */
	kill(outside.pid, SIGKILL);
	end_of(&outside);
	expect_good("work", NULL, NULL);
	mps("quit");
}

static void outside_mps_an_illegal_access_ends_its_own_process_only(void **state)
{
	(void)state;
	struct child other = start_running(NULL, NULL), culprit = start_running("HB_SIM_ILLEGAL", "1");
	expect_loss(&culprit, CUDA_ERROR_ILLEGAL_ADDRESS);
	assert_int_equal(waitpid(other.pid, NULL, WNOHANG), 0);
	kill(other.pid, SIGKILL);
	end_of(&other);
}

static void in_a_fragile_server_a_killed_client_ends_the_others(void **state)
{
	(void)state;
	setenv("HB_SIM_MPS_FRAGILE", "1", 1);
	mps_start();
	unsetenv("HB_SIM_MPS_FRAGILE");
	struct child other = start_running(NULL, NULL), victim = start_running(NULL, NULL);
	kill(victim.pid, SIGKILL);
	end_of(&victim);
	expect_loss(&other, CUDA_ERROR_ILLEGAL_ADDRESS);
	expect_good("work", NULL, NULL); /* whose end with finished work does no harm */
	mps("quit");
}

static void a_terminated_client_can_be_killed_without_harm(void **state)
{
	char command[64];
	(void)state;
	setenv("HB_SIM_MPS_FRAGILE", "1", 1);
	mps_start();
	unsetenv("HB_SIM_MPS_FRAGILE");
	struct child other = start_running(NULL, NULL), victim = start_running(NULL, NULL);
	snprintf(command, sizeof command, "terminate_client %d %d", atoi(mps("get_server_list")), (int)getpid());
	assert_non_null(strstr(mps(command), "Failed")); /* no client */
	snprintf(command, sizeof command, "terminate_client %d %d", atoi(mps("get_server_list")), (int)victim.pid);
	assert_string_equal(mps(command), "0\n");
	expect_loss(&victim, CUDA_ERROR_MPS_CLIENT_TERMINATED);
	assert_int_equal(waitpid(other.pid, NULL, WNOHANG), 0);
	expect_good("work", NULL, NULL);
	kill(other.pid, SIGKILL);
	end_of(&other);
	mps("quit");
}

static void clients_lose_their_contexts_with_the_server(void **state)
{
	(void)state;
	mps_start();
	struct child child = start("lose", NULL, NULL);
	assert_string_equal(line_of(&child), "running");
	pid_t server = atoi(mps("get_server_list"));
	assert_true(server > 1);
	kill(server, SIGKILL);
	expect_loss(&child, CUDA_ERROR_MPS_RPC_FAILURE);
	expect_good("work", NULL, NULL); /* in a new server */
	mps("quit");
}

static void mps_can_be_absent(void **state)
{
	char line[8300];
	(void)state;
	snprintf(line, sizeof line, "HB_SIM_NO_MPS=1 '%s' -d 2>/dev/null", getenv("SIM_MPS_CONTROL"));
	assert_int_not_equal(system(line), 0);
}

static const struct {
	const char *name;
	int (*run)(void);
} modes[] = {
	{"hog", child_hog},
	{"work", child_work},
	{"lose", child_lose},
	{"dlopen", child_dlopen},
	{"old_driver", child_old_driver},
	{"missing", child_missing},
	{"failing", child_failing},
	{"killed", child_killed},
	{"fork", child_fork},
	{"fork_first", child_fork_first},
	{"gpus", child_gpus},
};

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_killed_process_leaves_nothing_behind),
		cmocka_unit_test(processes_run_beside_one_another),
		cmocka_unit_test(the_library_can_be_opened_at_run_time),
		cmocka_unit_test(it_pretends_to_be_older_or_broken),
		cmocka_unit_test(a_call_can_be_the_last_one),
		cmocka_unit_test(a_forked_child_is_told_that_it_has_no_driver),
		cmocka_unit_test(other_gpus_are_other_devices),
		cmocka_unit_test(clients_share_the_server_s_context),
		cmocka_unit_test(clients_lose_their_contexts_with_the_server),
		cmocka_unit_test(an_illegal_access_ends_all_clients_of_the_server),
		cmocka_unit_test(outside_mps_an_illegal_access_ends_its_own_process_only),
		cmocka_unit_test(in_a_fragile_server_a_killed_client_ends_the_others),
		cmocka_unit_test(a_terminated_client_can_be_killed_without_harm),
		cmocka_unit_test(mps_can_be_absent),
	};
	self = argv[0];
	for (size_t i = 0; argc == 2 && i < sizeof modes / sizeof *modes; i++)
		if (strcmp(argv[1], modes[i].name) == 0)
			return modes[i].run();
	return cmocka_run_group_tests_name("simcuda_processes", tests, sim_test_begin, sim_test_end);
}
