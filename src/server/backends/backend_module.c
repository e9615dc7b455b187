/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `platform: trace`: loads hb-trace-backend.so (src/simserving/trace_backend.c)
 * with the first model that needs it. The module stays loaded until the server
 * ends. See backend_module.h.
 */
#include "server/backends/backend_module.h"

#include "base/install_path.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>

#define TRACE_MODULE "hb-trace-backend.so"

static const struct hb_backend_module *load_module(const char *model, struct hb_error *error)
{
	char path[PATH_MAX];
	int result = hb_install_module(TRACE_MODULE, path, sizeof(path));
	if (result < 0) {
		hb_error_set(error, result,
			     "model %s: platform trace: %s is not installed in the folder of this program", model,
			     TRACE_MODULE);
		return NULL;
	}
	void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
	const struct hb_backend_module *module = library ? dlsym(library, "hb_backend_module") : NULL;
	if (!module) {
		const char *why = dlerror();
		hb_error_set(error, -ELIBBAD, "model %s: platform trace: %s", model, why ? why : path);
		return NULL;
	}
	if (module->interface != HB_BACKEND_INTERFACE) {
		hb_error_set(error, -ELIBBAD, "model %s: platform trace: %s belongs to another version of hb-serve",
			     model, path);
		return NULL;
	}
	return module;
}

static int open_trace_module(const struct hb_model_config *config, struct hb_backend_shared *shared,
			     struct hb_backend *out, struct hb_error *error)
{
	if (!shared->trace_module)
		shared->trace_module = load_module(config->name, error);
	return shared->trace_module ? shared->trace_module->platform.open(config, shared, out, error) : -ENOENT;
}

const struct hb_platform hb_backend_trace = {.name = "trace", .open = open_trace_module};
