/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The driver for Dynamic Resource Allocation: the kubelet finds its registration socket, and asks it to prepare claims before
 * pods start and to unprepare them afterwards. The functions run on the loop's thread; claims are prepared on a thread that
 * waits for the API server and the disk, one request after the other.
 */
#ifndef HB_K8S_DRA_DRIVER_H
#define HB_K8S_DRA_DRIVER_H

#include "k8s/api_client.h"
#include "k8s/node_view.h"
#include "k8s/prepared_claims.h"

#include <uv.h>

#define HB_DRA_REQUESTS_MAX 256 /* of the kubelet that wait */

struct hb_dra_config {
	const char *node;
	struct hb_api_server server;
	const char *registry_folder; /* of the kubelet: plugins_registry */
	const char *plugin_folder;   /* of our socket */
};

struct hb_dra_driver;

/* `config`, `view` and `claims` stay valid. The view's content may change between calls of functions. */
struct hb_dra_driver *hb_dra_driver_new(uv_loop_t *loop, const struct hb_dra_config *config,
					const struct hb_node_view *view, struct hb_prepared_claims *claims);
/* Opens the sockets if they are missing. Call it periodically. */
void hb_dra_driver_check(struct hb_dra_driver *driver);
/* Ends the service. Run the loop until it is empty before hb_dra_driver_free(). */
void hb_dra_driver_close(struct hb_dra_driver *driver);
void hb_dra_driver_free(struct hb_dra_driver *driver);

#endif
