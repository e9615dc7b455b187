/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A model's description: MODELS/NAME/model.yaml. Read when a model is loaded;
 * docs/serving-scheduler.md explains the keys for users. Errors name file, line and key.
 */
#ifndef HB_FRONT_MODEL_CONFIG_H
#define HB_FRONT_MODEL_CONFIG_H

#include "base/error.h"
#include "server/kserve/tensor.h"

#define HB_MODEL_NAME_MAX 64

enum hb_platform_number {
#define HB_PLATFORM(name, symbol, what) HB_PLATFORM_##name,
#include "server/models/platforms.def"
#undef HB_PLATFORM
	HB_PLATFORM_BY_GPU /* not named: the worker where there is a GPU, else the trace */
};

/* What happens to a request that will be late. */
enum hb_served_model_late { HB_LATE_REJECT, HB_LATE_DOWNGRADE };

struct hb_model_config {
	char name[HB_MODEL_NAME_MAX]; /* of the folder */
	char folder[1024];
	int platform;       /* enum hb_platform_number */
	char file[256];     /* onnxruntime: the model, in its folder */
	char library[512];  /* onnxruntime: where it is; "" = where the system finds it */
	char command[1024]; /* worker: run by the shell in the model's folder */
	char trace
		[HB_MODEL_NAME_MAX]; /* trace: a model of simserving/serving_models.def, or a workload in data/traces */
	int64_t max_batch;           /* 0 = requests have no batch dimension and are run one by one */
	int priority;                /* enum hb_scheduler_priority, of requests that name none */
	int64_t deadline_ns;         /* of requests that name none; 0 = none */
	int64_t run_ns;              /* how long one item takes, until that was measured */
	int64_t limit_ns;            /* worker: a batch that takes longer ends it */
	int64_t start_limit_ns;      /* worker: one that is not ready after so long is ended */
	uint64_t room_bytes;         /* worker: for a tensor whose size is open */
	uint64_t transfer_bytes[2];  /* of an item to the GPU and back, where that is told apart from the run */
	uint32_t n_transfer;
	int64_t delay_ns;                    /* echo: how long a batch takes */
	double sm_share[2], memory_share[2]; /* demand of a batch of 1 and of max_batch, alone */
	uint32_t n_sm_share, n_memory_share;
	double stop_share; /* worker: of a batch's run that goes on once it is held; 0 = it cannot be held */
	uint32_t n_inputs, n_outputs;
	struct hb_tensor_spec inputs[HB_TENSORS_MAX], outputs[HB_TENSORS_MAX];
};

/* Reads FOLDER/NAME/model.yaml. 0, -ENOENT, -EINVAL with *error; *config is written on success only. */
int hb_model_config_load(const char *folder, const char *name, struct hb_model_config *config, struct hb_error *error);
/* Settles a platform that was not named. */
void hb_model_config_settle(struct hb_model_config *config, bool gpu);
/* Whether a model may be called that: letters, digits, "._-", no leading dot. */
bool hb_served_model_name_fits(const char *name);
/* Bytes of one item of a tensor; open dimensions count as 1, elements of BYTES as 64. */
uint64_t hb_tensor_spec_bytes(const struct hb_tensor_spec *spec);

#endif
