/* SPDX-License-Identifier: Apache-2.0 */
/* Creates a CUDA context as a tenant and prints what the daemon reports about it; see doctor_inside.h. */
#include "cli/doctor_inside.h"

#include "base/json.h"
#include "cli/cli.h"
#include "cli/trial_calls.h"
#include "protocol/daemon_client.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *make_context(int *code)
{
	struct hb_trial_calls cuda;
	CUdeviceptr memory;
	void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	if (!library)
		return "load libcuda.so.1";
	const char *failed = hb_trial_begin(library, &cuda, code);
	if (failed)
		return failed;
	if ((*code = cuda.cuMemAlloc_v2(&memory, 1 << 20)))
		return "cuMemAlloc";
	*code = cuda.cuCtxSynchronize();
	return *code ? "cuCtxSynchronize" : NULL;
}

static json_t *find_own_tenant(json_t *status)
{
	json_t *tenant, *process;
	size_t i, j;
	json_array_foreach(json_object_get(status, "tenants"), i, tenant)
		json_array_foreach(json_object_get(tenant, "processes"), j,
				   process) if (json_integer_value(json_object_get(process, "pid")) ==
						getpid()) return json_incref(tenant);
	return NULL;
}

/* Returns the status entry of this process's tenant, or NULL with *error; *gpus gets the status of the GPUs. */
static json_t *ask_daemon(json_t **gpus, struct hb_error *error)
{
	const char *path = getenv("HB_SOCKET");
	char *text;
	json_t *status, *tenant = NULL;
	int socket = hb_client_open(path ? path : "", 10000, error);
	if (socket < 0)
		return NULL;
	if (hb_client_status(socket, &text, error) == 0) {
		if (hb_json_parse(text, strlen(text), "the daemon's answer", &status, error) == 0) {
			tenant = find_own_tenant(status);
			*gpus = json_incref(json_object_get(status, "gpus"));
			json_decref(status);
		}
		free(text);
	}
	close(socket);
	if (!tenant && !error->text[0])
		hb_error_set(error, -1, "the shim did not register; another libcuda.so.1 may be found before it");
	return tenant;
}

int hb_doctor_inside(void)
{
	struct hb_error error = {""};
	int code = 0;
	const char *failed = make_context(&code);
	json_t *gpus = NULL, *tenant = failed ? NULL : ask_daemon(&gpus, &error);
	if (failed && code)
		hb_error_set(&error, -1, "%s failed with CUDA error %d", failed, code);
	else if (failed)
		hb_error_set(&error, -1, "cannot find or %s", failed);
	json_t *answer = hb_json_pack(&error, "{s:s, s:o?, s:o?}", "error", error.text, "tenant", tenant, "gpus", gpus);
	int result = hb_json_write(answer, stdout, NULL);
	json_decref(answer);
	return result < 0 ? HB_EXIT_FAILURE : HB_EXIT_OK;
}
