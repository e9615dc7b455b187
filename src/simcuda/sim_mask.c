/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The callback before a launch descriptor is handed to the GPU, as the real driver
 * has it in a private table (nvidia/launch_mask.h). The subscriber sees a
 * descriptor in the Hopper layout; its TPC mask limits the launch's SMs.
 * HB_SIM_MASKS selects drivers on which masks do not work: none (no table),
 * version (another descriptor), silent (no callback), ignored (masks without
 * effect), crash (the driver crashes at a masked launch), loses (a masked launch
 * loses a block), sticks (a mask stays in force for later launches); or a GPU that other programs use: busy (each trial misses a quarter of
 * its SMs), taken (the first TAKEN trials miss one SM).
 */
#include "simcuda/sim_driver.h"

#include <stdlib.h>
#include <string.h>

enum { WORDS = 96, WORD_VERSION = 18, WORD_MASK = 76, TAKEN = 350, BLOCKS_COUNTED = 256 };
enum { DOMAIN_LAUNCH = 0xb, ID_BEFORE_UPLOAD = 1 };

typedef void callback(void *user, int domain, int id, const void *parameters);

static _Atomic(callback *) subscriber;
static void *_Atomic subscriber_user;
static atomic_bool enabled;

static bool is_mask_variant(const char *variant)
{
	const char *chosen = getenv("HB_SIM_MASKS");
	return chosen && strcmp(chosen, variant) == 0;
}

static int subscribe_callback(uint32_t *handle, callback *called, void *user)
{
	callback *nobody = NULL;
	if (!called || !atomic_compare_exchange_strong(&subscriber, &nobody, called))
		return CUDA_ERROR_NOT_PERMITTED;
	atomic_store(&subscriber_user, user);
	*handle = 1;
	return CUDA_SUCCESS;
}

static int enable_callback(uint32_t on, uint32_t handle, int domain, int id)
{
	if (handle != 1 || domain != DOMAIN_LAUNCH || id != ID_BEFORE_UPLOAD)
		return CUDA_ERROR_INVALID_VALUE;
	atomic_store(&enabled, on != 0);
	return CUDA_SUCCESS;
}

enum { TABLE_SLOTS = 7 };
static const void *const table[TABLE_SLOTS] = {(const void *)(TABLE_SLOTS * sizeof(void *)),
					       NULL,
					       NULL,
					       (const void *)subscribe_callback,
					       NULL,
					       NULL,
					       (const void *)enable_callback};

const void *sim_mask_table(const CUuuid *id)
{
	static const CUuuid known = {"\x2c\x8e\x0a\xd8\x07\x10\xab\x4e\x90\xdd\x54\x71\x9f\xe5\xf7\x4b"};
	return memcmp(id, &known, sizeof known) == 0 && !is_mask_variant("none") ? table : NULL;
}

void sim_mask_launch(struct sim_work *work, uint32_t mask[SIM_MASK_WORDS])
{
	callback *called = atomic_load(&subscriber);
	memset(mask, 0, SIM_MASK_WORDS * sizeof *mask);
	if (!called || !atomic_load(&enabled) || is_mask_variant("silent"))
		return;
	uint32_t descriptor[WORDS] = {[WORD_VERSION] = is_mask_variant("version") ? 0x50 : 0x40};
	struct {
		uint32_t bytes, zero;
		void *unused[3];
		uint32_t *descriptor;
	} parameters = {.bytes = sizeof parameters, .descriptor = descriptor};
	called(atomic_load(&subscriber_user), DOMAIN_LAUNCH, ID_BEFORE_UPLOAD, &parameters);
	static uint32_t stuck[WORDS];
	if (descriptor[0] >> 31 && is_mask_variant("crash"))
		abort();
	if (descriptor[0] >> 31 && is_mask_variant("sticks"))
		memcpy(stuck, descriptor, sizeof stuck);
	else if (stuck[0])
		memcpy(descriptor, stuck, sizeof stuck);
	if (!(descriptor[0] >> 31) || is_mask_variant("ignored"))
		return;
	bool whole;
	uint32_t left = sim_gpc_left(&descriptor[WORD_MASK], &whole);
	if (left >= (uint32_t)sim.info.spec.sm_count)
		return;
	memcpy(mask, &descriptor[WORD_MASK], SIM_MASK_WORDS * sizeof *mask);
	work->sm_limit = left;
	work->sm_spread = !whole;
}

/* Returns how many SMs other programs occupy during trial `n`. */
static bool is_missed(unsigned sm, unsigned n)
{
	return (is_mask_variant("busy") && (sm + n) % 4 == 0) || (is_mask_variant("taken") && n < TAKEN && sm == 0);
}

void sim_mask_mark(const struct hb_sim_launch *launch)
{
	static atomic_uint trials;
	unsigned trial = atomic_fetch_add(&trials, 1);
	uint64_t address;
	memcpy(&address, launch->args[0], sizeof address);
	uint32_t *marks = (uint32_t *)(uintptr_t)
		address; /* NOLINT(performance-no-int-to-ptr): GPU addresses are ours */
	for (unsigned sm = 0; sm < launch->sms; sm++)
		if (!is_missed(sm, trial))
			marks[sm] = 1;
	bool loses = launch->sms < (unsigned)sim.info.spec.sm_count && is_mask_variant("loses");
	marks[BLOCKS_COUNTED] += launch->grid[0] - loses;
}
