/* SPDX-License-Identifier: Apache-2.0 */
/* The GPUs of `hb run --gpus N`; see run_place.h. */
#include "cli/run_place.h"

#include "base/uuid.h"
#include "gpu/provider.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VARIABLE "CUDA_VISIBLE_DEVICES"

struct gpu_list {
	uint32_t n;
	unsigned char uuids[HB_PLACE_GPUS_MAX][HB_UUID_BYTES];
};

/* The GPU whose UUID begins with these characters. -ENOENT: none, or several. */
static int find_named(const struct gpu_list *all, const char *name, size_t length)
{
	char text[HB_UUID_TEXT_SIZE];
	int found = -ENOENT;
	for (uint32_t i = 0; i < all->n; i++) {
		if (strncmp(hb_uuid_format(all->uuids[i], text), name, length) != 0)
			continue;
		if (found >= 0)
			return -ENOENT;
		found = (int)i;
	}
	return found;
}

/* Without CUDA_DEVICE_ORDER the order of the GPUs is known to CUDA only. */
static int find_numbered(const struct gpu_list *all, bool simulated, const char *name, size_t length,
			 struct hb_error *error)
{
	const char *order = getenv("CUDA_DEVICE_ORDER");
	unsigned long number = strtoul(name, NULL, 10);
	if (all->n > 1 && !simulated && !(order && strcmp(order, "PCI_BUS_ID") == 0))
		return hb_error_set(error, -EINVAL,
				    VARIABLE " names a GPU by the number %.*s, and without "
					     "CUDA_DEVICE_ORDER=PCI_BUS_ID only CUDA knows which GPU that is: set that "
					     "variable, name GPUs by UUID (nvidia-smi -L), or leave --gpus out",
				    (int)length, name);
	return number < all->n ? (int)number : -ENOENT;
}

/* Adds the GPU of one entry of CUDA_VISIBLE_DEVICES. */
static int allow_gpu(const struct gpu_list *all, bool simulated, const char *name, size_t length,
		     struct hb_place_options *wish, struct hb_error *error)
{
	bool is_number = length && strspn(name, "0123456789") >= length;
	bool is_uuid = length > strlen("GPU-") && strncmp(name, "GPU-", strlen("GPU-")) == 0;
	int gpu = is_number ? find_numbered(all, simulated, name, length, error)
		  : is_uuid ? find_named(all, name, length)
			    : -ENOENT;
	if (gpu == -ENOENT)
		return hb_error_set(error, -EINVAL,
				    VARIABLE ": '%.*s' is not one of the %u GPUs that the driver lists: correct the "
					     "variable, or leave --gpus out",
				    length < 60 ? (int)length : 60, name, all->n);
	if (gpu < 0)
		return gpu;
	for (uint32_t i = 0; i < wish->n_allowed; i++)
		if (memcmp(wish->allowed[i], all->uuids[gpu], HB_UUID_BYTES) == 0)
			return 0;
	memcpy(wish->allowed[wish->n_allowed++], all->uuids[gpu], HB_UUID_BYTES);
	return 0;
}

/* Reads the GPUs to which CUDA_VISIBLE_DEVICES restricts the command; without it, it may use all that it can see. */
static int read_allowed(bool simulated, struct hb_place_options *wish, struct hb_error *error)
{
	const char *visible = getenv(VARIABLE);
	struct gpu_list all;
	int result = 0, n = hb_provider_of(simulated)->gpu_list(all.uuids, HB_PLACE_GPUS_MAX);
	all.n = n > 0 ? (uint32_t)n : 0;
	if (!visible) {
		wish->n_allowed = all.n;
		memcpy(wish->allowed, all.uuids, all.n * sizeof all.uuids[0]);
		return 0;
	}
	if (!all.n)
		return hb_error_set(error, -ENOTSUP,
				    VARIABLE " is set, and the driver does not list GPUs that --gpus could compare it "
					     "with: unset one of them");
	if (!*visible)
		return hb_error_set(error, -EINVAL, VARIABLE " is empty, which hides all GPUs: unset it");
	while (result == 0 && *visible) {
		size_t length = strcspn(visible, ",");
		result = allow_gpu(&all, simulated, visible, length, wish, error);
		visible += length + (visible[length] == ',');
	}
	if (result == 0 && wish->n_allowed < wish->n_gpus)
		return hb_error_set(error, -EINVAL, "--gpus %u: " VARIABLE "=%.200s allows only %u", wish->n_gpus,
				    getenv(VARIABLE), wish->n_allowed);
	return result;
}

int hb_run_place(const struct hb_tenant_options *options, uint32_t n, int socket, struct hb_placed *placed,
		 struct hb_error *error)
{
	struct hb_place_options wish = {
		.priority = options->priority, .n_gpus = n, .memory_bytes = options->memory_bytes};
	memcpy(wish.token, options->token, sizeof wish.token);
	int result = read_allowed(options->flags & HB_REGISTER_SIMULATED, &wish, error);
	if (result < 0)
		return result;
	result = hb_client_place(socket, &wish, placed, error);
	if (result < 0) {
		char why[sizeof error->text];
		snprintf(why, sizeof why, "%s", error->text);
		hb_error_set(error, result, "--gpus %u: %.400s", n, why);
	}
	return result;
}

int hb_run_set_visible(const struct hb_placed *placed, struct hb_error *error)
{
	char list[HB_PAGE_GPUS * HB_UUID_TEXT_SIZE], *at = list;
	*at = '\0';
	for (uint32_t i = 0; i < placed->n_gpus; i++) {
		at += i ? sprintf(at, ",") : 0;
		at += strlen(hb_uuid_format(placed->uuids[i], at));
	}
	if (setenv(VARIABLE, list, 1) == 0)
		return 0;
	return hb_error_set(error, -errno, "cannot set " VARIABLE ": %s", strerror(errno));
}
