/* SPDX-License-Identifier: Apache-2.0 */
/* Guards masks against unknown drivers; see mask_guard.h. */
#include "daemon/mask_guard.h"

#include "base/json.h"
#include "base/log.h"
#include "daemon/daemon.h"
#include "daemon/gpu_spatial.h"
#include "daemon/gpu_trial.h"
#include "gpu/provider.h"

#include <errno.h>
#include <string.h>

#define VERSION_SIZE 64

enum hb_mask_state hb_mask_guard_read(const char *output)
{
	const char *begin = strchr(output, '{');
	json_t *answer = NULL;
	struct hb_error error;
	if (begin)
		hb_json_parse(begin, strlen(begin), "the trial of masks", &answer, &error);
	const json_t *number = json_object_get(answer, "state");
	json_int_t state = json_is_integer(number) ? json_integer_value(number) : HB_MASK_TRIAL_DIED;
	json_decref(answer);
	return state > HB_MASK_UNTRIED && state < HB_N_MASK_STATES ? (enum hb_mask_state)state : HB_MASK_TRIAL_DIED;
}

/* Why tenants may not try masks now; UNTRIED = they may. */
static enum hb_mask_state find_refusal(const struct hb_daemon *daemon, char version[VERSION_SIZE])
{
	hb_provider_of(daemon->options.simulated)->driver_version(version, VERSION_SIZE);
	if (hb_mask_driver_is_known(version) || (*version && strcmp(daemon->config.trusted_driver, version) == 0) ||
	    daemon->mask_trial == HB_MASK_WORKS)
		return HB_MASK_UNTRIED;
	return daemon->mask_trial ? daemon->mask_trial : HB_MASK_PENDING;
}

static void trial_ended(struct hb_gpu *gpu, const char *output)
{
	struct hb_daemon *daemon = gpu->daemon;
	daemon->mask_trial = hb_mask_guard_read(output);
	if (daemon->mask_trial == HB_MASK_WORKS)
		hb_log_info("masks work with this driver, which is new to Hummingbird");
	else
		hb_log_warning("masks and the spatial engine are off, because the driver is new to Hummingbird and the "
			       "trial failed: %s",
			       hb_mask_state_text(daemon->mask_trial));
	for (uint32_t i = 0; i < daemon->n_gpus; i++)
		hb_gpu_configure_spatial(daemon->gpus[i]);
}

void hb_mask_guard_apply(struct hb_gpu *gpu)
{
	char version[VERSION_SIZE];
	enum hb_mask_state refused = find_refusal(gpu->daemon, version);
	gpu->page->masks_refused = (uint32_t)refused;
	/* A GPU that was busy can be tried again; other results do not change while the daemon runs. */
	bool again = refused == HB_MASK_PENDING || refused == HB_MASK_UNCLEAR;
	if (!again || gpu->engine != HB_ENGINE_SPATIAL || gpu->trial)
		return;
	hb_log_info("GPU %u: driver %s is new to Hummingbird; a process of its own tries masks", gpu->number, version);
	int result = hb_gpu_trial_start(gpu, "--masks", trial_ended);
	if (result < 0)
		hb_log_warning("GPU %u: the trial of masks cannot be started: %s", gpu->number, strerror(-result));
}

int hb_mask_guard_check(const struct hb_daemon *daemon, struct hb_error *error)
{
	char version[VERSION_SIZE];
	enum hb_mask_state refused = find_refusal(daemon, version);
	if (refused == HB_MASK_UNTRIED || refused == HB_MASK_PENDING)
		return 0;
	return hb_error_set(
		error, -EOPNOTSUPP,
		"the spatial engine is off: driver %s is new to Hummingbird, and its trial of SM masks failed: "
		"%s; `hb doctor` tries them again; `trusted_driver: %s` in hummingbird.yaml allows them",
		version, hb_mask_state_text(refused), version);
}
