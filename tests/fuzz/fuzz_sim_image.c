/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: images of the simulated driver. Parameters of an accepted kernel are inside its parameter space. */
#include "fuzz.h"
#include "simcuda/sim_driver.h"

/* The images' host functions; the driver around the reader is not linked. */
void sim_mask_mark(const struct hb_sim_launch *launch)
{
}

void sim_gpc_meet(const struct hb_sim_launch *launch)
{
}

void sim_channel_hammer(const struct hb_sim_launch *launch)
{
}

static void check_kernel(const struct sim_kernel *kernel)
{
	uint32_t end = 0;
	FUZZ_REQUIRE(kernel->n_params <= SIM_PARAMS_MAX && kernel->params_size <= SIM_PARAMS_BYTES);
	for (uint32_t i = 0; i < kernel->n_params; i++) {
		FUZZ_REQUIRE(kernel->param_offset[i] >= end);
		end = kernel->param_offset[i] + kernel->param_bytes[i];
		FUZZ_REQUIRE(end <= kernel->params_size);
	}
	FUZZ_REQUIRE(kernel->ns_param < (int)kernel->n_params && kernel->ns >= 0);
	FUZZ_REQUIRE(kernel->max_threads >= 1 && kernel->max_threads <= 1024);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct sim_image *image = NULL;
	const char *found = NULL;
	char *text = fuzz_text(data, size);
	/* A wrapper's pointer could lead anywhere. */
	bool wrapped = strncmp(text, "\xb1\x43\x62\x46", 4) == 0;
	if (!wrapped && sim_image_text(text, &found) == CUDA_SUCCESS &&
	    sim_image_parse(found, &image) == CUDA_SUCCESS) {
		for (size_t i = 0; i < image->n_kernels; i++)
			check_kernel(&image->kernels[i]);
		sim_image_free(image);
	}
	free(text);
	return 0;
}
