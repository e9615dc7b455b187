/* SPDX-License-Identifier: Apache-2.0 */
/* Demands measured from run times on the GPU model (simserving/serving_demand.h) are those of the kernels. */
#include "simserving/serving_demand.h"

#include "unit.h"

#include <errno.h>

static struct hb_gpu_spec spec;

static int load_spec(void **state)
{
	struct hb_error error = {""};
	(void)state;
	return hb_gpu_spec_load("h200", &spec, &error);
}

/* Measures a batch of 20 kernels of 100 us each. */
static void measure(uint64_t blocks, double memory_share, double *sm, double *memory)
{
	struct hb_gpu_model_work works[20];
	for (int i = 0; i < 20; i++)
		works[i] = (struct hb_gpu_model_work){.kind = HB_GPU_MODEL_KERNEL,
						      .duration_ns = 100000,
						      .blocks = blocks,
						      .threads = 256,
						      .registers = 32,
						      .memory_share = memory_share};
	assert_int_equal(hb_serving_measure_demand(&spec, works, 20, sm, memory), 0);
}

static void sms_are_found_by_running_on_fewer(void **state)
{
	double sm, memory;
	(void)state;
	measure(1056, 0, &sm, &memory); /* all SMs, 8 blocks on each */
	assert_float_equal(sm, 1, 0.04);
	assert_float_equal(memory, 0, 0.02);
	/* A batch that fits into the eighth of the SMs is not slower there, and counts as an eighth. */
	measure(8, 0, &sm, &memory);
	assert_float_equal(sm, 0.125, 0.02);
}

static void bandwidth_is_found_beside_a_program_that_needs_it_all(void **state)
{
	double sm, memory;
	(void)state;
	for (int percent = 20; percent <= 80; percent += 20) {
		measure(64, percent / 100.0, &sm, &memory);
		assert_float_equal(memory, percent / 100.0, 0.02);
		measure(1056, percent / 100.0, &sm, &memory);
		assert_float_equal(memory, percent / 100.0, 0.02);
	}
}

static void a_batch_without_kernels_is_refused(void **state)
{
	double sm = 7, memory = 7;
	struct hb_gpu_model_work none = {.kind = HB_GPU_MODEL_KERNEL};
	(void)state;
	assert_int_equal(hb_serving_measure_demand(&spec, &none, 1, &sm, &memory), -EINVAL);
	assert_float_equal(sm, 7, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sms_are_found_by_running_on_fewer),
		cmocka_unit_test(bandwidth_is_found_beside_a_program_that_needs_it_all),
		cmocka_unit_test(a_batch_without_kernels_is_refused),
	};
	return cmocka_run_group_tests(tests, load_spec, NULL);
}
