/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The description of a served model: MODELS/NAME/model.yaml. It is read when the
 * model is loaded; docs/serving.md explains the keys. Errors name file, line and
 * key.
 */
#ifndef HB_SERVER_MODEL_CONFIG_H
#define HB_SERVER_MODEL_CONFIG_H

#include "base/error.h"
#include "server/kserve/tensor.h"

#define HB_MODEL_NAME_MAX 64

enum hb_platform_number {
#define HB_PLATFORM(name, symbol, what) HB_PLATFORM_##name,
#include "server/models/platforms.def"
#undef HB_PLATFORM
	HB_PLATFORM_BY_GPU /* not given: worker if there is a GPU, else trace; see hb_model_config_settle() */
};

struct hb_model_config {
	char name[HB_MODEL_NAME_MAX]; /* name of the folder */
	char folder[1024];
	int platform;                  /* enum hb_platform_number */
	char file[256];                /* onnxruntime: the model's file, in its folder */
	char library[512];             /* onnxruntime: path of ONNX Runtime's library; "" = the system's search path */
	char command[1024];            /* worker: a shell command, run in the model's folder */
	char trace[HB_MODEL_NAME_MAX]; /* trace: a row of simserving/serving_models.def or a program in data/traces */
	int64_t max_batch;             /* 0 = requests have no batch dimension and run one at a time */
	int priority;                  /* enum hb_scheduler_priority: default of requests */
	int64_t deadline_ns;           /* default of requests; 0 = none */
	int64_t run_ns;                /* run time of one item, used until it was measured */
	int64_t limit_ns;              /* worker: killed if a batch takes longer */
	int64_t start_limit_ns;        /* worker: killed if it is not ready after this time */
	uint64_t room_bytes;           /* worker: memory for each tensor of variable size */
	uint64_t transfer_bytes[2];    /* copied per item to the GPU and back; 0 = copies are not a separate stage */
	uint32_t n_transfer;
	int64_t delay_ns;                    /* echo: duration of a batch */
	double sm_share[2], memory_share[2]; /* demands of a batch of 1 and of max_batch items, alone */
	uint32_t n_sm_share, n_memory_share; /* 0 = not given */
	bool measure_demand;                 /* demands that are not given may be measured */
	double stop_share; /* worker: share of a run that still executes after a pause; 0 = cannot be paused */
	int64_t gpus[16];  /* GPUs of the server that the model may use; n_gpus 0 = all */
	uint32_t n_gpus;
	int64_t replicas; /* copies of the model, each on a GPU of its own; 0 = as many as GPUs */
	uint32_t n_inputs, n_outputs;
	struct hb_tensor_spec inputs[HB_TENSORS_MAX], outputs[HB_TENSORS_MAX];
};

/* Reads FOLDER/NAME/model.yaml. Returns 0, -ENOENT or -EINVAL with *error; *config is written on success only. */
int hb_model_config_load(const char *folder, const char *name, struct hb_model_config *config, struct hb_error *error);
/* Chooses the platform if it was not given. */
void hb_model_config_settle(struct hb_model_config *config, bool gpu);
/* Returns whether the name is valid for a model: letters, digits and "._-", without a leading dot. */
bool hb_served_model_name_fits(const char *name);
/* Returns the bytes of one item of a tensor. A dimension of any size counts as 1, an element of BYTES as 64 bytes. */
uint64_t hb_tensor_spec_bytes(const struct hb_tensor_spec *spec);

#endif
