/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzz target: the YAML files. The first byte chooses hummingbird.yaml, a served
 * model's model.yaml or the description of a GPU; the rest is the file. A file is
 * either accepted with all values in range, or refused with a message that names
 * it, and then nothing is changed.
 */
#include "daemon/daemon_config.h"
#include "fuzz.h"
#include "gpumodel/spec.h"
#include "server/models/model_config.h"

#include <sys/stat.h>
#include <unistd.h>

static char folder[64], model_folder[80], model_path[96], gpu_path[96];

static void remove_files(void)
{
	unlink(model_path);
	unlink(gpu_path);
	rmdir(model_folder);
	rmdir(folder);
}

static void make_folders(void)
{
	snprintf(folder, sizeof folder, "/tmp/hb-fuzz-yaml-%d", (int)getpid());
	snprintf(model_folder, sizeof model_folder, "%s/m", folder);
	snprintf(model_path, sizeof model_path, "%s/model.yaml", model_folder);
	snprintf(gpu_path, sizeof gpu_path, "%s/gpu.yaml", folder);
	FUZZ_REQUIRE(mkdir(folder, 0700) == 0 && mkdir(model_folder, 0700) == 0);
	atexit(remove_files);
}

static void write_file(const char *path, const uint8_t *data, size_t size)
{
	FILE *file = fopen(path, "wb");
	FUZZ_REQUIRE(file && fwrite(data, 1, size, file) == size && fclose(file) == 0);
}

static void check_message(const struct hb_error *error, const char *file)
{
	FUZZ_REQUIRE(strncmp(error->text, file, strlen(file)) == 0 && strlen(error->text) < sizeof error->text);
}

static void read_daemon(const uint8_t *data, size_t size)
{
	struct hb_daemon_config config, before;
	struct hb_error error = {""};
	char *text = fuzz_text(data, size);
	memset(&config, 0, sizeof config);
	hb_daemon_config_init(&config);
	memcpy(&before, &config, sizeof config);
	if (hb_daemon_config_parse(text, "file", &config, &error) == 0) {
		FUZZ_REQUIRE(config.quantum_ns >= 1000000 && config.quantum_ns <= INT64_C(10000000000));
		FUZZ_REQUIRE(config.n_rules <= sizeof config.rules / sizeof *config.rules && config.idle_exit_ns >= 0);
		FUZZ_REQUIRE(strnlen(config.metrics, sizeof config.metrics) < sizeof config.metrics);
	} else {
		check_message(&error, "file");
		const void *now = &config, *then = &before; /* every byte, also those between members */
		FUZZ_REQUIRE(memcmp(now, then, sizeof config) == 0);
	}
	free(text);
}

static void read_model(const uint8_t *data, size_t size)
{
	struct hb_model_config config = {.name = "before"};
	struct hb_error error = {""};
	write_file(model_path, data, size);
	if (hb_model_config_load(folder, "m", &config, &error) == 0) {
		FUZZ_REQUIRE(config.n_inputs <= HB_TENSORS_MAX && config.n_outputs <= HB_TENSORS_MAX);
		for (uint32_t i = 0; i < config.n_inputs; i++)
			FUZZ_REQUIRE(config.inputs[i].n_dims <= HB_TENSOR_DIMS_MAX);
		FUZZ_REQUIRE(config.max_batch >= 0 && config.deadline_ns >= 0 && strcmp(config.name, "m") == 0);
	} else {
		FUZZ_REQUIRE(error.text[0] && strcmp(config.name, "before") == 0);
	}
}

static void read_gpu(const uint8_t *data, size_t size)
{
	struct hb_gpu_spec spec = {.name = "before"};
	struct hb_error error = {""};
	write_file(gpu_path, data, size);
	if (hb_gpu_spec_load(gpu_path, &spec, &error) == 0) {
#define HB_SPEC_FIELD(name, unit, min, max, what) FUZZ_REQUIRE(spec.name >= (min) && spec.name <= (max));
#include "gpumodel/spec.def"
#undef HB_SPEC_FIELD
	} else {
		check_message(&error, gpu_path);
		FUZZ_REQUIRE(strcmp(spec.name, "before") == 0);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (!folder[0])
		make_folders();
	if (size == 0)
		return 0;
	if (data[0] == 'd')
		read_daemon(data + 1, size - 1);
	else if (data[0] == 'm')
		read_model(data + 1, size - 1);
	else
		read_gpu(data + 1, size - 1);
	return 0;
}
