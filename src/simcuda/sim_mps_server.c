/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hb-sim-mps-server: owns the contexts that clients of the simulated MPS share.
 * The shim in its library path is loaded into it. As the real server, it calls the
 * driver behind the shim, so the shim sees no CUDA call in it, only ioctls. It makes
 * a context on the first GPU at its start, and on another GPU when the first client
 * wants one there, as the real server does. It sends their tokens to the control
 * daemon. Descriptor 3 is the connection to the daemon; the server
 * ends when it closes.
 */
#include "base/install_path.h"
#include "simcuda/mps_wire.h"
#include "simcuda/simcuda.h"

#include <dlfcn.h>
#include <signal.h>
#include <string.h>

#define CONTROL_FD 3
#define GPUS 16

static struct {
	CUresult (*init)(unsigned);
	CUresult (*get_export_table)(const void **, const CUuuid *);
	CUresult (*create)(CUcontext *, unsigned, CUdevice);
	CUresult (*set_current)(CUcontext);
	CUresult (*synchronize)(void);
} cuda;
static const struct hb_sim_table *table;
static CUcontext contexts[GPUS];

static int find_function(void *library, const char *name, void *function)
{
	void *found = dlsym(library, name);
	memcpy(function, &found, sizeof found);
	return found ? 0 : -ENOENT;
}

/* The driver behind the shim, or the same library if there is no shim. */
static int bind_driver(void)
{
	Dl_info driver;
	void *address, *library = NULL;
	memcpy(&address, &table->now_ns, sizeof address);
	if (dladdr(address, &driver) != 0)
		library = dlopen(driver.dli_fname, RTLD_NOW | RTLD_NOLOAD);
	if (!library || find_function(library, "cuInit", &cuda.init) < 0 ||
	    find_function(library, "cuCtxCreate_v2", &cuda.create) < 0 ||
	    find_function(library, "cuCtxSetCurrent", &cuda.set_current) < 0 ||
	    find_function(library, "cuCtxSynchronize", &cuda.synchronize) < 0)
		return -ENOENT;
	return 0;
}

static int bind_library(void *library)
{
	const CUuuid id = HB_SIM_TABLE_ID;
	const void *found = NULL;
	if (!library || find_function(library, "cuGetExportTable", &cuda.get_export_table) < 0)
		return -ENOENT;
	/* A real driver does not have this table; this server works only with the simulated one. */
	if (cuda.get_export_table(&found, &id) != CUDA_SUCCESS || !found)
		return -ENODEV;
	table = found;
	return bind_driver();
}

/* Loads the library that the library path finds (for example the shim), else the simulated driver of this build or installation. */
static int load_driver(void)
{
	char path[4096];
	void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
	if (bind_library(library) == 0)
		return 0;
	if (library)
		dlclose(library);
	int result = hb_install_simcuda_dir(path, sizeof path - 16);
	if (result < 0)
		return result;
	strcat(path, "/libcuda.so.1");
	library = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
	if (!library)
		fprintf(stderr, "%s\n", dlerror());
	return bind_library(library);
}

static int open_context(int gpu)
{
	CUresult result = contexts[gpu] ? CUDA_SUCCESS : cuda.create(&contexts[gpu], 0, gpu);
	if (result != CUDA_SUCCESS)
		fprintf(stderr, "no context on simulated GPU %d: CUDA error %d\n", gpu, (int)result);
	return result == CUDA_SUCCESS ? 0 : -EIO;
}

static int open_first_context(void)
{
	CUresult result = cuda.init(0);
	if (result == CUDA_SUCCESS)
		return open_context(0);
	fprintf(stderr, "no simulated GPU: CUDA error %d\n", (int)result);
	return -EIO;
}

/* A client may have a context on each GPU. */
static void end_client(int pid)
{
	int ended = 0;
	for (int gpu = 0; gpu < GPUS; gpu++)
		ended += contexts[gpu] && table->terminate_client(contexts[gpu], pid) == CUDA_SUCCESS;
	mps_send(CONTROL_FD, ended ? "ended" : "error");
}

static void answer_question(const char *question)
{
	char text[MPS_TEXT];
	uint64_t token;
	int gpu;
	if (sscanf(question, "terminate %d", &gpu) == 1) {
		end_client(gpu);
		return;
	}
	if (sscanf(question, "gpu %d", &gpu) != 1 || gpu < 0 || gpu >= GPUS || open_context(gpu) < 0 ||
	    cuda.set_current(contexts[gpu]) != CUDA_SUCCESS || cuda.synchronize() != CUDA_SUCCESS ||
	    table->context_token(contexts[gpu], &token) != CUDA_SUCCESS) {
		mps_send(CONTROL_FD, "error");
		return;
	}
	snprintf(text, sizeof text, "token %llu", (unsigned long long)token);
	mps_send(CONTROL_FD, text);
}

int main(void)
{
	char text[MPS_TEXT];
	signal(SIGPIPE, SIG_IGN);
	fcntl(CONTROL_FD, F_SETFD, FD_CLOEXEC);
	/* The server sees all GPUs; a client names its GPU by the number on the machine. */
	unsetenv("CUDA_VISIBLE_DEVICES");
	int result = load_driver();
	if (result == 0)
		result = open_first_context();
	if (result < 0) {
		mps_send(CONTROL_FD, "failed; see server.log");
		return 1;
	}
	mps_send(CONTROL_FD, "ready");
	while (mps_receive(CONTROL_FD, text) > 0)
		answer_question(text);
	return 0;
}
