/* SPDX-License-Identifier: Apache-2.0 */
/* See model_info.h. */
#include "server/models/model_info.h"

const char *const hb_model_info_extensions[] = {"binary_tensor_data",
						"model_configuration",
						"model_repository",
						"schedule_policy",
						"statistics",
						"system_shared_memory",
						NULL};

static const char *const platform_names[] = {
#define HB_PLATFORM(name, symbol, what) "hummingbird_" #name,
#include "server/models/platforms.def"
#undef HB_PLATFORM
};

const char *hb_model_info_platform(const struct hb_model_config *model)
{
	return platform_names[model->platform];
}

const char *hb_model_info_state(const struct hb_served_model *model)
{
	static const char *const names[] = {
		[HB_SERVED_MODEL_UNLOADED] = "UNAVAILABLE", [HB_SERVED_MODEL_LOADING] = "LOADING",
		[HB_SERVED_MODEL_READY] = "READY",          [HB_SERVED_MODEL_FAILED] = "UNAVAILABLE",
		[HB_SERVED_MODEL_UNLOADING] = "UNLOADING",  [HB_SERVED_MODEL_RESTARTING] = "UNAVAILABLE",
	};
	return names[model->state];
}

const char *hb_model_info_origin(enum hb_demand_origin origin)
{
	static const char *const names[] = {
		[HB_DEMAND_DEFAULT] = "default",
		[HB_DEMAND_WRITTEN] = "typed",
		[HB_DEMAND_FROM_TRIAL] = "measured",
		[HB_DEMAND_RECORDED] = "recorded",
	};
	return names[origin];
}
