/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Device plugins for the kubelet, one for each resource: `hummingbird.dev/high` and `hummingbird.dev/low` by default. A
 * resource has the name of a device that `hb cdi generate` wrote. Each GPU offers a number of units of each resource; the
 * ID of a unit is the GPU's UUID and a number. Runs on the loop's thread.
 */
#ifndef HB_K8S_DEVICE_PLUGIN_H
#define HB_K8S_DEVICE_PLUGIN_H

#include "k8s/node_view.h"

#include <uv.h>

#define HB_K8S_DOMAIN "hummingbird.dev"
#define HB_K8S_UNITS_MAX 64     /* of one resource on one GPU */
#define HB_K8S_RESOURCE_NAME 64 /* bytes, with the NUL: Kubernetes allows 63 characters */

/* How a container gets the GPUs of its units. */
enum hb_gpu_grant {
	HB_GRANT_NONE,    /* not by hb-k8s */
	HB_GRANT_CDI,     /* CDI devices nvidia.com/gpu=UUID */
	HB_GRANT_VARIABLE /* NVIDIA_VISIBLE_DEVICES, for NVIDIA's container runtime */
};

struct hb_plugin_config {
	const char *kubelet_folder; /* of kubelet.sock and the plugins' sockets */
	const char *cdi_file;
	bool answers_mounts; /* mounts and variables, for kubelets without CDI */
	enum hb_gpu_grant grant;
};

struct hb_device_plugin;

/* `config` and `view` stay valid. The view's content may change; then call hb_device_plugin_check(). */
struct hb_device_plugin *hb_device_plugin_new(uv_loop_t *loop, const struct hb_plugin_config *config,
					      const struct hb_node_view *view, const char *name, uint32_t units);
/*
 * Opens the socket if it is missing, registers with the kubelet if that has started, and reports units whose health has
 * changed. Call it periodically.
 */
void hb_device_plugin_check(struct hb_device_plugin *plugin);
/* Ends the service; the kubelet then gives out no units. Run the loop until it is empty before hb_device_plugin_free(). */
void hb_device_plugin_close(struct hb_device_plugin *plugin);
void hb_device_plugin_free(struct hb_device_plugin *plugin);

#endif
