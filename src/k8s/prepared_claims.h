/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The claims that this node has prepared: a CDI file for each, which containers of the claim get, and a checkpoint of all, so
 * that a new hb-k8s knows them. At most HB_CLAIMS_MAX claims. One thread at a time; functions wait for the disk.
 *
 * The checkpoint: {"version": 1, "claims": {UID: {namespace, name, devices: [{device of claim_terms.h, cdi: [ID...]}]}}}.
 */
#ifndef HB_K8S_PREPARED_CLAIMS_H
#define HB_K8S_PREPARED_CLAIMS_H

#include "base/error.h"

#include <jansson.h>
#include <stdbool.h>

#define HB_CLAIMS_MAX 4096

struct hb_claims_config {
	const char *checkpoint; /* path of the file */
	const char *cdi_folder; /* of the claims' CDI files */
	bool grants_gpus;       /* the GPUs, too, as CDI devices nvidia.com/gpu=UUID */
};

struct hb_prepared_claims;

/* A claim as the kubelet names it. */
struct hb_claim_name {
	const char *space, *name, *uid;
};

/*
 * Reads the checkpoint and removes CDI files of claims that it does not have. 0, or a negative errno with *error: the file
 * exists, but cannot be read, or a newer version wrote it.
 */
int hb_prepared_claims_open(const struct hb_claims_config *config, struct hb_prepared_claims **out,
			    struct hb_error *error);
void hb_prepared_claims_free(struct hb_prepared_claims *claims);

/* Whether the UID can be part of a file's name. */
bool hb_claim_uid_is_valid(const char *uid);
/* Returns the devices of a prepared claim, a borrowed array; NULL: it is not prepared. */
json_t *hb_prepared_claims_devices(const struct hb_prepared_claims *claims, const char *uid);
/*
 * Prepares a claim with these devices (of hb_claim_terms_read()), or one that is prepared again, with NULL: its CDI file is
 * written if it is missing. `cdi` is the specification that `hb cdi generate` wrote. 0, or a negative errno with *error.
 */
int hb_prepared_claims_add(struct hb_prepared_claims *claims, const struct hb_claim_name *name, const json_t *devices,
			   const json_t *cdi, struct hb_error *error);
/* Forgets a claim and removes its CDI file. A claim that is not prepared is no error. */
int hb_prepared_claims_remove(struct hb_prepared_claims *claims, const char *uid, struct hb_error *error);
/* Writes the checkpoint if something has changed. Until that succeeds, nothing may be answered. */
int hb_prepared_claims_save(struct hb_prepared_claims *claims, struct hb_error *error);

#endif
