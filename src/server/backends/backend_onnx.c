/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ONNX Runtime back end: the worker back end (backend_worker.c) with the
 * program hb-onnx-worker (onnx_worker.c). This file makes its command line.
 */
#include "base/install_path.h"
#include "server/backends/backend.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static int open_onnx(const struct hb_model_config *config, struct hb_backend_shared *shared, struct hb_backend *out,
		     struct hb_error *error)
{
	char program[4096];
	struct hb_model_config called = *config;
	const char *library = config->library;
	if (hb_install_program("hb-onnx-worker", program, sizeof(program)) < 0)
		return hb_error_set(error, -ENOENT, "model %s: hb-onnx-worker is not installed", config->name);
	if (strpbrk(program, "'") || strpbrk(config->file, "'") || strpbrk(library, "'"))
		return hb_error_set(error, -EINVAL, "model %s: a path contains a quote (')", config->name);
	if ((size_t)snprintf(called.command, sizeof(called.command), "'%s' '%s' '%s'", program, config->file,
			     library) >= sizeof(called.command))
		return hb_error_set(error, -ENAMETOOLONG, "model %s: its paths are too long", config->name);
	return hb_backend_worker.open(&called, shared, out, error);
}

const struct hb_platform hb_backend_onnx = {.name = "onnxruntime", .open = open_onnx};
