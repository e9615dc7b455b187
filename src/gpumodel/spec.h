/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A GPU as a data file (data/gpus/NAME.yaml, format: docs/gpu-files.md): every
 * constant of the model, its unit, and where it was measured. The
 * fields are one table (spec.def), so reader, writer and documentation agree.
 */
#ifndef HB_GPU_SPEC_H
#define HB_GPU_SPEC_H

#include "base/error.h"

#include <stdint.h>

struct hb_gpu_spec {
	char name[32];
#define HB_SPEC_FIELD(name, unit, min, max, what) double name;
#include "gpumodel/spec.def"
#undef HB_SPEC_FIELD
};

/*
 * `name` is a path (contains '/') or a name looked up in the data folder.
 * Returns 0, -ENOENT, -EINVAL (unknown key, missing key, value out of range: error
 * says file, line, key), -ENOMEM.
 */
int hb_gpu_spec_load(const char *name, struct hb_gpu_spec *spec, struct hb_error *error);

#endif
